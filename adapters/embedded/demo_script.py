"""What the scripted model says: a pure function of the conversation."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from adapters.embedded import demo_texts
from adapters.embedded.demo_tools import CITY_NAMES

RESEARCHER = "You are a research helper."
FAILURE = "The demo agent failed, because you asked it to."


@dataclass(frozen=True, slots=True)
class ToolUse:
    name: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """What the model says next. With `failure`, it breaks with that text after the last word."""

    text: str = ""
    thinking: str = ""
    calls: tuple[ToolUse, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Talk:
    """The conversation as the script looks at it: the question, what came before, and what the tools answered."""

    question: str
    attachments: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    calls: tuple[ToolUse, ...] = ()
    answers: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, messages: Sequence[BaseMessage]) -> Talk:
        asked = [index for index, message in enumerate(messages) if isinstance(message, HumanMessage)]
        if not asked:
            return cls("")
        turn = messages[asked[-1] :]
        answers = {message.tool_call_id: text_of(message) for message in turn if isinstance(message, ToolMessage)}
        done = [call for message in turn if isinstance(message, AIMessage) for call in message.tool_calls]
        done = [call for call in done if call["id"] in answers]
        return cls(
            question=text_of(turn[0]),
            attachments=_attachments(turn[0]),
            earlier=tuple(text_of(messages[index]) for index in asked[:-1]),
            calls=tuple(ToolUse(call["name"], call["args"]) for call in done),
            answers=tuple(answers[call["id"] or ""] for call in done),
        )

    def answers_of(self, tool: str) -> list[str]:
        return [answer for call, answer in zip(self.calls, self.answers, strict=True) if call.name == tool]


def next_line(messages: Sequence[BaseMessage]) -> Line:
    """What the model says to `messages`."""
    if messages and isinstance(messages[0], SystemMessage) and text_of(messages[0]) == RESEARCHER:
        return _note(Talk.of(messages).question)
    talk = Talk.of(messages)
    for pattern, answer in _INTENTS:
        if re.search(pattern, talk.question, re.IGNORECASE) and (line := answer(talk)) is not None:
            return line
    return _default(talk)


def text_of(message: BaseMessage) -> str:
    """The message's text without its other blocks."""
    if isinstance(message.content, str):
        return message.content
    blocks = (block if isinstance(block, str) else block.get("text", "") for block in message.content)
    return "".join(block for block in blocks if isinstance(block, str))


def _attachments(message: BaseMessage) -> tuple[str, ...]:
    blocks = message.content if isinstance(message.content, list) else []
    files = message.additional_kwargs.get("files")
    named = [block for block in blocks if isinstance(block, dict) and block.get("type") not in (None, "text")]
    named += [file for file in files if isinstance(file, dict)] if isinstance(files, list) else []
    return tuple(str(part.get("filename") or part.get("name") or part.get("type") or "a file") for part in named)


# Intents, each asked until one answers. The order decides: the special before the general.


def _fail(talk: Talk) -> Line:
    return Line("Very well. I begin a sentence, and somewhere in the middle", failure=FAILURE)


def _history(talk: Talk) -> Line:
    if not talk.earlier:
        return Line("This is the first thing you say to me here, so there is nothing before it. 🙂")
    listed = "\n".join(f"{number}. {_short(text)}" for number, text in enumerate(talk.earlier, 1))
    return Line(f"Before this, you said:\n\n{listed}", thinking="They want to know what they said. I look back.")


def _my_name(talk: Talk) -> Line:
    match = re.search(r"my name is\s+([\w' -]{1,40})", talk.question, re.IGNORECASE)
    name = match.group(1).strip() if match else "you"
    return Line(f"Nice to meet you, **{name}**! Ask me “what is my name?” later, and see whether I remember.")


def _whats_my_name(talk: Talk) -> Line:
    for text in reversed(talk.earlier):
        if match := re.search(r"my name is\s+([\w' -]{1,40})", text, re.IGNORECASE):
            return Line(f"You are **{match.group(1).strip()}**. You told me so.")
    return Line("You have not told me yet. Say `my name is …`.")


def _slow(talk: Talk) -> Line:
    if answers := talk.answers_of("run_job"):
        return Line(f"{answers[-1]} Thank you for waiting! ⏱️")
    thinking = "They want to see a tool that takes its time. I start one and say so first."
    return Line("I start a job that takes about six seconds. ", thinking, (ToolUse("run_job", {"name": "slow tool"}),))


def _ask(talk: Talk) -> Line:
    """Both halves of an ambiguous wish are asked at once, so one answer may hold two questions."""
    wants_table = bool(re.search(r"\b(book|reserve)\b", talk.question, re.IGNORECASE))
    wants_deploy = bool(re.search(r"\b(deploy|release)\b", talk.question, re.IGNORECASE))
    answers = talk.answers_of("ask_user")
    if not answers:
        calls = []
        if wants_table:
            options = ["2 people", "4 people", "6 people"]
            calls.append(ToolUse("ask_user", {"question": "For how many people?", "options": options}))
        if wants_deploy:
            options = ["staging", "production", "nowhere"]
            calls.append(ToolUse("ask_user", {"question": "Where shall it be deployed?", "options": options}))
        thinking = "Something is missing before I can do this. Better to ask than to guess."
        return Line("Before I go on, I need to know something. ", thinking, tuple(calls))
    target = answers[-1] if wants_deploy else ""
    if target and target != "nowhere" and not talk.answers_of("run_job"):
        job = ToolUse("run_job", {"name": f"deploy to {target}", "seconds": 2.0})
        return Line(f"I deploy to **{target}**. ", calls=(job,))
    parts = []
    if wants_table:
        parts.append(f"🍽️ A table for **{answers[0]}** it is.")
    if wants_deploy:
        parts.append("Nothing is deployed." if target == "nowhere" else f"🚀 Deployed to **{target}**.")
    return Line(" ".join(parts) + " (As this is a demo, nothing has really happened.)")


def _weather(talk: Talk) -> Line:
    if answers := talk.answers_of("weather"):
        return Line(_weather_report(answers))
    cities = cities_in(" ".join((talk.question, *talk.answers_of("ask_user"))))
    if cities:
        thinking = f"They ask about the weather in {' and '.join(cities)}. I have a tool for that."
        calls = tuple(ToolUse("weather", {"city": city}) for city in cities)
        return Line("Let me look out of the window. ", thinking, calls)
    if talk.answers_of("ask_user"):
        return Line("I do not know that city. I know a few: try `weather in Paris`.")
    question = {"question": "In which city?", "options": ["Paris", "Tokyo", "Beijing"]}
    return Line("Gladly. ", "They did not say where.", (ToolUse("ask_user", question),))


def _weather_report(answers: list[str]) -> str:
    rows = [re.fullmatch(r"(.+?): (.+), (-?\d+) °C, wind (\d+) km/h", answer) for answer in answers]
    found = [row.groups() for row in rows if row]
    if len(found) < 2:
        return f"Right now in {answers[0]}." if found else answers[0]
    table = "\n".join(f"| {city} | {sky} | {degrees} °C | {wind} km/h |" for city, sky, degrees, wind in found)
    warmest = max(found, key=lambda row: int(row[2]))[0]
    return f"| City | Sky | Temperature | Wind |\n|:--|:--|--:|--:|\n{table}\n\nIt is warmest in **{warmest}**."


def cities_in(text: str) -> list[str]:
    """The known cities named in `text`, in the order of their first mention, each once."""
    lower = text.lower()
    found = sorted((lower.index(name), city) for name, city in CITY_NAMES.items() if name in lower)
    return list(dict.fromkeys(city for _, city in found))


def _research(talk: Talk) -> Line:
    if answers := talk.answers_of("task"):
        return Line(f"My sub-agent has come back. In short:\n\n{answers[-1]}\n\nShall I look into anything else?")
    match = re.search(r"(?:research|compare|investigate|look into)\s+(.+)", talk.question, re.IGNORECASE | re.DOTALL)
    topic = _short(match.group(1).strip(" .?!") if match else talk.question)
    thinking = "This needs more than one look. I hand it to a sub-agent."
    return Line(f"I give “{topic}” to my sub-agent. ", thinking, (ToolUse("task", {"description": topic}),))


def _arithmetic(talk: Talk) -> Line | None:
    if answers := talk.answers_of("calculator"):
        return Line(f"`{talk.calls[-1].args['expression']}` = **{answers[-1]}**")
    expression = expression_in(talk.question)
    if expression is None:
        return None
    thinking = "Arithmetic. I could guess, but I have a calculator."
    return Line("Let me work that out. ", thinking, (ToolUse("calculator", {"expression": expression}),))


_OPERATORS = {"plus": "+", "minus": "-", "times": "*", "divided by": "/", "over": "/", "×": "*", "÷": "/", "^": "**"}


def expression_in(text: str) -> str | None:
    """The arithmetic expression in `text`, or None."""
    for word, sign in _OPERATORS.items():
        text = re.sub(rf"(?<=\d)\s*{re.escape(word)}\s*(?=[\d(-])", f" {sign} ", text, flags=re.IGNORECASE)
    for candidate in re.findall(r"[-(]*\d[\d\s.+\-*/()%]*", text):
        expression = str(candidate).strip().rstrip(".+-*/%(")
        is_date = re.fullmatch(r"\d+([-/.]\d+){2,}", expression)
        if re.search(r"[\d)]\s*[-+*/%]+\s*[(\d-]", expression) and not is_date:
            return expression
    return None


def _search(talk: Talk) -> Line:
    if answers := talk.answers_of("search_help"):
        pages = (line.partition(": ") for line in answers[-1].splitlines())
        return Line("\n\n".join(f"**{title}**\n{text}" for title, _, text in pages))
    thinking = "That may be in my help. I search it."
    return Line("Let me look it up. ", thinking, (ToolUse("search_help", {"query": talk.question}),))


def _think(talk: Talk) -> Line:
    thinking = (
        "They want me to think. Very well: a thought is text that is not yet an answer. It may be shown folded, or not "
        "at all, and it must never slip into the answer itself. First I look at the question from the left, then from "
        "the right. Both sides agree that there is nothing behind it but a script. That settles it."
    )
    return Line("I have thought about it, and the answer is **42**, as so often. 🤔", thinking)


def _echo_chinese(talk: Talk) -> Line:
    examples = "`17 * 23 等于多少？`、`北京的天气`、`book a table`"
    text = (
        f"你说的是：“{_short(talk.question)}”。\n\n真正的模型现在会回答你，而我只是演示脚本 🙂 可以试试：{examples}。"
    )
    return Line(text, "他们说中文，我也用中文回答。")


def _says(text: str, thinking: str = "") -> Callable[[Talk], Line]:
    return lambda talk: Line(text, thinking)


_INTENTS: tuple[tuple[str, Callable[[Talk], Line | None]], ...] = (
    (r"^\W*(please\s+)?(fail|crash|break)\b", _fail),
    (r"what (did|have) i (say|said|ask|asked|write|written)|what was my (last|first)|我(刚才|之前)", _history),
    (r"\bmy name is\b(?!.*\?)", _my_name),
    (r"what('s| is) my name|who am i\b", _whats_my_name),
    (r"\b(story|tale)\b|long answer|故事", _says(demo_texts.STORY)),
    (r"\bslow\b", _slow),
    (r"\b(book|reserve|deploy|release)\b", _ask),
    (r"\bweather\b|天气", _weather),
    (r"\b(research|compare|investigate|look into)\b", _research),
    (r"\btable\b|表格", _says(demo_texts.TABLE, "A table. I have one at hand.")),
    (r"\b(code|python|function|snippet|script)\b|代码", _says(demo_texts.CODE, "Code, then. Something short.")),
    (r"\d", _arithmetic),
    (r"\b(search|find|how (do|can|does|to))\b|怎么", _search),
    (r"^\W*(hi|hello|hey|help|start|good (morning|evening)|what can you do)\b|^\W*$", _says(demo_texts.WELCOME)),
    (r"\b(emoji|chinese)\b|^\W*(你好|您好)|中文", _says(demo_texts.WELCOME_CHINESE)),
    (r"\b(think|reason|why)\b", _think),
    (r"\b(thanks|thank you|thx)\b", _says("You are welcome! 😊")),
    (r"谢谢", _says("不客气！😊")),
    (r"[\u4e00-\u9fff]{2}", _echo_chinese),
)


def _default(talk: Talk) -> Line:
    files = f"📎 I see what you attached: {', '.join(talk.attachments)}.\n\n" if talk.attachments else ""
    words = sorted(set(re.findall(r"[^\W\d_]{5,}", talk.question)), key=lambda word: (-len(word), word))[:2]
    about = f" It seems to be about **{'** and **'.join(words)}**." if words else ""
    kind = "asked" if talk.question.rstrip().endswith("?") else "said"
    turn = len(talk.earlier)
    picks = [demo_texts.SUGGESTIONS[(turn * 3 + step) % len(demo_texts.SUGGESTIONS)] for step in range(3)]
    tries = "\n".join(f"- `{example}`: {what}" for example, what in picks)
    text = (
        f"{files}You {kind}: “{_short(talk.question)}”.{about}\n\nA real model would have an answer now. I am only the "
        f"demo's script, but I can show you what an answer looks like on its way to you. Things to try:\n\n{tries}"
    )
    return Line(text, "I do not know this one. I say what I understood, and what I can do.")


def _note(question: str) -> Line:
    return Line(f"On {_short(question)}: three sources agree, one does not, and the newest is the clearest.")


def _short(text: str, length: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"
