"""Random numbers that depend on what was asked, and on nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

from coeval.core.records import Request

T = TypeVar("T")


class Draws:
    """Named draws: the same request and the same name give the same number, in any process.

    Each number has a name of its own, so that one more draw shifts none of the others.
    """

    def __init__(self, model: str, request: Request) -> None:
        digest = blake2b(digest_size=32)
        # Lengths stand before texts, so that no two requests can run into the same bytes.
        for text in (model, str(request.seed), *(t for m in request.messages for t in (m.role, m.content))):
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(encoded))
            digest.update(encoded)
        self._key = digest.digest()

    def bits(self, name: str) -> int:
        """A whole number below 2**64, each equally likely."""
        return int.from_bytes(self._bytes(name, 8), "big")

    def uniform(self, name: str) -> float:
        """A number in [0, 1)."""
        return (self.bits(name) >> 11) * 2.0**-53

    def normal(self, name: str) -> float:
        """A number of mean 0 and standard deviation 1, never beyond ±3.5.

        The sum of four uniform numbers, scaled (Irwin-Hall): near enough to a normal one here,
        and bounded.
        """
        four = self._bytes(name, 16)
        total = sum(int.from_bytes(four[i : i + 4], "big") for i in (0, 4, 8, 12))
        return (total * 2.0**-32 - 2.0) * math.sqrt(3.0)

    def pick(self, name: str, choices: Sequence[T]) -> T:
        return choices[self.bits(name) % len(choices)]

    def some(self, name: str, choices: Sequence[T], count: int) -> list[T]:
        """``count`` of the choices (all, if there are fewer), none twice, in drawn order."""
        left, number = list(choices), self.bits(name)
        taken: list[T] = []
        while left and len(taken) < count:
            number, at = divmod(number, len(left))
            taken.append(left.pop(at))
        return taken

    def _bytes(self, name: str, size: int) -> bytes:
        return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=size, key=self._key).digest()
