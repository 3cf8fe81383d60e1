"""What an answer costs by the rates of its model, and what a request may cost at most."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coeval.core.records import Usage
from coeval.pricing.tariff import (
    FREE,
    Rates,
    Tariff,
    Tier,
    join_price_sources,
    make_cost_bound_unless_free,
    make_pricer,
    scale_tariff,
)

PLAIN = Rates(input_usd_per_mtok=3.0, output_usd_per_mtok=15.0)
CACHING = Rates(
    input_usd_per_mtok=3.0,
    output_usd_per_mtok=15.0,
    cached_usd_per_mtok=0.3,
    cache_write_usd_per_mtok=3.75,
    reasoning_usd_per_mtok=20.0,
)


def cost(rates: Rates, usage: Usage, *tiers: Tier) -> float | None:
    return make_pricer(Tariff(rates=rates, source="test", tiers=tiers))(usage)


@pytest.mark.parametrize(
    ("rates", "usage", "usd"),
    [
        (PLAIN, Usage(1_000_000, 100_000), 4.5),
        (PLAIN, Usage(1_000_000, 0, cached_tokens=400_000, reasoning_tokens=0), 3.0),
        (CACHING, Usage(1_000_000, 0, cached_tokens=400_000), 0.6 * 3 + 0.4 * 0.3),
        (CACHING, Usage(1_000_000, 0, cached_tokens=300_000, cache_write_tokens=200_000), 1.5 + 0.09 + 0.75),
        (CACHING, Usage(1_000, 100_000, reasoning_tokens=60_000), 0.003 + 0.6 + 1.2),
        # A host that counts a part for more than the whole.
        (CACHING, Usage(1_000_000, 10, cached_tokens=2_000_000, reasoning_tokens=99), 0.3 + 10 * 20 / 1e6),
        (Rates(input_usd_per_mtok=1, output_usd_per_mtok=1, usd_per_request=0.012), Usage(1, 0), 0.012001),
        (FREE, Usage(5, 5), 0.0),
        (FREE, Usage(), 0.0),
    ],
)
def test_every_token_is_paid_for_once_at_its_own_rate(rates: Rates, usage: Usage, usd: float) -> None:
    assert cost(rates, usage) == pytest.approx(usd, abs=1e-12)


def test_what_a_host_did_not_count_has_no_price() -> None:
    assert cost(PLAIN, Usage()) is None
    assert cost(PLAIN, Usage(0, 12)) is None


def test_a_longer_prompt_moves_all_its_tokens_into_the_tier() -> None:
    tiers = (
        Tier(above=200, input_usd_per_mtok=6, output_usd_per_mtok=30),
        Tier(above=900, input_usd_per_mtok=9, output_usd_per_mtok=45),
    )
    costs = [cost(PLAIN, Usage(tokens, 10), *tiers) for tokens in (200, 201, 900, 901)]
    per_token = [(200 * 3 + 150), (201 * 6 + 300), (900 * 6 + 300), (901 * 9 + 450)]
    assert costs == pytest.approx([usd / 1e6 for usd in per_token])


def test_rates_of_an_hour_are_those_of_the_moment_an_answer_comes() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    clock = [noon.timestamp()]

    def at(now: datetime) -> Tariff | None:
        hour = (now - noon) // timedelta(hours=1)
        rates = Rates(input_usd_per_mtok=hour + 1, output_usd_per_mtok=0)
        until = noon + timedelta(hours=hour + 1)
        return Tariff(rates=rates, source="test", until=until, renewed=at) if hour < 3 else None

    first = at(noon)
    assert first is not None
    price = make_pricer(first, clock=lambda: clock[0])
    costs = []
    for seconds in (0, 3599, 3600, 7200, 7300, 10800):
        clock[0] = noon.timestamp() + seconds
        costs.append(price(Usage(1_000_000, 0)))
    assert costs == [1.0, 1.0, 2.0, 3.0, 3.0, None]


def test_whose_prices_these_are_is_named_once() -> None:
    sources = [
        "library 1.0: openai a",
        "ours.yaml",
        "library 1.0: google b",
        "ours.yaml",
        "library 1.0: openai a",
    ]
    assert join_price_sources(sources) == "library 1.0: openai a, google b; ours.yaml"
    assert join_price_sources([]) == ""


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


@pytest.mark.process
@settings(max_examples=60)
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
    upper = make_cost_bound_unless_free(tariff)
    usage = Usage(
        int(prompt * 0.8) or 1,
        answer,
        cached_tokens=int(cached * prompt * 0.4),
        cache_write_tokens=int((1 - cached) * prompt * 0.4),
        reasoning_tokens=int(reasoned * answer),
    )
    cost = make_pricer(tariff)(usage)
    assert cost is not None
    assert cost <= (0.0 if upper is None else upper(prompt, answer)) * (1 + 1e-9)


def test_what_is_free_needs_no_bound() -> None:
    assert make_cost_bound_unless_free(Tariff(rates=FREE, source="test")) is None


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
    upper = make_cost_bound_unless_free(by_hour(datetime.fromtimestamp(now, UTC)), lambda: now)
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
    half = make_pricer(scale_tariff(tariff, 0.5))
    whole = make_pricer(tariff)
    for usage in (Usage(900, 10, cached_tokens=100), Usage(2000, 10)):
        cost, full = half(usage), whole(usage)
        assert cost is not None
        assert full is not None
        assert cost == pytest.approx(full / 2)
