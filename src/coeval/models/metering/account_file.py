"""``usage.json``: what each model of a folder was sent, what its answers took, and what it was promised."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval.core.errors import Misshapen, StoreError, UsageError
from coeval.core.foreign import convert
from coeval.core.model import Price
from coeval.core.records import Usage
from coeval.core.text import dollars
from coeval.store.jsonl import read_json, write_json_atomic

# US dollars: sums of the same costs in another order differ by less.
_ROUNDING = 1e-9

Most = Callable[[int, int], float]
"""The most US dollars that a request may cost whose prompt and whose answer have at most so many tokens."""


class Terms(NamedTuple):
    """On what terms a model is asked: the most requests over the life of the folder (None: any number), what
    its tokens cost (None: nobody knows), and whose word that is; the most money over the life of the folder,
    and the most that a request may cost (None: it is free, or nobody knows); the same two for requests that
    are asked in a batch job."""

    max_calls: int | None = None
    price: Price | None = None
    priced_by: str | None = None
    max_cost_usd: float | None = None
    most: Most | None = None
    batch_price: Price | None = None
    batch_most: Most | None = None


class JobAccount(msgspec.Struct):
    """A batch job that was submitted and is not booked yet: its requests, what they may cost at most, and
    what the dearest of them may."""

    requests: int
    usd: float = 0.0
    dearest_usd: float = 0.0


class Settlement(msgspec.Struct, frozen=True):
    """That a user settled what was perhaps spent: when and who, the provider's bill for the model in this
    folder, and how much was perhaps spent until then (US dollars)."""

    at: str
    by: str
    bill_usd: float
    perhaps_usd: float


class ModelAccount(msgspec.Struct):
    """What a model has used; ``requests + reserved`` is never less than what was sent.

    ``cost_usd`` is that of the answers whose price was known, None while there is none; ``unpriced`` counts
    the other answers. ``priced_by`` says whose the price is that holds now. ``uncertain_usd`` is what
    requests may have cost at most of which nobody can know whether they were billed; ``reserved_usd`` what
    those may cost that are being sent. Both are kept of requests whose price is known and whose answer is
    bounded. ``jobs`` are batch jobs that run, by tag, their requests counted already; ``booked`` the tags of
    those that ended. ``settled_usd`` is what a bill says beyond ``cost_usd``, by the last of
    ``settlements``.
    """

    requests: int = 0
    reserved: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    unpriced: int = 0
    priced_by: str | None = None
    uncertain_usd: float = 0.0
    reserved_usd: float = 0.0
    jobs: dict[str, JobAccount] = {}
    booked: list[str] = []
    settled_usd: float = 0.0
    settlements: list[Settlement] = []

    def __post_init__(self) -> None:
        counts = (self.requests, self.reserved, self.input_tokens, self.output_tokens, self.unpriced)
        money = (self.cost_usd or 0.0, self.uncertain_usd, self.reserved_usd, self.settled_usd)
        if min(*counts, *money) < 0:
            raise ValueError("a count is negative")

    @property
    def known_usd(self) -> float | None:
        """What it has cost for sure; None where no answer's price is known."""
        return (self.cost_usd or 0.0) + self.settled_usd if self.settlements else self.cost_usd

    @property
    def spent_usd(self) -> float:
        """What it has cost, and what it may have cost besides."""
        return (self.known_usd or 0.0) + self.uncertain_usd

    def book(self, usage: Usage) -> None:
        """Add what an answer took."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        if usage.cost_usd is None:
            self.unpriced += 1
        else:
            self.cost_usd = (self.cost_usd or 0.0) + usage.cost_usd

    def settle(self, bill_usd: float, at: str, by: str) -> None:
        """Take the provider's bill for the word on what was perhaps spent. What answers are known to have
        cost stays, be the bill lower."""
        self.settled_usd = max(0.0, bill_usd - (self.cost_usd or 0.0))
        self.settlements = [*self.settlements, Settlement(at, by, bill_usd, self.uncertain_usd)]
        self.uncertain_usd, self.unpriced = 0.0, 0

    def take_up(self, recorded: Usage) -> bool:
        """Begin a start: what a crashed process had reserved it may have sent, but for what the folder's own
        records show, which is never left out; whether it had been."""
        self.requests, self.reserved = self.requests + self.reserved, 0
        self.input_tokens = max(self.input_tokens, recorded.input_tokens)
        self.output_tokens = max(self.output_tokens, recorded.output_tokens)
        lost = (recorded.cost_usd or 0.0) - (self.cost_usd or 0.0)
        if lost > _ROUNDING:
            self.cost_usd = recorded.cost_usd
            self.reserved_usd = max(0.0, self.reserved_usd - lost)
        self.uncertain_usd, self.reserved_usd = self.uncertain_usd + self.reserved_usd, 0.0
        return lost > _ROUNDING


class AccountFile:
    """The file and its accounts by model, for the only process that writes it. Accounts of models that this
    run does not ask are kept as they stand. Made, it holds nothing: `load` reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, ModelAccount] = {}
        self._content: dict[str, Any] = {}
        self._set_aside = False

    def load(self) -> None:
        """
        Raises StoreError: it is damaged, or cannot be read.
        """
        self._content, self.rows = _read(self.path)

    def take_up(self, recorded: Mapping[str, Usage]) -> bool:
        """Begin a start in a folder whose own records took so much, by model; whether the account said less
        than they do."""
        for name, usage in recorded.items():
            if usage.cost_usd:
                self.rows.setdefault(name, ModelAccount())
        found = {name: row.take_up(recorded.get(name, Usage())) for name, row in self.rows.items()}
        return any(found.values())

    def set_aside(self) -> None:
        """Begin anew; the damaged file gets another name when it is first written."""
        self._set_aside = True

    def write(self) -> None:
        """Write the accounts as they stand, reservations kept.

        Raises StoreError: the disk refuses.
        """
        models = self._content.get("models", {})
        counted = {name: models.get(name, {}) | msgspec.to_builtins(row) for name, row in self.rows.items()}
        if self._set_aside:
            # Its counts cannot be read, but they are the user's: nothing is deleted.
            self.path.replace(self.path.with_name(f"{self.path.name}.damaged"))
            self._set_aside = False
        write_json_atomic(self.path, self._content | {"models": models | counted})


def settle_accounts(
    path: Path, bills: Mapping[str, float], by: str, recorded: Mapping[str, Usage]
) -> dict[str, ModelAccount]:
    """Take the provider's bill for the word on what models perhaps spent, while nobody is at work in the
    folder, and write down who said so; the accounts that were settled.

    Raises UsageError: a model has no account, or batch jobs that are not done with; StoreError: the file is
    damaged, or cannot be read or written.
    """
    file = AccountFile(path)
    file.load()
    for name in bills:
        if name not in file.rows:
            known = ", ".join(file.rows) or "none"
            raise UsageError(f"no model {name} has an account in {path}; it has: {known}")
        if file.rows[name].jobs:
            raise UsageError(
                f"{name} has batch jobs that are not done with, which its bill may hold; collect or cancel "
                "them first (--fetch-batches, --cancel-batches)"
            )
    file.take_up(recorded)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    for name, usd in bills.items():
        file.rows[name].settle(usd, at, by)
    file.write()
    return {name: file.rows[name] for name in bills}


def read_accounts(path: Path) -> dict[str, ModelAccount]:
    """The accounts of a ``usage.json`` by model; none where there is no file.

    Raises StoreError: it is damaged, or cannot be read.
    """
    return _read(path)[1]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, ModelAccount]]:
    """The file as it stands, and its accounts."""
    content = read_json(path, dict[str, Any], missing={})
    try:
        return content, convert(content.get("models", {}), dict[str, ModelAccount])
    except Misshapen as error:
        raise StoreError(f"{path} is damaged: {error}") from error


# --- Spending of a budget, over all its accounts


class Spent(NamedTuple):
    """US dollars: what answers have cost, what requests may have cost of which nobody can know it, what
    batch jobs hold that run, and what is set aside for other requests."""

    known_usd: float = 0.0
    perhaps_usd: float = 0.0
    in_jobs_usd: float = 0.0
    set_aside_usd: float = 0.0

    @property
    def usd(self) -> float:
        return self.known_usd + self.perhaps_usd

    @classmethod
    def of(cls, accounts: Collection[ModelAccount], *, at_work: bool) -> Spent:
        """Where nobody is at work any more, what was set aside may have been billed."""
        set_aside = sum(account.reserved_usd for account in accounts)
        uncertain = sum(account.uncertain_usd for account in accounts)
        return cls(
            sum(account.known_usd or 0.0 for account in accounts),
            uncertain if at_work else uncertain + set_aside,
            sum(job.usd for account in accounts for job in account.jobs.values()),
            set_aside if at_work else 0.0,
        )


def perhaps(usd: float) -> str:
    """How much of what is spent is so only perhaps, in brackets; nothing where nothing is."""
    return f" ({dollars(usd)} of that perhaps: billing unknown)" if usd else ""
