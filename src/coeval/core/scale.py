"""The scale of a rubric's factor: its levels, and the value from 0 to 1 of each.

High, Medium and Low are the default. A factor may have any other: ``[pass, fail]``, ``1-5``, ``[poor, fair,
good, excellent]``, or levels with numbers of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

# Judges do not tell finer levels apart, and agreement is counted in tables of levels × levels.
MOST_LEVELS = 101

_RANGE = re.compile(r"(-?\d{1,4})\s*(?:-|–|\.\.|to)\s*(-?\d{1,4})")

# The first or last level of a list is one of these, or its order is unknown.
_BEST = re.compile(
    r"pass(ed)?|yes|true|correct|right|good|great|excellent|best|high|strong|full|met|accept(able)?|safe"
    r"|(strongly )?agree|always|complete|perfect|ja|oui"
)
_WORST = re.compile(
    r"fail(ed)?|no|false|incorrect|wrong|bad|poor|worst|low|weak|none|unmet|reject|unacceptable|unsafe"
    r"|(strongly )?disagree|never|incomplete|nein|non"
)


class RubricScale(msgspec.Struct, frozen=True, dict=True):
    """A scale: ``levels`` from worst to best, and their ``values``, rising from 0 to 1."""

    levels: tuple[str, ...]
    values: tuple[float, ...]

    @property
    def has_consecutive_integers(self) -> bool:
        """Check whether the levels are consecutive whole numbers."""
        first = self.levels[0]
        if not first.removeprefix("-").isdecimal():
            return False
        return self.levels == tuple(str(int(first) + step) for step in range(len(self.levels)))

    @cached_property
    def _by_word(self) -> dict[str, int]:
        return {level.casefold(): index for index, level in enumerate(self.levels)}

    def level(self, value: Any) -> str | None:
        """Find the level that a JSON value is, in any letter case; numbers count as their digits. ``7.0`` is
        7; ``8/10``, true and null are no levels."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return None
        if isinstance(value, float):
            if not value.is_integer():
                return None
            value = int(value)
        index = self._by_word.get(str(value).strip().casefold())
        return None if index is None else self.levels[index]

    def value(self, level: str) -> float:
        return self.values[self._by_word[level.casefold()]]

    def nearest_level(self, value: float) -> str:
        """Name the level of a value from 0 to 1."""
        return min(self.levels, key=lambda level: abs(self.value(level) - value))

    def to_config(self) -> str | dict[str, float]:
        """Write the scale as `parse_scale` reads it back: a range, or level → value."""
        equal = tuple(index / (len(self.levels) - 1) for index in range(len(self.levels)))
        if self.has_consecutive_integers and self.values == equal:
            return f"{self.levels[0]}-{self.levels[-1]}"
        return dict(zip(self.levels, self.values, strict=True))

    def levels_and_values_text(self) -> str:
        """Write the scale in full, in the fewest words: ``1-5``, or ``no 0, yes 1``."""
        written = self.to_config()
        if isinstance(written, str):
            return written
        return ", ".join(f"{level} {value:g}" for level, value in written.items())

    def levels_text(self) -> str:
        """Write the levels from worst to best: ``1 to 5``, or ``poor, fair, good, excellent``."""
        if self.has_consecutive_integers and len(self.levels) > 2:
            return f"{self.levels[0]} to {self.levels[-1]}"
        return ", ".join(self.levels)

    def levels_naming_best(self) -> str:
        """Write which end is the best: ``1 (worst) to 5 (best)``, or ``no (0), yes (1)``."""
        if " to " in self.levels_text() and isinstance(self.to_config(), str):
            return f"{self.levels[0]} (worst) to {self.levels[-1]} (best)"
        return ", ".join(f"{level} ({self.value(level):.3g})" for level in self.levels)


HIGH_MEDIUM_LOW = RubricScale(("Low", "Medium", "High"), (0.0, 0.5, 1.0))


def parse_scale(written: str | Sequence[Any] | Mapping[Any, object]) -> RubricScale:
    """Read a scale as people write it.

    A range of whole numbers (``1-5``), a list of levels, or a mapping of level to number. The levels of a
    list are equal steps; numbers rise or fall, and words begin or end with one that is known to be good or
    bad (``[pass, fail]``), so that the best is never guessed. Numbers of a mapping are mapped to 0–1, the
    smallest to 0.

    Raises ValueError: it is no scale; the message says why.
    """
    if isinstance(written, str):
        match = _RANGE.fullmatch(written.strip())
        if match is None:
            raise ValueError('write a range such as "1-5", or a list of levels such as [pass, fail]')
        low, high = int(match[1]), int(match[2])
        if low >= high:
            raise ValueError(f"{written!r} is not a rising range; write for example 1-5")
        if high - low >= MOST_LEVELS:
            raise ValueError(f"has {high - low + 1} levels; use at most {MOST_LEVELS}")
        written = list(range(low, high + 1))
    if isinstance(written, Mapping):
        return _scale_from_numbers({_level_text(level): number for level, number in written.items()})
    levels = [_level_text(level) for level in written]
    _require_levels(levels)
    if not _is_worst_first(levels):
        levels.reverse()
    steps = len(levels) - 1
    return _default_if_equal(RubricScale(tuple(levels), tuple(index / steps for index in range(steps + 1))))


def _is_worst_first(levels: list[str]) -> bool:
    """Check whether levels are listed from worst to best; raises ValueError if they do not tell."""
    first, last = levels[0].casefold(), levels[-1].casefold()
    try:
        numbers = list(map(float, levels))
        up, down = numbers == sorted(numbers), numbers == sorted(numbers, reverse=True)
    except ValueError:
        up = bool(_WORST.fullmatch(first) or _BEST.fullmatch(last))
        down = bool(_BEST.fullmatch(first) or _WORST.fullmatch(last))
    if up != down:
        return up
    raise ValueError(
        f"does not say which level is best; give the levels numbers: {_example_numbers(levels)} if it "
        f"is {levels[-1]}, {_example_numbers(levels[::-1])} if it is {levels[0]}"
    )


def _example_numbers(levels: Sequence[str]) -> str:
    more = ", …" if len(levels) > 2 else ""
    return f"{{{levels[0]}: 0, {levels[1]}: 1{more}}}"


def _scale_from_numbers(numbers: Mapping[str, Any]) -> RubricScale:
    _require_levels(list(numbers))
    for level, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"gives {level} {number!r}, not a number")  # noqa: TRY004  as other findings
    rising = sorted(numbers, key=lambda level: float(numbers[level]))
    low, high = float(numbers[rising[0]]), float(numbers[rising[-1]])
    if low == high:
        raise ValueError("gives every level the same number")
    values = tuple((float(numbers[level]) - low) / (high - low) for level in rising)
    return _default_if_equal(RubricScale(tuple(rising), values))


def _default_if_equal(scale: RubricScale) -> RubricScale:
    """Return the default scale where ``scale`` equals it but for letter case."""
    same = tuple(level.casefold() for level in scale.levels) == ("low", "medium", "high")
    return HIGH_MEDIUM_LOW if same and scale.values == HIGH_MEDIUM_LOW.values else scale


def _require_levels(levels: Sequence[str]) -> None:
    if not 2 <= len(levels) <= MOST_LEVELS:
        raise ValueError(f"has {len(levels)} levels; name 2 to {MOST_LEVELS}")
    folded = [level.casefold() for level in levels]
    if repeated := {level for level in folded if folded.count(level) > 1}:
        raise ValueError(f"names {min(repeated)} more than once")
    for level in levels:
        if not level or len(level) > 60 or any(sign in level for sign in '\n\r\t"{}[]:'):
            raise ValueError(f"has a level that is not a word: {level!r}; use a few letters or digits")


def _level_text(level: Any) -> str:
    if isinstance(level, bool):
        return "true" if level else "false"
    if isinstance(level, float) and level.is_integer():
        level = int(level)
    return " ".join(str(level).split())
