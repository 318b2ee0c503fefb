"""`channel-bridge chat`: a conversation with the agent in the terminal, streamed as it comes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from pathlib import Path

from pydantic import JsonValue

from channels.clock import SystemClock
from channels.commands import CommandName, parse_command
from channels.gateway import Gateway
from channels.gateway.runs import RunEnd, RunRequest
from channels.inputs import Ask, Break, Resume
from channels.model import Phase, RunId, Sender, StepState, ThreadId, TurnId, View, new_turn_id
from channels.questions import LEFT_NOTICE, Interrupt, next_input
from channels.transcript import Transcript
from config.settings import GatewaySettings

_PERSON = Sender("terminal", "You")
_HELP = "/new starts over, /retry asks again, /quit ends. Ctrl+C stops an answer."
_READ = 65_536  # bytes


async def converse(settings: GatewaySettings) -> bool:
    """Talk until the person has had enough. Answers go to standard output, everything else to standard error.

    False, after saying why, when the gateway cannot be used. Raises `adapters.embedded.EmbeddedGatewayError`.
    """
    embedded = None
    url = settings.url
    if url is None:
        from adapters.embedded import EmbeddedGateway

        embedded = EmbeddedGateway(Path(settings.data), settings.graph, assistant_id=settings.assistant_id)
        try:
            url = await embedded.start()
        except OSError as error:
            _say(f"cannot use the folder {settings.data}: {error.strerror}")
            return False
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
            return False
        _say(_HELP)
        await _Conversation(gateway, settings.assistant_id).run()
        return True
    finally:
        await gateway.aclose()
        if embedded is not None:
            await embedded.stop()


class _Conversation:
    def __init__(self, gateway: Gateway, assistant_id: str) -> None:
        self._gateway = gateway
        self._assistant_id = assistant_id
        self._thread = _new_thread()
        self._lines = _Lines()
        self._answering: TurnId | None = None
        self._asked: TurnId | None = None
        self._stopping: list[asyncio.Task[bool]] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        try:
            await self._talk()
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _interrupted(self) -> None:
        """Ctrl+C: stops the answer that is being written; while nothing is, it ends the program."""
        if self._answering is None:
            self._lines.end()
        else:
            self._stopping.append(asyncio.create_task(self._gateway.stop(self._answering)))

    async def _talk(self) -> None:
        last = ""
        open_questions: tuple[Interrupt, ...] = ()
        after: Break | None = None
        while (text := await self._lines.next()) is not None:
            text = text.strip()
            command = parse_command(text)
            if not text:
                continue
            if text in ("/quit", "/exit"):
                return
            if command is not None and command.name is CommandName.NEW:
                self._thread, open_questions, after = _new_thread(), (), None
                _say("A new conversation begins.")
                if not command.argument:
                    continue
                text, command = command.argument, None
            if command is not None and command.name is CommandName.RETRY and last:
                after = after or (Break() if open_questions else None)
                open_questions = ()
                text = last
            elif command is not None:
                _say(_HELP)
                continue
            question: Ask | Resume = Ask(text, _PERSON, after=after)
            if open_questions:
                answers = await self._answers(open_questions, text)
                if answers is None:
                    return
                goes_on = next_input(open_questions, answers, sender=_PERSON)
                if goes_on is None:
                    open_questions, after = (), Break()
                    _say(LEFT_NOTICE)
                    continue
                question = goes_on
            else:
                last = text
            end = await self._ask(question)
            open_questions, after = end.interrupts, None
            if end.leaves_a_break:
                after = Break(self._asked, end.view.text, failed=end.view.phase is Phase.FAILED)

    async def _answers(self, interrupts: tuple[Interrupt, ...], first: str) -> list[JsonValue] | None:
        """An answer to each question, `first` being what was said to the first; None: the input has ended."""
        said: str | None = first
        answers: list[JsonValue] = []
        for interrupt in interrupts:
            if answers:
                _show_question(interrupt)
                said = await self._lines.next()
            while said is not None and (refusal := interrupt.refusal(said)):
                _say(refusal)
                said = await self._lines.next()
            if said is None:
                return None
            answers.append(interrupt.answer(said))
        return answers

    async def _ask(self, question: Ask | Resume) -> RunEnd:
        transcript = Transcript()
        clock = SystemClock()
        printer = _Printer()
        request = RunRequest(turn=new_turn_id(), thread=self._thread, input=question, assistant_id=self._assistant_id)
        await self._gateway.prepare_thread(self._thread, {})

        async def started(_: RunId) -> None:
            """Nothing is kept: a conversation at a terminal ends with it."""

        self._answering = self._asked = request.turn
        try:
            end = await self._gateway.execute(
                request,
                transcript,
                run=None,
                maybe_requested=False,
                started=started,
                changed=lambda: printer.show(transcript.view(clock.now())),
            )
        finally:
            self._answering = None
        await asyncio.gather(*self._stopping)
        self._stopping.clear()
        printer.show(end.view)
        printer.close(end.view)
        for interrupt in end.interrupts[:1]:
            _show_question(interrupt)
        return end


class _Printer:
    """Prints what a view has more than what is printed already."""

    def __init__(self) -> None:
        self._printed = ""
        self._notice = ""
        self._steps: set[tuple[str, StepState]] = set()
        self._is_one_screen = sys.stdout.isatty() and sys.stderr.isatty()
        self._at_line_start = True
        self._is_after_note = False  # then the line break that parts two paragraphs is there already

    def show(self, view: View) -> None:
        for step in view.steps:
            if step.state in (StepState.DONE, StepState.FAILED) and (step.id, step.state) not in self._steps:
                self._steps.add((step.id, step.state))
                self._note(f"  [{'done' if step.state is StepState.DONE else 'failed'}] {step.title} {step.detail}")
        if view.notice not in ("", self._notice) and not view.is_final:
            self._note(f"  {view.notice}")
        self._notice = view.notice
        text = view.text
        if text.startswith(self._printed):
            more = text[len(self._printed) :]
            self._write(more.removeprefix("\n") if self._is_after_note else more)
        else:
            self._write(f"\n{text}")  # the agent has corrected itself
        self._printed = text

    def close(self, view: View) -> None:
        self._write("\n")
        if view.phase is Phase.FAILED or view.notice:
            _say(view.notice or "It failed.")

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._at_line_start = text.endswith("\n")
            self._is_after_note = False

    def _note(self, text: str) -> None:
        """A line beside the answer. On a screen that shows both it must not run into the answer's last line."""
        if self._is_one_screen and not self._at_line_start:
            self._write("\n")
        _say(text.rstrip())
        self._is_after_note = self._is_one_screen


class _Lines:
    """Lines from standard input. Waiting for one can be ended, which a thread that reads could not be."""

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno()
        self._is_terminal = sys.stdin.isatty()
        self._held = b""
        self._is_over = False
        self._woken = asyncio.Event()

    async def next(self) -> str | None:
        """The next line the person types; None when there is none any more."""
        if self._is_terminal:
            sys.stderr.write("> ")
            sys.stderr.flush()
        while b"\n" not in self._held and not self._is_over:
            await self._until_readable()
            if not self._is_over:
                data = os.read(self._descriptor, _READ)
                self._held += data
                self._is_over = not data
        line, _, self._held = self._held.partition(b"\n")
        if self._is_over and not line:
            if self._is_terminal:
                _say("")
            return None
        return line.decode(errors="replace")

    def end(self) -> None:
        """There will be no further line."""
        self._is_over = True
        self._held = b""
        self._woken.set()

    async def _until_readable(self) -> None:
        loop = asyncio.get_running_loop()
        self._woken.clear()
        try:
            loop.add_reader(self._descriptor, self._woken.set)
        except PermissionError:  # a file; it never makes anybody wait
            return
        try:
            await self._woken.wait()
        finally:
            loop.remove_reader(self._descriptor)


def _show_question(interrupt: Interrupt) -> None:
    question = interrupt.question
    _say(question.text)
    for number, option in enumerate(question.options, start=1):
        _say(f"  {number}. {option.label}")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _new_thread() -> ThreadId:
    return ThreadId(str(uuid.uuid4()))
