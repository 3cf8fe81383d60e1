"""What the host asks for its models' tokens. A user's own price (docs/prices.md) goes before it."""

from __future__ import annotations

from coeval.pricing.tariff import Rates

__all__ = ["rates_of"]


def rates_of(model: str) -> Rates | None:
    """What the host's row names as its prices; None where no price is known: nothing is made up."""
    if model.startswith("preview-"):
        return None
    return Rates(input_usd_per_mtok=1000.0, output_usd_per_mtok=5000.0)
