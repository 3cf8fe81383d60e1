"""The host's row: where it is, how it is spoken to, who asks, where its key is looked for, what it costs."""

from __future__ import annotations

from coeval.models.catalog import Host

__all__ = ["PARLEY"]

PARLEY = Host(
    name="parley",
    dialect="coeval_parley.dialect:PARLEY_DIALECT",
    signer="coeval_parley.signer:rotating_token",
    url="https://parley.example/v1",
    key_env=("PARLEY_API_KEY",),
    settings={"period_s": ("PARLEY_PERIOD_S",)},
    seeds_by_default=True,
    prices="coeval_parley.prices:rates_of",
)
