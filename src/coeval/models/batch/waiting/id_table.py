"""Numbers by 128-bit ids, in memory that a million of them do not strain."""

from __future__ import annotations

from array import array

__all__ = ["IdTable"]

_ID_BYTES = 16
_FULLEST = 0.75


class IdTable:
    """Id (16 bytes, evenly spread, as hashes are) → a number under 2**64 - 1, in 32 to 64 bytes each.

    A dict of bytes takes some 200. Open addressing with linear probing; nothing is ever taken out.
    """

    __slots__ = ("_count", "_ids", "_numbers")

    def __init__(self) -> None:
        self._count = 0
        self._reserve(1024)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def get(self, key: bytes) -> int | None:
        number = self._numbers[self._place(key)]
        return number - 1 if number else None

    def set(self, key: bytes, number: int) -> None:
        place = self._place(key)
        if not self._numbers[place]:
            if self._count >= len(self._numbers) * _FULLEST:
                self._grow()
                place = self._place(key)
            self._count += 1
            self._ids[place * _ID_BYTES : (place + 1) * _ID_BYTES] = key
        self._numbers[place] = number + 1

    def _place(self, key: bytes) -> int:
        """Where an id is, or would be put."""
        ids, numbers = self._ids, self._numbers
        place = int.from_bytes(key[:8], "little") % len(numbers)
        while numbers[place]:
            at = place * _ID_BYTES
            if ids[at : at + _ID_BYTES] == key:
                return place
            place = (place + 1) % len(numbers)
        return place

    def _reserve(self, places: int) -> None:
        self._ids = bytearray(places * _ID_BYTES)
        self._numbers = array("Q", bytes(places * 8))

    def _grow(self) -> None:
        ids, numbers = self._ids, self._numbers
        self._reserve(len(numbers) * 2)
        for place, number in enumerate(numbers):
            if number:
                key = bytes(ids[place * _ID_BYTES : (place + 1) * _ID_BYTES])
                at = self._place(key)
                self._ids[at * _ID_BYTES : (at + 1) * _ID_BYTES] = key
                self._numbers[at] = number
