"""A host's row: where an interface's models are asked, and what the host understands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec

__all__ = ["IDENTITY_FIELDS", "SECRET_FIELDS", "Host", "Structured"]

Structured: TypeAlias = Literal["json_schema", "json_object", "none"]
ReasonsBy: TypeAlias = Literal["reasoning_effort", "reasoning", "thinking"]
"""The field that tells a model how much to reason: an effort; OpenRouter's object of an effort or a budget;
an effort beside DeepSeek's switch."""

SECRET_FIELDS = frozenset({"api_key", "access_key_id", "secret_access_key", "session_token"})
IDENTITY_FIELDS = SECRET_FIELDS | {"service_account_key"}
"""Fields of a key file's entry that say who asks. They are never mixed from two places: half a key is no
key."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Where an interface's models are asked, and what the host understands.

    ``dialect``, ``signer`` and ``placed`` name how it is spoken to, how a key is shown and who reads its
    address; a host of another package may name its own as ``package.module:name``. ``url`` is the base URL,
    empty where there is none to know (a local model); ``path`` stands in the place of the dialect's. Both
    may hold ``{settings}``, ``path`` ``{model}`` too; an address that may say more or less than where the
    API is has a ``placed`` (`hosts.places`) in the place of both. ``headers`` go with every request.
    ``key_env`` are the variables an API key is read from, in order; ``settings`` the other fields of the
    host's entry in a key file, each with its variables, and ``defaults`` what they are where nothing is
    set; those that are no credential can be parameters of a model as well. ``models_url`` is the base URL
    of its list of models where that is another, and not used where the user sets one; without
    ``lists_models`` there is none, or none of what can be asked, and without ``listed_may_be_asked`` being
    listed says nothing of the key: the list is public, or names what accounts may be given.
    ``priced_as`` is the provider of the price library whose prices are the host's, where its name is not the
    interface's; a host of another package may bring ``prices``, the place of a function from a model's id to
    its `Rates` (None: unknown). ``local``: it is for servers that their users run, whose tokens cost nothing.
    ``shares_keys_of`` names another host whose key file entry serves as well.
    ``seeds_by_default``: the engine's own request seed is sent. ``takes_labels``: it is told a request's
    labels, in the field `metadata`, because simulated models may stand there.
    ``completion_tokens_for`` matches the start of the model ids whose limit on output is called
    `max_completion_tokens`. ``lacks`` names what the host has nothing for: fields of `SamplingParameters`,
    and `logprobs`; ``most_stops`` is how many texts to stop at it takes. ``any_shaped``: its ``base_url`` may
    lead to any server of its dialect, which may have what this host lacks. ``batch`` names its batch API
    (`models.batch.batch_of_host`; another package's as ``package.module:name``), empty where it has none.
    """

    name: str
    dialect: str
    url: str = ""
    path: str = ""
    placed: str = ""
    headers: Mapping[str, str] = {}
    key_env: tuple[str, ...] = ()
    settings: Mapping[str, tuple[str, ...]] = {}
    defaults: Mapping[str, str] = {}
    models_url: str = ""
    lists_models: bool = True
    listed_may_be_asked: bool = True
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
    batch: str = ""

    @property
    def places(self) -> frozenset[str]:
        """The settings that say where a model is asked, and not who asks."""
        return frozenset(self.settings) - IDENTITY_FIELDS

    def output_limit_field(self, model: str) -> str:
        """What this host calls the limit on output tokens of a model."""
        pattern = self.completion_tokens_for
        if pattern is not None and _begins_with(pattern, model):
            return "max_completion_tokens"
        return "max_tokens"

    def with_other_limit(self, model: str) -> Host:
        """The same host, with what it calls the limit of this model turned into the other name."""
        renamed = "" if self.output_limit_field(model) == "max_tokens" else None
        return msgspec.structs.replace(self, completion_tokens_for=renamed)


@lru_cache(maxsize=1024)
def _begins_with(pattern: str, model: str) -> bool:
    return re.match(pattern, model, re.IGNORECASE) is not None
