"""Role detection: by the schema's name, else by the prompt's words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from coeval.core.records import LEVELS
from coeval.simulation.conforming import conforming
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
from coeval.simulation.prose import ANSWER_MARK, ITEM_MARK, REFUSAL, Reply, SimulatedAsk
from coeval.simulation.student import answer, labelled_answer
from coeval.simulation.teacher import benchmark_item, nuanced_attributes, rubric, target_attributes

Player: TypeAlias = Callable[[SimulatedAsk], Reply]

_JUDGING = re.compile(r"\b(?:judge|rubric|criteri(?:on|a)|factors?|reference)\b", re.IGNORECASE)
_ONE_FACTOR = re.compile(r"\b[Ff]actor(?: is|:)")
_ITEM_KEYS = (
    re.compile(r"[\"'`](?:prompt|question|input)[\"'`]", re.IGNORECASE),
    re.compile(r"[\"'`](?:response|reference|answer|output)[\"'`]", re.IGNORECASE),
)
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


def _teaches(text: str) -> bool:
    """Whether the text may ask a teacher: for JSON, and holding no item yet."""
    return "JSON" in text and ITEM_MARK not in text


def _asks_for_item(text: str) -> bool:
    return _teaches(text) and all(key.search(text) for key in _ITEM_KEYS)


def _asks_for_target(text: str) -> bool:
    return _teaches(text) and "values" in text and _TARGET.search(text) is not None


def _asks_for_nuanced(text: str) -> bool:
    return _teaches(text) and "values" in text and _NUANCED.search(text) is not None


def _asks_for_rubric(text: str) -> bool:
    return _teaches(text) and _RUBRIC.search(text) is not None and _FACTORS.search(text) is not None


PARTS: tuple[FormPart, ...] = (
    FormPart("criterion_grade", grades_criterion, criterion_grade),
    FormPart("rubric_item_grade", grades_rubric_item, rubric_item_grade),
    FormPart("assistants_verdict", compares_assistants, assistants_verdict),
    FormPart("output_preference", prefers_output, output_preference),
    FormPart("pair_verdict", compares_answers, pair_verdict),
    FormPart("factor_score", _judges_one_factor, factor_score),
    FormPart("evaluation", _judges, evaluation),
    FormPart("benchmark_item", _asks_for_item, benchmark_item),
    FormPart("nuanced_attributes", _asks_for_nuanced, nuanced_attributes),
    FormPart("target_attributes", _asks_for_target, target_attributes),
    FormPart("rubric", _asks_for_rubric, rubric),
)
"""Tried in this order; what matches none is a student's."""

_BY_SCHEMA: dict[str, Player] = {part.schema: part.play for part in PARTS}


def player(ask: SimulatedAsk) -> Player:
    """Choose the player of a request; an unknown schema is simply followed."""
    if ask.labels:
        return labelled_answer
    if ask.schema is not None:
        return _BY_SCHEMA.get(ask.schema.name, conforming)
    return next((part.play for part in PARTS if part.requested_in(ask.text)), answer)
