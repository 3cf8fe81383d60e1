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
    """US dollars per million tokens, and per request.

    ``cached_usd_per_mtok`` is for prompt tokens read from the provider's cache, ``cache_write_usd_per_mtok``
    for those written to it: None means the input rate. ``reasoning_usd_per_mtok``: None means the output
    rate.
    """

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
    """Rates with their ``source``, in a few words: who sets them and, after a colon, the model's name there.

    ``tiers`` rise. Rates valid ``until`` a moment are followed by ``renewed``: the tariff at a moment.
    """

    rates: Rates
    source: str
    tiers: tuple[Tier, ...] = ()
    until: datetime | None = None
    renewed: Callable[[datetime], Tariff | None] | None = None


def sources_reported(sources: Iterable[str]) -> str:
    """Name the sources of prices, each once: ``library 1.0: openai gpt-4o, openai o3; my-prices.yaml``."""
    whose: dict[str, dict[str, None]] = {}
    for source in sources:
        name, _, called = source.partition(": ")
        whose.setdefault(name, {}).update({called: None} if called else {})
    return "; ".join(f"{name}: {', '.join(called)}" if called else name for name, called in whose.items())


FREE = Rates(input_usd_per_mtok=0.0, output_usd_per_mtok=0.0)


def following(tariff: Tariff, end: datetime) -> Iterator[Tariff]:
    """Yield the tariff and its successors up to the one valid at ``end``."""
    current: Tariff | None = tariff
    while current is not None:
        yield current
        if current.until is None or current.renewed is None or current.until > end:
            return
        current = current.renewed(current.until)


def list_rates(tariff: Tariff, clock: Callable[[], float] = time.time) -> Rates:
    """Return today's list price: of rates that vary by the hour, those valid for most of the day (UTC).
    ``clock`` gives seconds since 1970."""
    if tariff.until is None or tariff.renewed is None:
        return tariff.rates
    start = datetime.fromtimestamp(clock(), UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    end = start + timedelta(days=1)
    held: defaultdict[Rates, timedelta] = defaultdict(timedelta)
    for each in following(tariff.renewed(start) or tariff, end):
        until = min(each.until or end, end)
        held[each.rates] += until - start
        start = until
    return max(held, key=held.__getitem__)


def pricer(tariff: Tariff, clock: Callable[[], float] = time.time) -> Price:
    """Make a function that prices answers, so that each costs a few multiplications.

    ``clock`` gives seconds since 1970. The price is None for an ``uncounted`` answer, or one without any
    input: every prompt has tokens.
    """
    if tariff.until is not None and tariff.renewed is not None:
        return _changing(tariff, clock)
    if tariff.rates == FREE and not tariff.tiers:
        return _nothing
    return _tiered(tariff) if tariff.tiers else _flat(tariff.rates)


def _nothing(_: Usage) -> float:
    return 0.0


def _flat(rates: Rates) -> Price:
    read, write, thought = (
        rates.cached_usd_per_mtok,
        rates.cache_write_usd_per_mtok,
        rates.reasoning_usd_per_mtok,
    )
    of_request = rates.usd_per_request
    of_input, of_output = rates.input_usd_per_mtok / 1e6, rates.output_usd_per_mtok / 1e6
    of_read = of_input if read is None else read / 1e6
    of_write = of_input if write is None else write / 1e6
    of_thought = of_output if thought is None else thought / 1e6

    def price(usage: Usage) -> float | None:
        plain, made = usage.input_tokens, usage.output_tokens
        if not plain or usage.uncounted:
            return None
        usd = of_request
        # Parts are never taken for more than the whole, whatever the host counts.
        if cached := usage.cached_tokens:
            cached = min(cached, plain)
            plain -= cached
            usd += cached * of_read
        if written := usage.cache_write_tokens:
            written = min(written, plain)
            plain -= written
            usd += written * of_write
        if reasoned := usage.reasoning_tokens:
            reasoned = min(reasoned, made)
            made -= reasoned
            usd += reasoned * of_thought
        return usd + plain * of_input + made * of_output

    return price


def _tiered(tariff: Tariff) -> Price:
    base = _flat(tariff.rates)
    highest_first = [(tier.above, _flat(tier)) for tier in reversed(tariff.tiers)]

    def price(usage: Usage) -> float | None:
        for above, of_tier in highest_first:
            if usage.input_tokens > above:
                return of_tier(usage)
        return base(usage)

    return price


def _changing(tariff: Tariff, clock: Callable[[], float]) -> Price:
    """Rates by the hour, or with a date from which others hold, or nobody knows which."""
    renewed = tariff.renewed
    current, until = _for_now(tariff)

    def price(usage: Usage) -> float | None:
        nonlocal current, until
        if (now := clock()) >= until and renewed is not None:
            current, until = _for_now(renewed(datetime.fromtimestamp(now, UTC)))
        return current(usage)

    return price


def _for_now(tariff: Tariff | None) -> tuple[Price, float]:
    """The price by a tariff as long as it holds, and until when, in seconds since 1970."""
    if tariff is None:
        return _unknown, float("inf")
    until = tariff.until.timestamp() if tariff.until is not None else float("inf")
    return pricer(msgspec.structs.replace(tariff, until=None, renewed=None)), until


def _unknown(_: Usage) -> None:
    return None


# --- Upper bound of a request's cost

RatesT = TypeVar("RatesT", bound=Rates)

# An answer is priced when it comes: a live one within minutes, that of a batch job within a day.
_AHEAD = timedelta(days=1)


def upper_price(tariff: Tariff, clock: Callable[[], float] = time.time) -> Callable[[int, int], float] | None:
    """Bound the US dollars of a request by its prompt's and answer's most tokens; None: it is free.

    Counts every token at the dearest kind (cached, cache write, reasoning), and at the dearest tariff within
    a day. ``clock`` gives seconds since 1970.
    """
    if tariff.until is None and tariff.rates == FREE and not tariff.tiers:
        return None
    bounds, until = _bounds(tariff, clock())

    def upper(prompt_tokens: int, answer_tokens: int) -> float:
        nonlocal bounds, until
        if until is not None and clock() >= until:
            bounds, until = _bounds(_at(tariff, clock()), clock())
        usd = 0.0
        for above, of_request, of_input, of_output in bounds:
            if prompt_tokens > above:
                usd = max(usd, of_request + prompt_tokens * of_input + answer_tokens * of_output)
        return usd

    return upper


def discounted(tariff: Tariff, share: float) -> Tariff:
    """Scale a tariff to a share of its price."""
    renewed = tariff.renewed

    def later(moment: datetime) -> Tariff | None:
        following = None if renewed is None else renewed(moment)
        return None if following is None else discounted(following, share)

    return msgspec.structs.replace(
        tariff,
        rates=_at_share(tariff.rates, share),
        tiers=tuple(_at_share(tier, share) for tier in tariff.tiers),
        renewed=None if renewed is None else later,
    )


def _at_share(rates: RatesT, share: float) -> RatesT:
    fields = {name: getattr(rates, name) for name in Rates.__struct_fields__}
    changes = {name: usd * share for name, usd in fields.items() if usd is not None}
    return msgspec.structs.replace(rates, **changes)


# (prompts of more tokens than, dollars a request, a token of input, a token of output).
_Bound = tuple[int, float, float, float]


def _bounds(tariff: Tariff, now: float) -> tuple[list[_Bound], float | None]:
    """The bounds of all tariffs that may hold within a day, and the moment from which there may be others,
    in seconds since 1970."""
    bounds = []
    for each in following(tariff, datetime.fromtimestamp(now, UTC) + _AHEAD):
        bounds += [_bound(each.rates, -1), *(_bound(tier, tier.above) for tier in each.tiers)]
    return list(dict.fromkeys(bounds)), None if tariff.until is None else tariff.until.timestamp()


def _at(tariff: Tariff, now: float) -> Tariff:
    """The tariff that holds now; the last one known where nobody knows it."""
    if tariff.renewed is None:
        return tariff
    return tariff.renewed(datetime.fromtimestamp(now, UTC)) or tariff


def _bound(rates: Rates, above: int) -> _Bound:
    into = (rates.input_usd_per_mtok, rates.cached_usd_per_mtok, rates.cache_write_usd_per_mtok)
    out = (rates.output_usd_per_mtok, rates.reasoning_usd_per_mtok)
    of_input, of_output = (max(usd for usd in rate if usd is not None) / 1e6 for rate in (into, out))
    return above, rates.usd_per_request, of_input, of_output
