"""A rubric item, judged as met or not: ``{"criteria_met": true, "explanation": "…"}``."""

from __future__ import annotations

from typing import NamedTuple

from coeval.core.errors import Unparsable
from coeval.core.text import extract_json
from coeval.judging.statements import is_contradicted


class RubricItemVerdict(NamedTuple):
    """``repaired`` says that the reply's JSON was damaged, and mended to be read."""

    met: bool
    explanation: str
    repaired: bool


def parse_criteria_met(text: str) -> RubricItemVerdict:
    """Whether the judge said that the item is met: true or false, and no other way of saying it.

    Raises
    ------
    Unparsable
        the reply holds no ``criteria_met`` that is a truth value.
    """
    found = extract_json(text)
    met = found.value.get("criteria_met") if isinstance(found.value, dict) else None
    if isinstance(met, bool) and is_contradicted(text, "criteria_met"):
        raise Unparsable("the reply says both that the item is met and that it is not", raw=text)
    if not isinstance(met, bool):
        raise Unparsable(f"the reply holds no criteria_met that is true or false, but {met!r:.80}", raw=text)
    explanation = found.value.get("explanation")
    return RubricItemVerdict(met, explanation if isinstance(explanation, str) else "", found.repaired)
