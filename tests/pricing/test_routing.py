"""The pricing file, its routes, and which of them is taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coeval.core.errors import UsageError
from coeval.models.catalog import HOSTS
from coeval.pricing.price_book import find_library_tariff
from coeval.pricing.pricing_file import (
    PACKAGED_FILE,
    Choice,
    PricingFile,
    Route,
    choose_route,
    read_merged_pricing,
)
from coeval.pricing.tariff import Rates, Tariff, longest_valid_rates_today


def resolve_auto(
    model: str, has: Callable[[str], bool], table: PricingFile, variables: Mapping[str, str] | None = None
) -> Route:
    """The route where no price is known of any."""
    return choose_route(model, has, table, lambda route: None, variables).route


def own_file(folder: Path, text: str) -> None:
    (folder / "Config").mkdir()
    (folder / "Config" / "provider_pricing.yaml").write_text(text)


def test_every_packaged_route_names_a_host_of_ours(tmp_path: Path) -> None:
    table = read_merged_pricing(tmp_path)
    assert table.overrides == {}
    for model, routes in table.auto_routing.items():
        interfaces = [route.interface for route in routes]
        assert interfaces, model
        assert set(interfaces) <= HOSTS.keys()
        assert len(set(interfaces)) == len(interfaces), model
        assert model == model.lower()


def test_batched_calls_cost_half_where_there_are_batches(tmp_path: Path) -> None:
    hosts = ("openai", "anthropic", "gemini", "azure_openai", "mistral", "bedrock", "vertex")
    assert read_merged_pricing(tmp_path).batch_multipliers == dict.fromkeys(hosts, 0.5)


@pytest.mark.parametrize(
    "model_id", ["deepseek-chat", "deepseek/deepseek-chat", "deepseek-ai/DeepSeek-V3", "DEEPSEEK-CHAT"]
)
def test_ids_are_known_bare_and_with_their_maker(tmp_path: Path, model_id: str) -> None:
    table = read_merged_pricing(tmp_path)
    assert resolve_auto(model_id, lambda host: True, table) == Route("deepseek", "deepseek-chat")
    assert resolve_auto(model_id, lambda host: host == "bedrock", table).model == "deepseek.v3-v1:0"


@pytest.mark.parametrize(
    "model_id",
    [
        "meta-llama/llama-3.3-70b-instruct",
        "llama-3.1-8b-instant",
        "meta-llama/llama-3-8b-instruct",
        "qwen/qwen-2.5-72b-instruct",
        "Qwen/Qwen2.5-72B-Instruct",
        "mistralai/mistral-large",
        "gpt-4o",
        "gpt-4o-mini",
        "claude-sonnet-4-6",
        "claude-3-5-haiku-20241022",
        "gemini-2.5-flash",
    ],
)
def test_the_models_of_the_guides_have_routes(tmp_path: Path, model_id: str) -> None:
    assert resolve_auto(model_id, lambda host: True, read_merged_pricing(tmp_path)).interface in HOSTS


def test_no_credential_names_the_hosts_and_their_variables(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"deepseek \(DEEPSEEK_API_KEY\), openrouter, bedrock"):
        resolve_auto(
            "deepseek-chat",
            lambda host: False,
            read_merged_pricing(tmp_path),
            {"deepseek": "DEEPSEEK_API_KEY"},
        )


def test_an_unknown_model_is_told_what_is_near(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"did you mean 'gpt-4o'.*Config/provider_pricing.yaml"):
        resolve_auto("openai/gpt4o", lambda host: True, read_merged_pricing(tmp_path))
    with pytest.raises(UsageError, match="no host is known for 'zzz'; name its interface"):
        resolve_auto("zzz", lambda host: True, read_merged_pricing(tmp_path))


def test_the_working_directorys_file_goes_first_section_by_section(tmp_path: Path) -> None:
    own_file(tmp_path, "auto_routing:\n  mine: [{interface: ollama, model: mine:7b}]\noverrides:\n")
    table = read_merged_pricing(tmp_path)
    assert list(table.auto_routing) == ["mine"]
    assert table.batch_multipliers["openai"] == 0.5
    assert resolve_auto("mine", lambda host: True, table) == Route("ollama", "mine:7b")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("auto_routing: [1]\n", "auto_routing"),
        ("auto_routng: {}\n", "auto_routng"),
        ("batch_multipliers: {openai: half}\n", "batch_multipliers"),
        ("- 1\n", "not a mapping"),
        ("a: [\n", "cannot be read"),
        ("a: 1\na: 2\n", "cannot be read"),
    ],
)
def test_a_file_of_another_shape_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    own_file(tmp_path, text)
    with pytest.raises(UsageError, match=says) as caught:
        read_merged_pricing(tmp_path)
    assert "provider_pricing.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    packaged = read_merged_pricing(tmp_path)
    own_file(tmp_path, "# all defaults\n")
    assert read_merged_pricing(tmp_path) == packaged


def test_the_repositorys_copy_is_the_packaged_file() -> None:
    copy = PACKAGED_FILE.parents[3] / "Config" / "provider_pricing.yaml"
    assert copy.resolve() == PACKAGED_FILE.resolve()


def chosen(usd: Mapping[str, tuple[float, float]], keyless: str = "") -> Choice:
    """Among three hosts of a model, of which some have prices of input and output."""
    hosts = ("deepinfra", "openrouter", "groq")
    table = PricingFile(auto_routing={"m": tuple(Route(host, f"{host}-m") for host in hosts)})

    def tariff(route: Route) -> Tariff | None:
        if route.interface not in usd:
            return None
        of_input, of_output = usd[route.interface]
        return Tariff(rates=Rates(input_usd_per_mtok=of_input, output_usd_per_mtok=of_output), source="test")

    return choose_route("m", lambda host: host != keyless, table, tariff)


@pytest.mark.parametrize(
    ("usd", "keyless", "interface"),
    [
        ({"deepinfra": (2, 2), "openrouter": (1, 1), "groq": (3, 3)}, "", "openrouter"),
        ({"deepinfra": (2, 2), "openrouter": (1, 1), "groq": (3, 3)}, "openrouter", "deepinfra"),
        (
            {"deepinfra": (1, 1), "openrouter": (1, 1), "groq": (1, 1)},
            "",
            "deepinfra",
        ),  # a tie: as in the file
        ({"openrouter": (9, 9), "groq": (8, 8)}, "", "groq"),  # what has no price cannot be the cheapest
        ({}, "", "deepinfra"),
        ({"deepinfra": (1.0, 4.0), "openrouter": (1.2, 3.0), "groq": (1.2, 3.5)}, "", "openrouter"),
    ],
)
def test_the_cheapest_host_with_a_credential_is_taken(
    usd: Mapping[str, tuple[float, float]], keyless: str, interface: str
) -> None:
    assert chosen(usd, keyless).route == Route(interface, f"{interface}-m")


def by_the_hour(moment: datetime) -> Tariff:
    """$2 by day, $0.50 from midnight to six."""
    night = moment.hour < 6
    until = moment.replace(hour=6) if night else moment.replace(hour=0) + timedelta(days=1)
    rates = Rates(input_usd_per_mtok=0.5 if night else 2, output_usd_per_mtok=0.5 if night else 2)
    return Tariff(rates=rates, source="test", until=until, renewed=by_the_hour)


@pytest.mark.parametrize("hour", [0, 5, 6, 23])
def test_hosts_are_compared_by_list_prices_not_by_rates_of_the_hour(hour: int) -> None:
    table = PricingFile(auto_routing={"m": (Route("deepseek", "m"), Route("openrouter", "m"))})
    steady = Tariff(rates=Rates(input_usd_per_mtok=1, output_usd_per_mtok=1), source="test")
    changing = by_the_hour(datetime(2026, 3, 1, hour, tzinfo=UTC))
    tariffs = {"deepseek": changing, "openrouter": steady}
    choice = choose_route("m", lambda _: True, table, lambda route: tariffs[route.interface])
    assert str(choice) == (
        "openrouter, as m ($1.00 in, $1.00 out per million tokens; "
        "deepseek: $2.00 in, $2.00 out per million tokens)"
    )


@pytest.mark.parametrize(
    ("model", "into", "out"), [("deepseek-chat", 0.27, 1.10), ("deepseek-flash", 0.15, 0.60)]
)
def test_a_cheap_night_and_a_dear_peak_are_no_list_price(model: str, into: float, out: float) -> None:
    """As DeepSeek lists them: the one is half the price at night, the other twice at peak hours."""
    for hour in range(24):
        moment = datetime(2026, 11, 1, hour, 45, tzinfo=UTC)
        tariff = find_library_tariff("deepseek", model, moment)
        assert tariff is not None
        rates = longest_valid_rates_today(tariff, moment.timestamp)
        assert (rates.input_usd_per_mtok, rates.output_usd_per_mtok) == (into, out)


def test_a_choice_says_what_it_was_made_by() -> None:
    assert str(chosen({"openrouter": (0.59, 0.79)}, keyless="groq")) == (
        "openrouter, as openrouter-m ($0.59 in, $0.79 out per million tokens; "
        "deepinfra: price unknown; no credential for groq)"
    )
