"""Which dialect a host speaks, by the name in its row."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from coeval.core.entry_points import loaded
from coeval.core.errors import UsageError
from coeval.models.catalog import Host
from coeval.models.dialects.anthropic.anthropic_messages import ANTHROPIC
from coeval.models.dialects.aws.bedrock import BEDROCK
from coeval.models.dialects.cohere import COHERE
from coeval.models.dialects.dialect import Dialect
from coeval.models.dialects.google.gemini import GEMINI
from coeval.models.dialects.openai_chat import OPENAI_CHAT, OPENROUTER_CHAT

__all__ = ["dialect_of"]

_DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "anthropic": ANTHROPIC,
        "bedrock": BEDROCK,
        "cohere": COHERE,
        "gemini": GEMINI,
        "openai_chat": OPENAI_CHAT,
        "openrouter_chat": OPENROUTER_CHAT,
    }
)


def dialect_of(host: Host) -> Dialect:
    """The dialect of a host that is asked over HTTP.

    OpenAI's, where this version does not speak the host's own: then its user has named an OpenAI-shaped
    address that serves the model.

    Raises
    ------
    UsageError
        a host of another package names a dialect that is not there, or is none.
    """
    if ":" in host.dialect:
        found = loaded(host.dialect, host.name)
        if not isinstance(found, Dialect) or isinstance(found, type):
            raise UsageError(f"{host.name}: {host.dialect} is no Dialect; reinstall its package")
        return found
    return _DIALECTS.get(host.dialect, OPENAI_CHAT)
