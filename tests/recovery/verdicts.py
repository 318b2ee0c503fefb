"""What is wrong with what a person reads: answers lost, torn, doubled or out of order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.recovery.chaos_graph import pieces

_WORD = re.compile(r"\b\w+-(?:\d+|end)\b")


@dataclass(frozen=True, slots=True)
class Verdict:
    """By the names of the questions. `doubled` are answers begun or shown once more in a message of their own."""

    lost: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.incomplete or self.disordered or self.doubled or self.foreign)


def judge(questions: Sequence[str], messages: Sequence[str]) -> Verdict:
    """Hold what the bot's messages of one conversation say now against what was asked there, in order.

    An answer stands in one message. One that is whole counts, wherever the person reads it last; any other message
    that has no words but the first ones of that answer is its double.
    """
    verdict = Verdict()
    wholes = {question: [piece.strip() for piece in pieces(question)] for question in questions}
    read = [words for text in messages if (words := _WORD.findall(text))]
    places: dict[str, int] = {}
    for question, whole in wholes.items():
        beginnings = [index for index, words in enumerate(read) if words[0] == whole[0]]
        complete = [index for index in beginnings if read[index] == whole]
        if complete:
            places[question] = complete[-1]
        elif beginnings:
            verdict.incomplete.append(f"{question}: {' '.join(read[beginnings[-1]][-3:])}")
        else:
            verdict.lost.append(question)
        for index in beginnings:
            if index != places.get(question) and complete:
                torn = read[index] != whole[: len(read[index])]
                (verdict.incomplete if torn else verdict.doubled).append(question)
    firsts = {whole[0] for whole in wholes.values()}
    verdict.foreign.extend(" ".join(words[:3]) for words in read if words[0] not in firsts)
    order = sorted(places, key=lambda question: places[question])
    verdict.disordered.extend(
        question for question, due in zip(order, [q for q in questions if q in places], strict=True) if question != due
    )
    return verdict
