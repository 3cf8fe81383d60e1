"""A model behind a host, in any dialect; the host's list of models, and what a gateway's headers say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

import msgspec

from coeval.core.errors import BadRequest, ModelError, Undecodable, Unreadable
from coeval.core.model import (
    Model,
    lowest_answer_limit,
    mark_if_cut_by_window,
    mark_if_uncounted,
    max_tokens_of_all_answers,
    refuses_limit,
)
from coeval.core.records import Completion, Request, SamplingParameters, ServedAs, Usage
from coeval.core.redaction import Redactor
from coeval.core.text import cut_to_bytes
from coeval.models.address import ModelAddress
from coeval.models.catalog import Host
from coeval.models.dialects.dialect import (
    Dialect,
    FieldRejected,
    LimitRenamed,
    ListedModel,
    ModelList,
    ModelPage,
    SchemaRejected,
    read_model_name,
)
from coeval.models.dialects.openai_answer import is_charge
from coeval.models.dialects.refusals import TOO_LONG, UNPROCESSED, is_broken
from coeval.models.pacing.admission import Admission, Reservation, SharedPrefixes
from coeval.models.pacing.limits import refuse_nothing
from coeval.models.transport.call import PROBE_TIMEOUT_S, Answered, Call
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.endpoint import Endpoint
from coeval.models.transport.faults import excerpt
from coeval.models.transport.http import Http

# --- The models that a host says it serves

# Of a list; the longest that are known have some ten.
MOST_PAGES = 100
# Lists may be a megabyte; nothing is generated for them, so seconds suffice.
_TIMEOUT_S = 30.0
# How long whoever could ask the model itself waits for a list.
_PATIENCE_S = 10.0


class HostModels:
    """The models that one endpoint lists, fetched once for all who look one up."""

    def __init__(self, http: Http, endpoint: Endpoint, dialect: Dialect) -> None:
        self._http = http
        self._endpoint = endpoint
        self._dialect = dialect
        self._asking = asyncio.Lock()
        self._models: dict[str, ListedModel] | None = None

    async def find(self, model: str) -> ListedModel | None:
        """Find a model in the list. None proves nothing: many names are in no list, and the list may be
        unavailable. Raises Gap: the run is being interrupted."""
        async with self._asking:
            if self._models is None:
                self._models = await self._fetch_models()
            return self._models.get(model)

    async def _fetch_models(self) -> dict[str, ListedModel]:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                models = await list_models(self._http, self._endpoint, self._dialect)
        except (ModelError, TimeoutError):
            return {}
        return {model.id: model for model in models or ()}


async def list_models(http: Http, endpoint: Endpoint, dialect: Dialect) -> list[ListedModel] | None:
    """List all models of a host, in its order, each id once; None if the dialect has no list. Spends no
    tokens and counts no requests: no model is called. Raises ModelError: the list cannot be had; Gap: the run
    is being interrupted."""
    listing = dialect.model_list
    if listing is None:
        return None
    call = _make_list_call(endpoint, dialect, listing)
    models_by_id: dict[str, ListedModel] = {}
    page: str | None = None
    for _ in range(MOST_PAGES):
        models, page = (await http.get(endpoint, listing.page_path(page), call)).value
        for model in models:
            models_by_id.setdefault(model.id, model)
        if page is None:
            return list(models_by_id.values())
    raise Unreadable(f"its list of models continues after {MOST_PAGES} pages")


def _make_list_call(endpoint: Endpoint, dialect: Dialect, listing: ModelList) -> Call[ModelPage]:
    """Make the call that fetches a page of the list, with redacted ids."""

    def decode(reply: HttpReply, redactor: Redactor) -> ModelPage:
        try:
            page = listing.decode(reply.body)
        except Undecodable as error:
            # Some servers answer whatever is asked: asking again takes half a second and brings the same.
            said = excerpt(reply.body, redactor) or "nothing"
            message = f"its answer is not a list of models ({error}): {said}"
            raise Unreadable(message, retry_advised=False) from error
        models = tuple(model._replace(id=redactor.redact_answer(model.id)) for model in page.models)
        return page._replace(models=models)

    def explain(reply: HttpReply, redactor: Redactor) -> ModelError | None:
        return dialect.explain(reply, endpoint.url, redactor)

    # A list is no request for an answer: no ceiling on a model's requests concerns it.
    return Call(decode=decode, explain=explain, timeout_s=_TIMEOUT_S, priority=0, permit=refuse_nothing)


# --- What a gateway's headers say of an answer

# LiteLLM's, whose proxy many teams put before all their hosts, at its version 1.108: headers of a good answer
# only; the body names the alias, or after a fallback the model that answered.
_MODEL, _DEPLOYMENT = "x-litellm-model-name", "x-litellm-model-id"
_GROUP, _FALLBACKS = "x-litellm-model-group", "x-litellm-attempted-fallbacks"
_COST = "x-litellm-response-cost"


def is_from_gateway(headers: Mapping[str, str]) -> bool:
    return _FALLBACKS in headers or _GROUP in headers


def add_gateway_headers(
    completion: Completion, headers: Mapping[str, str], requested: str, host: Host, redactor: Redactor
) -> Completion:
    """Complete an answer by its headers: its cost, and ``served_by`` where that is not ``requested``."""
    usage = completion.usage
    with suppress(KeyError, ValueError):
        if is_charge(usd := float(headers[_COST])):
            usage = msgspec.structs.replace(usage, cost_usd=usd)
    served_by = "" if completion.served_by == requested else completion.served_by
    served_as: ServedAs = "alias" if served_by and host.free_names else ""
    if is_from_gateway(headers):
        group = headers.get(_GROUP, "")
        model_name = headers.get(_MODEL) or headers.get(_DEPLOYMENT) or group
        served_by = served_by or redactor.redact_answer(
            read_model_name("" if model_name == requested else model_name)
        )
        # Where the number is left out, another group than the requested one answered.
        fell_back = headers.get(_FALLBACKS, "0" if group == requested else "1").strip() != "0"
        served_as = "" if not served_by else "fallback" if fell_back else "alias"
    if (usage, served_by, served_as) == (completion.usage, completion.served_by, completion.served_as):
        return completion
    return msgspec.structs.replace(completion, usage=usage, served_by=served_by, served_as=served_as)


# --- Cutting overlong answers

# Characters of a finish reason; the longest that hosts document has 24.
LONGEST_REASON = 200


def cut_completion(completion: Completion, max_bytes: int) -> Completion:
    """Cut an answer's text, reasoning and refusal to ``max_bytes`` of UTF-8 each."""
    size = len(completion.text) + len(completion.reasoning or "") + len(completion.refusal or "")
    if size * 4 <= max_bytes and len(completion.finish_reason) <= LONGEST_REASON:
        return completion
    text = cut_to_bytes(completion.text, max_bytes)
    reasoning, refusal = completion.reasoning, completion.refusal
    return msgspec.structs.replace(
        completion,
        text=text,
        reasoning=None if reasoning is None else cut_to_bytes(reasoning, max_bytes),
        refusal=None if refusal is None else cut_to_bytes(refusal, max_bytes),
        finish_reason=completion.finish_reason[:LONGEST_REASON],
        truncated=completion.truncated or len(text) < len(completion.text),
    )


_log = logging.getLogger(__name__)


def _list_droppable(request: Request) -> frozenset[str]:
    """Return the parameters of a request that the user did not set."""
    seed = () if request.seed is None else ("seed",)
    return frozenset(request.droppable).intersection((*request.sampling.to_dict(), *seed))


class HostedModel(Model):
    """A model called over HTTP, by a dialect; it remembers what the host refused of requests. ``host_models``
    is its host's list, None if the list proves nothing."""

    def __init__(
        self,
        address: ModelAddress,
        http: Http,
        endpoint: Endpoint,
        admission: Admission,
        host_models: HostModels | None = None,
    ) -> None:
        self.name = address.spec.name
        self.interface = address.spec.interface
        self._spec = address.spec
        self._host = address.host
        self._dialect = address.dialect
        self._path = address.path
        self._max_bytes = address.spec.max_answer_bytes
        self._http = http
        self._endpoint = endpoint
        self._admission = admission
        self._priced = admission.is_priced
        self._host_models = host_models
        self._refused_schemas: set[str] = set()
        self._refused_fields: set[str] = set()
        self._limit_renamed = self._is_behind_gateway = False
        self._prefixes = SharedPrefixes()
        self._call = cache(self._make_call)

    async def check_connection(self) -> None:
        if self._admission.refusal() is None:  # else nothing will be asked there
            await self._http.check_connection(self._endpoint, self._path)

    async def is_listed(self) -> bool:
        listed = await self._find_listed_model()
        return listed is not None and not listed.routed

    async def context_window(self) -> int | None:
        listed = await self._find_listed_model()
        return listed.context_window if listed is not None and listed.bounds else None

    async def _find_listed_model(self) -> ListedModel | None:
        if self._host_models is None or self._admission.refusal() is not None:
            return None
        return await self._host_models.find(self._spec.model)

    def complete(self, request: Request) -> Coroutine[Any, Any, Completion]:
        if request.shared and self._dialect.keeps_prefix(request, self._spec):
            return self._complete_in_turn(request)
        return self._complete_adapting_to_refusals(request)

    async def _complete_in_turn(self, request: Request) -> Completion:
        async with self._prefixes.wait_turn(request):
            return await self._complete_adapting_to_refusals(request)

    async def _complete_adapting_to_refusals(self, request: Request) -> Completion:
        """Encode and send a request; learn from a refusal of a field or schema, and send it again."""
        schema, host = request.schema, self._host
        structured = schema is not None and schema.name not in self._refused_schemas
        sent, dropped = self._drop_refused(request) if self._refused_fields else (request, ())
        if request.fresh and self._is_behind_gateway and "cache" not in self._refused_fields:
            sent = self._bypass_cache(sent)
        try:
            call = self._call(request.priority, request.purpose == "probe", request.goes_on)
            body = self._dialect.encode(sent, self._spec, host, structured=structured)
            completion, latency_s, attempts = await self._send(sent, body, call)
        except LimitRenamed as error:
            # The name of a deployment does not tell its model: Azure's refusal is how one learns it.
            if self._host is host:
                if self._limit_renamed:
                    raise
                self._limit_renamed = True
                self._host = host.with_other_limit_field(self._spec.lookup_name)
                _log.info("%s takes its limit on output by the other name: %s", self.name, error)
            return await self._complete_adapting_to_refusals(request)
        except BadRequest as error:
            return await self._retry_without_refused(request, sent, error, structured=structured)
        completion = mark_if_cut_by_window(completion, lowest_answer_limit(sent.sampling, self._spec))
        return msgspec.structs.replace(completion, latency_s=latency_s, attempts=attempts, dropped=dropped)

    async def _retry_without_refused(
        self, request: Request, sent: Request, error: BadRequest, *, structured: bool
    ) -> Completion:
        """Retry without what the host refused, if the user did not set it. What its message names is left out
        from now on; a schema that it does not name, or that broke the host, is left out once, and for good if
        that helps: no host lists which of its models follow one. Raises BadRequest: the host's first refusal,
        if nothing may be left out, or none of it was the cause."""
        if refuses_limit(str(error), lowest_answer_limit(sent.sampling, self._spec)):
            if not request.raised:
                self._admission.stop_at_refused_limit(error, judge=request.purpose == "evaluation")
            raise error
        schema = request.schema if structured else None
        field = error.field if isinstance(error, FieldRejected) else ""
        may_go = bool(sent.labels) if field == self._dialect.labels_field else field in _list_droppable(sent)
        if may_go:
            self._leave_out_and_warn_once(self._refused_fields, field, field, error)
            return await self._complete_adapting_to_refusals(request)
        named = isinstance(error, SchemaRejected)
        # A prompt that is too long is too long without a schema.
        unnamed = error.status in UNPROCESSED and not TOO_LONG.search(str(error).lower())
        if schema is None or field in sent.sampling.to_dict() or not (named or unnamed):
            raise error
        at_once = self._answers_soon(request)
        if named and not (at_once and is_broken(error.status)):
            self._leave_out_and_warn_once(
                self._refused_schemas, schema.name, f"the schema {schema.name}", error
            )
            return await self._complete_adapting_to_refusals(request)
        if not at_once:
            raise error
        try:
            completion = await self._complete_adapting_to_refusals(
                msgspec.structs.replace(request, schema=None)
            )
        except BadRequest:
            raise error from None
        self._leave_out_and_warn_once(self._refused_schemas, schema.name, f"the schema {schema.name}", error)
        return completion

    def _send(
        self, request: Request, body: bytes, call: Call[Completion]
    ) -> Coroutine[Any, Any, Answered[Completion]]:
        if self._priced:
            tokens = max_tokens_of_all_answers(request.sampling, self._spec)
            reservation = self._admission.make_reservation(len(body), tokens, request.priority)
            return self._send_reserved(reservation, body, call)
        if self._admission.has_budget and not call.probe:
            return self._send_at_reported_cost(request.priority, body, call)
        return self._http.post(self._endpoint, self._path, body, call)

    async def _send_at_reported_cost(
        self, priority: int, body: bytes, call: Call[Completion]
    ) -> Answered[Completion]:
        """Send with a reservation for what a gateway may report that the answers of a free model cost."""
        async with self._admission.reserve_reported_cost(priority) as reservation:
            if reservation is None:
                answered = await self._http.post(self._endpoint, self._path, body, call)
            else:
                answered = await self._send_reserved(reservation, body, call)
        self._admission.record_reported_cost(answered.value.usage)
        return answered

    async def _send_reserved(
        self, reservation: Reservation, body: bytes, call: Call[Completion]
    ) -> Answered[Completion]:
        """Send once the money it may cost is set aside."""
        call = replace(
            call,
            decode=partial(self._decode_and_book, reservation.settle),
            permit=reservation.take_permit,
            unsent=reservation.return_permit,
            unbilled=reservation.release,
            refusal=reservation.refusal,
        )
        try:
            return await self._http.post(self._endpoint, self._path, body, call)
        finally:
            reservation.release_or_book_uncertain()

    def _drop_refused(self, request: Request) -> tuple[Request, tuple[str, ...]]:
        """Drop what the host refused and the user did not set; return the dropped parameters, too."""
        dropped = self._refused_fields & _list_droppable(request)
        sent = request
        if dropped:
            seed = None if "seed" in dropped else request.seed
            sent = msgspec.structs.replace(request, sampling=request.sampling.without(dropped), seed=seed)
        if request.labels and self._dialect.labels_field in self._refused_fields:
            sent = msgspec.structs.replace(sent, labels={})
        return sent, tuple(sorted(dropped))

    def _bypass_cache(self, request: Request) -> Request:
        """Add LiteLLM's field against copies of earlier answers, which a gateway may refuse."""
        sampling = request.sampling | SamplingParameters(rest={"cache": {"no-cache": True}})
        return msgspec.structs.replace(request, sampling=sampling, droppable=(*request.droppable, "cache"))

    def _leave_out_and_warn_once(
        self, refused_names: set[str], name: str, description: str, error: ModelError
    ) -> None:
        if name not in refused_names:
            refused_names.add(name)
            _log.warning("%s is now called without %s: %s", self.name, description, error)

    def _answers_soon(self, _: Request) -> bool:
        """Check whether a trial request would be answered soon: not in a batch job of hours."""
        return True

    def _make_call(self, priority: int, is_probe: bool, goes_on: bool) -> Call[Completion]:
        """Make the `Call` of a request; a probe waits less long than others."""
        timeout_s = self._spec.timeout_s
        return Call(
            decode=partial(self._decode_and_book, self._admission.settle),
            explain=self._explain,
            timeout_s=min(PROBE_TIMEOUT_S, timeout_s) if is_probe else timeout_s,
            priority=priority,
            permit=self._admission.take_permit,
            unsent=self._admission.return_permit,
            tokens=lambda completion: completion.usage.tokens,
            ended=self._admission.record_outcome,
            refusal=self._admission.refusal,
            lane=self._endpoint.lane(self._spec.model),
            probe=is_probe,
            goes_on=goes_on,
        )

    def _decode_and_book(
        self, settle: Callable[[Usage], Usage], reply: HttpReply, redactor: Redactor
    ) -> Completion:
        """Decode a reply's answer and book its usage: one that fails has been paid as well."""
        self._is_behind_gateway = self._is_behind_gateway or is_from_gateway(reply.headers)
        try:
            completion = self._decode_with_gateway_headers(reply, redactor)
            if not completion.usage.output_tokens:
                completion = mark_if_uncounted(completion)
        except ModelError as error:
            if error.usage is not None:
                error.usage = settle(error.usage)
            raise
        usage = settle(completion.usage)
        if usage is not completion.usage:
            completion = msgspec.structs.replace(completion, usage=usage)
        if len(reply.body) * 2 <= self._max_bytes and len(completion.finish_reason) <= LONGEST_REASON:
            return completion  # as nearly all are; a text is no longer than its JSON
        return cut_completion(completion, self._max_bytes)

    def _decode_with_gateway_headers(self, reply: HttpReply, redactor: Redactor) -> Completion:
        """Decode an answer, complete it by a gateway's headers, and count its odd features."""
        completion = self._dialect.decode(reply.body, redactor)
        self._http.odd_replies.update((self.name, note) for note in completion.notes)
        return add_gateway_headers(completion, reply.headers, self._spec.model, self._host, redactor)

    def _explain(self, reply: HttpReply, redactor: Redactor) -> ModelError | None:
        return self._dialect.explain(reply, self._endpoint.url, redactor)
