"""The table of hosts: every row, its dialect, and where a model of it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from yarl import URL

from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.models.address import ModelAddress, load_dialect, resolve_address
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.models.keys import Keys
from coeval.pipeline.config.schema import BATCH_INTERFACES
from perf.dialects import TYPICAL

KEY = "sk-test-0123456789abcdef"
RESOURCE = "https://res.openai.azure.com"
DATED = "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21"
EVERYWHERE = "0.0.0.0"  # noqa: S104
NOWHERE = Path("/nonexistent")
OF_GOOGLE = "projects/p/locations/global/publishers/google/models/gpt-4o:generateContent"


def address(
    interface: str, env: dict[str, str] | None = None, model: str = "gpt-4o", **fields: Any
) -> ModelAddress:
    keys = Keys.load(None, env=env or {}, cwd=NOWHERE, home=NOWHERE)
    spec = ModelSpec(name="m", interface=interface, model=model, access_key=KEY, **fields)
    return resolve_address(spec, HOSTS[interface], keys)


def place(interface: str, env: dict[str, str] | None = None, **fields: Any) -> str:
    at = address(interface, env, **fields)
    return at.url + at.path


@pytest.mark.parametrize(
    ("endpoint", "version", "requested"),
    [
        (RESOURCE, "2024-10-21", RESOURCE + DATED),
        (RESOURCE + "/", "2024-10-21", RESOURCE + DATED),
        (RESOURCE + "/openai", "2024-10-21", RESOURCE + DATED),
        (RESOURCE, "", RESOURCE + "/openai/v1/chat/completions"),
        (RESOURCE, "v1", RESOURCE + "/openai/v1/chat/completions"),
        (RESOURCE, "preview", RESOURCE + "/openai/v1/chat/completions?api-version=preview"),
        (RESOURCE + "/openai/v1/", "", RESOURCE + "/openai/v1/chat/completions"),
        # An endpoint of the newer API goes before a version that the other one has.
        (RESOURCE + "/openai/v1", "2024-10-21", RESOURCE + "/openai/v1/chat/completions"),
        (RESOURCE + "/openai/v1", "preview", RESOURCE + "/openai/v1/chat/completions?api-version=preview"),
        ("https://gateway.example/team/v1", "", "https://gateway.example/team/v1/chat/completions"),
        ("https://gateway.example/azure", "2024-10-21", "https://gateway.example/azure" + DATED),
        # What the portal shows as the target URI of a deployment.
        (f"{RESOURCE}{DATED}", "", RESOURCE + DATED),
        (
            f"{RESOURCE}/openai/deployments/other/chat/completions?api-version=2023-05-15",
            "2024-10-21",
            RESOURCE + DATED,
        ),
        (f"{RESOURCE}/openai/v1/chat/completions", "", RESOURCE + "/openai/v1/chat/completions"),
    ],
)
def test_a_deployment_of_azure_is_asked_where_its_endpoint_and_version_say(
    endpoint: str, version: str, requested: str
) -> None:
    env = {"AZURE_OPENAI_ENDPOINT": endpoint, "AZURE_OPENAI_API_VERSION": version}
    assert place("azure_openai", env) == requested
    assert place("azure_openai", {"OPENAI_API_VERSION": version}, base_url=endpoint) == requested


def test_a_version_that_is_set_goes_before_that_of_a_target_uri() -> None:
    uri = "https://r.services.ai.azure.com/models/chat/completions?api-version=2025-04-01"
    env = {"AZURE_AI_ENDPOINT": uri, "AZURE_AI_API_VERSION": "2026-01-01"}
    assert place("azure_ai", env).endswith("/models/chat/completions?api-version=2026-01-01")


def test_the_name_of_a_deployment_is_quoted_in_the_path() -> None:
    at = address("azure_openai", base_url=RESOURCE, model="my model/2", options={"api_version": "2024-10-21"})
    assert at.path.startswith("/openai/deployments/my%20model%2F2/chat/completions")


@pytest.mark.parametrize(
    ("endpoint", "requested"),
    [
        (
            "https://r.services.ai.azure.com",
            "https://r.services.ai.azure.com/models/chat/completions?api-version=2024-05-01-preview",
        ),
        (
            "https://r.services.ai.azure.com/models/",
            "https://r.services.ai.azure.com/models/chat/completions?api-version=2024-05-01-preview",
        ),
        (
            "https://r.services.ai.azure.com/models/chat/completions?api-version=2025-04-01",
            "https://r.services.ai.azure.com/models/chat/completions?api-version=2025-04-01",
        ),
        (
            "https://r.services.ai.azure.com/openai/v1/",
            "https://r.services.ai.azure.com/openai/v1/chat/completions",
        ),
        (
            "https://phi.eastus.models.ai.azure.com",
            "https://phi.eastus.models.ai.azure.com/chat/completions?api-version=2024-05-01-preview",
        ),
        (
            "https://phi.eastus.models.ai.azure.com/v1",
            "https://phi.eastus.models.ai.azure.com/v1/chat/completions",
        ),
    ],
)
def test_a_model_of_azure_ai_is_asked_where_its_endpoint_says(endpoint: str, requested: str) -> None:
    assert place("azure_ai", {"AZURE_AI_ENDPOINT": endpoint}) == requested
    assert place("azure_ai", base_url=endpoint) == requested


def test_azure_is_shown_the_key_as_its_own_clients_show_it() -> None:
    openai = address("azure_openai", base_url=RESOURCE).signer
    assert openai is not None
    assert openai.fixed == {"api-key": KEY}
    ai = address("azure_ai", base_url=RESOURCE)
    assert ai.signer is not None
    assert ai.signer.fixed == {"api-key": KEY, "Authorization": f"Bearer {KEY}"}
    assert ai.host.headers == {"extra-parameters": "pass-through"}


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://localhost:11434/v1"),
        ("gpu-box", "http://gpu-box:11434/v1"),
        ("gpu-box:8080", "http://gpu-box:8080/v1"),
        (":8080", "http://127.0.0.1:8080/v1"),
        (EVERYWHERE, "http://127.0.0.1:11434/v1"),
        (f"{EVERYWHERE}:8080", "http://127.0.0.1:8080/v1"),
        ("10.0.0.0:8080", "http://10.0.0.0:8080/v1"),
        ("[::1]:8080", "http://[::1]:8080/v1"),
        ("http://gpu-box:11434", "http://gpu-box:11434/v1"),
        ("http://gpu-box:11434/", "http://gpu-box:11434/v1"),
        ("http://gpu-box:11434/v1", "http://gpu-box:11434/v1"),
        ("gpu-box/v1/", "http://gpu-box:11434/v1"),
        ("https://ollama.example", "https://ollama.example/v1"),
        ("https://ollama.example/team/v1", "https://ollama.example/team/v1"),
    ],
)
def test_ollamas_address_is_read_as_ollama_reads_it(host: str, url: str) -> None:
    assert place("ollama", {"OLLAMA_HOST": host}) == f"{url}/chat/completions"
    if "://" in host:
        assert place("ollama", base_url=host) == f"{url}/chat/completions"


@pytest.mark.parametrize(
    ("interface", "base_url", "requested"),
    [
        ("mistral", "http://h:1", "http://h:1/v1/chat/completions"),
        ("mistral", "http://h:1/v1/", "http://h:1/v1/chat/completions"),
        ("groq", "http://h:1/", "http://h:1/openai/v1/chat/completions"),
        ("cerebras", "http://h:1", "http://h:1/v1/chat/completions"),
        ("huggingface_api", "http://h:1", "http://h:1/v1/chat/completions"),
        ("huggingface_api", "http://h:1/team/v1", "http://h:1/team/v1/chat/completions"),
        ("deepseek", "http://h:1", "http://h:1/chat/completions"),
        ("openai", "http://h:1", "http://h:1/chat/completions"),
        *[
            ("anthropic", f"http://h:1{end}", "http://h:1/v1/messages")
            for end in ("", "/", "/v1", "/v1/", "/v1/messages")
        ],
        *[
            ("gemini", f"http://h:1{end}", "http://h:1/v1beta/models/gpt-4o:generateContent")
            for end in ("", "/", "/v1beta", "/v1beta/", "/v1beta/openai/")
        ],
        ("gemini", "http://h:1/v1", "http://h:1/v1/models/gpt-4o:generateContent"),
        *[
            ("cohere", f"http://h:1{below}{end}", f"http://h:1{below}/v2/chat")
            for below in ("", "/team")
            for end in ("", "/", "/v1", "/v2", "/v2/chat")
        ],
        *[
            ("vertex", f"http://h:1{end}", f"http://h:1/{end.strip('/') or 'v1'}/{OF_GOOGLE}")
            for end in ("", "/v1", "/v1beta1/")
        ],
    ],
)
def test_an_address_may_be_that_which_the_hosts_own_client_is_given(
    interface: str, base_url: str, requested: str
) -> None:
    assert place(interface, {"GOOGLE_CLOUD_PROJECT": "p"}, base_url=base_url) == requested


@pytest.mark.parametrize(
    ("interface", "env", "words"),
    [
        ("azure_openai", {}, "needs endpoint and none was found"),
        ("azure_openai", {}, "AZURE_OPENAI_ENDPOINT in the environment, or parameters.endpoint of the model"),
        ("azure_openai", {"AZURE_OPENAI_ENDPOINT": "res.openai.azure.com"}, "its endpoint must begin with"),
        ("azure_openai", {"AZURE_OPENAI_ENDPOINT": f"{RESOURCE}?api-key={KEY}"}, "its endpoint may hold no"),
        ("azure_ai", {"AZURE_AI_ENDPOINT": f"https://user:{KEY}@r.example"}, "its endpoint may hold no"),
        ("azure_ai", {"AZURE_AI_ENDPOINT": "https://r.example/#a"}, "its endpoint has a fragment"),
        ("ollama", {"OLLAMA_HOST": "http://h:port"}, "its host must begin with"),
        ("ollama", {"OLLAMA_HOST": "a b"}, "its host holds a blank"),
        ("ollama", {"OLLAMA_HOST": f"http://u:{KEY}@h"}, "its host may hold no user name"),
        ("ollama", {"OLLAMA_HOST": f"h:1?key={KEY}"}, "its host may hold no user name, password or query"),
    ],
)
def test_what_is_wrong_with_an_address_is_named(interface: str, env: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as raised:
        address(interface, env)
    assert words in str(raised.value)
    assert KEY not in str(raised.value)


def test_a_host_of_another_package_may_read_its_own_address() -> None:
    spec = ModelSpec(name="m", interface="vllm", model="x", base_url="http://gpu-box:11434")
    keys = Keys.load(None, env={}, cwd=NOWHERE, home=NOWHERE)
    theirs = msgspec.structs.replace(HOSTS["vllm"], placed="coeval.models.address:locate_ollama")
    assert resolve_address(spec, theirs, keys).url == "http://gpu-box:11434/v1"
    with pytest.raises(UsageError, match="reinstall its package"):
        resolve_address(spec, msgspec.structs.replace(theirs, placed="coeval.models.address:gone"), keys)


def test_what_a_model_sets_goes_before_what_its_host_has() -> None:
    env = {"AZURE_OPENAI_ENDPOINT": "https://other.example", "AZURE_OPENAI_API_VERSION": "2023-05-15"}
    own = {"endpoint": RESOURCE, "api_version": "2024-10-21"}
    assert place("azure_openai", env, options=own) == RESOURCE + DATED


INTERFACES = (
    *("openai", "anthropic", "gemini", "huggingface", "azure_openai", "azure_ai", "bedrock", "vertex"),
    *("openrouter", "groq", "deepseek", "mistral", "deepinfra", "cerebras", "cohere", "huggingface_api"),
    *("ollama", "benchmark", "python", "command", "vllm", "simulated"),
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
    here = {"huggingface", "ollama", "vllm", "simulated", "benchmark", "python", "command"}
    assert keyless == here | {"vertex"}


def test_the_engines_seed_goes_to_servers_that_repeat_themselves() -> None:
    assert {name for name, host in HOSTS.items() if host.seeds_by_default} == {
        "vllm",
        "simulated",
        "huggingface",
        "python",
        "command",
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


def test_every_dialect_that_hosts_speak_is_measured_on_an_answer_that_it_reads() -> None:
    requested_over_http = {
        type(load_dialect(host)).__name__
        for host in HOSTS.values()
        if host.dialect not in ("simulated", "benchmark", "local", OWN_CODE)
    }
    measured = {type(load_dialect(HOSTS[interface])).__name__ for interface in TYPICAL}
    assert measured == requested_over_http, "add what a host of it answers to perf/dialects.py"


def test_a_dialect_that_is_not_there_is_no_other_hosts() -> None:
    with pytest.raises(UsageError, match="smoke_signals is not a Dialect"):
        load_dialect(msgspec.structs.replace(HOSTS["openai"], dialect="smoke_signals"))


def test_the_experiment_file_takes_batches_of_every_host_that_has_them() -> None:
    """A server of the user's own (`vllm`) has them only where its address does."""
    assert {*BATCH_INTERFACES} == {"openai", "anthropic", "gemini", "azure_openai", "mistral"}
