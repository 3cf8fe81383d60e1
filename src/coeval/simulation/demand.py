"""How a student heeds what a prompt demands of an answer's form.

A demand is recognised by its words in the prompt. A student meets each with a probability equal to
the quality of its answer, and breaks it otherwise: on purpose, where a plain text would meet it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from coeval.simulation.answer_draft import AnswerDraft

Found: TypeAlias = re.Match[str]
Change: TypeAlias = Callable[[AnswerDraft, Found], None]


class Demand(NamedTuple):
    """``cues``: one of them stands in every prompt that makes the demand, in lower case.

    ``meet`` and ``miss`` make a draft that meets it, and one that does not; without ``miss`` a
    plain text does not. ``once``: saying it twice is not asking twice.
    """

    name: str
    cues: tuple[str, ...]
    pattern: re.Pattern[str]
    meet: Change
    miss: Change | None
    once: bool


def demand(
    name: str, cues: str, pattern: str, meet: Change, miss: Change | None = None, *, once: bool = True
) -> Demand:
    """``cues`` are parted by ``|``; the pattern is one for any case of letters."""
    return Demand(name, tuple(cues.split("|")), re.compile(pattern, re.IGNORECASE), meet, miss, once)


def heed(draft: AnswerDraft, prompt: str, demands: Iterable[Demand], quality: float) -> int:
    """Change the draft as each demand that the prompt makes says; how many there are."""
    lowered, made = prompt.lower(), 0
    for one in demands:
        if not any(cue in lowered for cue in one.cues):
            continue
        for place, found in enumerate(one.pattern.finditer(prompt)):
            made += 1
            if draft.draws.uniform(f"meets {one.name} {place}") < quality:
                one.meet(draft, found)
            elif one.miss is not None:
                one.miss(draft, found)
            if one.once:
                break
    return made
