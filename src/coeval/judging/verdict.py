"""Parse judges' replies as levels. A word that is not a level is never read as one.

``8/10``, ``medium-high``, ``Very High`` or null are no levels: the factor is missing, is asked again, and may
stay missing. A default score would be invented.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from coeval.core.errors import Undecodable, Unparsable
from coeval.core.foreign import decoder
from coeval.core.records import LEVELS, Level
from coeval.core.text import Pairs, digest, every_json, extract_json, fold_name

# --- Contradictory statements in a reply
#
# Decoded JSON cannot tell: of a repeated key it holds the last value only. So the reply is read again, with
# every key as often as it stands.

FACTOR_KEYS = ("factor", "name", "criterion", "dimension")
SCORE_KEYS = ("score", "level", "rating", "value")

_LEVEL_OF: dict[str, Level] = {level.casefold(): level for level in LEVELS}
# A level as the value of what stands before, or in an object there; its quotes may be wrong or missing.
_LEVEL = r"""[:=]\s*(?:[{\[][^{}]{0,200}?[:=]\s*)?[\"'`*“‘]*(high|medium|low)\b"""
_ANY_LEVEL = re.compile(_LEVEL, re.IGNORECASE)
_PARTING = re.compile(r"[\s_-]+")


def as_level(value: Any) -> Level | None:
    """Parse a JSON value as a level, ignoring case."""
    return _LEVEL_OF.get(value.strip().casefold()) if isinstance(value, str) else None


def contradicted_factors(text: str, factors: Sequence[str], *, repaired: bool) -> set[str]:
    """Find the factors to which a reply gives two different levels, in any spelling and at any depth.

    Parameters
    ----------
    repaired:
        whether the reply's JSON is damaged: then it is read as text too.
    """
    exact: dict[str, set[Level]] = {}
    folded: dict[str, set[Level]] = {}
    for value in every_json(text):
        for name, level in _stated(value, {fold_name(factor) for factor in factors}):
            exact.setdefault(name, set()).add(level)
            folded.setdefault(fold_name(name), set()).add(level)
    requested = [fold_name(factor) for factor in factors]
    found = set()
    for factor, fold in zip(factors, requested, strict=True):
        alone = requested.count(fold) == 1
        levels = set(folded.get(fold, ()) if alone else exact.get(factor, ()))
        if repaired:
            levels.update(_levels_after(factor, text, any_case=alone))
        if len(levels) > 1:
            found.add(factor)
    return found


def is_contradicted(text: str, key: str) -> bool:
    """Check whether a reply's objects, or repeated keys, hold different values under ``key``."""
    values: list[Any] = []
    for value in every_json(text):
        if isinstance(value, Pairs):
            values += [item for name, item in value if name == key]
    return any(type(value) is not type(values[0]) or value != values[0] for value in values[1:])


def levels_in(text: str) -> set[Level]:
    """Return every level that a reply gives to any key."""
    return {_LEVEL_OF[found.casefold()] for found in _ANY_LEVEL.findall(text)}


def _stated(value: Any, requested: set[str]) -> Iterator[tuple[str, Level]]:
    """The names and levels that JSON pairs, wherever in it they stand."""
    if isinstance(value, Pairs):
        names = [item for key, item in value if key in FACTOR_KEYS and isinstance(item, str)]
        here = _levels_of(value)
        yield from ((name, level) for level in here for name in names)
        for key, item in value:
            if (level := as_level(item)) is not None:
                yield key, level
                continue
            levels = _levels_of(item) if isinstance(item, Pairs) else []
            yield from ((key, level) for level in levels)
            if not levels or fold_name(key) not in requested:
                yield from _stated(item, requested)
    elif isinstance(value, list):
        for item in value:
            yield from _stated(item, requested)


def _levels_of(entry: Pairs) -> list[Level]:
    return [level for key, item in entry if key in SCORE_KEYS and (level := as_level(item)) is not None]


def _levels_after(factor: str, text: str, *, any_case: bool) -> set[Level]:
    """The levels that stand behind a factor's name in damaged JSON."""
    words = list(filter(None, _PARTING.split(factor))) if any_case else []
    name = r"[\s_-]+".join(map(re.escape, words or [factor]))
    case = "(?i:" if any_case else "(?:"
    found = re.findall(rf"(?<!\w){case}{name})[\"'`*”’]*\s*(?i:{_LEVEL})", text)
    return {_LEVEL_OF[word.casefold()] for word in found}


# --- Criterion verdict: ``{"score": 7, "reason": "…"}``

# WritingBench's own scale.
LOWEST, HIGHEST = 1, 10


class CriterionScore(NamedTuple):
    """Score of a criterion. ``repaired``: the reply's JSON was damaged."""

    score: int
    reason: str
    repaired: bool


def parse_criterion_score(text: str) -> CriterionScore:
    """Parse a judge's whole number from 1 to 10, and its reason.

    An integral float (``7.0``) is accepted; a string, a boolean or a value off the scale is not, and nothing
    is clipped. A missing reason is empty.

    Raises Unparsable: the reply holds no such score.
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


# --- Rubric item verdict: ``{"criteria_met": true, "explanation": "…"}``


class RubricItemVerdict(NamedTuple):
    """Verdict on a rubric item. ``repaired``: the reply's JSON was damaged."""

    met: bool
    explanation: str
    repaired: bool


def parse_criteria_met(text: str) -> RubricItemVerdict:
    """Parse whether the item is met: JSON true or false only.

    Raises Unparsable: the reply holds no ``criteria_met`` that is a truth value.
    """
    found = extract_json(text)
    met = found.value.get("criteria_met") if isinstance(found.value, dict) else None
    if isinstance(met, bool) and is_contradicted(text, "criteria_met"):
        raise Unparsable("the reply says both that the item is met and that it is not", raw=text)
    if not isinstance(met, bool):
        raise Unparsable(f"the reply holds no criteria_met that is true or false, but {met!r:.80}", raw=text)
    explanation = found.value.get("explanation")
    return RubricItemVerdict(met, explanation if isinstance(explanation, str) else "", found.repaired)


# --- Rubrics


def criterion_hash(criterion: str) -> str:
    """Hash a criterion to 8 hex digits; a score by another text no longer counts.

    Line breaks do not matter, since judges see the text on one line.
    """
    return digest(" ".join(criterion.split()))[:8]


_plain = decoder(dict[str, Level])

_AROUND_A_WORD = " \t\r\n\"'`*_.,;:!#>()[]{}“”‘’„«»"
# One to three words, as in ``Final score: High``; more than that is prose.
_LABEL = re.compile(r"[\w-]+(?:[ \t]+[\w-]+){0,2}")


class Levels(NamedTuple):
    """Levels by factor, and the factors without one, in the order requested."""

    scores: dict[str, Level]
    missing: tuple[str, ...]


def parse_levels(text: str, factors: Sequence[str]) -> Levels:
    """Parse the levels that a judge's JSON gives to ``factors``.

    Accepted: ``{factor: level}``, ``{factor: {"score": level, …}}``, a list of ``{"factor": …, "score":
    level}``, and each of these one level deeper. Names may differ in case and word separators. A factor with
    two different levels, at any place, is missing.

    Raises Unparsable: the reply holds no JSON.
    """
    if (levels := _as_requested(text, factors)) is not None:
        return levels
    found = extract_json(text)
    scores: dict[str, Level] = {}
    for part in (found.value, *_containers_in(found.value)):
        candidate = _scores_of(factors, list(_entries(part)))
        if len(candidate) > len(scores):
            scores = candidate
    for factor in contradicted_factors(text, factors, repaired=found.repaired):
        scores.pop(factor, None)
    return Levels(scores, tuple(factor for factor in factors if factor not in scores))


def _as_requested(text: str, factors: Sequence[str]) -> Levels | None:
    """The levels of a reply that is just what was asked for, as nearly all are; None for any other."""
    try:
        scores = _plain(text)
    except Undecodable:
        return None
    if len(scores) != len(factors) or any(factor not in scores for factor in factors):
        return None
    if text.count('"') != 4 * len(scores):  # more than a pair for each key and level: a key stands twice
        return None
    return Levels({factor: scores[factor] for factor in factors}, ())


def parse_level(text: str) -> Level:
    """Parse a single level: the bare word, ``label: word``, or JSON with one value.

    Punctuation, quotes and emphasis around the word are ignored. Prose is no verdict: "not High" contains the
    word too.

    Raises Unparsable: the reply is anything else.
    """
    level = _bare_level(text)
    if level is None and ("{" in text or "[" in text):
        try:
            level = _only_level(extract_json(text).value)
        except Unparsable:
            level = None
        if len(levels_in(text)) > 1:
            level = None
    if level is None:
        raise Unparsable(f"the reply is not one of {', '.join(LEVELS)}; it begins {text[:80]!r}", raw=text)
    return level


def _bare_level(text: str) -> Level | None:
    body = text.strip(_AROUND_A_WORD)
    label, colon, value = body.rpartition(":")
    if colon and _LABEL.fullmatch(label.strip(_AROUND_A_WORD)):
        if as_level(label.strip(_AROUND_A_WORD)) is not None:  # "High: Low" says two things
            return None
        body = value.strip(_AROUND_A_WORD)
    return as_level(body)


def _only_level(value: Any) -> Level | None:
    """The level in JSON that holds one value, however deep it stands in objects and lists of one."""
    while isinstance(value, dict | list) and len(value) == 1:
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return as_level(value)


def _containers_in(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (part for part in value.values() if isinstance(part, dict | list))


def _entries(part: Any) -> Iterator[tuple[str, Level | None]]:
    """The ``(name, level)`` pairs that an object or a list of objects states."""
    if isinstance(part, list):
        for entry in part:
            if isinstance(entry, dict):
                name = next((entry[key] for key in FACTOR_KEYS if isinstance(entry.get(key), str)), None)
                if name is None:
                    yield from _entries(entry)
                else:
                    yield name, _stated_level(entry)
    elif isinstance(part, dict):
        for name, value in part.items():
            yield name, _stated_level(value) if isinstance(value, dict) else as_level(value)


def _stated_level(entry: dict[str, Any]) -> Level | None:
    return as_level(next((entry[key] for key in SCORE_KEYS if key in entry), None))


def _scores_of(factors: Sequence[str], entries: list[tuple[str, Level | None]]) -> dict[str, Level]:
    """Each factor's level: under its exact name, or else under the one name that folds to the same."""
    exact = dict(entries)
    folded: dict[str, set[Level | None]] = {}
    for name, level in entries:
        folded.setdefault(fold_name(name), set()).add(level)
    requested = [fold_name(factor) for factor in factors]
    scores: dict[str, Level] = {}
    for factor, fold in zip(factors, requested, strict=True):
        if factor in exact:
            level = exact[factor]
        elif requested.count(fold) == 1 and len(folded.get(fold, ())) == 1:
            (level,) = folded[fold]
        else:
            continue
        if level is not None:
            scores[factor] = level
    return scores
