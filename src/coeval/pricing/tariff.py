"""Token prices, and the cost of an answer."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeAlias, TypeVar

import msgspec

from coeval.core.model import Price
from coeval.core.records import Usage

Usd: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=1e9)]


class Rates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """US dollars per million tokens, and per request. ``cached_usd_per_mtok`` is for prompt tokens read from
    the provider's cache, ``cache_write_usd_per_mtok`` for those written to it: None means the input rate.
    ``reasoning_usd_per_mtok``: None means the output rate."""

    input_usd_per_mtok: Usd
    output_usd_per_mtok: Usd
    cached_usd_per_mtok: Usd | None = None
    cache_write_usd_per_mtok: Usd | None = None
    reasoning_usd_per_mtok: Usd | None = None
    usd_per_request: Usd = 0.0


class Tier(Rates, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Rates of all tokens, output included, of a request whose prompt has more than ``above`` tokens."""

    above: Annotated[int, msgspec.Meta(ge=0)]


class Tariff(msgspec.Struct, frozen=True, kw_only=True):
    """Rates and who sets them: ``source`` is a few words, after a colon the model's name there. ``tiers``
    rise. Rates that end at ``until`` are followed by ``renewed``: moment → tariff, None where unknown."""

    rates: Rates
    source: str
    tiers: tuple[Tier, ...] = ()
    until: datetime | None = None
    renewed: Callable[[datetime], Tariff | None] | None = None


def join_price_sources(sources: Iterable[str]) -> str:
    """Name the sources of prices, each once: ``library 1.0: openai gpt-4o, openai o3; my-prices.yaml``."""
    models_by_source: dict[str, dict[str, None]] = {}
    for source in sources:
        name, _, model = source.partition(": ")
        models_by_source.setdefault(name, {}).update({model: None} if model else {})
    return "; ".join(f"{name}: {', '.join(ms)}" if ms else name for name, ms in models_by_source.items())


FREE = Rates(input_usd_per_mtok=0.0, output_usd_per_mtok=0.0)


def tariffs_until(tariff: Tariff, end: datetime) -> Iterator[Tariff]:
    """Yield the tariff and its successors up to the one valid at ``end``."""
    current: Tariff | None = tariff
    while current is not None:
        yield current
        if current.until is None or current.renewed is None or current.until > end:
            return
        current = current.renewed(current.until)


def longest_valid_rates_today(tariff: Tariff, clock: Callable[[], float] = time.time) -> Rates:
    """Return today's list price: of rates that vary by the hour, those valid for most of the day (UTC).
    ``clock`` gives seconds since 1970."""
    if tariff.until is None or tariff.renewed is None:
        return tariff.rates
    start = datetime.fromtimestamp(clock(), UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    end = start + timedelta(days=1)
    held: defaultdict[Rates, timedelta] = defaultdict(timedelta)
    for period in tariffs_until(tariff.renewed(start) or tariff, end):
        until = min(period.until or end, end)
        held[period.rates] += until - start
        start = until
    return max(held, key=held.__getitem__)


def make_pricer(tariff: Tariff, clock: Callable[[], float] = time.time) -> Price:
    """Return a function that prices an answer in US dollars with a few multiplications. Its price is None for
    an ``uncounted`` answer or one without input (every prompt has tokens). ``clock`` gives seconds since
    1970."""
    if tariff.until is not None and tariff.renewed is not None:
        return _make_changing_pricer(tariff, clock)
    if tariff.rates == FREE and not tariff.tiers:
        return lambda _: 0.0
    return _make_tiered_pricer(tariff) if tariff.tiers else _make_flat_pricer(tariff.rates)


def _make_flat_pricer(rates: Rates) -> Price:
    """Return a pricer by token kind; parts are clamped to the whole that hosts report."""

    def per_token(usd_per_mtok: float | None, default_usd: float) -> float:
        return default_usd if usd_per_mtok is None else usd_per_mtok / 1e6

    request_usd = rates.usd_per_request
    input_usd, output_usd = rates.input_usd_per_mtok / 1e6, rates.output_usd_per_mtok / 1e6
    read_usd = per_token(rates.cached_usd_per_mtok, input_usd)
    write_usd = per_token(rates.cache_write_usd_per_mtok, input_usd)
    reasoning_usd = per_token(rates.reasoning_usd_per_mtok, output_usd)

    def price(usage: Usage) -> float | None:
        plain, visible = usage.input_tokens, usage.output_tokens
        if not plain or usage.uncounted:
            return None
        usd = request_usd
        # Parts are never taken for more than the whole, whatever the host counts.
        if cached := usage.cached_tokens:
            cached = min(cached, plain)
            plain -= cached
            usd += cached * read_usd
        if written := usage.cache_write_tokens:
            written = min(written, plain)
            plain -= written
            usd += written * write_usd
        if reasoned := usage.reasoning_tokens:
            reasoned = min(reasoned, visible)
            visible -= reasoned
            usd += reasoned * reasoning_usd
        return usd + plain * input_usd + visible * output_usd

    return price


def _make_tiered_pricer(tariff: Tariff) -> Price:
    base = _make_flat_pricer(tariff.rates)
    highest_first = [(tier.above, _make_flat_pricer(tier)) for tier in reversed(tariff.tiers)]

    def price(usage: Usage) -> float | None:
        for above, tier_price in highest_first:
            if usage.input_tokens > above:
                return tier_price(usage)
        return base(usage)

    return price


def _make_changing_pricer(tariff: Tariff, clock: Callable[[], float]) -> Price:
    """Return a pricer that follows rates by the hour or up to a date; then its price is None if unknown."""
    renewed = tariff.renewed
    current, until = _pricer_until(tariff)

    def price(usage: Usage) -> float | None:
        nonlocal current, until
        if (now := clock()) >= until and renewed is not None:
            current, until = _pricer_until(renewed(datetime.fromtimestamp(now, UTC)))
        return current(usage)

    return price


def _pricer_until(tariff: Tariff | None) -> tuple[Price, float]:
    """Return the pricer of a tariff and the moment it ends, in seconds since 1970."""
    if tariff is None:
        return lambda _: None, float("inf")
    until = tariff.until.timestamp() if tariff.until is not None else float("inf")
    return make_pricer(msgspec.structs.replace(tariff, until=None, renewed=None)), until


# --- Upper bound of a request's cost

RatesT = TypeVar("RatesT", bound=Rates)

# An answer is priced when it arrives: within minutes, in a batch job within a day.
_AHEAD = timedelta(days=1)


def make_cost_bound_unless_free(
    tariff: Tariff, clock: Callable[[], float] = time.time
) -> Callable[[int, int], float] | None:
    """Return a function (prompt tokens, most answer tokens) → most US dollars of a request; None if it is
    free. Counts every token at the dearest kind (cached, cache write, reasoning), and at the dearest
    tariff within a day. ``clock`` gives seconds since 1970."""
    if tariff.until is None and tariff.rates == FREE and not tariff.tiers:
        return None
    bounds, until = _cost_bounds(tariff, clock())

    def bound_usd(prompt_tokens: int, answer_tokens: int) -> float:
        nonlocal bounds, until
        if until is not None and (now := clock()) >= until:
            current = tariff.renewed(datetime.fromtimestamp(now, UTC)) if tariff.renewed else None
            bounds, until = _cost_bounds(current or tariff, now)  # the last one known, if need be
        usd = 0.0
        for above, request_usd, input_usd, output_usd in bounds:
            if prompt_tokens > above:
                usd = max(usd, request_usd + prompt_tokens * input_usd + answer_tokens * output_usd)
        return usd

    return bound_usd


def scale_tariff(tariff: Tariff, share: float) -> Tariff:
    """Multiply all rates of a tariff, and of those that follow it, by ``share``."""
    renewed = tariff.renewed

    def renew_scaled(moment: datetime) -> Tariff | None:
        successor = None if renewed is None else renewed(moment)
        return None if successor is None else scale_tariff(successor, share)

    return msgspec.structs.replace(
        tariff,
        rates=_scale_rates(tariff.rates, share),
        tiers=tuple(_scale_rates(tier, share) for tier in tariff.tiers),
        renewed=None if renewed is None else renew_scaled,
    )


def _scale_rates(rates: RatesT, share: float) -> RatesT:
    usd_by_name = {name: getattr(rates, name) for name in Rates.__struct_fields__}
    changes = {name: usd * share for name, usd in usd_by_name.items() if usd is not None}
    return msgspec.structs.replace(rates, **changes)


# (prompts of more tokens than, dollars a request, a token of input, a token of output).
_Bound = tuple[int, float, float, float]


def _cost_bounds(tariff: Tariff, now_s: float) -> tuple[list[_Bound], float | None]:
    """Return the bounds of all tariffs within a day, and when to compute them again (seconds since 1970)."""
    bounds = []
    for period in tariffs_until(tariff, datetime.fromtimestamp(now_s, UTC) + _AHEAD):
        bounds += [_cost_bound(period.rates, -1), *(_cost_bound(tier, tier.above) for tier in period.tiers)]
    return list(dict.fromkeys(bounds)), None if tariff.until is None else tariff.until.timestamp()


def _cost_bound(rates: Rates, above_tokens: int) -> _Bound:
    into = (rates.input_usd_per_mtok, rates.cached_usd_per_mtok, rates.cache_write_usd_per_mtok)
    out = (rates.output_usd_per_mtok, rates.reasoning_usd_per_mtok)
    input_usd, output_usd = (max(usd for usd in rate if usd is not None) / 1e6 for rate in (into, out))
    return above_tokens, rates.usd_per_request, input_usd, output_usd
