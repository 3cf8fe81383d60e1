"""What a request may cost at most is never less than what its answer costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coeval.core.records import Usage
from coeval.pricing.tariff import FREE, Rates, Tariff, Tier, discounted, pricer, upper_price

USD = st.floats(0, 100)
RATE = {
    "input_usd_per_mtok": USD,
    "output_usd_per_mtok": USD,
    "cached_usd_per_mtok": st.none() | USD,
    "cache_write_usd_per_mtok": st.none() | USD,
    "reasoning_usd_per_mtok": st.none() | USD,
    "usd_per_request": st.floats(0, 0.1),
}
TIERS = st.lists(st.integers(0, 5000), unique=True, max_size=3).map(sorted)
TOKENS = st.integers(1, 10_000)
PART = st.floats(0, 1)


def at(hour: int) -> float:
    return datetime(2026, 11, 22, hour, tzinfo=UTC).timestamp()


@given(
    st.builds(Rates, **RATE),
    TIERS.flatmap(
        lambda starts: st.tuples(*(st.builds(Tier, above=st.just(start), **RATE) for start in starts))
    ),
    TOKENS,
    TOKENS,
    PART,
    PART,
)
def test_no_answer_costs_more(
    rates: Rates, tiers: tuple[Tier, ...], prompt: int, answer: int, cached: float, reasoned: float
) -> None:
    tariff = Tariff(rates=rates, tiers=tiers, source="test")
    upper = upper_price(tariff)
    usage = Usage(
        int(prompt * 0.8) or 1,
        answer,
        cached_tokens=int(cached * prompt * 0.4),
        cache_write_tokens=int((1 - cached) * prompt * 0.4),
        reasoning_tokens=int(reasoned * answer),
    )
    cost = pricer(tariff)(usage)
    assert cost is not None
    assert cost <= (0.0 if upper is None else upper(prompt, answer)) * (1 + 1e-9)


def test_what_is_free_needs_no_bound() -> None:
    assert upper_price(Tariff(rates=FREE, source="test")) is None


def test_a_price_that_rises_within_a_day_counts_already() -> None:
    cheap = Rates(input_usd_per_mtok=1, output_usd_per_mtok=1)
    dear = Rates(input_usd_per_mtok=2, output_usd_per_mtok=2)

    def by_hour(moment: datetime) -> Tariff:
        """Dear from 8 to 16."""
        day = moment.replace(hour=0)
        ends = [day + timedelta(hours=hour) for hour in (8, 16, 32)]
        until = next(end for end in ends if end > moment)
        return Tariff(
            rates=dear if 8 <= moment.hour < 16 else cheap, source="test", until=until, renewed=by_hour
        )

    now = at(1)
    upper = upper_price(by_hour(datetime.fromtimestamp(now, UTC)), lambda: now)
    assert upper is not None
    assert upper(1_000_000, 0) == 2.0
    now = at(12)
    assert upper(1_000_000, 0) == 2.0


def test_a_share_of_the_price_is_a_share_of_all_its_parts() -> None:
    tariff = Tariff(
        rates=Rates(input_usd_per_mtok=2, output_usd_per_mtok=8, cached_usd_per_mtok=1),
        tiers=(Tier(above=1000, input_usd_per_mtok=4, output_usd_per_mtok=16),),
        source="test",
    )
    half = pricer(discounted(tariff, 0.5))
    whole = pricer(tariff)
    for usage in (Usage(900, 10, cached_tokens=100), Usage(2000, 10)):
        cost, full = half(usage), whole(usage)
        assert cost is not None
        assert full is not None
        assert cost == pytest.approx(full / 2)
