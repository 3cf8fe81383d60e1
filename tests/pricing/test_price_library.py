"""The price library's data, held against the library's own arithmetic."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import genai_prices
import pytest
from genai_prices.data import providers

from coeval.core.records import Usage
from coeval.models.catalog import HOSTS
from coeval.pricing.price_library import library_name, library_tariff, provider_at
from coeval.pricing.tariff import pricer

USAGES = (
    Usage(1_000, 200),
    Usage(150_000, 3_000, cached_tokens=100_000, reasoning_tokens=1_000),
    Usage(450_000, 9_000, cached_tokens=50_000, cache_write_tokens=20_000),
)
MOMENTS = (datetime(2026, 11, 22, 2, tzinfo=UTC), datetime(2026, 11, 22, 20, 30, tzinfo=UTC))


def theirs(provider: str, model: str, usage: Usage, at: datetime) -> Decimal:
    """By the library itself, which takes a part for none where it has no price for it."""
    parts = {
        "cache_read_tokens": usage.cached_tokens or 0,
        "cache_write_tokens": usage.cache_write_tokens or 0,
        "output_reasoning_tokens": usage.reasoning_tokens or 0,
    }
    counted = genai_prices.Usage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, **parts)
    return genai_prices.calc_price(
        counted, model, provider_id=provider, genai_request_timestamp=at
    ).total_price


@pytest.mark.parametrize("provider", sorted({host.priced_as or host.name for host in HOSTS.own.values()}))
def test_every_price_of_our_hosts_is_the_librarys(provider: str) -> None:
    known = next((each for each in providers if each.id == provider), None)
    compared = 0
    for model in known.models if known is not None else ():
        for at in MOMENTS:
            tariff = library_tariff(provider, model.id, at)
            if tariff is None or tariff.source.endswith("is free"):
                continue
            price = pricer(tariff, clock=at.timestamp)
            for usage in USAGES:
                ours = price(usage)
                assert ours == pytest.approx(float(theirs(provider, model.id, usage, at)), rel=1e-9), model.id
                compared += 1
    assert compared >= 10 or provider in ("deepinfra", "huggingface_", *LOCAL)


LOCAL = {host.name for host in HOSTS.own.values() if host.local}


def test_most_of_our_hosts_are_in_the_library() -> None:
    known = {each.id for each in providers}
    named = {name: host.priced_as or name for name, host in HOSTS.own.items() if not host.local}
    assert {name for name, provider in named.items() if provider not in known} == {
        "deepinfra",
        "huggingface_api",  # its router's providers stand there one by one
    }


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-4o-of-somebody-else"),
        ("openai", "Qwen/Qwen2.5-7B-Instruct"),
        ("openai", "text-embedding-3-small"),  # input alone has a price: it answers nothing
        ("azure", "my-deployment"),
        ("nobody", "gpt-4o"),
    ],
)
def test_what_the_library_does_not_know_has_no_price(provider: str, model: str) -> None:
    assert library_tariff(provider, model) is None


def test_the_tier_of_a_service_has_its_own_price() -> None:
    standard = library_tariff("openai", "gpt-5")
    flex = library_tariff("openai", "gpt-5", context={"service_tier": "flex"})
    assert standard is not None
    assert flex is not None
    assert flex.rates.input_usd_per_mtok < standard.rates.input_usd_per_mtok


def test_a_price_by_the_hour_follows_the_hours() -> None:
    night, day = datetime(2026, 3, 1, 20, tzinfo=UTC), datetime(2026, 3, 2, 0, 30, tzinfo=UTC)
    cheap, dear = (
        library_tariff("deepseek", "deepseek-chat", night),
        library_tariff("deepseek", "deepseek-chat", day),
    )
    assert cheap is not None
    assert dear is not None
    assert cheap.until == day
    now = [night.timestamp()]
    price = pricer(cheap, clock=lambda: now[0])
    before = price(Usage(1_000_000, 0))
    now[0] = day.timestamp()
    assert before == pytest.approx(cheap.rates.input_usd_per_mtok)
    assert price(Usage(1_000_000, 0)) == pytest.approx(dear.rates.input_usd_per_mtok)
    assert cheap.rates.input_usd_per_mtok < dear.rates.input_usd_per_mtok


def test_a_base_url_tells_whose_prices_hold() -> None:
    assert provider_at("https://api.together.xyz/v1") == "together"
    assert provider_at("http://127.0.0.1:8000/v1") is None
    assert provider_at("https://my-gateway.example/v1") is None


def test_the_data_are_told_with_their_date() -> None:
    name = library_name()
    assert name.startswith(f"genai-prices {genai_prices.__version__}, prices up to 20")
    assert name[-10:] <= datetime.now(UTC).date().isoformat()


def test_the_library_is_loaded_when_a_price_is_asked_for() -> None:
    code = (
        "import sys, coeval.cli.main, coeval.cli.commands.run_report, coeval.pricing.price_book as book\n"
        "book.PriceBook().tariff(book.Offer('vllm', 'm', 'http://localhost:1/v1', 'vllm', local=True))\n"
        "print('genai_prices' in sys.modules)\n"
        "book.PriceBook().tariff(book.Offer('openai', 'gpt-4o', None, 'openai'))\n"
        "print('genai_prices' in sys.modules)\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "True"]
