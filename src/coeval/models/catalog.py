"""The hosts a model may be served by: one row each, in ``hosts.toml``.

A row (`Host`) says how a host is reached and what it understands; how its dialect is spoken stands in
``dialects``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
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


class Host(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
        pattern = self.completion_tokens_for
        if pattern is not None and re.match(pattern, model, re.IGNORECASE):
            return "max_completion_tokens"
        return "max_tokens"

    def with_other_limit_field(self, model: str) -> Host:
        renamed = "" if self.output_limit_field(model) == "max_tokens" else None
        return msgspec.structs.replace(self, completion_tokens_for=renamed)


OWN_CODE = "own_code"
"""The dialect of functions and programs of the user's, which no host serves."""

_ROWS = msgspec.toml.decode(
    Path(__file__).with_name("hosts.toml").read_bytes(), type=dict[str, tuple[Host, ...]]
)["host"]

HOSTS: Registry[Host] = Registry(
    "coeval.hosts",
    {host.name: host for host in _ROWS},
    needed="a coeval.models.catalog.Host",
    accepts=lambda name, host: isinstance(host, Host) and host.name == name,
)
"""Every interface a model may name, but ``auto``, which is resolved to one of these; other packages bring
theirs in the entry point group ``coeval.hosts``."""
