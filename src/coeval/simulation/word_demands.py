"""Demands for and against words and letters: each is a clause of the prompt, with its words in it."""

from __future__ import annotations

import re
from typing import NamedTuple

from coeval.simulation.answer_draft import AnswerDraft
from coeval.simulation.numbers_in_words import NUMBER, number

_CLAUSE_ENDS = re.compile(r"(?<=[.!?;])[\"”']?\s+|\n+")
_CUES = ("word", "mention", "letter", "include", "term")
_QUOTED = re.compile(r"(?:^|[\s(:])[\"“'‘]([^\s\"“”'‘’][^\"“”‘’\n]{0,30}?)[,.]?[\"”'’](?=[\s,.;:)!?]|$)")
_LISTED = re.compile(
    r"\b(?:keywords?|words?)\b(?: of| like| are)?:? \[?"
    r"(?P<words>'?[\w-]+'?(?:(?:, and |, or |, | and | or | & )'?[\w-]+'?){0,20}?)\]?"
    r"(?=[.;]|$| should\b| must\b| in\b| at\b| for\b| (?:more|less|no)\b| to\b| appears?\b|,? "
    rf"{NUMBER}\b| with\b| and (?:do|use|make|don)\b)",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r", and |, or |, | and | or | & ")
_LETTER = re.compile(r"\bletters? [\"“'‘]?(\w)\b[\"”'’]?", re.IGNORECASE)
_TIMES = re.compile(
    rf"\b(?P<few>less than|fewer than|at most|no more than|maximum|under)?\s*(?:a total of )?(?P<n>{NUMBER})"
    r"(?: or (?:more|(?P<fewer>fewer|less)))?(?: times?\b|(?<=once)|(?<=twice)|(?<=thrice))",
    re.IGNORECASE,
)
_NOT = re.compile(
    r"\b(?:not|no|without|avoid\w*|never|exclud\w*|refrain\w*|cannot|forbidden)\b|n['’]t\b(?! forget)",
    re.IGNORECASE,
)
_ODD = re.compile(
    r"\d+-(?:st|nd|rd|th) (?:sentence|word)|unique words|\bwords? (?:must|should) start|keyword \w+ once",
    re.IGNORECASE,
)
"""Clauses about words that are demands of another kind."""
_STOPS = frozenset(
    ("the", "a", "it", "that", "in", "your", "response", "only", "each", "every", "any", "them")
)
_PLAIN = ("dim", "vow", "up", "joy", "cheap", "kept", "box", "lunch", "frog", "quiz", "hymn", "warm", "end")


class _Wanted(NamedTuple):
    """``times`` is None where the words must not stand at all; at most so often with ``few``."""

    words: tuple[str, ...]
    times: int | None
    few: bool = False


def heed_words(draft: AnswerDraft, prompt: str, quality: float) -> int:
    """Change the draft as the clauses about words and letters say; how many there are."""
    made = 0
    for place, clause in enumerate(_CLAUSE_ENDS.split(prompt)):
        lowered = clause.lower()
        if not any(cue in lowered for cue in _CUES):
            continue
        is_met = draft.draws.uniform(f"meets clause {place}") < quality
        letter = _LETTER.search(clause)
        times = _TIMES.search(clause)
        if letter and times:
            made += 1
            _letters(draft, letter[1].lower(), _count(times), is_met)
        else:
            wanted = _wanted(clause, times)
            made += wanted is not None
            if wanted is not None:
                _give(draft, wanted, is_met)
    return made


class _Count(NamedTuple):
    times: int
    few: bool


def _count(times: re.Match[str]) -> _Count:
    few = times["few"] or times["fewer"]
    strict = few is not None and few.lower() in ("less than", "fewer than", "under")
    return _Count(number(times["n"]) - strict, few is not None)


def _wanted(clause: str, times: re.Match[str] | None) -> _Wanted | None:
    """What the clause says of its words; None where it names none."""
    if _ODD.search(clause):
        return None
    words = _QUOTED.findall(clause) or _listed(clause)
    if not words:
        return None
    if times is not None:
        count = _count(times)
        return _Wanted(tuple(words), count.times, count.few)
    return _Wanted(tuple(words), None if _NOT.search(clause) else 1)


def _listed(clause: str) -> list[str]:
    found = _LISTED.search(clause)
    words = [word.strip(" '") for word in _BETWEEN.split(found["words"])] if found else []
    return [word for word in words if word and " " not in word and word.lower() not in _STOPS]


def _give(draft: AnswerDraft, wanted: _Wanted, is_met: bool) -> None:
    for word in wanted.words:
        if wanted.times is None or wanted.few:
            draft.banned.append(word.casefold())
            if not is_met:
                draft.clauses.append(" ".join([f"names {word}"] * ((wanted.times or 0) + 1)))
        elif is_met:
            draft.clauses.append(" ".join([f"names {word}"] * wanted.times))
        else:
            draft.banned.append(word.casefold())


def _letters(draft: AnswerDraft, letter: str, count: _Count, is_met: bool) -> None:
    if is_met == count.few:
        draft.whole = " ".join(word for word in _PLAIN if letter not in word)
    else:
        draft.clauses.append(f"spells {' '.join([letter * 3] * (count.times // 3 + 1))}")
