from __future__ import annotations

import pytest
from yarl import URL

from coeval.models.catalog import HOSTS

INTERFACES = (
    *("openai", "anthropic", "gemini", "huggingface", "azure_openai", "azure_ai", "bedrock", "vertex"),
    *("openrouter", "groq", "deepseek", "mistral", "deepinfra", "cerebras", "cohere", "huggingface_api"),
    *("ollama", "benchmark", "vllm", "simulated"),
)


def test_every_interface_of_the_guides_has_a_row_under_its_own_name() -> None:
    assert sorted(HOSTS) == sorted(INTERFACES)
    assert all(host.name == name for name, host in HOSTS.items())


def test_a_host_that_can_be_asked_over_http_has_an_address() -> None:
    for host in HOSTS.values():
        if host.dialect == "openai_chat":
            template = host.url.format_map(
                dict.fromkeys(host.settings, "https://set.example") | dict(host.defaults)
            )
            url = URL(template)
            assert url.scheme in ("http", "https"), host.name
            assert not host.url.endswith("/"), host.name
            assert url.scheme == "https" or url.host == "localhost", host.name


def test_only_hosts_without_a_key_of_their_own_need_none() -> None:
    keyless = {name for name, host in HOSTS.items() if not host.needs_key}
    assert keyless == {"huggingface", "ollama", "vertex", "vllm", "simulated", "benchmark"}


def test_the_engines_seed_goes_to_servers_that_repeat_themselves() -> None:
    assert {name for name, host in HOSTS.items() if host.seeds_by_default} == {
        "vllm",
        "simulated",
        "huggingface",
    }


@pytest.mark.parametrize(
    ("interface", "model", "field"),
    [
        ("openai", "gpt-4o-mini", "max_tokens"),
        ("openai", "gpt-4.1", "max_tokens"),
        ("openai", "gpt-3.5-turbo", "max_tokens"),
        ("openai", "o1", "max_completion_tokens"),
        ("openai", "o4-mini-2025-04-16", "max_completion_tokens"),
        ("openai", "gpt-5-nano", "max_completion_tokens"),
        ("openai", "GPT-5.2", "max_completion_tokens"),
        ("openai", "ft:o4-mini:acme::1", "max_completion_tokens"),
        ("openai", "olmo-2", "max_tokens"),
        ("vllm", "gpt-5-lookalike", "max_tokens"),
        ("openrouter", "openai/o3", "max_tokens"),
        ("cerebras", "llama3.1-8b", "max_completion_tokens"),
    ],
)
def test_the_limit_on_output_has_the_name_that_the_model_takes(
    interface: str, model: str, field: str
) -> None:
    assert HOSTS[interface].output_limit_field(model) == field
