"""`channel-bridge chat`: a conversation with the agent in the terminal, streamed as it comes."""

from __future__ import annotations

import asyncio
import signal
import sys
import uuid
from pathlib import Path

from channels.clock import SystemClock
from channels.commands import CommandName, parse_command
from channels.gateway import Gateway
from channels.inputs import Ask, Resume
from channels.model import Phase, RunId, Sender, StepState, ThreadId, View, new_turn_id
from channels.questions import Interrupt, next_input
from channels.runs import RunEnd, RunRequest
from channels.transcript import Transcript
from config.settings import GatewaySettings

_PERSON = Sender("terminal", "You")
_HELP = "/new begins a new conversation, /quit ends the program, Ctrl+C stops an answer."


async def converse(settings: GatewaySettings) -> None:
    """Talk until the person has had enough. Answers go to standard output, everything else to standard error."""
    embedded = None
    url = settings.url
    if url is None:
        from adapters.embedded import EmbeddedGateway

        embedded = EmbeddedGateway(Path(settings.data), settings.graph, assistant_id=settings.assistant_id)
        url = await embedded.start()
    gateway = Gateway(
        url,
        api_key=settings.api_key.get_secret_value() if settings.api_key else None,
        headers={name: value.get_secret_value() for name, value in settings.headers.items()},
        dialect=settings.dialect.value,
        clock=SystemClock(),
    )
    try:
        health = await gateway.check(settings.assistant_id)
        if not health.ok:
            _say(f"The gateway cannot be used: {health.reason}")
            return
        _say(_HELP)
        await _Conversation(gateway, settings.assistant_id).run()
    finally:
        await gateway.aclose()
        if embedded is not None:
            await embedded.stop()


class _Conversation:
    def __init__(self, gateway: Gateway, assistant_id: str) -> None:
        self._gateway = gateway
        self._assistant_id = assistant_id
        self._thread = _new_thread()

    async def run(self) -> None:
        open_questions: tuple[Interrupt, ...] = ()
        while (text := await _read_line()) is not None:
            command = parse_command(text)
            if text.strip() in ("/quit", "/exit"):
                return
            if not text.strip():
                continue
            if command is not None:
                if command.name is CommandName.NEW:
                    self._thread, open_questions = _new_thread(), ()
                    _say("A new conversation begins.")
                else:
                    _say(_HELP)
                continue
            question: Ask | Resume = Ask(text, _PERSON)
            if open_questions:
                question = await self._answers(open_questions, text)
            open_questions = (await self._ask(question)).interrupts

    async def _answers(self, interrupts: tuple[Interrupt, ...], first: str) -> Ask | Resume:
        answers = [interrupts[0].answer(first)]
        for interrupt in interrupts[1:]:
            _show_question(interrupt)
            answers.append(interrupt.answer(await _read_line() or ""))
        return next_input(interrupts, answers, sender=_PERSON)

    async def _ask(self, question: Ask | Resume) -> RunEnd:
        transcript = Transcript()
        clock = SystemClock()
        printer = _Printer()
        request = RunRequest(turn=new_turn_id(), thread=self._thread, input=question, assistant_id=self._assistant_id)
        await self._gateway.prepare_thread(self._thread, {})

        async def started(_: RunId) -> None:
            """The run is known; nothing to store here."""

        execution = asyncio.ensure_future(
            self._gateway.execute(
                request,
                transcript,
                run=None,
                maybe_requested=False,
                started=started,
                changed=lambda: printer.show(transcript.view(clock.now())),
            )
        )
        loop = asyncio.get_running_loop()
        stopping: set[asyncio.Task[bool]] = set()
        try:
            loop.add_signal_handler(
                signal.SIGINT, lambda: stopping.add(asyncio.create_task(self._gateway.stop(request.turn)))
            )
            end = await execution
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        await asyncio.gather(*stopping)
        printer.show(end.view)
        printer.close(end.view)
        for interrupt in end.interrupts[:1]:
            _show_question(interrupt)
        return end


class _Printer:
    """Prints what a view has more than what is printed already."""

    def __init__(self) -> None:
        self._printed = ""
        self._steps: set[tuple[str, StepState]] = set()

    def show(self, view: View) -> None:
        for step in view.steps:
            if step.state in (StepState.DONE, StepState.FAILED) and (step.id, step.state) not in self._steps:
                self._steps.add((step.id, step.state))
                _say(f"  [{'done' if step.state is StepState.DONE else 'failed'}] {step.title} {step.detail}".rstrip())
        text = view.text
        if text.startswith(self._printed):
            sys.stdout.write(text[len(self._printed) :])
        else:
            sys.stdout.write(f"\n{text}")  # the agent has corrected itself
        self._printed = text
        sys.stdout.flush()

    def close(self, view: View) -> None:
        sys.stdout.write("\n")
        sys.stdout.flush()
        if view.phase is Phase.FAILED or view.notice:
            _say(view.notice or "It failed.")


def _show_question(interrupt: Interrupt) -> None:
    question = interrupt.question
    _say(question.text)
    for number, option in enumerate(question.options, start=1):
        _say(f"  {number}. {option.label}")


async def _read_line() -> str | None:
    """The next line the person types; None at the end of input."""
    if sys.stdin.isatty():
        sys.stderr.write("> ")
        sys.stderr.flush()
    line = await asyncio.to_thread(sys.stdin.readline)
    return line.rstrip("\n") if line else None


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _new_thread() -> ThreadId:
    return ThreadId(str(uuid.uuid4()))
