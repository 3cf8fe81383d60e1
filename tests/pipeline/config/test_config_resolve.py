"""`interface: auto` bound to a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from coeval.core.errors import UsageError
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.resolve import resolve_models
from coeval.pricing.routing import read_pricing


def auto(valid: str, model: str) -> str:
    return valid.replace(
        "interface: openai\n    roles: [j",
        f"interface: auto\n    parameters: {{model: {model}, top_p: 1}}\n    roles: [j",
    )


def test_auto_takes_the_first_host_with_a_credential(folder: Path, valid: str) -> None:
    (folder / "e.yaml").write_text(auto(valid, "deepseek/deepseek-chat"))
    config = resolve_models(load_config("e.yaml"), lambda host: host in ("bedrock", "openrouter"))
    large, small = config.models
    assert (large.interface, small.interface) == ("openai", "openrouter")
    assert small.spec().model == "deepseek/deepseek-chat"
    assert small.sampling("judge").named() == {"top_p": 1}
    direct = resolve_models(load_config("e.yaml"), lambda host: True).models[1]
    assert (direct.interface, direct.spec().model) == ("deepseek", "deepseek-chat")


def test_without_auto_nothing_is_asked(folder: Path, valid: str) -> None:
    (folder / "e.yaml").write_text(valid)
    config = load_config("e.yaml")

    def never(host: str) -> bool:
        raise AssertionError(host)

    assert resolve_models(config, never) is config


def test_no_credential_names_hosts_and_variables(folder: Path, valid: str) -> None:
    (folder / "e.yaml").write_text(auto(valid, "gpt-4o"))
    with pytest.raises(UsageError, match=r"model 'small': .*OPENAI_API_KEY.*OPENROUTER_API_KEY"):
        resolve_models(load_config("e.yaml"), lambda host: False, read_pricing())
