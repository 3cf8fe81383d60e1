"""Simulated student: answers as well as its skill allows, and states the quality."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from coeval.core.errors import BadRequest
from coeval.simulation.prose import (
    AnswerMark,
    Draws,
    ItemMark,
    Reply,
    SimulatedAsk,
    draw_sentences,
    read_item_mark,
    write_answer_mark,
    write_sentences,
)

# --- Demands on form
#
# Ten of IFEval's, in common wordings. A demand is recognised by its words in the prompt. A student meets each
# with a probability equal to the quality of its answer, and breaks it otherwise: on purpose, where a plain
# text would meet it.

# Below the mean of our sentences, so that enough of them are written.
_WORDS_PER_SENTENCE = 8
# Words: above the longest of our sentences.
_LONGEST_SENTENCE = 14
# Largest number that a simulated answer meets; more is cut to it.
_LARGEST = 2000

_NUMBERS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip
_N = rf"(?P<n>\d{{1,6}}|\b(?:{'|'.join(_NUMBERS)})\b)"

_DemandMatch: TypeAlias = re.Match[str]


class _AnswerDraft:
    """State of an answer after the demands it meets (and those it breaks on purpose). ``length`` counts its
    sentences, ``clauses`` must be said ("leaves [detail 0] open"); ``last`` steps change the whole."""

    def __init__(self, draws: Draws, mark: str, length: int) -> None:
        self.draws = draws
        self.mark = mark
        self.length = length
        self.clauses: list[str] = []
        self.title = ""
        self.bullets = 0
        self.postscript = ""
        self.last: list[Callable[[str], str]] = []

    def write(self) -> str:
        """Write the answer; its mark is in the first sentence, whatever the form."""
        written = draw_sentences(self.draws, "answer", self.length) + [
            f"It {clause}." for clause in self.clauses
        ]
        text = self.title + " ".join([self.mark, *written])
        if self.bullets:
            text += "".join(f"\n* {point}" for point in draw_sentences(self.draws, "bullets", self.bullets))
        text += self.postscript
        for step in self.last:
            text = step(text)
        return text


_Change: TypeAlias = Callable[[_AnswerDraft, _DemandMatch], None]


class _Demand(NamedTuple):
    """A demand of a prompt. ``cues``, separated by ``|``: one of them, in lower case, is in every prompt that
    makes it; the ``pattern`` ignores case. ``meet`` and ``miss`` change a draft; a plain text misses too."""

    name: str
    cues: str
    pattern: str
    meet: _Change
    miss: _Change | None = None


def _make_final_step(step: Callable[[str], str]) -> _Change:
    return lambda draft, _: draft.last.append(step)


def _read_number(match: _DemandMatch) -> int:
    text = match["n"].lower()
    return min(_LARGEST, int(text) if text.isdecimal() else _NUMBERS.index(text))


def _make_word_count_change(*, met: bool) -> _Change:
    """Write so many sentences that a demand on the number of words is met, or missed."""

    def change(draft: _AnswerDraft, match: _DemandMatch) -> None:
        words, is_limit = _read_number(match), bool(match["limit"] or match["or_fewer"])
        if is_limit != met:
            draft.length = words // _WORDS_PER_SENTENCE + 4
        else:
            draft.length = (words if is_limit else words // 2) // _LONGEST_SENTENCE

    return change


def _set_bullets(draft: _AnswerDraft, match: _DemandMatch) -> None:
    draft.bullets = _read_number(match)


def _add_highlights(draft: _AnswerDraft, match: _DemandMatch) -> None:
    draft.clauses += [f"stresses *point {number}*" for number in range(_read_number(match))]


def _add_placeholders(draft: _AnswerDraft, match: _DemandMatch) -> None:
    draft.clauses += [f"leaves [detail {number}] open" for number in range(_read_number(match))]


def _add_comma(draft: _AnswerDraft, _: _DemandMatch) -> None:
    draft.clauses.append("is plain, of course")


def _add_title(draft: _AnswerDraft, _: _DemandMatch) -> None:
    draft.title = "<<A plain title>>\n"


def _add_postscript(draft: _AnswerDraft, match: _DemandMatch) -> None:
    draft.postscript = f"\n{match['mark'].upper()} This comes last."


_DEMANDS: tuple[_Demand, ...] = (
    _Demand(
        "words",
        "word",
        r"(?P<limit>(?<!no )(?<!not )\b(?:(?:less|fewer|no more|not more) than|at most|under|below|within"
        r"|up to|exceed\w*|limit\w*|max\w*)\s+(?:\w+\s+){0,3}?)?"
        rf"{_N}[- ]?words?\b(?P<or_fewer> or (?:less|fewer))?",
        _make_word_count_change(met=True),
        _make_word_count_change(met=False),
    ),
    _Demand("bullets", "bullet", rf"{_N} (?:\w+ )?bullet", _set_bullets),
    _Demand(
        "highlights", "highlight|italic", rf"(?:highlight|italic)\w*[^.\n]{{0,40}}?{_N} ", _add_highlights
    ),
    _Demand("placeholders", "placeholder", rf"{_N} (?:\w+ )?placeholder", _add_placeholders),
    _Demand("title", "<<|double angular", r"<<|double angular brackets", _add_title),
    _Demand("postscript", "p.s|p.p.s", r"(?P<mark>P\.P\.S|P\.S\.)", _add_postscript),
    _Demand(
        "no commas",
        "comma",
        r"\b(?:no|not|without|avoid\w*|refrain\w*|any|zero|never)\b[^.\n]{0,60}?\bcommas?\b",
        _make_final_step(lambda text: text.replace(",", "")),
        _add_comma,
    ),
    _Demand(
        "lower case",
        "lowercase|lower case|lower-case|no capital|capital letters",
        r"\b(?:all|only|entire\w*|in|using)\b[^.\n]{0,40}?\blower[- ]?case\b(?! letters? (?:are )?allowed)"
        r"|(?<!all )\b(?:no|without|any) (?:using )?capital letters?",
        _make_final_step(str.lower),
    ),
    _Demand(
        "upper case",
        "capital|uppercase|all caps",
        r"\b(?:all[- ]caps|all (?:in )?(?:english )?capital(?:s|ized| letters?)|capital letters only"
        r"|only (?:in )?capital|uppercase)\b(?![^.\n]{0,80}\btimes?\b)|no lowercase",
        _make_final_step(str.upper),
    ),
    _Demand("quotes", "quot", r"\bdouble[- ]quot\w*\b(?! and single)", _make_final_step('"{}"'.format)),
)
"""Applied in this order; of two that conflict the later wins."""


def _apply_demands(draft: _AnswerDraft, prompt: str, quality: float) -> None:
    lowered = prompt.lower()
    for demand in _DEMANDS:
        cued = any(cue in lowered for cue in demand.cues.split("|"))
        match = re.search(demand.pattern, prompt, re.IGNORECASE) if cued else None
        if match is None:
            continue
        if draft.draws.uniform(f"meets {demand.name}") < quality:
            demand.meet(draft, match)
        elif demand.miss is not None:
            demand.miss(draft, match)


# --- Student

# Quality lost per unit of difficulty above 0.5, and gained below.
DIFFICULTY_WEIGHT = 0.5
# Standard deviation of quality between answers of one student at one difficulty.
DAILY_FORM = 0.08


def write_plain_answer(ask: SimulatedAsk) -> Reply:
    """Write a few sentences that state the answer's quality."""
    item = read_item_mark(ask.text)
    quality = draw_answer_quality(ask, item.difficulty if item else 0.5)
    mark = write_answer_mark(AnswerMark(ask.model, ask.traits.family, quality))
    count = round(ask.traits.verbosity * (2 + 4 * ask.draws.uniform("length")))
    draft = _AnswerDraft(ask.draws, mark, count)
    if item is None:  # one of ours states all that is wanted; what else reads like a demand is its subject
        _apply_demands(draft, ask.text, quality)
    return draft.write()


def answer_labels(ask: SimulatedAsk) -> Reply:
    """Answer the requested labels as a JSON object that states the quality too. The student knows a label of
    the item with a probability equal to the quality, and otherwise guesses among the declared values. A
    single label is under ``label``, several under their names."""
    item = read_item_mark(ask.text) or ItemMark(0.5)
    quality = draw_answer_quality(ask, item.difficulty)
    reported = {
        name: item.attributes[name]
        if name in item.attributes and ask.draws.uniform(f"knows {name}") < quality
        else ask.draws.pick(f"guess {name}", values)
        for name, values in ask.labels.items()
    }
    labels = reported if len(reported) > 1 else {"label": next(iter(reported.values()))}
    return {**labels, "note": write_answer_mark(AnswerMark(ask.model, ask.traits.family, quality))}


def draw_answer_quality(ask: SimulatedAsk, difficulty: float) -> float:
    """Return skill, less the cost of difficulty, plus daily form; within 0 and 1."""
    quality = (
        ask.traits.skill - DIFFICULTY_WEIGHT * (difficulty - 0.5) + DAILY_FORM * ask.draws.normal("form")
    )
    return min(1.0, max(0.0, quality))


def answer_in_object(ask: SimulatedAsk) -> Reply:
    """Answer in an object that states the quality, where any object is wanted. Raises BadRequest: the schema
    has properties, and is none of coeval's own prompts."""
    if ask.properties():
        raise BadRequest("simulated models follow no schema but those of coeval's own prompts", status=400)
    mark = AnswerMark(ask.model, ask.traits.family, draw_answer_quality(ask, 0.5))
    return {"answer": f"{write_answer_mark(mark)} {write_sentences(ask.draws, 'text $.answer', 2)}"}
