"""What is worked out of a few long-lived objects, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Memo"]

T = TypeVar("T")


class Memo(Generic[T]):
    """``make(*of)``, kept for the very same objects: for what is no key of a mapping, or costs as much to
    hash as to work out. What is kept keeps ``of`` alive, so no other object takes its identity; the whole
    is dropped when there are more than ``most``."""

    def __init__(self, make: Callable[..., T], most: int = 256) -> None:
        self._make = make
        self._most = most
        self._kept: dict[tuple[int, ...], tuple[T, tuple[Any, ...]]] = {}

    def __call__(self, *of: Any) -> T:
        """
        Raises
        ------
        Whatever ``make`` raises, which is not kept.
        """
        place = tuple(map(id, of))
        kept = self._kept.get(place)
        if kept is None:
            if len(self._kept) >= self._most:
                self._kept.clear()
            kept = self._kept[place] = self._make(*of), of
        return kept[0]
