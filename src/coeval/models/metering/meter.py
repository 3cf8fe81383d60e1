"""What each model was sent and what its answers took, over the whole life of a folder, and where that ends.

``usage.json`` is written *ahead*: before a model with a ceiling sends, a block of permits is put
on disk as reserved. After a crash that block counts as used, so a ceiling is never passed; at
most a part of one block per model is wasted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from coeval.core.errors import Misshapen, QuotaExhausted, StoreError
from coeval.core.foreign import convert
from coeval.core.model import Price
from coeval.core.options import CONTINUE, max_calls
from coeval.core.records import Usage
from coeval.store.jsonl import read_json, write_json_atomic

__all__ = ["Ledger", "Meter", "ModelAccount", "Terms", "read_accounts"]

_HOSTS_WORD = "what the host says an answer cost"


class Terms(NamedTuple):
    """On what terms a model is asked: the most requests over the life of the folder (None: any number), what
    its tokens cost (None: nobody knows), and whose word that is."""

    max_calls: int | None = None
    price: Price | None = None
    priced_by: str | None = None


class ModelAccount(msgspec.Struct):
    """What a model has used; ``requests + reserved`` is never less than what was sent.

    ``cost_usd`` is that of the answers whose price was known, None while there is none; ``unpriced`` counts
    the other answers. ``priced_by`` says whose the price is that holds now.
    """

    requests: int = 0
    reserved: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    unpriced: int = 0
    priced_by: str | None = None

    def __post_init__(self) -> None:
        counts = (self.requests, self.reserved, self.input_tokens, self.output_tokens, self.unpriced)
        if min(*counts, self.cost_usd or 0.0) < 0:
            raise ValueError("a count is negative")


class Meter:
    """One model's account; made by `Ledger.meter`.

    `reserve` before requests are sent, one or many; `settle` once for each answer, when it comes;
    `give_back` for those of the requests that were not sent after all.
    """

    __slots__ = ("_ledger", "_name", "_row", "_terms")

    def __init__(self, ledger: Ledger, name: str, row: ModelAccount, terms: Terms) -> None:
        self._ledger = ledger
        self._name = name
        self._row = row
        self._terms = terms

    @property
    def requests(self) -> int:
        """Requests counted so far, in this process and before."""
        return self._row.requests

    def refusal(self) -> QuotaExhausted | None:
        """What `reserve` would raise for one more request, without counting one; None where it would not."""
        return None if self._terms.max_calls is None else self._refused(1)

    def reserve(self, requests: int = 1) -> None:
        """Count requests that are about to be sent: all of them, or none and raise.

        Raises
        ------
        QuotaExhausted
            the ceiling does not allow them.
        StoreError
            the reservation could not be written, so nothing may be sent.
        """
        row, ceiling = self._row, self._terms.max_calls
        if ceiling is not None:
            if (refused := self._refused(requests)) is not None:
                raise refused
            if requests > row.reserved:
                self._ledger.write_ahead(row, requests, ceiling)
            row.reserved -= requests
        row.requests += requests

    def give_back(self, requests: int = 1) -> None:
        """Take back the permits of requests that were not sent.

        What the file counts is not lowered before it is next written, so it never counts less than was
        sent. It is written as soon as a crash would waste more than a block.

        Raises
        ------
        StoreError
            the counts could not be written.
        """
        row = self._row
        row.requests -= requests
        if self._terms.max_calls is not None:
            row.reserved += requests
            self._ledger.trim(row)

    def settle(self, usage: Usage) -> Usage:
        """Book what an answer took; the same with its price, where that is known and the host told none."""
        row, cost = self._row, usage.cost_usd
        if cost is not None:
            row.priced_by = _HOSTS_WORD
        elif (price := self._terms.price) is not None:
            cost = price(usage)
            usage = msgspec.structs.replace(usage, cost_usd=cost)
        row.input_tokens += usage.input_tokens
        row.output_tokens += usage.output_tokens
        if cost is None:
            row.unpriced += 1
        else:
            row.cost_usd = (row.cost_usd or 0.0) + cost
        return usage

    def _refused(self, requests: int) -> QuotaExhausted | None:
        used, ceiling = self._row.requests, self._terms.max_calls
        if ceiling is None or used + requests <= ceiling:
            return None
        key = max_calls(self._name)
        wanted = "" if requests == 1 else f"; {requests} more were asked for at once"
        return QuotaExhausted(
            f"model {self._name} has used {used} of the {ceiling} requests that {key} "
            f"allows over the life of the run{wanted}. Raise {key} and run again with {CONTINUE}."
        )


class Ledger:
    """The counts of ``usage.json``, for the only process that writes it.

    Parameters
    ----------
    path:
        the file; absent is empty. Models it names and this run does not are kept as they stand.
    terms:
        by model; one that is not named is counted, not limited.
    block:
        permits reserved ahead at once, 1 to 32.

    Raises
    ------
    StoreError
        the file is damaged and a ceiling depends on it.
    """

    def __init__(
        self, path: Path, terms: Mapping[str, Terms] = MappingProxyType({}), block: int = 32
    ) -> None:
        if not 1 <= block <= 32:
            raise ValueError(f"a block holds 1 to 32 permits, not {block}")
        self._path = path
        self._terms = dict(terms)
        self._block = block
        self._file: dict[str, Any] = {}
        self._rows: dict[str, ModelAccount] = {}
        self._set_aside = False
        try:
            self._load()
        except StoreError as error:
            if any(of_model.max_calls is not None for of_model in self._terms.values()):
                raise StoreError(
                    f"{path} cannot be used ({error}), and a ceiling depends on the requests that it "
                    "counts. Restore it from a copy, or move it away to count from zero again."
                ) from error
            self._set_aside = True
        # What a crashed process had reserved, it may have sent.
        for row in self._rows.values():
            row.requests, row.reserved = row.requests + row.reserved, 0

    def meter(self, name: str) -> Meter:
        row, terms = self._rows.setdefault(name, ModelAccount()), self._terms.get(name, Terms())
        row.priced_by = terms.priced_by
        return Meter(self, name, row, terms)

    def flush(self) -> None:
        """Write the counts as they stand, reservations kept."""
        models = self._file.get("models", {})
        counted = {name: models.get(name, {}) | msgspec.to_builtins(row) for name, row in self._rows.items()}
        if self._set_aside:
            # Its counts cannot be read, but they are the user's: nothing is deleted.
            self._path.replace(self._path.with_name(f"{self._path.name}.damaged"))
            self._set_aside = False
        write_json_atomic(self._path, self._file | {"models": models | counted})

    def close(self) -> None:
        """Write the exact counts: what was reserved and not sent is given back. No file is made where nothing
        was sent."""
        for row in self._rows.values():
            row.reserved = 0
        if self._path.exists() or any(row.requests for row in self._rows.values()):
            self.flush()

    def write_ahead(self, row: ModelAccount, requests: int, ceiling: int) -> None:
        """Write that ``requests``, and the rest of a block, may be sent."""
        before = row.reserved
        row.reserved = min(max(requests, self._block), ceiling - row.requests)
        try:
            self.flush()
        except StoreError:
            row.reserved = before
            raise

    def trim(self, row: ModelAccount) -> None:
        """Reserve half a block, where permits that came back have made it more than a whole one."""
        if row.reserved > self._block:
            row.reserved = self._block // 2
            self.flush()

    def _load(self) -> None:
        self._file, self._rows = _read(self._path)


def read_accounts(path: Path) -> dict[str, ModelAccount]:
    """The accounts of a ``usage.json`` by model; none where there is no file.

    Raises
    ------
    StoreError
        it is damaged, or cannot be read.
    """
    return _read(path)[1]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, ModelAccount]]:
    """The file as it stands, and its accounts."""
    try:
        content = read_json(path, dict[str, Any])
    except FileNotFoundError:
        return {}, {}
    try:
        return content, convert(content.get("models", {}), dict[str, ModelAccount])
    except Misshapen as error:
        raise StoreError(f"{path} is damaged: {error}") from error
