"""What of a budget is spent, by the accounts that spend out of it, and how refusals and reports say it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from coeval.core.text import dollars
from coeval.models.metering.account_file import ModelAccount

__all__ = ["Spent", "perhaps"]


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
    return f" ({dollars(usd)} of that perhaps: nobody knows whether it was billed)" if usd else ""
