"""The hosts a model may be served by: one row each.

A row (`Host`) says how a host is reached and what it understands; how its dialect is spoken stands in
``dialects``. Sources: each provider's API reference, read in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from coeval.core.entry_points import Registry

# --- Host rows

Structured: TypeAlias = Literal["json_schema", "json_object", "none"]
ReasonsBy: TypeAlias = Literal["reasoning_effort", "reasoning", "thinking"]
"""The field that tells a model how much to reason: an effort; OpenRouter's object of an effort or a budget;
an effort beside DeepSeek's switch."""

SECRET_FIELDS = frozenset({"api_key", "access_key_id", "secret_access_key", "session_token"})
IDENTITY_FIELDS = SECRET_FIELDS | {"service_account_key"}
"""Fields of a key file's entry that say who asks. They are never mixed from two places: half a key is no
key."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the catalog: where an interface's models are served, and what the host understands.

    ``dialect``, ``signer`` and ``placed`` name the wire format, the authentication and the function that
    reads its address; another package names its own as ``package.module:name``. ``url`` is the base URL,
    may hold ``{settings}``, and is empty for models without one (local ones); ``placed`` is for hosts
    whose users copy an address that says more or less than where the API is (`models.address`).
    ``headers`` go with every request. ``key_env`` are the variables of an API key, in order; ``settings``
    the other fields of the host's entry in a key file, each with its variables; ``defaults`` their values
    if nothing is set. Settings that are no credential can be parameters of a model, too. ``lists_models``:
    the host lists models that can be called; ``listed_may_be_requested``: with this key, too (a public
    list proves nothing of the key). ``priced_as`` is the provider's name in the price library if it
    differs; ``prices`` of another package's host locates a function from a model id to its `Rates` (None:
    unknown). ``local``: users run the server themselves, so tokens cost nothing. ``shares_keys_of`` names
    another host whose key file entry serves as well. ``seeds_by_default``: requests carry the engine's own
    seed. ``takes_labels``: requests carry their labels in the field `metadata`, because simulated models
    may be there. ``completion_tokens_for`` matches the start of model ids whose output limit is called
    `max_completion_tokens`. ``lacks`` names what the host does not support: fields of
    `SamplingParameters`, and `logprobs`; ``most_stops`` is how many stop texts it takes. ``any_shaped``:
    its ``base_url`` may lead to any server of its dialect, which may support more. ``free_names``: users
    name the models, as deployments. ``batch`` names its batch API (`models.batch.batch_api`; another
    package's as ``package.module:name``), or is empty.
    """

    name: str
    dialect: str = "openai_chat"
    url: str = ""
    placed: str = ""
    headers: Mapping[str, str] = {}
    key_env: tuple[str, ...] = ()
    settings: Mapping[str, tuple[str, ...]] = {}
    defaults: Mapping[str, str] = {}
    lists_models: bool = True
    listed_may_be_requested: bool = True
    priced_as: str = ""
    prices: str = ""
    local: bool = False
    shares_keys_of: str | None = None
    signer: str = "bearer"
    needs_key: bool = True
    seeds_by_default: bool = False
    takes_labels: bool = False
    seed_field: str = "seed"
    structured: Structured = "json_schema"
    completion_tokens_for: str | None = None
    lacks: frozenset[str] = frozenset()
    most_stops: int | None = None
    reasons_by: ReasonsBy = "reasoning_effort"
    any_shaped: bool = False
    free_names: bool = False
    batch: str = ""

    @property
    def places(self) -> frozenset[str]:
        """Return the names of settings that locate a model, without those that authenticate."""
        return frozenset(self.settings) - IDENTITY_FIELDS

    def output_limit_field(self, model: str) -> str:
        """Return this host's name for a model's limit on output tokens."""
        pattern = self.completion_tokens_for
        if pattern is not None and re.match(pattern, model, re.IGNORECASE):
            return "max_completion_tokens"
        return "max_tokens"

    def with_other_limit_field(self, model: str) -> Host:
        """Return a copy of the host with the other name for this model's limit on output tokens."""
        renamed = "" if self.output_limit_field(model) == "max_tokens" else None
        return msgspec.structs.replace(self, completion_tokens_for=renamed)


OWN_CODE = "own_code"
"""The dialect of functions and programs of the user's, which no host serves."""

OPENAI_REASONING = r"(ft:)?(o[1-9]|gpt-([5-9]|[1-9]\d))"
"""OpenAI's models that answer `max_tokens` with 400 and want `max_completion_tokens`."""

_NO_TOP_K = frozenset({"top_k"})

_ROWS = (
    Host(
        name="openai",
        url="https://api.openai.com/v1",
        key_env=("OPENAI_API_KEY",),
        completion_tokens_for=OPENAI_REASONING,
        lacks=_NO_TOP_K,
        most_stops=4,
        any_shaped=True,
        batch="openai_files",
    ),
    Host(
        name="anthropic",
        dialect="anthropic",
        url="https://api.anthropic.com",
        placed="anthropic",
        headers={"anthropic-version": "2023-06-01"},
        key_env=("ANTHROPIC_API_KEY",),
        signer="x-api-key",
        batch="anthropic",
    ),
    Host(
        name="gemini",
        dialect="gemini",
        priced_as="google",
        url="https://generativelanguage.googleapis.com/v1beta",
        placed="gemini",
        key_env=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        signer="x-goog-api-key",
        batch="gemini",
    ),
    Host(
        name="huggingface",
        dialect="local",
        local=True,
        key_env=("HF_TOKEN", "HUGGINGFACE_API_KEY"),
        needs_key=False,
        seeds_by_default=True,
    ),
    Host(
        name="azure_openai",
        priced_as="azure",
        url="{endpoint}",
        placed="azure_openai",
        signer="api-key",
        key_env=("AZURE_OPENAI_API_KEY",),
        settings={
            "endpoint": ("AZURE_OPENAI_ENDPOINT",),
            "api_version": ("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION"),
        },
        completion_tokens_for=OPENAI_REASONING,
        free_names=True,
        lists_models=False,  # it lists what could be deployed
        batch="azure_openai",
        lacks=_NO_TOP_K,
        most_stops=4,
    ),
    Host(
        name="azure_ai",
        priced_as="azure",
        url="{endpoint}",
        placed="azure_ai",
        signer="api-key and bearer",
        # Without it, a parameter of the model that Azure's own API does not list is an error.
        headers={"extra-parameters": "pass-through"},
        key_env=("AZURE_AI_API_KEY",),
        settings={"endpoint": ("AZURE_AI_ENDPOINT",), "api_version": ("AZURE_AI_API_VERSION",)},
        free_names=True,
        lists_models=False,
    ),
    Host(
        name="bedrock",
        dialect="bedrock",
        url="https://bedrock-runtime.{region}.amazonaws.com",
        signer="coeval.models.signers:make_aws_signer",
        priced_as="aws",
        key_env=("AWS_BEARER_TOKEN_BEDROCK",),
        settings={
            "access_key_id": ("AWS_ACCESS_KEY_ID",),
            "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
            "session_token": ("AWS_SESSION_TOKEN",),
            "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
        },
    ),
    Host(
        name="vertex",
        dialect="gemini",
        url="https://aiplatform.googleapis.com/v1",
        placed="vertex",
        defaults={"location": "global"},
        priced_as="google",
        lists_models=False,
        needs_key=False,  # the application default credentials may serve
        signer="coeval.models.signers:make_google_signer",
        settings={
            "project": ("GOOGLE_CLOUD_PROJECT",),
            "location": ("GOOGLE_CLOUD_LOCATION",),
            "service_account_key": ("GOOGLE_APPLICATION_CREDENTIALS",),
        },
    ),
    Host(
        name="openrouter",
        url="https://openrouter.ai/api/v1",
        listed_may_be_requested=False,
        key_env=("OPENROUTER_API_KEY",),
        reasons_by="reasoning",
        most_stops=4,
    ),
    Host(
        name="groq",
        url="https://api.groq.com/openai/v1",
        placed="below /openai/v1",
        key_env=("GROQ_API_KEY",),
        # Only some of its models take json_schema; all take json_object.
        structured="json_object",
        lacks=_NO_TOP_K | {"logprobs"},
        most_stops=4,
    ),
    Host(
        name="deepseek",
        url="https://api.deepseek.com/v1",
        key_env=("DEEPSEEK_API_KEY",),
        structured="json_object",
        lacks=_NO_TOP_K | {"seed"},
        most_stops=16,
        reasons_by="thinking",
    ),
    Host(
        name="mistral",
        url="https://api.mistral.ai/v1",
        placed="below /v1",
        key_env=("MISTRAL_API_KEY",),
        batch="mistral",
        seed_field="random_seed",
    ),
    Host(
        name="deepinfra",
        url="https://api.deepinfra.com/v1/openai",
        listed_may_be_requested=False,
        key_env=("DEEPINFRA_API_KEY", "DEEPINFRA_API_TOKEN"),
        structured="json_object",
        most_stops=16,
    ),
    Host(
        name="cerebras",
        url="https://api.cerebras.ai/v1",
        placed="below /v1",
        key_env=("CEREBRAS_API_KEY",),
        completion_tokens_for="",
        lacks=_NO_TOP_K,
        most_stops=4,
    ),
    Host(
        name="cohere",
        dialect="cohere",
        url="https://api.cohere.com",
        placed="cohere",
        key_env=("CO_API_KEY", "COHERE_API_KEY"),
    ),
    Host(
        name="huggingface_api",
        priced_as="huggingface_",
        url="https://router.huggingface.co/v1",
        listed_may_be_requested=False,
        placed="below /v1",
        key_env=("HF_TOKEN", "HUGGINGFACE_API_KEY"),
        shares_keys_of="huggingface",
        lacks=_NO_TOP_K,
    ),
    Host(
        name="ollama",
        local=True,
        url="{host}",
        placed="ollama",
        key_env=("OLLAMA_API_KEY",),
        settings={"host": ("OLLAMA_HOST",)},
        defaults={"host": "http://localhost:11434"},
        needs_key=False,
        # It passes over a top_k without a word.
        lacks=_NO_TOP_K,
    ),
    Host(name="benchmark", dialect="benchmark", local=True, needs_key=False),
    Host(name="python", dialect=OWN_CODE, local=True, needs_key=False, seeds_by_default=True),
    Host(name="command", dialect=OWN_CODE, local=True, needs_key=False, seeds_by_default=True),
    Host(
        name="vllm",
        local=True,
        url="http://localhost:8000/v1",
        key_env=("VLLM_API_KEY",),
        needs_key=False,
        seeds_by_default=True,
        batch="openai_files",  # not vLLM's own: servers and gateways in front of it copy OpenAI's
        takes_labels=True,
    ),
    Host(
        name="simulated",
        dialect="simulated",
        local=True,
        needs_key=False,
        seeds_by_default=True,
        takes_labels=True,
    ),
)


HOSTS: Registry[Host] = Registry(
    "coeval.hosts",
    {host.name: host for host in _ROWS},
    needed="a coeval.models.catalog.Host",
    accepts=lambda name, host: isinstance(host, Host) and host.name == name,
)
"""Every interface a model may name, but ``auto``, which is resolved to one of these; other packages bring
theirs in the entry point group ``coeval.hosts``."""
