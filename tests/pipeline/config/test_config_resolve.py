"""`interface: auto` bound to a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from coeval.core.errors import UsageError
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.resolve import resolve_models
from coeval.pricing.price_book import PriceBook
from coeval.pricing.pricing_file import Route


def auto(valid: str, model: str) -> str:
    return valid.replace(
        "interface: openai\n    roles: [j",
        f"interface: auto\n    parameters: {{model: {model}, top_p: 1}}\n    roles: [j",
    )


def prices(folder: Path) -> PriceBook:
    """Of a folder in which one model has prices that stay as they are."""
    (folder / "Config").mkdir(exist_ok=True)
    (folder / "Config" / "provider_pricing.yaml").write_text(
        "overrides:\n"
        "  deepseek-chat: {input_usd_per_mtok: 0.3, output_usd_per_mtok: 1.1}\n"
        "  deepseek/deepseek-chat: {input_usd_per_mtok: 0.2, output_usd_per_mtok: 0.9}\n"
        "  deepseek.v3-v1:0: {input_usd_per_mtok: 0.6, output_usd_per_mtok: 1.7}\n"
    )
    return PriceBook(folder)


def test_auto_takes_the_cheapest_host_with_a_credential(folder: Path, valid: str) -> None:
    (folder / "e.yaml").write_text(auto(valid, "deepseek/deepseek-chat"))
    resolved = resolve_models(load_config("e.yaml"), lambda host: host != "bedrock", prices(folder))
    large, small = resolved.config.models
    assert (large.interface, small.interface) == ("openai", "openrouter")
    assert small.spec().model == "deepseek/deepseek-chat"
    assert small.sampling("judge").named() == {"top_p": 1}
    assert resolved.choices == (
        "model small: interface auto is openrouter, as deepseek/deepseek-chat ($0.20 in, $0.90 out per "
        "million tokens; deepseek: $0.30 in, $1.10 out per million tokens; no credential for bedrock)",
    )
    direct = resolve_models(load_config("e.yaml"), lambda host: host != "openrouter", prices(folder))
    assert (direct.config.models[1].interface, direct.config.models[1].spec().model) == (
        "deepseek",
        "deepseek-chat",
    )


def test_a_run_that_goes_on_stays_with_its_host(folder: Path, valid: str) -> None:
    (folder / "e.yaml").write_text(auto(valid, "deepseek-chat"))
    before = {"small": Route("deepseek", "deepseek-chat"), "large": Route("openai", "x")}

    def interface(*without: str) -> str:
        config = load_config("e.yaml")
        return (
            resolve_models(config, lambda host: host not in without, prices(folder), before)
            .config.models[1]
            .interface
        )

    assert interface() == "deepseek"
    assert interface("deepseek") == "openrouter"


def test_without_auto_nothing_is_asked(folder: Path, valid: str) -> None:
    (folder / "e.yaml").write_text(valid)
    config = load_config("e.yaml")

    def never(host: str) -> bool:
        raise AssertionError(host)

    assert resolve_models(config, never, PriceBook(folder)).config is config


def test_no_credential_names_hosts_and_variables(folder: Path, valid: str) -> None:
    (folder / "e.yaml").write_text(auto(valid, "gpt-4o"))
    with pytest.raises(UsageError, match=r"model 'small': .*OPENAI_API_KEY.*OPENROUTER_API_KEY"):
        resolve_models(load_config("e.yaml"), lambda host: False, PriceBook(folder))
