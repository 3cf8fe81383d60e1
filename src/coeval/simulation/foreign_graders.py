"""Judges' prompts of other tools: what kind of grade they ask for, and giving one.

A grade follows the quality that the judged answer states, as our own judges' levels do; an answer
that states none has one that depends on its words alone. Recognised are the forms in wide use:
``GRADE: C``, ``[[7]]`` and ``[[A]]``, a letter of a list, a number on a scale, yes or no.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from coeval.simulation.ask import Reply, SimulatedAsk
from coeval.simulation.judge import as_seen, seen_quality
from coeval.simulation.marks import ANSWER_MARK, ITEM_MARK, read_answer
from coeval.simulation.prose import sentences

_JUDGING = re.compile(
    r"\b(?:grade|grading|grader|judge|judging|evaluat(?:e|ing|or|ion)|assess(?:ing|ment)?|rate|rating|"
    r"scor(?:e|ing)|impartial|criteri(?:on|a)|rubric)\b",
    re.IGNORECASE,
)
_TO_A_JUDGE = re.compile(
    r"\b(?:you are (?:an? )?(?:\w+ ){0,3}(?:judge|grader|evaluator|assessor)|act as (?:an? )?(?:\w+ )?judge|"
    r"(?:grade|grading|evaluate|evaluating|rate|rating|score|scoring|assess|assessing|judge|judging|comparing)"
    r" (?:\w+ ){0,4}"
    r"(?:submission|answer|response|output|reply|completion|assistant|summary|essay|translation))\b",
    re.IGNORECASE,
)
_WHERE_TOLD = 2000
"""Characters at either end of a prompt where a judge is told its task; what is judged stands between."""

_GRADE_LINE = re.compile(r"\bGRADE:\s*(?:\$LETTER|\[?[A-Z]\b)")
_GRADE_LETTERS = re.compile(r"[\"'`“(]([CPINAB])[\"'`”)]")
_RATING_IN_BRACKETS = re.compile(r"\[\[\s*(?:rating|score|\d+)\s*\]\]", re.IGNORECASE)
_PAIR_IN_BRACKETS = re.compile(r"\[\[A\]\].*\[\[B\]\]", re.DOTALL)
_LETTERED = re.compile(r"^[ \t(]*([A-H])[ \t]*[:.)][ \t]*([A-Z][A-Za-z_ -]{2,30})[ \t]*$", re.MULTILINE)
_SCALE = re.compile(
    r"(?:scale|score|rat(?:e|ing)|integer|number|from|between)\b[^\n]{0,40}?\b(\d{1,3})\s*"
    r"(?:-|–|—|to|and|through)\s*(\d{1,3})\b",
    re.IGNORECASE,
)
_YES_OR_NO = re.compile(
    r"[\"'`]?\b(yes|true|correct|pass)\b[\"'`]?\s*(?:/|or|,)\s*[\"'`]?\b(no|false|incorrect|fail)\b",
    re.IGNORECASE,
)
_NAMED_LINE = re.compile(
    r"^[ \t]*[-*]?[ \t]*((?:score|rating|grade|verdict|judge?ment)):", re.IGNORECASE | re.MULTILINE
)

_GOOD = frozenset({"yes", "true", "correct", "pass", "passed", "good", "c", "met", "supported", "entailment"})
_HALF = frozenset({"partial", "partially correct", "p", "medium", "mixed", "tie", "neutral"})
_BAD = frozenset({"no", "false", "incorrect", "fail", "failed", "bad", "i", "unmet", "unsupported"})
_ORDERED = ("low", "medium", "high"), ("poor", "fair", "good", "excellent"), ("worse", "same", "better")


class _Form(NamedTuple):
    asked_in: Callable[[str], bool]
    grade: Callable[[SimulatedAsk], str]


def is_graded(text: str) -> bool:
    """Whether a prompt asks for an answer to be judged, a simulated model's or anybody's."""
    if ANSWER_MARK in text:
        return _JUDGING.search(text) is not None
    ends = f"{text[:_WHERE_TOLD]}\n{text[_WHERE_TOLD:][-_WHERE_TOLD:]}"
    return ITEM_MARK not in text and _TO_A_JUDGE.search(ends) is not None


def asks_for_grade(text: str) -> bool:
    """Whether a prompt asks for a grade in one of the forms that are known here."""
    return is_graded(text) and any(form.asked_in(text) for form in _FORMS)


def foreign_grade(ask: SimulatedAsk) -> Reply:
    """The grade in the first form that the prompt asks for."""
    return next(form.grade(ask) for form in _FORMS if form.asked_in(ask.text))


def grade_among(values: Sequence[Any], seen: float) -> Any:
    """The value of an enumeration that fits a quality; None where the values are no grades.

    >>> grade_among(["C", "P", "I"], 0.9), grade_among(["Low", "Medium", "High"], 0.5), grade_among(["x"], 1)
    ('C', 'Medium', None)
    """
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(values):
        return min(numbers, key=lambda number: abs(number - _scaled(min(numbers), max(numbers), seen)))
    words = [str(value).casefold().replace("_", " ") for value in values]
    for scale in _ORDERED:
        if set(words) <= set(scale):
            present = [word for word in scale if word in words]
            return values[words.index(present[_level(len(present), seen)])]
    known = [_worth(word) for word in words]
    if not any(worth is not None for worth in known):
        return None
    return values[min(range(len(values)), key=lambda i: _distance(known[i], seen))]


def _worth(word: str) -> float | None:
    if word in _GOOD:
        return 1.0
    if word in _HALF:
        return 0.5
    return 0.0 if word in _BAD else None


def _distance(worth: float | None, seen: float) -> float:
    return 2.0 if worth is None else abs(worth - min(1.0, max(0.0, seen)))


def _level(count: int, seen: float) -> int:
    return min(count - 1, max(0, int(seen * count)))


def _scaled(low: float, high: float, seen: float) -> float:
    return low + (high - low) * min(1.0, max(0.0, seen))


def _reason(ask: SimulatedAsk) -> str:
    return sentences(ask.draws, "reason", 2)


def _letter_grade(ask: SimulatedAsk) -> str:
    """``GRADE: C``, and P where partial credit is offered."""
    offered = set(_GRADE_LETTERS.findall(ask.text))
    letters = ["C", "P", "I"] if "P" in offered else ["C", "I"]
    return f"{_reason(ask)}\n\nGRADE: {grade_among(letters, seen_quality(ask))}"


def _pair_verdict(ask: SimulatedAsk) -> str:
    """``[[A]]``, ``[[B]]``, or ``[[C]]`` for a tie where one is offered; by the two answers' qualities."""
    first, second = _two_answers(ask.text)
    gap = _quality(ask, first, "first") - _quality(ask, second, "second") + ask.traits.position_bias
    if abs(gap) < 0.05 and "[[C]]" in ask.text:
        return f"{_reason(ask)}\n\n[[C]]"
    return f"{_reason(ask)}\n\n[[{'A' if gap > 0 else 'B'}]]"


def _two_answers(text: str) -> tuple[str, str]:
    """What stands about each of two answers: up to the second one's heading, and from there on."""
    found = list(re.finditer(r"(?:Assistant|Model|Answer|Response|Output)[ _]?\(?B\b", text, re.IGNORECASE))
    at = found[-1].start() if len(found) == 1 else found[-2].start() if found else len(text) // 2
    marks = [place.start() for place in re.finditer(re.escape(ANSWER_MARK), text)]
    if len(marks) >= 2 and not marks[-2] < at <= marks[-1]:
        at = marks[-1]
    return text[:at], text[at:]


def _quality(ask: SimulatedAsk, part: str, eye: str) -> float:
    stated = read_answer(part)
    return as_seen(ask, stated.quality if stated else 0.5, stated.family if stated else None, eye)


def _bracketed_rating(ask: SimulatedAsk) -> str:
    """``Rating: [[7]]``, on the scale that the prompt names, else 1 to 10."""
    return f"{_reason(ask)}\n\nRating: [[{_on_scale(ask)}]]"


def _lettered_choice(ask: SimulatedAsk) -> str:
    """The letter of a list ``A: CORRECT``, ``B: INCORRECT``, …"""
    options = _lettered(ask.text)
    words = [word.strip().casefold() for word in options.values()]
    chosen = grade_among(words, seen_quality(ask))
    at = words.index(chosen) if chosen is not None else _level(len(words), 1 - seen_quality(ask))
    return list(options)[at]


def _lettered(text: str) -> dict[str, str]:
    return dict(_LETTERED.findall(text))


def _number(ask: SimulatedAsk) -> str:
    """The number, after the words that the prompt shows before it."""
    named = _NAMED_LINE.findall(ask.text)
    return f"{_reason(ask)}\n\n{named[-1]}: {_on_scale(ask)}" if named else str(_on_scale(ask))


def _on_scale(ask: SimulatedAsk) -> int:
    found = _SCALE.search(ask.text)
    low, high = (int(found[1]), int(found[2])) if found else (1, 10)
    return round(_scaled(min(low, high), max(low, high), seen_quality(ask)))


def _yes_or_no(ask: SimulatedAsk) -> str:
    yes, no = _YES_OR_NO.findall(ask.text)[-1]
    return f"{yes if seen_quality(ask) >= 0.5 else no}"


_FORMS: tuple[_Form, ...] = (
    _Form(lambda text: _GRADE_LINE.search(text) is not None, _letter_grade),
    _Form(lambda text: _PAIR_IN_BRACKETS.search(text) is not None, _pair_verdict),
    _Form(lambda text: _RATING_IN_BRACKETS.search(text) is not None, _bracketed_rating),
    _Form(lambda text: len(_lettered(text)) >= 2, _lettered_choice),
    _Form(lambda text: _SCALE.search(text) is not None, _number),
    _Form(lambda text: _YES_OR_NO.search(text) is not None, _yes_or_no),
)
"""Asked in this order: the forms that name their own shape come before those that only may be meant."""
