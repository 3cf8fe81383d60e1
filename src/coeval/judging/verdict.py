"""What a judge said, as levels. A word that is not a level is never read as one.

``8/10``, ``medium-high``, ``Very High`` or null are no levels: the factor is missing, is asked
again, and in the end stays missing. A default score would be an invented one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from coeval.core.errors import Undecodable, Unparsable
from coeval.core.foreign import decoder
from coeval.core.records import LEVELS, Level
from coeval.core.text import extract_json, fold_name
from coeval.judging.statements import FACTOR_KEYS, SCORE_KEYS, as_level, contradicted_factors, levels_in

_plain = decoder(dict[str, Level])

_AROUND_A_WORD = " \t\r\n\"'`*_.,;:!#>()[]{}“”‘’„«»"
_LABEL = re.compile(r"[\w-]+(?:[ \t]+[\w-]+){0,2}")
"""One to three words, as in ``Final score: High``; more than that is prose."""


class Levels(NamedTuple):
    """The level of each factor that has one, and the factors that have none, in the order asked."""

    scores: dict[str, Level]
    missing: tuple[str, ...]


def parse_levels(text: str, factors: Sequence[str]) -> Levels:
    """The levels that a judge gave to ``factors`` in one JSON answer.

    Understood are ``{factor: level}``, ``{factor: {"score": level, …}}``, a list of
    ``{"factor": …, "score": level}``, and any of these one level further in. Factor names may
    differ in case and in how their words are parted. A factor given two different levels is missing:
    under such spellings, by a repeated key, further in, or in another object of the reply.

    Raises
    ------
    Unparsable
        the reply holds no JSON.
    """
    if (levels := _as_asked(text, factors)) is not None:
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


def _as_asked(text: str, factors: Sequence[str]) -> Levels | None:
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
    """The one level a judge gave: the bare word, ``label: word``, or JSON with one value.

    Punctuation, quotes and emphasis around the word are ignored. Prose that contains the word is
    not a verdict: "not High" contains it too.

    Raises
    ------
    Unparsable
        the reply is anything else.
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
    asked = [fold_name(factor) for factor in factors]
    scores: dict[str, Level] = {}
    for factor, fold in zip(factors, asked, strict=True):
        if factor in exact:
            level = exact[factor]
        elif asked.count(fold) == 1 and len(folded.get(fold, ())) == 1:
            (level,) = folded[fold]
        else:
            continue
        if level is not None:
            scores[factor] = level
    return scores
