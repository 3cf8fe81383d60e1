"""What a judge's reply states more than once, and differently: so that no one statement is taken for it.

Decoded JSON cannot tell: of a repeated key it holds the last value only. So the reply is read again, with
every key as often as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from coeval.core.records import LEVELS, Level
from coeval.core.text import Pairs, every_json, fold_name

__all__ = ["FACTOR_KEYS", "SCORE_KEYS", "as_level", "contradicted_factors", "is_contradicted", "levels_in"]

FACTOR_KEYS = ("factor", "name", "criterion", "dimension")
SCORE_KEYS = ("score", "level", "rating", "value")

_LEVEL_OF: dict[str, Level] = {level.casefold(): level for level in LEVELS}
_LEVEL = r"""[:=]\s*(?:[{\[][^{}]{0,200}?[:=]\s*)?[\"'`*“‘]*(high|medium|low)\b"""
"""A level as the value of what stands before, or in an object there; its quotes may be wrong or missing."""
_ANY_LEVEL = re.compile(_LEVEL, re.IGNORECASE)
_PARTING = re.compile(r"[\s_-]+")


def as_level(value: Any) -> Level | None:
    """The level that a JSON value is, letter case aside."""
    return _LEVEL_OF.get(value.strip().casefold()) if isinstance(value, str) else None


def contradicted_factors(text: str, factors: Sequence[str], *, repaired: bool) -> set[str]:
    """The factors to which a reply gives two different levels: in any spelling, at any depth.

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
    asked = [fold_name(factor) for factor in factors]
    found = set()
    for factor, fold in zip(factors, asked, strict=True):
        alone = asked.count(fold) == 1
        levels = set(folded.get(fold, ()) if alone else exact.get(factor, ()))
        if repaired:
            levels.update(_levels_after(factor, text, any_case=alone))
        if len(levels) > 1:
            found.add(factor)
    return found


def is_contradicted(text: str, key: str) -> bool:
    """Whether objects of a reply, side by side or by a repeated key, hold different values under ``key``."""
    values: list[Any] = []
    for value in every_json(text):
        if isinstance(value, Pairs):
            values += [item for name, item in value if name == key]
    return any(type(value) is not type(values[0]) or value != values[0] for value in values[1:])


def levels_in(text: str) -> set[Level]:
    """Every level that a reply states as the value of something."""
    return {_LEVEL_OF[found.casefold()] for found in _ANY_LEVEL.findall(text)}


def _stated(value: Any, asked: set[str]) -> Iterator[tuple[str, Level]]:
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
            if not levels or fold_name(key) not in asked:
                yield from _stated(item, asked)
    elif isinstance(value, list):
        for item in value:
            yield from _stated(item, asked)


def _levels_of(entry: Pairs) -> list[Level]:
    return [level for key, item in entry if key in SCORE_KEYS and (level := as_level(item)) is not None]


def _levels_after(factor: str, text: str, *, any_case: bool) -> set[Level]:
    """The levels that stand behind a factor's name in damaged JSON."""
    words = list(filter(None, _PARTING.split(factor))) if any_case else []
    name = r"[\s_-]+".join(map(re.escape, words or [factor]))
    case = "(?i:" if any_case else "(?:"
    found = re.findall(rf"(?<!\w){case}{name})[\"'`*”’]*\s*(?i:{_LEVEL})", text)
    return {_LEVEL_OF[word.casefold()] for word in found}
