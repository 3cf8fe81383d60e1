"""Role detection: by the schema's name, else by the prompt's words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from coeval.core.records import LEVELS, Message, Request
from coeval.simulation.judge import (
    assistants_verdict,
    compares_answers,
    compares_assistants,
    criterion_grade,
    evaluation,
    factor_score,
    grades_criterion,
    grades_rubric_item,
    output_preference,
    pair_verdict,
    prefers_output,
    rubric_factors,
    rubric_item_grade,
)
from coeval.simulation.prose import (
    ANSWER_MARK,
    ITEM_MARK,
    REFUSAL,
    Draws,
    ItemMark,
    Reply,
    SimulatedAsk,
    sentences,
    write_item,
)
from coeval.simulation.student import answer, labelled_answer, object_answer

# --- Teacher
#
# Simulated teacher: proposes attributes and rubrics, and writes items of a stated difficulty.

_TARGET_VALUES = {
    "topic": ("science", "business", "culture", "sport", "travel"),
    "complexity": ("simple", "moderate", "complex"),
    "reasoning_type": ("recall", "comparison", "inference"),
    "answer_length": ("one_sentence", "one_paragraph", "several_paragraphs"),
    "ambiguity": ("none", "slight", "strong"),
}
_NUANCED_VALUES = {
    "tone": ("neutral", "friendly", "impatient"),
    "register": ("formal", "everyday", "technical"),
    "audience": ("beginner", "practitioner", "expert"),
    "typing": ("clean", "hasty"),
    "setting": ("home", "workplace", "school"),
}
_CRITERIA = {
    "accuracy": "What the answer states is right and follows from the prompt.",
    "completeness": "The answer covers every part of what was asked.",
    "clarity": "A reader understands the answer at first reading.",
    "relevance": "The answer keeps to what was asked.",
    "conciseness": "The answer is no longer than it needs to be.",
    "format": "The answer has the form that the task asks for.",
}

_PASSAGE = re.compile(r"<passage>\n(.*?)\n</passage>", re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n{2,}")
_BUILT_IN_LIST = re.compile(r"<must_have>\n([^\n]*)\n</must_have>")
_OTHER_LIST = re.compile(r"\battributes?\b[^:\n]{0,100}:\s*([^\n]+)", re.IGNORECASE)
_LIST_ENDS = re.compile(r"\.(?:\s|$)| and \w+:")


def target_attributes(ask: SimulatedAsk) -> Reply:
    return _attributes(ask, _TARGET_VALUES)


def nuanced_attributes(ask: SimulatedAsk) -> Reply:
    return _attributes(ask, _NUANCED_VALUES)


def _attributes(ask: SimulatedAsk, known: dict[str, tuple[str, ...]]) -> Reply:
    """Three of the known attributes; a list of name and values where the schema wants that."""
    proposed = {name: list(known[name]) for name in ask.draws.some("attributes", list(known), 3)}
    if "attributes" in ask.properties():
        return {"attributes": [{"name": name, "values": values} for name, values in proposed.items()]}
    return proposed


def rubric(ask: SimulatedAsk) -> Reply:
    """Propose four of the known factors; as a list of factor and criterion where the schema requires it."""
    proposed = {name: _CRITERIA[name] for name in ask.draws.some("factors", list(_CRITERIA), 4)}
    if "factors" in ask.properties():
        return {"factors": [{"name": name, "criterion": text} for name, text in proposed.items()]}
    return proposed


def benchmark_item(ask: SimulatedAsk) -> Reply:
    """Write a prompt that states its difficulty and attributes, and a reference answer; about passages, with
    a quote of each."""
    spread = ask.traits.difficulty_spread * ask.draws.normal("difficulty")
    difficulty = min(1.0, max(0.0, 0.5 + spread))
    attributes = sampled_attributes(ask.text)
    passages, draws = _PASSAGE.findall(ask.text), ask.draws
    if passages and draws.uniform("repeated") < ask.traits.repeated_items:
        draws = Draws(ask.model, Request((Message("user", passages[0]),)))  # as for any other such item
        difficulty = 0.5
    case = f"Case {draws.bits('case') >> 40:06x}"
    notes = sentences(draws, "notes", round(4 * ask.traits.verbosity))
    reference = sentences(draws, "reference", round(3 * ask.traits.verbosity))
    return {
        "prompt": f"{case}. {notes}\n{write_item(ItemMark(difficulty, attributes))}",
        "response": f"[simulated reference for {case.lower()}] {reference}",
        **({"evidence": [_quote(ask, passage) for passage in passages]} if passages else {}),
    }


def _quote(ask: SimulatedAsk, passage: str) -> str:
    """A sentence of a passage, spaced and marked otherwise, or an invented one: with a word or number of its
    own."""
    whole = [each for each in _SENTENCE.split(passage) if len(each.split()) > 3] or [passage]
    words = ask.draws.pick("quote", whole).split()
    if ask.draws.uniform("invented") < ask.traits.invented_quotes:
        at = ask.draws.bits("altered") % len(words)
        words[at] = ask.draws.pick("invention", ("never", "47", words[at] + "ish"))
    return ask.draws.pick("spacing", (" ", "  ", "\n")).join(words).replace('"', "”").strip("*_#> ")


def sampled_attributes(prompt: str) -> dict[str, str]:
    """Parse the target attributes that a prompt requests.

    They are in the block of the built-in template, or in a user's after a word such as "attributes:", up to
    the end of the line or sentence: ``name: value; name: value``.
    """
    built_in = _BUILT_IN_LIST.search(prompt)
    if built_in:
        return _pairs(built_in[1])
    lists = (_pairs(_LIST_ENDS.split(found[1], maxsplit=1)[0]) for found in _OTHER_LIST.finditer(prompt))
    return next((pairs for pairs in lists if pairs), {})


def _pairs(listed: str) -> dict[str, str]:
    parts = (part.partition(": ") for part in listed.split("; "))
    return {name.strip(): value.strip() for name, colon, value in parts if colon}


# --- Parts

Player: TypeAlias = Callable[[SimulatedAsk], Reply]

_JUDGING = re.compile(r"\b(?:judge|rubric|criteri(?:on|a)|factors?|reference)\b", re.IGNORECASE)
_ONE_FACTOR = re.compile(r"\b[Ff]actor(?: is|:)")
_ITEM_KEYS = (
    re.compile(r"[\"'`](?:prompt|question|input)[\"'`]", re.IGNORECASE),
    re.compile(r"[\"'`](?:response|reference|answer|output)[\"'`]", re.IGNORECASE),
)
_VALUES = re.compile("values")
_TARGET = re.compile(r"\btarget attributes?\b", re.IGNORECASE)
_NUANCED = re.compile(r"\bnuanced? attributes?\b", re.IGNORECASE)
_RUBRIC = re.compile(r"\brubric\b", re.IGNORECASE)
_FACTORS = re.compile(r"\b(?:factor|criteri)", re.IGNORECASE)


class FormPart(NamedTuple):
    """A role: its schema's name, the test of its prompts, and its player."""

    schema: str
    requested_in: Callable[[str], bool]
    play: Player


def _judges(text: str) -> bool:
    """Whether the text names levels and holds something to judge, or the words of judging.

    A task of labels High, Medium and Low names the levels too, hence the second half.
    """
    named = all(level in text for level in LEVELS) or "gets the worst level" in text
    return named and (ANSWER_MARK in text or REFUSAL in text or _JUDGING.search(text) is not None)


def _judges_one_factor(text: str) -> bool:
    return _judges(text) and (_ONE_FACTOR.search(text) is not None or not rubric_factors(text))


def _asks_for(*signs: re.Pattern[str]) -> Callable[[str], bool]:
    """Whether a text may ask a teacher, for JSON and holding no item yet, and bears all signs."""
    return lambda text: "JSON" in text and ITEM_MARK not in text and all(sign.search(text) for sign in signs)


PARTS: tuple[FormPart, ...] = (
    FormPart("criterion_grade", grades_criterion, criterion_grade),
    FormPart("rubric_item_grade", grades_rubric_item, rubric_item_grade),
    FormPart("assistants_verdict", compares_assistants, assistants_verdict),
    FormPart("output_preference", prefers_output, output_preference),
    FormPart("pair_verdict", compares_answers, pair_verdict),
    FormPart("factor_score", _judges_one_factor, factor_score),
    FormPart("evaluation", _judges, evaluation),
    FormPart("benchmark_item", _asks_for(*_ITEM_KEYS), benchmark_item),
    FormPart("nuanced_attributes", _asks_for(_VALUES, _NUANCED), nuanced_attributes),
    FormPart("target_attributes", _asks_for(_VALUES, _TARGET), target_attributes),
    FormPart("rubric", _asks_for(_RUBRIC, _FACTORS), rubric),
)
"""Tried in this order; what matches none is a student's."""


def _same_answer(ask: SimulatedAsk) -> Reply:
    return {"same": ask.draws.pick("value $.same", ("yes", "no"))}


_BY_SCHEMA: dict[str, Player] = {part.schema: part.play for part in PARTS} | {"same_answer": _same_answer}


def player(ask: SimulatedAsk) -> Player:
    """Choose the player of a request."""
    if ask.labels:
        return labelled_answer
    if ask.schema is not None:
        return _BY_SCHEMA.get(ask.schema.name, object_answer)
    return next((part.play for part in PARTS if part.requested_in(ask.text)), answer)
