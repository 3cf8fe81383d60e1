"""How many requests each model may still be sent, over the whole life of a run.

``usage.json`` is written *ahead*: before a model with a ceiling sends, a block of permits is put
on disk as reserved. After a crash that block counts as used, so a ceiling is never passed; at
most a part of one block per model is wasted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from coeval.core.errors import Misshapen, QuotaExhausted, StoreError
from coeval.core.foreign import convert
from coeval.core.options import CONTINUE, max_calls
from coeval.core.records import Usage
from coeval.store.jsonl import read_json, write_json_atomic

__all__ = ["Permits", "UsageLedger"]


class _Row(msgspec.Struct):
    """What a model has used; ``requests + reserved`` is never less than what was sent."""

    requests: int = 0
    reserved: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def __post_init__(self) -> None:
        if min(self.requests, self.reserved, self.input_tokens, self.output_tokens) < 0:
            raise ValueError("a count is negative")


class Permits:
    """One model's permits; made by `UsageLedger.permits`."""

    __slots__ = ("_ceiling", "_ledger", "_name", "_row")

    def __init__(self, ledger: UsageLedger, name: str, row: _Row, ceiling: int | None) -> None:
        self._ledger = ledger
        self._name = name
        self._row = row
        self._ceiling = ceiling

    @property
    def remaining(self) -> int | None:
        """Requests that may still be sent; None without a ceiling."""
        return None if self._ceiling is None else max(0, self._ceiling - self._row.requests)

    def refusal(self) -> QuotaExhausted | None:
        """What `permit` would raise for one more request, without counting one; None where it would not."""
        return QuotaExhausted(self._words(1)) if self.remaining == 0 else None

    def permit(self, requests: int = 1) -> None:
        """Count requests that are about to be sent: all of them, or none and raise.

        Raises
        ------
        QuotaExhausted
            the ceiling does not allow them.
        StoreError
            the reservation could not be written, so nothing may be sent.
        """
        row = self._row
        if self._ceiling is not None:
            if row.requests + requests > self._ceiling:
                raise QuotaExhausted(self._words(requests))
            if requests > row.reserved:
                self._ledger.reserve(row, requests, self._ceiling)
            row.reserved -= requests
        row.requests += requests

    def give_back(self) -> None:
        """Take back the permit of a request that was not sent.

        What the file counts is not lowered before it is next written, so it never counts less than was
        sent. It is written as soon as a crash would waste more than a block.

        Raises
        ------
        StoreError
            the counts could not be written.
        """
        row = self._row
        row.requests -= 1
        if self._ceiling is not None:
            row.reserved += 1
            self._ledger.trim(row)

    def _words(self, requests: int) -> str:
        key = max_calls(self._name)
        wanted = "" if requests == 1 else f"; {requests} more were asked for at once"
        return (
            f"model {self._name} has used {self._row.requests} of the {self._ceiling} requests that {key} "
            f"allows over the life of the run{wanted}. Raise {key} and run again with {CONTINUE}."
        )


class UsageLedger:
    """The counts of ``usage.json``, for the only process that writes it.

    Parameters
    ----------
    path:
        the file; absent is empty. Models it names and this run does not are kept as they stand.
    ceilings:
        most requests per model over the life of the run; None or absent: counted, not limited.
    block:
        permits reserved ahead at once, 1 to 32.

    Raises
    ------
    StoreError
        the file is damaged and a ceiling depends on it.
    """

    def __init__(self, path: Path, ceilings: Mapping[str, int | None], block: int = 32) -> None:
        if not 1 <= block <= 32:
            raise ValueError(f"a block holds 1 to 32 permits, not {block}")
        self._path = path
        self._ceilings = dict(ceilings)
        self._block = block
        self._file: dict[str, Any] = {}
        self._rows: dict[str, _Row] = {}
        self._set_aside = self._counts_records = False
        try:
            self._load()
        except StoreError as error:
            if any(ceiling is not None for ceiling in self._ceilings.values()):
                raise StoreError(
                    f"{path} cannot be used ({error}), and a ceiling depends on the requests that it "
                    "counts. Restore it from a copy, or move it away to count from zero again."
                ) from error
            self._set_aside = True
        # What a crashed process had reserved, it may have sent.
        for row in self._rows.values():
            row.requests, row.reserved = row.requests + row.reserved, 0

    def permits(self, name: str) -> Permits:
        return Permits(self, name, self._row(name), self._ceilings.get(name))

    def sent(self, name: str) -> int:
        """Requests counted for a model so far, in this process and before."""
        return self._row(name).requests

    def add_tokens(self, name: str, usage: Usage) -> None:
        """Count what a record took."""
        self._counts_records = True
        row = self._row(name)
        row.input_tokens += usage.input_tokens
        row.output_tokens += usage.output_tokens

    def flush(self) -> None:
        """Write the counts as they stand, reservations kept."""
        models = self._file.get("models", {})
        counted = {name: models.get(name, {}) | msgspec.to_builtins(row) for name, row in self._rows.items()}
        if self._set_aside:
            # Its counts cannot be read, but they are the user's: nothing is deleted.
            self._path.replace(self._path.with_name(f"{self._path.name}.damaged"))
            self._set_aside = False
        write_json_atomic(self._path, self._file | {"models": models | counted})

    def close(self, *, in_any_case: bool = True) -> None:
        """Write the exact counts; what was reserved and not sent is given back.

        Else no file is made where no ceiling stands and nothing came of what was sent.
        """
        for row in self._rows.values():
            row.reserved = 0
        limited = any(ceiling is not None for ceiling in self._ceilings.values())
        if in_any_case or limited or self._counts_records or self._path.exists():
            self.flush()

    def reserve(self, row: _Row, requests: int, ceiling: int) -> None:
        """Write ahead that ``requests``, and the rest of a block, may be sent."""
        before = row.reserved
        row.reserved = min(max(requests, self._block), ceiling - row.requests)
        try:
            self.flush()
        except StoreError:
            row.reserved = before
            raise

    def trim(self, row: _Row) -> None:
        """Reserve half a block, where permits that came back have made it more than a whole one."""
        if row.reserved > self._block:
            row.reserved = self._block // 2
            self.flush()

    def _row(self, name: str) -> _Row:
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = _Row()
        return row

    def _load(self) -> None:
        try:
            content = read_json(self._path, dict[str, Any])
        except FileNotFoundError:
            return
        try:
            rows = convert(content.get("models", {}), dict[str, _Row])
        except Misshapen as error:
            raise StoreError(f"{self._path} is damaged: {error}") from error
        self._file, self._rows = content, rows
