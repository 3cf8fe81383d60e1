"""Prices of the `genai-prices` library: its data as installed, never a download.

The library is loaded when a price is first asked for: it takes a seventh of a second. It counts as we do:
`input_tokens` are all of the prompt, cached parts are taken out of them, and a tier's rates hold for all
tokens of a request. Prices of other things than tokens of text (searches, audio) are left out: we ask for
none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from coeval.pricing.tariff import FREE, Rates, Tariff, Tier

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

# The library's units that are ours, in its words.
_FIELDS = {
    "input_mtok": "input_usd_per_mtok",
    "output_mtok": "output_usd_per_mtok",
    "cache_read_mtok": "cached_usd_per_mtok",
    "cache_write_mtok": "cache_write_usd_per_mtok",
    "output_reasoning_mtok": "reasoning_usd_per_mtok",
}
# How OpenRouter names what costs nothing; the library has no rates of these.
_FREE = ":free"


def library_tariff(
    provider: str, model: str, at: datetime | None = None, context: Mapping[str, str] | None = None
) -> Tariff | None:
    """Look up a provider's (by the library's id) token prices of a model; None where unknown.

    ``at`` defaults to now; ``context`` is what of a request the price depends on, such as ``service_tier``. A
    model whose price lacks a rate of input or of output is unknown: it does not answer in text.
    """
    found = _model(provider, model)
    if found is None:
        return None
    moment = at or datetime.now(UTC)
    prices = found.get_prices(moment, context)
    units = {name: value for name in _FIELDS if (value := getattr(prices, name)) is not None}
    if not units and model.endswith(_FREE):
        return Tariff(rates=FREE, source=f"{model} is free")
    if not {"input_mtok", "output_mtok"} <= units.keys():
        return None
    starts = sorted({tier.start for value in units.values() for tier in _tiers(value)})
    per_request = (
        float(prices.requests_kcount or 0) / 1000 if isinstance(prices.requests_kcount, Decimal) else 0.0
    )
    until = _next_change(found, moment)
    return Tariff(
        rates=Rates(**_rates(units, None), usd_per_request=per_request),
        tiers=tuple(
            Tier(above=start, **_rates(units, start), usd_per_request=per_request) for start in starts
        ),
        source=f"{library_name()}: {provider} {found.id}",
        until=until,
        renewed=None if until is None else lambda now: library_tariff(provider, model, now, context),
    )


def context_window(provider: str, model: str) -> int | None:
    """Return a model's context window in tokens, None where unknown."""
    found = _model(provider, model)
    return None if found is None else found.context_window


def provider_at(url: str) -> str | None:
    """Find the provider whose API is at a base URL, by the library's patterns; None for none."""
    return next((each.id for each in _providers() if re.match(each.api_pattern, url)), None)


@cache
def library_name() -> str:
    """Name the library with its version and the date of the latest price change in effect, as its data are
    undated."""
    import genai_prices

    today = datetime.now(UTC).date()
    dates = [date for date in _start_dates(_providers()) if date <= today]
    latest = f", prices up to {max(dates)}" if dates else ""
    return f"genai-prices {genai_prices.__version__}{latest}"


def _start_dates(providers: Iterable[Provider]) -> Iterator[Any]:
    for provider in providers:
        for model in provider.models:
            for constraint in _constraints(model):
                if (start := getattr(constraint, "start_date", None)) is not None:
                    yield start


def _providers() -> list[Provider]:
    from genai_prices import data_snapshot

    return data_snapshot.get_snapshot().providers


@cache
def _model(provider: str, model: str) -> ModelInfo | None:
    """By exact id of the provider; the library's rules match the model's ids of different spelling."""
    providers = _providers()
    found = next((each for each in providers if each.id == provider), None)
    return None if found is None else found.find_model(model, all_providers=providers)


def _tiers(value: Any) -> list[Any]:
    tiers: list[Any] = getattr(value, "tiers", [])
    return tiers


def _rates(units: Mapping[str, Any], start: int | None) -> dict[str, float]:
    """The rates of a tier that begins above ``start`` tokens, None being none."""
    return {_FIELDS[name]: float(_rate(value, start)) for name, value in units.items()}


def _rate(value: Any, start: int | None) -> Decimal:
    rate: Decimal = getattr(value, "base", value)
    for tier in _tiers(value):
        if start is not None and tier.start <= start:
            rate = tier.price
    return rate


def _constraints(model: ModelInfo) -> Iterator[Any]:
    prices: ModelPrice | list[Any] = model.prices
    conditional = [*(prices if isinstance(prices, list) else ()), *(model.price_variants or ())]
    return (each.constraint for each in conditional if each.constraint is not None)


def _next_change(model: ModelInfo, now: datetime) -> datetime | None:
    """The next moment at which another of a model's prices may hold: a date that comes, or an hour of the
    day."""
    moments = []
    for constraint in _constraints(model):
        if (start := getattr(constraint, "start_date", None)) is not None:
            moments.append(datetime(start.year, start.month, start.day, tzinfo=UTC))
            continue
        for hour in (constraint.start_time, constraint.end_time):
            today = datetime.combine(now.date(), hour if hour.tzinfo else hour.replace(tzinfo=UTC))
            moments += [today, today + timedelta(days=1)]
    return min((moment for moment in moments if moment > now), default=None)
