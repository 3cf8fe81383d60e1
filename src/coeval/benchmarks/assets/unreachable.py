"""Which parcels could not be fetched lately: what can be done without is not asked for at every start."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from coeval.core.errors import StoreError
from coeval.store.jsonl import read_json, write_json_atomic

__all__ = ["Unreachable"]

AGAIN_AFTER_S = 3600.0


class _Failure(msgspec.Struct, frozen=True):
    """When a parcel could not be fetched (seconds since 1970), and why."""

    at: float
    reason: str


class Unreachable:
    """``unreachable.json`` in the cache: parcel → its last failure. A lost file costs one more try."""

    def __init__(self, cache: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = cache / "unreachable.json"
        self._clock = clock

    def lately(self) -> dict[str, str]:
        """The parcels that are not to be asked for now, each with the reason of its last failure."""
        now = self._clock()
        return {
            parcel: failure.reason
            for parcel, failure in self._read().items()
            if 0 <= now - failure.at < AGAIN_AFTER_S
        }

    def remember(self, failed: Mapping[str, str]) -> None:
        """Take in failures of just now; where the cache cannot be written, they are tried again next time."""
        if failed:
            now = self._clock()
            known = self._read() | {parcel: _Failure(now, reason) for parcel, reason in failed.items()}
            with suppress(StoreError, OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_json_atomic(self._path, known)

    def _read(self) -> dict[str, _Failure]:
        try:
            return read_json(self._path, dict[str, _Failure])
        except (OSError, StoreError):
            return {}
