"""Azure OpenAI's Batch API: OpenAI's, below the resource's own paths, for deployments of the batch kind.

Source: Azure's guide and its REST reference, and OpenAI's own client for Azure, November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

from coeval.core.model import ModelSpec
from coeval.models.batch.batch_api import BatchLimits
from coeval.models.batch.batch_files import BatchPaths
from coeval.models.batch.openai_files import OpenAiBatches
from coeval.models.hosts.api_place import GivenAddress
from coeval.models.hosts.places import azure_openai

__all__ = ["AzureBatches"]


class AzureBatches(OpenAiBatches):
    """Batches of one deployment, whose name is the model of each line; it is of a kind for batches alone."""

    limits = BatchLimits(requests=100_000, bytes=200_000_000, batches_only=True)
    request_url = "/chat/completions"

    def paths(self, spec: ModelSpec, settings: Mapping[str, str]) -> BatchPaths:
        """Beside the deployments at a dated version of the API, at the base URL itself at the undated one."""
        url = spec.base_url if spec.base_url is not None else settings["endpoint"]
        path, _, query = azure_openai(GivenAddress(url, settings, spec.model)).path.partition("?")
        return BatchPaths("/openai" if path.startswith("/openai/") else "", query)
