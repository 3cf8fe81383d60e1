"""Cohere's chat API, version 2.

Cohere has an OpenAI-like endpoint as well, but this one has more: `top_k`, a budget for thinking, the
thinking itself, cached tokens and billed units. Written against Cohere's reference for `POST /v2/chat`.
"""

from __future__ import annotations

import msgspec

from coeval.core import foreign
from coeval.core.errors import ContentFiltered, ModelError
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Request, SamplingParameters, TokenLogprob, Usage
from coeval.core.redaction import Redactor
from coeval.models.catalog import Host
from coeval.models.dialects import dialect
from coeval.models.dialects.openai_answer import Counts, explain
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.faults import read_error_message

# `stop_sequences` of Cohere's Chat API (v2), whose reference gives the next two bounds as well.
_MOST_STOPS = 5
# `p`.
_TOP_P = (0.01, 0.99)
# `k`.
_MOST_TOP_K = 500
# The status of a request or an answer that holds what Cohere's filter denies.
_DENIED = 498


class _CoherePart(msgspec.Struct):
    text: str | None = None
    thinking: str | None = None


class _CohereMessage(msgspec.Struct):
    content: list[_CoherePart] | None = None


class _CohereChunk(msgspec.Struct):
    """A piece of the answer, usually one token, with the log-probability of each of its tokens."""

    text: str | None = None
    logprobs: tuple[float, ...] | None = None


class _CohereAnswer(msgspec.Struct):
    message: _CohereMessage
    finish_reason: str | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    logprobs: tuple[_CohereChunk, ...] | None = None


class _CohereModel(msgspec.Struct):
    name: str
    endpoints: list[str] = []
    context_length: float | None = None
    is_deprecated: bool | None = None


class _CohereModels(msgspec.Struct):
    models: list[_CohereModel]
    next_page_token: str | None = None


_read_answer = dialect.make_reply_reader(_CohereAnswer)
_read_models = foreign.make_decoder(_CohereModels)


def _read_model_page(body: bytes) -> dialect.ModelPage:
    page = _read_models(body)
    listed = (
        dialect.ListedModel(model.name, dialect.read_window(model.context_length))
        for model in page.models
        if not model.is_deprecated and "chat" in (model.endpoints or ["chat"])
    )
    return dialect.ModelPage(tuple(listed), page.next_page_token or None)


class Cohere(dialect.Dialect):
    """Cohere's chat; see `Dialect`."""

    labels_field = None
    # The most that Cohere's list of models takes for a page.
    model_list = dialect.ModelList(
        "/v1/models?endpoint=chat&page_size=1000", _read_model_page, after="page_token"
    )

    def path(self, _: ModelSpec) -> str:
        return "/v2/chat"

    def encode(self, request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
        body: dialect.BodyFields = {"model": spec.model, "messages": request.messages, "stream": False}
        body |= _encode_parameters(request.sampling, host.name)
        if (seed := dialect.get_seed(request)) is not None:
            body["seed"] = seed
        if request.top_logprobs is not None:
            if request.top_logprobs > 1:
                raise dialect.FieldRejected(
                    f"{host.name} returns log-probabilities (logprobs) only of the tokens that it chose",
                    field="logprobs",
                )
            body["logprobs"] = True
        if (schema := dialect.get_schema(request, spec, structured=structured)) is not None:
            body["response_format"] = {"type": "json_object", "json_schema": schema.body}
        body.update(request.sampling.rest)
        body.update(spec.extra_body)
        return msgspec.json.encode(body)

    def decode(self, body: bytes, redactor: Redactor) -> Completion:
        """Decode an answer; see `Dialect`. Counts billed tokens, if they are given."""
        answer, notes = _read_answer(body)
        usage = _read_usage(bytes(answer.usage))
        finish = dialect.finish_reason_or_raise(answer.finish_reason, usage)
        parts = answer.message.content or []
        completion = Completion(
            text="".join(part.text or "" for part in parts),
            usage=usage,
            finish_reason=finish,
            reasoning="".join(part.thinking or "" for part in parts) or None,
            logprobs=tuple(_read_logprob(chunk) for chunk in answer.logprobs or ()),
            truncated=finish == "length",
        )
        return dialect.finish_completion(completion, redactor, notes)

    def explain(self, reply: HttpReply, _: str, redactor: Redactor) -> ModelError | None:
        if reply.status == _DENIED:
            return ContentFiltered(read_error_message(reply.body, redactor), status=reply.status)
        return explain(reply.status, reply.body, redactor)


COHERE = Cohere()


def _encode_parameters(sampling: SamplingParameters, host: str) -> dialect.BodyFields:
    """Encode the typed parameters that are set, by Cohere's names."""
    if sampling.stop is not None and len(sampling.stop) > _MOST_STOPS:
        raise dialect.FieldRejected(f"{host} takes at most {_MOST_STOPS} texts in stop", field="stop")
    if sampling.top_p is not None and not _TOP_P[0] <= sampling.top_p <= _TOP_P[1]:
        raise dialect.FieldRejected(f"{host} takes a top_p from {_TOP_P[0]} to {_TOP_P[1]}", field="top_p")
    if sampling.top_k is not None and not 0 <= sampling.top_k <= _MOST_TOP_K:
        raise dialect.FieldRejected(f"{host} takes a top_k from 0 to {_MOST_TOP_K}", field="top_k")
    parameters = {
        "temperature": sampling.temperature,
        "p": sampling.top_p,
        "k": sampling.top_k,
        "max_tokens": sampling.max_tokens,
        "stop_sequences": sampling.stop,
        "thinking": _encode_thinking(sampling.reasoning_effort, sampling.thinking_budget, host),
    }
    return {name: value for name, value in parameters.items() if value is not None}


def _encode_thinking(effort: str | None, budget: int | None, host: str) -> dialect.BodyFields | None:
    """Encode reasoning as Cohere's switch, which has a budget, and of efforts only none and high."""
    switch = {None: None, "none": "disabled", "high": "enabled"}
    if effort not in switch:
        raise dialect.FieldRejected(
            f"{host} takes only a reasoning_effort of none or high; set a thinking_budget instead",
            field="reasoning_effort",
        )
    if budget:
        if effort == "none":
            raise dialect.FieldRejected(
                f"{host} cannot spend a thinking_budget at reasoning_effort none", field="thinking_budget"
            )
        return {"type": "enabled", "token_budget": budget}
    kind = "disabled" if budget == 0 else switch[effort]
    return None if kind is None else {"type": kind}


def _read_usage(reported: bytes) -> Usage:
    counts = Counts(reported)

    def first_reported(name: str) -> int:
        number = counts.count_or_unset("billed_units", name)
        return counts.count_or_mark_uncounted("tokens", name) if number is msgspec.UNSET else number

    return Usage(
        first_reported("input_tokens"),
        first_reported("output_tokens"),
        cached_tokens=counts.count_or_unset("cached_tokens"),
        uncounted=counts.uncounted,
    )


def _read_logprob(chunk: _CohereChunk) -> TokenLogprob:
    """Read a chosen chunk's log-probability: that of all its tokens together."""
    text, logprob = chunk.text or "", sum(chunk.logprobs or ())
    return TokenLogprob(text, logprob, {text: logprob})
