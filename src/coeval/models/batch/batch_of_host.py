"""Which batch interface a host has: by the name in its row, ours or another package's."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from coeval.core.entry_points import loaded
from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.models.batch.batch_api import BatchApi
from coeval.models.catalog import Host

if TYPE_CHECKING:
    from coeval.models.batch.batch_http import BatchHttp

BATCH_APIS: Mapping[str, str] = MappingProxyType(
    {
        "openai_files": "coeval.models.batch.openai_files:OpenAiBatches",
        "anthropic": "coeval.models.batch.anthropic_batches:MessageBatches",
        "azure_openai": "coeval.models.batch.openai_files:AzureBatches",
        "mistral": "coeval.models.batch.mistral_batches:MistralBatches",
        "gemini": "coeval.models.batch.gemini_batches:GeminiBatches",
        "vertex": "coeval.models.batch.vertex_batches:VertexBatches",
        "bedrock": "coeval.models.batch.bedrock_batches:BedrockBatches",
    }
)
"""Where each stands, by the name that rows have for it: loaded where a batch is in use."""


class BatchMaker(Protocol):
    """Makes the batch interface of one model at one endpoint. ``settings`` are those of the host that are no
    credentials (`Host.places`), from the model's parameters, the key file, the environment or defaults.

    Raises UsageError: a setting is missing that batches need, or cannot be used.
    """

    def __call__(self, http: BatchHttp, spec: ModelSpec, settings: Mapping[str, str], /) -> BatchApi: ...


def batch_maker(host: Host) -> BatchMaker:
    """What makes the batch interface of a host that has one.

    Raises UsageError: a host of another package names what is not there.
    """
    maker: BatchMaker = loaded(BATCH_APIS.get(host.batch, host.batch), host.name)
    if not callable(maker):
        raise UsageError(f"{host.name}: {host.batch} makes no batch interface; reinstall its package")
    return maker
