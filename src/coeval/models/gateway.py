"""What a gateway's headers say of an answer: LiteLLM's, whose proxy many teams put before all their hosts.

Met at its version 1.108: headers of a good answer only; the body names the alias, or after a fallback the
model that answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from coeval.core.records import Completion, ServedAs
from coeval.core.redaction import Redactor
from coeval.models.catalog import Host
from coeval.models.dialects.dialect import name_of
from coeval.models.dialects.openai_answer import is_charge

_MODEL, _DEPLOYMENT = "x-litellm-model-name", "x-litellm-model-id"
_GROUP, _FALLBACKS = "x-litellm-model-group", "x-litellm-attempted-fallbacks"
_COST = "x-litellm-response-cost"


def is_of_gateway(headers: Mapping[str, str]) -> bool:
    """Check whether a gateway answered."""
    return _FALLBACKS in headers or _GROUP in headers


def through_gateway(
    completion: Completion, headers: Mapping[str, str], requested: str, host: Host, redactor: Redactor
) -> Completion:
    """Complete an answer by its headers: its cost, and ``served_by`` where that is not ``requested``."""
    usage = completion.usage
    with suppress(KeyError, ValueError):
        if is_charge(usd := float(headers[_COST])):
            usage = msgspec.structs.replace(usage, cost_usd=usd)
    served_by = "" if completion.served_by == requested else completion.served_by
    served_as: ServedAs = "alias" if served_by and host.free_names else ""
    if is_of_gateway(headers):
        group = headers.get(_GROUP, "")
        told = headers.get(_MODEL) or headers.get(_DEPLOYMENT) or group
        served_by = served_by or redactor.answer(name_of("" if told == requested else told))
        # Where the number is left out, another group than the requested one answered.
        fell_back = headers.get(_FALLBACKS, "0" if group == requested else "1").strip() != "0"
        served_as = "" if not served_by else "fallback" if fell_back else "alias"
    if (usage, served_by, served_as) == (completion.usage, completion.served_by, completion.served_as):
        return completion
    return msgspec.structs.replace(completion, usage=usage, served_by=served_by, served_as=served_as)
