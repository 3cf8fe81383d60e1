"""What a request may cost at most, before anybody knows how many tokens it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

from coeval.pricing.tariff import FREE, Rates, Tariff, following

__all__ = ["discounted", "upper_price"]

RatesT = TypeVar("RatesT", bound=Rates)

_AHEAD = timedelta(days=1)
"""An answer is priced when it comes: a live one within minutes, that of a batch job within a day."""


def upper_price(tariff: Tariff, clock: Callable[[], float] = time.time) -> Callable[[int, int], float] | None:
    """The most US dollars that a request costs whose prompt has at most so many tokens, and whose answer at
    most so many; None: it costs nothing.

    Of kinds of tokens (cached, written to a cache, reasoning) the dearest counts, and of tariffs that follow
    each other the dearest within a day. ``clock`` gives seconds since 1970.
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
    """The tariff of what is asked at so much of the price."""
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


_Bound = tuple[int, float, float, float]
"""(prompts of more tokens than, dollars a request, a token of input, a token of output)."""


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
