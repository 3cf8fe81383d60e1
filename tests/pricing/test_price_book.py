"""Whose prices count, and what the price library knows."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import genai_prices
import pytest
from genai_prices.data import providers

from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec, is_private_address
from coeval.core.records import Usage
from coeval.engine.terms import find_tariff, make_offer, make_terms
from coeval.models.catalog import HOSTS
from coeval.models.metering.account_file import Terms
from coeval.pricing.price_book import PriceBook, find_library_tariff, find_provider_by_url
from coeval.pricing.tariff import FREE, Rates, Tariff, make_pricer


def own_file(folder: Path, text: str) -> PriceBook:
    (folder / "Config").mkdir()
    (folder / "Config" / "provider_pricing.yaml").write_text(text)
    return PriceBook(folder)


def price(book: PriceBook, interface: str, model: str, base_url: str | None = None) -> Tariff | None:
    spec = ModelSpec(name="m", interface=interface, model=model, base_url=base_url)
    return find_tariff(make_offer(spec), book)


OWN = """
overrides:
  gpt-4o: {input_usd_per_mtok: 1, output_usd_per_mtok: 2}
  deepinfra:
    meta-llama/Llama-3.3-70B-Instruct: {input_usd_per_mtok: 0.23, output_usd_per_mtok: 0.40}
    gpt-4o: {input_usd_per_mtok: 7, output_usd_per_mtok: 8, cached_usd_per_mtok: 0.5}
  vllm:
    rented: {input_usd_per_mtok: 0.1, output_usd_per_mtok: 0.1}
  Tiered:
    input_usd_per_mtok: 1
    output_usd_per_mtok: 2
    tiers:
      - {above: 1000, input_usd_per_mtok: 3, output_usd_per_mtok: 4}
cache_multipliers:
  deepinfra: {read: 0.1, write: 1.25}
"""


def test_ones_own_price_goes_before_all_others(tmp_path: Path) -> None:
    book = own_file(tmp_path, OWN)
    everywhere = price(book, "openai", "GPT-4o")
    there = price(book, "deepinfra", "gpt-4o")
    assert everywhere is not None
    assert everywhere.rates == Rates(input_usd_per_mtok=1, output_usd_per_mtok=2)
    assert everywhere.source == "Config/provider_pricing.yaml"
    assert there is not None
    assert there.rates == Rates(
        input_usd_per_mtok=7, output_usd_per_mtok=8, cached_usd_per_mtok=0.5, cache_write_usd_per_mtok=8.75
    )
    rented = price(book, "vllm", "rented", "http://localhost:8000/v1")
    assert rented is not None
    assert rented.rates.input_usd_per_mtok == 0.1


def test_multipliers_fill_in_what_a_price_says_nothing_of(tmp_path: Path) -> None:
    tariff = price(own_file(tmp_path, OWN), "deepinfra", "meta-llama/llama-3.3-70b-instruct")
    assert tariff is not None
    assert tariff.rates.cached_usd_per_mtok == pytest.approx(0.023)
    assert tariff.rates.cache_write_usd_per_mtok == pytest.approx(0.2875)


def test_longer_prompts_may_have_rates_of_their_own(tmp_path: Path) -> None:
    terms = make_terms(
        [ModelSpec(name="m", interface="openai", model="tiered")],
        {"m": Terms(max_calls=7)},
        own_file(tmp_path, OWN),
    )["m"]
    assert terms.price is not None
    assert [terms.price(Usage(n, 0)) for n in (1000, 2000)] == [0.001, 0.006]
    assert (terms.max_calls, terms.priced_by) == (7, "Config/provider_pricing.yaml")


@pytest.mark.parametrize(
    ("interface", "model", "url", "known"),
    [
        ("simulated", "any", None, "free"),
        ("huggingface", "Qwen/Qwen2.5-7B", None, "free"),
        ("ollama", "llama3:8b", None, "free"),
        ("vllm", "m", "http://10.1.2.3:8000/v1", "free"),
        ("vllm", "m", "http://gpu-node-7:8000/v1", "free"),
        ("vllm", "m", "https://serving.example.com/v1", "unknown"),
        ("vllm", "meta-llama/Llama-3.3-70B-Instruct-Turbo", "https://api.together.xyz/v1", "together"),
        ("openai", "gpt-4o", None, "openai"),
        ("openai", "gpt-4o", "http://127.0.0.1:9000/v1", "openai"),  # the way there, not whose product it is
        ("openai", "Qwen/Qwen2.5-7B", "http://127.0.0.1:9000/v1", "unknown"),
        ("openai", "gpt-4o", "https://api.together.xyz/v1", "unknown"),
        ("openai", "openai/gpt-4o", "https://openrouter.ai/api/v1", "openrouter"),
        ("gemini", "gemini-2.5-flash", None, "google"),
        ("vertex", "gemini-2.5-flash", None, "google"),
        ("bedrock", "us.anthropic.claude-3-5-haiku-20241022-v1:0", None, "aws"),
        ("azure_openai", "gpt-4o", None, "azure"),
        ("deepinfra", "meta-llama/Llama-3.3-70B-Instruct", None, "unknown"),
        ("huggingface_api", "meta-llama/Llama-3.3-70B-Instruct", None, "unknown"),
        ("huggingface_api", "meta-llama/Llama-3.3-70B-Instruct:groq", None, "huggingface_groq"),
    ],
)
def test_each_model_has_the_price_of_who_serves_it_or_none(
    tmp_path: Path, interface: str, model: str, url: str | None, known: str
) -> None:
    tariff = price(PriceBook(tmp_path), interface, model, url)
    if known == "unknown":
        assert tariff is None
    elif known == "free":
        assert tariff is not None
        assert (tariff.rates, tariff.source) == (FREE, "local models are free")
    else:
        assert tariff is not None
        assert f": {known} " in tariff.source
        assert tariff.rates.output_usd_per_mtok > 0


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("http://localhost:8000/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://192.168.0.7/v1", True),
        ("http://box.local/v1", True),
        ("http://8.8.8.8/v1", False),
        ("https://localhost.example.com/v1", False),
        ("http://[::1/v1", False),
    ],
)
def test_what_is_an_address_of_ones_own(url: str, own: bool) -> None:
    assert is_private_address(url) is own


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("overrides: {gpt-4o: {input_usd_per_mtok: 1}}", "overrides.gpt-4o: .*output_usd_per_mtok"),
        ("overrides: {gpt-4o: {input: 1, output: 2}}", "overrides.gpt-4o: .*`input`"),
        ("overrides: {gpt-4o: {input_usd_per_mtok: -1, output_usd_per_mtok: 1}}", "overrides.gpt-4o"),
        ("overrides: {gpt-4o: {input_usd_per_mtok: .inf, output_usd_per_mtok: 1}}", "overrides.gpt-4o"),
        ("overrides: {groq: {m: {input_usd_per_mtok: cheap, output_usd_per_mtok: 1}}}", "overrides.groq.m"),
        ("overrides: {gpt-4o: 3}", "overrides"),
        (
            "overrides: {m: {input_usd_per_mtok: 1, output_usd_per_mtok: 1, tiers: ["
            "{above: 9, input_usd_per_mtok: 1, output_usd_per_mtok: 1},"
            "{above: 9, input_usd_per_mtok: 1, output_usd_per_mtok: 1}]}}",
            "tiers of a price must rise",
        ),
        ("cache_multipliers: {openai: {read: -1}}", "cache_multipliers"),
    ],
)
def test_what_is_no_price_is_told_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        price(own_file(tmp_path, text), "openai", "gpt-4o")
    assert "docs/prices.md" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("overrides: {opnai: {m: {input_usd_per_mtok: 1, output_usd_per_mtok: 1}}}", "overrides names opnai"),
        ("cache_multipliers: {opnai: {read: 0.1}}", "cache_multipliers names opnai"),
        ("auto_routing: {x: [{interface: opnai, model: m}]}", "auto_routing.x names opnai"),
    ],
)
def test_an_interface_that_is_none_is_not_passed_over(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"{says}, which is not an interface; did you mean openai"):
        make_terms([], {}, own_file(tmp_path, text))


def test_the_tier_of_service_that_is_asked_for_has_its_price(tmp_path: Path) -> None:
    plain = ModelSpec(name="m", interface="openai", model="gpt-5")
    flexible = ModelSpec(name="m", interface="openai", model="gpt-5", extra_body={"service_tier": "flex"})

    def usd(spec: ModelSpec, *roles: dict[str, str]) -> float | None:
        price = make_terms([spec], {}, PriceBook(tmp_path), {"m": roles})["m"].price
        return None if price is None else price(Usage(1_000_000, 0))

    standard, flex = usd(plain), usd(flexible)
    assert standard is not None
    assert flex is not None
    assert 0 < flex < standard
    assert usd(plain, {"service_tier": "flex"}, {"service_tier": "flex"}) == flex
    assert usd(plain, {"verbosity": "low"}, {}) == standard
    assert usd(plain, {"service_tier": "flex"}, {}) is None, "who answered, nobody can tell afterwards"


def deployment(book: PriceBook, base_model: str | None, interface: str = "azure_openai") -> Tariff | None:
    spec = ModelSpec(name="m", interface=interface, model="our-judge", base_model=base_model)
    return find_tariff(make_offer(spec), book)


def test_a_deployment_has_the_price_of_the_model_that_it_is(tmp_path: Path) -> None:
    book = PriceBook(tmp_path)
    assert deployment(book, None) is None
    base = price(book, "azure_openai", "gpt-4o-mini")
    assert base is not None
    assert deployment(book, "gpt-4o-mini") == base
    assert deployment(book, "gpt-4o-mini", "azure_ai") == price(book, "azure_ai", "gpt-4o-mini")
    assert deployment(book, "nobody-knows-it") is None


@pytest.mark.parametrize(
    ("overrides", "usd"),
    [
        ("our-judge: {input_usd_per_mtok: 3, output_usd_per_mtok: 4}", 3),
        ("gpt-4o-mini: {input_usd_per_mtok: 5, output_usd_per_mtok: 6}", 5),
        ("azure_openai: {gpt-4o-mini: {input_usd_per_mtok: 7, output_usd_per_mtok: 8}}", 7),
        (
            "gpt-4o-mini: {input_usd_per_mtok: 5, output_usd_per_mtok: 6}\n"
            "  our-judge: {input_usd_per_mtok: 3, output_usd_per_mtok: 4}",
            3,
        ),
    ],
)
def test_ones_own_price_of_a_deployment_goes_before_its_models(
    tmp_path: Path, overrides: str, usd: float
) -> None:
    tariff = deployment(own_file(tmp_path, f"overrides:\n  {overrides}\n"), "gpt-4o-mini")
    assert tariff is not None
    assert tariff.rates.input_usd_per_mtok == usd


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


@pytest.mark.process
@pytest.mark.parametrize("provider", sorted({host.priced_as or host.name for host in HOSTS.own.values()}))
def test_every_price_of_our_hosts_is_the_librarys(provider: str) -> None:
    known = next((each for each in providers if each.id == provider), None)
    compared = 0
    for model in known.models if known is not None else ():
        for at in MOMENTS:
            tariff = find_library_tariff(provider, model.id, at)
            if tariff is None or tariff.source.endswith("is free"):
                continue
            price = make_pricer(tariff, clock=at.timestamp)
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
    assert find_library_tariff(provider, model) is None


def test_the_tier_of_a_service_has_its_own_price() -> None:
    standard = find_library_tariff("openai", "gpt-5")
    flex = find_library_tariff("openai", "gpt-5", context={"service_tier": "flex"})
    assert standard is not None
    assert flex is not None
    assert flex.rates.input_usd_per_mtok < standard.rates.input_usd_per_mtok


def test_a_price_by_the_hour_follows_the_hours() -> None:
    night, day = datetime(2026, 3, 1, 20, tzinfo=UTC), datetime(2026, 3, 2, 0, 30, tzinfo=UTC)
    cheap, dear = (
        find_library_tariff("deepseek", "deepseek-chat", night),
        find_library_tariff("deepseek", "deepseek-chat", day),
    )
    assert cheap is not None
    assert dear is not None
    assert cheap.until == day
    now = [night.timestamp()]
    price = make_pricer(cheap, clock=lambda: now[0])
    before = price(Usage(1_000_000, 0))
    now[0] = day.timestamp()
    assert before == pytest.approx(cheap.rates.input_usd_per_mtok)
    assert price(Usage(1_000_000, 0)) == pytest.approx(dear.rates.input_usd_per_mtok)
    assert cheap.rates.input_usd_per_mtok < dear.rates.input_usd_per_mtok


def test_a_base_url_tells_whose_prices_hold() -> None:
    assert find_provider_by_url("https://api.together.xyz/v1") == "together"
    assert find_provider_by_url("http://127.0.0.1:8000/v1") is None
    assert find_provider_by_url("https://my-gateway.example/v1") is None


@pytest.mark.process
def test_the_library_is_loaded_when_a_price_is_asked_for() -> None:
    code = (
        "import sys, coeval.cli.main, coeval.cli.commands.run_command, coeval.pricing.price_book as book\n"
        "book.PriceBook().find_tariff(book.Offer('vllm', 'm', 'http://localhost:1/v1', 'vllm', local=True))\n"
        "print('genai_prices' in sys.modules)\n"
        "book.PriceBook().find_tariff(book.Offer('openai', 'gpt-4o', None, 'openai'))\n"
        "print('genai_prices' in sys.modules)\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "True"]
