"""One criterion, judged on a scale of whole numbers: ``{"score": 7, "reason": "…"}``."""

from __future__ import annotations

from typing import Any, NamedTuple

from coeval.core.errors import Unparsable
from coeval.core.text import extract_json
from coeval.judging.statements import is_contradicted

LOWEST, HIGHEST = 1, 10


class CriterionScore(NamedTuple):
    """``repaired`` says that the reply's JSON was damaged, and mended to be read."""

    score: int
    reason: str
    repaired: bool


def parse_criterion_score(text: str) -> CriterionScore:
    """The whole number from 1 to 10 that a judge gave, and why.

    An integral float is a whole number (``7.0``); a string, a truth value or anything outside the
    scale is not, and nothing is clipped into it. A missing reason is empty.

    Raises
    ------
    Unparsable
        the reply holds no such score.
    """
    found = extract_json(text)
    given = found.value.get("score") if isinstance(found.value, dict) else None
    score = _whole(given)
    if score is None:
        raise Unparsable(
            f"the reply holds no whole number from {LOWEST} to {HIGHEST} as its score, but {given!r:.80}",
            raw=text,
        )
    if is_contradicted(text, "score"):
        raise Unparsable("the reply holds more than one score", raw=text)
    reason = found.value.get("reason")
    return CriterionScore(score, reason if isinstance(reason, str) else "", found.repaired)


def _whole(given: Any) -> int | None:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    return int(given) if LOWEST <= given <= HIGHEST and given == int(given) else None
