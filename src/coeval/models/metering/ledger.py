"""The meters of a folder's models."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType

from coeval.core.errors import CoevalError, StoreError
from coeval.core.records import Usage
from coeval.models.metering.account_file import AccountFile, ModelAccount, Terms
from coeval.models.metering.budget_gate import BudgetGate, Held
from coeval.models.metering.meter import Meter

_log = logging.getLogger("coeval")


class Ledger:
    """The counts of ``usage.json``, for the only process that writes it.

    Parameters
    ----------
    path:
        the file; absent is empty. Models it names and this run does not are kept as they stand.
    terms:
        by model; one that is not named is counted, not limited.
    budget_usd:
        the most money for all models together, over the life of the file; None: any.
    recorded:
        what the folder's own records took, by model: the counts are never less.

    Raises
    ------
    StoreError
        the file is damaged and a ceiling or a budget depends on it.
    """

    def __init__(
        self,
        path: Path,
        terms: Mapping[str, Terms] = MappingProxyType({}),
        budget_usd: float | None = None,
        recorded: Mapping[str, Usage] = MappingProxyType({}),
    ) -> None:
        self._terms = dict(terms)
        self._file = AccountFile(path)
        try:
            self._file.load()
        except StoreError as error:
            ceilings = [(each.max_calls, each.max_cost_usd) for each in self._terms.values()]
            if budget_usd is not None or any(each != (None, None) for each in ceilings):
                raise StoreError(
                    f"{path} cannot be used ({error}), and a ceiling depends on what it counts. Restore it "
                    "from a copy, or move it away: then requests count from zero, and costs from what the "
                    "folder's records say."
                ) from error
            self._file.set_aside()
        if self._file.take_up(recorded):
            self._file.write()  # for those who read it, and for a start that is killed at once
        self._budget_gate = BudgetGate(self._file, budget_usd)
        self._meters: dict[str, Meter] = {}
        self._doubted: set[tuple[str, str]] = set()
        self.warn: Callable[[str], None] = _log.warning
        """Called once for each kind of thing in a model's bill that may not be as it should."""

    @property
    def accounts(self) -> Collection[ModelAccount]:
        """What each model has used, those that are not asked now included."""
        return self._file.rows.values()

    def meter(self, name: str) -> Meter:
        if (known := self._meters.get(name)) is not None:
            return known
        row, terms = self._file.rows.setdefault(name, ModelAccount()), self._terms.get(name, Terms())
        row.priced_by = terms.priced_by
        fund = self._budget_gate.fund(name, row, terms.max_cost_usd)
        self._meters[name] = meter = Meter(self._file, self._budget_gate, fund, terms, self._doubt)
        return meter

    def _doubt(self, name: str, kind: str, sentence: str) -> None:
        if (name, kind) not in self._doubted:
            self._doubted.add((name, kind))
            self.warn(sentence)

    @property
    def waiting(self) -> int:
        """Requests that wait for money: they go on when others have been settled, and not before."""
        return self._budget_gate.waiting

    def jobs_free_money(self, free: Callable[[], Held]) -> None:
        """``free`` is called where requests wait for money that is held for batch jobs only: it submits what
        is parked, and says what may be waited for."""
        self._budget_gate.jobs_free_money(free)

    def look_again(self) -> None:
        """A batch job has ended, in whatever way."""
        self._budget_gate.changed()

    def turn_away(self, error: CoevalError) -> None:
        """Whoever waits for money, or would have to, gets ``error``."""
        self._budget_gate.close(error)

    def flush(self) -> None:
        """Write the counts as they stand, reservations kept."""
        self._budget_gate.trim()
        self._file.write()

    def close(self) -> None:
        """Write the exact counts: what was reserved and not sent is given back. No file is made where nothing
        was sent."""
        rows = self._file.rows.values()
        for row in rows:
            row.reserved, row.reserved_usd = 0, 0.0
        if self._file.path.exists() or any(row.requests for row in rows):
            self._file.write()
