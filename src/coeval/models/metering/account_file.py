"""``usage.json``: requests, tokens, costs and reservations of each model over the life of a folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval.core.errors import Misshapen, StoreError, UsageError
from coeval.core.figures import dollars
from coeval.core.foreign import convert
from coeval.core.model import Price
from coeval.core.records import Usage
from coeval.store.jsonl import read_json, write_json_atomic

# US dollars: sums of the same costs in another order differ by less.
_ROUNDING = 1e-9

Most = Callable[[int, int], float]
"""The most US dollars that a request may cost whose prompt and whose answer have at most so many tokens."""


class Terms(NamedTuple):
    """A model's price and limits over the life of the folder. None: unlimited, or unknown. ``priced_by`` is
    the source of ``price``. ``most`` is the most that a request may cost (None: free, or unknown).
    ``batch_price`` and ``batch_most`` are those of requests in batch jobs."""

    max_calls: int | None = None
    price: Price | None = None
    priced_by: str | None = None
    max_cost_usd: float | None = None
    most: Most | None = None
    batch_price: Price | None = None
    batch_most: Most | None = None


class JobAccount(msgspec.Struct):
    """A submitted batch job that is not booked yet: its requests, and the most that they, and the dearest of
    them, may cost."""

    requests: int
    usd: float = 0.0
    dearest_usd: float = 0.0


class Settlement(msgspec.Struct, frozen=True):
    """A user's settlement of what was perhaps spent: when and by whom, the provider's bill for the model in
    this folder, and how much was perhaps spent until then (US dollars)."""

    at: str
    by: str
    bill_usd: float
    perhaps_usd: float


class ModelAccount(msgspec.Struct):
    """What a model has used; ``requests + reserved`` is never less than what was sent.

    ``cost_usd`` is the cost of answers with a known price, None before the first; ``unpriced`` counts the
    others. ``priced_by`` is the source of the present price. ``uncertain_usd`` is the most that requests may
    have cost whose billing is unknown, ``reserved_usd`` the most that requests being sent may cost; both
    cover only requests with a known price and a bounded answer. ``jobs`` are running batch jobs by tag, whose
    requests are counted already; ``booked`` the tags of ended ones. ``settled_usd`` is what the last of
    ``settlements`` billed beyond ``cost_usd``.
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
        """Return the known cost; None if no answer's price is known."""
        return (self.cost_usd or 0.0) + self.settled_usd if self.settlements else self.cost_usd

    @property
    def spent_usd(self) -> float:
        """Return the known cost plus what may have been billed besides."""
        return (self.known_usd or 0.0) + self.uncertain_usd

    def book(self, usage: Usage) -> None:
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        if usage.cost_usd is None:
            self.unpriced += 1
        else:
            self.cost_usd = (self.cost_usd or 0.0) + usage.cost_usd

    def settle(self, bill_usd: float, at: str, by: str) -> None:
        """Replace the uncertain cost by the provider's bill; the known cost of answers stays."""
        self.settled_usd = max(0.0, bill_usd - (self.cost_usd or 0.0))
        self.settlements = [*self.settlements, Settlement(at, by, bill_usd, self.uncertain_usd)]
        self.uncertain_usd, self.unpriced = 0.0, 0

    def absorb_crash_and_check_loss(self, recorded: Usage) -> bool:
        """Count what a crashed process had reserved as perhaps spent, but for what the folder's records prove
        was spent; return whether the account lacked such cost."""
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
    """``usage.json`` and its accounts by model, for the only process that writes it. `load` reads it; the
    accounts of models that this run does not use are kept unchanged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, ModelAccount] = {}
        self._content: dict[str, Any] = {}
        self._set_aside = False

    def load(self) -> None:
        """Read the file; StoreError if it is damaged or unreadable."""
        self._content, self.rows = _read_accounts(self.path)

    def absorb_crash_and_check_loss(self, recorded: Mapping[str, Usage]) -> bool:
        """Absorb a crash in each account, given the folder's usage; return whether one lacked cost."""
        for name, usage in recorded.items():
            if usage.cost_usd:
                self.rows.setdefault(name, ModelAccount())
        lost_cost = {
            name: row.absorb_crash_and_check_loss(recorded.get(name, Usage()))
            for name, row in self.rows.items()
        }
        return any(lost_cost.values())

    @contextmanager
    def undo_if_write_fails(self, row: ModelAccount) -> Iterator[None]:
        """Write a change of an account that is made within; StoreError, with the account as before, if the
        disk refuses."""
        before = msgspec.structs.replace(row, jobs=dict(row.jobs), booked=list(row.booked))
        yield
        try:
            self.write()
        except StoreError:
            for name in ModelAccount.__struct_fields__:
                setattr(row, name, getattr(before, name))
            raise

    def set_aside(self) -> None:
        """Start empty; the first write renames the damaged file."""
        self._set_aside = True

    def write(self) -> None:
        """Write the accounts, reservations included; StoreError if the disk refuses."""
        models = self._content.get("models", {})
        counted = {name: models.get(name, {}) | msgspec.to_builtins(row) for name, row in self.rows.items()}
        if self._set_aside:
            # Its counts are unreadable, but the user's: nothing is deleted.
            self.path.replace(self.path.with_name(f"{self.path.name}.damaged"))
            self._set_aside = False
        write_json_atomic(self.path, self._content | {"models": models | counted})


def settle_accounts(
    path: Path, bills: Mapping[str, float], by: str, recorded: Mapping[str, Usage]
) -> dict[str, ModelAccount]:
    """Settle what models perhaps spent by the provider's bills, and record who said so, while no run uses the
    folder. Return the settled accounts. Raises UsageError: a model has no account, or unfinished batch jobs;
    StoreError: the file is damaged, or cannot be read or written."""
    file = AccountFile(path)
    file.load()
    for name in bills:
        if name not in file.rows:
            names = ", ".join(file.rows) or "none"
            raise UsageError(f"no model {name} has an account in {path}; it has: {names}")
        if file.rows[name].jobs:
            raise UsageError(
                f"{name} has unfinished batch jobs, which its bill may include; collect or cancel "
                "them first (--fetch-batches, --cancel-batches)"
            )
    file.absorb_crash_and_check_loss(recorded)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    for name, usd in bills.items():
        file.rows[name].settle(usd, at, by)
    file.write()
    return {name: file.rows[name] for name in bills}


def read_accounts(path: Path) -> dict[str, ModelAccount]:
    """Read the accounts of a ``usage.json`` by model, none without a file; StoreError if damaged."""
    return _read_accounts(path)[1]


def _read_accounts(path: Path) -> tuple[dict[str, Any], dict[str, ModelAccount]]:
    """Read the file's content as it is, and its accounts."""
    content = read_json(path, dict[str, Any], missing={})
    try:
        return content, convert(content.get("models", {}), dict[str, ModelAccount])
    except Misshapen as error:
        raise StoreError(f"{path} is damaged: {error}") from error


class Spent(NamedTuple):
    """US dollars: the known cost of answers, the most that requests of unknown billing may have cost, and
    what is set aside for running batch jobs and for other requests."""

    known_usd: float = 0.0
    perhaps_usd: float = 0.0
    in_jobs_usd: float = 0.0
    set_aside_usd: float = 0.0

    @property
    def usd(self) -> float:
        return self.known_usd + self.perhaps_usd

    @classmethod
    def add_up(cls, accounts: Collection[ModelAccount], *, at_work: bool) -> Spent:
        """Add up accounts. What is set aside is uncertain unless a run is at work."""
        set_aside = sum(account.reserved_usd for account in accounts)
        uncertain = sum(account.uncertain_usd for account in accounts)
        return cls(
            sum(account.known_usd or 0.0 for account in accounts),
            uncertain if at_work else uncertain + set_aside,
            sum(job.usd for account in accounts for job in account.jobs.values()),
            set_aside if at_work else 0.0,
        )


def describe_uncertain(usd: float) -> str:
    """Return the uncertain share of spending, in brackets, or ''."""
    return f" ({dollars(usd)} of that perhaps: billing unknown)" if usd else ""
