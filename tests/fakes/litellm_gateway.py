"""LiteLLM's proxy as it answered at version 1.108.7 (``make test-gateway`` asks a real one).

Headers stand at good answers only. The body names the alias that was asked for, or after a fallback the
model that answered; a copy from the cache has the first answer's id, its key, and no cost.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import cycle
from typing import Any

from fakes.openai_chat import Answer, Behaviour, Fault, Server
from fakes.scripted import serving

CREATED = 1_677_610_602
"""When each model of the gateway's list was made, whatever the model."""

TAIL = (
    "\n\nLiteLLM: model group '{model}' failed with the error above and no fallback model group was found "
    "for it, so the request was not retried on another model. Fallbacks are configured for: primary. Add a "
    "fallbacks entry for that model group (Router fallbacks or proxy router_settings.fallbacks) to retry on "
    "another model."
)


@dataclass
class Gateway(Server):
    """``routes_of``: by alias, the deployed models that take turns; ``fallbacks``: by alias whose upstream is
    down, another alias. ``cost_usd``: by deployed model, what an answer costs; ``caches``: equal requests get
    copies, but for those with ``no-cache``. ``asked`` counts the upstream's requests by deployed model."""

    routes_of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    fallbacks: Mapping[str, str] = field(default_factory=dict)
    cost_usd: Mapping[str, float] = field(default_factory=dict)
    caches: bool = False
    takes_cache_field: bool = True
    text: str = "red"
    usage: Mapping[str, Any] | None = None
    asked: Counter[str] = field(default_factory=Counter)
    kept: dict[str, Answer] = field(default_factory=dict)
    turns: dict[str, Any] = field(default_factory=dict)

    def answer_to(self, body: dict[str, Any]) -> Behaviour:
        alias = body["model"]
        group = self.fallbacks.get(alias, alias)
        if group not in self.routes_of:
            message = (
                f"litellm.BadRequestError: You passed in model={alias}. There are no healthy deployments for "
            )
            return Fault(400, f"{message}this model{TAIL.format(model=alias)}", code="400")
        cache = body.get("cache")
        if cache is not None and not self.takes_cache_field:
            return Fault(400, "Unrecognized request argument supplied: cache", code="400")
        key = sha256(json.dumps({**body, "cache": None}, sort_keys=True).encode()).hexdigest()
        if self.caches and key in self.kept and not (cache or {}).get("no-cache"):
            return self.kept[key]
        turn = self.turns.setdefault(group, cycle(self.routes_of[group]))
        deployed = next(turn)
        self.asked[deployed] += 1
        number = self.asked.total()
        headers = {
            "x-litellm-model-id": sha256(f"{group} {deployed}".encode()).hexdigest(),
            "x-litellm-model-name": f"openai/{deployed}",
            "x-litellm-model-group": group,
            "x-litellm-attempted-retries": "0",
            "x-litellm-attempted-fallbacks": "0" if group == alias else "1",
        }
        cost = {"x-litellm-response-cost": str(self.cost_usd[deployed])} if deployed in self.cost_usd else {}
        text = self.text.format(number=number)
        reply: dict[str, Any] = {"id": f"chatcmpl-{number}", "model": alias if group == alias else deployed}
        if self.usage is not None:
            reply["usage"] = self.usage
        self.kept[key] = Answer(text, body=reply, headers=headers | {"x-litellm-cache-key": key})
        return Answer(text, body=reply, headers=headers | cost)


@asynccontextmanager
async def gateway(**fields: Any) -> AsyncIterator[Gateway]:
    """Serve on loopback, with the fields of `Gateway`; it lists its aliases as the proxy does."""
    names = [*fields.get("routes_of", ()), *fields.get("fallbacks", ())]
    listed = [{"id": name, "created": CREATED, "owned_by": "openai"} for name in names]
    extra = frozenset({"cache", "top_k", "chat_template_kwargs"})
    host = Gateway(deque(), listed=listed, extra_fields=extra, **fields)
    async with serving(host, "/v1"):
        yield host
