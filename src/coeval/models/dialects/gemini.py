"""Google's generateContent, as the Gemini API and Vertex AI speak it.

Written against Google's API reference and its guides on thinking, structured output and Gemma
(November 2026), and against what `google-genai` sends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from coeval.core import foreign
from coeval.core.errors import BadRequest, ModelError
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Message, Request, SamplingParameters
from coeval.core.redaction import Redactor
from coeval.models.catalog import Host
from coeval.models.dialects.dialect import (
    MOST_TOKENS,
    Dialect,
    FieldRejected,
    ListedModel,
    ModelList,
    ModelPage,
    lay_over,
)
from coeval.models.dialects.gemini_answer import decode, explain
from coeval.models.dialects.openai_words import in_first_turn
from coeval.models.transport.connection import HttpReply

# --- Model list, ``GET /models``

# The most models that Google puts on a page.
_PAGE = 1000


class _GeminiModel(msgspec.Struct, rename="camel"):
    name: str
    input_token_limit: Any = None
    supported_generation_methods: list[str] | None = None


class _GeminiList(msgspec.Struct, rename="camel"):
    models: list[_GeminiModel] = []
    next_page_token: str | None = None


_read = foreign.decoder(_GeminiList)


def _path(page: str | None) -> str:
    token = f"&pageToken={quote(page, safe='')}" if page is not None else ""
    return f"/models?pageSize={_PAGE}{token}"


def _page(body: bytes) -> ModelPage:
    """Those that answer generateContent: others embed, count or paint."""
    found = _read(body)
    answering = (
        model
        for model in found.models
        if model.supported_generation_methods is None
        or "generateContent" in model.supported_generation_methods
    )
    return ModelPage(tuple(map(_listed, answering)), found.next_page_token or None)


def _listed(model: _GeminiModel) -> ListedModel:
    window = model.input_token_limit
    known = type(window) is int and 0 < window <= MOST_TOKENS
    return ListedModel(model.name.removeprefix("models/"), window if known else None)


GEMINI_MODELS = ModelList(_path, _page)


Body: TypeAlias = dict[str, Any]

_ROLES = {"user": "user", "assistant": "model"}
_CONFIG = "generationConfig"
# Fields of a request; all other parameters stand within ``generationConfig``.
_OF_THE_BODY = frozenset(
    {
        _CONFIG, "cachedContent", "contents", "labels", "modelArmorConfig", "safetySettings", "serviceTier",
        "store", "systemInstruction", "toolConfig", "tools",
    }
)  # fmt: skip


class _GeminiFamily(NamedTuple):
    """What the models whose ids a pattern matches take. ``thinking``: `level` is a word, `budget` a number of
    tokens. ``drawing``: temperature, top_p and top_k count; other models pass over them without a word."""

    ids: str
    thinking: Literal["none", "budget", "level"] = "level"
    always_thinks: bool = False
    drawing: bool = True
    system: bool = True
    structured: bool = True


# The first that matches counts; the last is what nobody knows, such as an endpoint of one's own.
_FAMILIES = (
    _GeminiFamily(r"gemma-3", thinking="none", system=False, structured=False),
    _GeminiFamily(r"gemini-(1|2\.0)", thinking="none"),
    _GeminiFamily(r"gemini-2\.5-pro", thinking="budget", always_thinks=True),
    _GeminiFamily(r"gemini-2\.5", thinking="budget"),
    _GeminiFamily(r"gemini-3\.5-flash-lite|gemini-(3\.[6-9]|[4-9])", always_thinks=True, drawing=False),
    _GeminiFamily(r"gemini-3", always_thinks=True),
    _GeminiFamily(r""),
)

# What the words for effort come to in tokens: Google's table for its OpenAI-shaped endpoint.
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}


class Gemini(Dialect):
    """generateContent; see `Dialect`."""

    labels_field = None
    model_list = GEMINI_MODELS

    def path(self, spec: ModelSpec) -> str:
        return generate_path(spec.model)

    def encode(self, request: Request, spec: ModelSpec, _: Host, *, structured: bool = True) -> bytes:
        """The JSON body of a request. ``extra_body`` is laid over it, within ``generationConfig`` too."""
        family = _family_of(spec.model)
        body = _said(request, family)
        config = _drawn(request, spec, family)
        if request.top_logprobs is not None:
            config["responseLogprobs"] = True
            if request.top_logprobs:
                config["logprobs"] = request.top_logprobs
        if structured and spec.structured_output and family.structured and request.schema is not None:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = request.schema.body
        body[_CONFIG] = config
        for name, value in request.sampling.rest.items():
            lay_over(body, {name: value} if name in _OF_THE_BODY else {_CONFIG: {name: value}}, (_CONFIG,))
        lay_over(body, spec.extra_body, (_CONFIG,))
        return msgspec.json.encode({name: value for name, value in body.items() if value != {}})

    def decode(self, body: bytes, redactor: Redactor) -> Completion:
        return decode(body, redactor)

    def explain(self, reply: HttpReply, _: str, redactor: Redactor) -> ModelError | None:
        return explain(reply.status, reply.body, redactor)


GEMINI = Gemini()


def generate_path(model: str) -> str:
    """Where a model is asked, by its id or its name as a resource (``models/…``, ``tunedModels/…``)."""
    return f"/{quote(model if '/' in model else f'models/{model}')}:generateContent"


def _family_of(model: str) -> _GeminiFamily:
    name = model.rpartition("/")[2].lower()
    return next(family for family in _FAMILIES if re.match(family.ids, name))


def _said(request: Request, family: _GeminiFamily) -> Body:
    """The turns, and the system prompt where the family takes one; one that stands alone is what is asked."""
    messages: Sequence[Message] = request.messages
    if not family.system or all(message.role == "system" for message in messages):
        messages = in_first_turn(messages)
    system = [{"text": message.content} for message in messages if message.role == "system"]
    turns = [
        {"role": _ROLES[message.role], "parts": [{"text": message.content}]}
        for message in messages
        if message.role != "system"
    ]
    return {"systemInstruction": {"parts": system}, "contents": turns} if system else {"contents": turns}


def _drawn(request: Request, spec: ModelSpec, family: _GeminiFamily) -> Body:
    """The typed parameters by Google's names."""
    sampling = request.sampling
    if not family.drawing:
        _refuse_drawing(sampling, spec.model)
    config: Body = {
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "topK": sampling.top_k,
        "maxOutputTokens": sampling.max_tokens,
        "stopSequences": sampling.stop,
        "seed": sampling.seed if request.seed is None else request.seed,
        "thinkingConfig": _thinking(sampling, spec.model, family),
    }
    return {name: value for name, value in config.items() if value is not None}


def _refuse_drawing(sampling: SamplingParameters, model: str) -> None:
    for name in ("temperature", "top_p", "top_k"):
        if getattr(sampling, name) is not None:
            raise FieldRejected(f"{model} takes no {name}, and would pass over it; leave it out", field=name)


def _thinking(sampling: SamplingParameters, model: str, family: _GeminiFamily) -> Body | None:
    """How much the model is to reason. What it reasons is asked for as well, else it is not told.

    Raises BadRequest: the model's family has nothing for what is set.
    """
    effort, budget = sampling.reasoning_effort, sampling.thinking_budget
    if effort is None and budget is None:
        return None
    if effort is not None and budget is not None:
        raise BadRequest("reasoning_effort and thinking_budget say the same to Gemini; leave one of them out")
    name = "thinking_budget" if effort is None else "reasoning_effort"
    if family.thinking == "none":
        raise FieldRejected(f"{model} has nothing for {name}; leave it out", field=name)
    if effort is not None and family.thinking == "level" and effort != "none":
        return {"includeThoughts": True, "thinkingLevel": effort.upper()}
    if effort is not None:
        budget = _BUDGETS.get(effort)
        if budget is None:
            words = ", ".join(_BUDGETS)
            raise FieldRejected(f"{model} has no {name} of {effort}; it may be {words}", field=name)
    if budget == 0:
        if family.always_thinks:
            raise FieldRejected(
                f"{model} cannot be kept from reasoning; raise {name} or leave it out", field=name
            )
        return {"thinkingBudget": 0}
    return {"includeThoughts": True, "thinkingBudget": budget}
