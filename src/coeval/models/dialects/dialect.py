"""The contract of a dialect (a wire format as functions over bytes), and how all dialects read replies."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import (
    Any,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    runtime_checkable,
)
from urllib.parse import quote

import msgspec

from coeval.core import errors, foreign
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Request, Schema, TokenLogprob, Usage
from coeval.core.redaction import PART, Redactor
from coeval.core.text import split_reasoning
from coeval.models.catalog import Host
from coeval.models.transport.connection import HttpReply

# No model reads four billion tokens: a larger figure is a host's "unlimited" or a mistake.
_MOST_TOKENS = 1 << 32


def read_window(reported: Any) -> int | None:
    """Return a context window as a host lists it, in tokens; None where it is none."""
    return int(reported) if type(reported) in (int, float) and 0 < reported <= _MOST_TOKENS else None


class ListedModel(NamedTuple):
    """A model in a host's list, by the id that requests name. ``context_window`` is in tokens; None: not
    stated. ``routed``: a gateway lists it, which proves nothing of requests for it. ``bounds``: a prompt and
    its answer together never exceed ``context_window``; else it may be of prompts alone, or of one of several
    servers of the model."""

    id: str
    context_window: int | None = None
    routed: bool = False
    bounds: bool = True


class ModelPage(NamedTuple):
    """A page of a host's list; ``next`` is the host's name for the next page, None on the last."""

    models: tuple[ListedModel, ...]
    next: str | None = None


class ModelList(NamedTuple):
    """How a host lists its models, page by page, each by a GET without a body. ``first`` is appended to the
    base URL, with its query, for the first page; ``after`` is the parameter that takes ``ModelPage.next``.
    ``decode`` reads a page, without models that are no longer served or, if the host says so, answer no
    messages; it raises Undecodable for any other body. The caller redacts ids (`models.hosted`)."""

    first: str
    decode: Callable[[bytes], ModelPage]
    after: str = ""

    def page_path(self, page: str | None) -> str:
        """Return the path of a page, by the host's name for it; None: the first."""
        if page is None:
            return self.first
        return f"{self.first}{'&' if '?' in self.first else '?'}{self.after}={quote(page, safe='')}"


class SchemaRejected(errors.BadRequest):
    """The host, or this model of it, does not accept the schema of a request."""


class FieldRejected(errors.BadRequest):
    """The host, or this model of it, does not accept a parameter, ``field`` by our name for it: known before
    a request is sent, or learnt from a refusal."""

    def __init__(self, message: str, *, field: str, status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.field = field


class LimitRenamed(errors.BadRequest):
    """The model's limit on output has the other one of OpenAI's two names."""


@runtime_checkable
class Dialect(Protocol):
    """A host's wire format: how requests are encoded, and what replies mean. It keeps no state between calls.
    ``labels_field`` is the field for a request's labels, if there is one; it is dropped for hosts that do not
    know it. ``model_list`` is how its hosts list their models, or None."""

    labels_field: str | None
    model_list: ModelList | None = None

    def path(self, spec: ModelSpec, /) -> str:
        """Return the quoted path of a model's API, appended to the base URL and sent unchanged."""

    def encode(self, request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
        """Encode a request's body; ``structured=False`` leaves its schema out. The provider's further
        parameters, and then ``extra_body``, replace ours. Raises BadRequest: it sets a parameter that the
        host, or this model of it, does not support; the message names it. A `FieldRejected` counts as the
        host's own: a parameter that the user did not set is then left out."""

    def keeps_prefix(self, request: Request, spec: ModelSpec, /) -> bool:  # noqa: ARG002
        """Check whether the request tells the host to cache the prefix it shares with others, so that these
        are worth delaying until it is cached."""
        return False

    def decode(self, body: bytes, redactor: Redactor) -> Completion:
        """Decode the answer in a 2xx body, redacted. Raises Undecodable: it is no answer, and the request is
        retried once; ModelError: it holds an error instead."""

    def explain(self, reply: HttpReply, url: str, redactor: Redactor) -> errors.ModelError | None:
        """Explain an error reply, by `FieldRejected` and `SchemaRejected` among others; None leaves it to the
        status. ``url`` is the base URL. Quotes are redacted before they are cut."""


P = TypeVar("P", bound=msgspec.Struct)


def read_nested_error(body: bytes, kind: type[P]) -> P:
    """Read the fields that decide what an error is; defaults if the body has another shape. Some hosts leave
    out the `error` around them, some gateways put that into a list."""
    try:
        error = foreign.decode(body)
        if isinstance(error, list) and error:
            error = error[0]
        inner = error.get("error") if isinstance(error, dict) else None
        return foreign.convert(inner if isinstance(inner, dict) else error, kind)
    except errors.Undecodable:
        return kind()


# --- What of a request every dialect asks in the same way


def get_seed(request: Request) -> int | None:
    """Return the seed that a request is sent with: its own before its sampling parameters'."""
    return request.sampling.seed if request.seed is None else request.seed


def get_schema(request: Request, spec: ModelSpec, *, structured: bool) -> Schema | None:
    """Return the schema that the answer must follow, if the model is sent one."""
    return request.schema if structured and spec.structured_output else None


# --- Request bodies

BodyFields: TypeAlias = dict[str, Any]
"""Fields of a request's JSON body, by the host's names."""


def encode_merged_groups(
    body: BodyFields, request: Request, spec: ModelSpec, top_fields: Container[str], groups: Sequence[str]
) -> bytes:
    """Encode a body whose parameters lie in ``groups``, without empty ones. A request's further parameters go
    into the first group unless they are ``top_fields``; of a group, the user's fields replace only those
    that they name."""
    rest = request.sampling.rest.items()
    further = ({name: value} if name in top_fields else {groups[0]: {name: value}} for name, value in rest)
    for fields in (*further, spec.extra_body):
        for name, value in fields.items():
            current = body.get(name)
            if name in groups and isinstance(current, dict) and isinstance(value, dict):
                value = current | value
            body[name] = value
    return msgspec.json.encode({name: value for name, value in body.items() if value != {}})


# --- An answer as a host gave it: its reasoning apart, and without credentials


def split_off_reasoning(completion: Completion) -> Completion:
    """Move reasoning at the beginning of the text to ``reasoning``. If the host separated some already, a
    lone closing tag is part of the answer."""
    separate = completion.reasoning
    text, reasoning, unclosed = split_reasoning(completion.text, unopened=separate is None)
    if reasoning is None and text == completion.text:
        return completion
    reasoning = "\n".join(filter(None, (separate, reasoning))) or None
    truncated = completion.truncated or unclosed
    return msgspec.structs.replace(completion, text=text, reasoning=reasoning, truncated=truncated)


# Characters; the longest that hosts document has some 100.
_LONGEST_NAME = 200


def read_model_name(reported: object) -> str:
    """Return the model that a reply names, if it is a short text as documented; else ''."""
    return reported[:_LONGEST_NAME] if isinstance(reported, str) else ""


def finish_completion(completion: Completion, redactor: Redactor, notes: tuple[str, ...] = ()) -> Completion:
    """Split off the answer's reasoning, add notes, and redact it. Raises Misshapen: ``notes`` say that parts
    of the reply were left out, and no answer remains."""
    completion = split_off_reasoning(completion)
    if notes:
        lost_in_reasoning = completion.truncated and completion.reasoning
        if not (completion.text or completion.refusal or lost_in_reasoning or notes == (MENDED,)):
            raise errors.Misshapen("; ".join(notes))
        completion = msgspec.structs.replace(completion, notes=(*completion.notes, *notes))
    return redact_completion(completion, redactor)


def redact_completion(completion: Completion, redactor: Redactor) -> Completion:
    if not redactor.knows_any:
        return completion
    changed: dict[str, Any] = {}
    for name in ("text", "finish_reason", "reasoning", "refusal", "served_by", "reply_id"):
        text = getattr(completion, name)
        if text and (redacted := redactor.redact_answer(text)) != text:
            changed[name] = redacted
    # Few tokens are long enough to be a part of a secret.
    if any(len(text) >= PART for token in completion.logprobs for text in (token.token, *token.top)):
        changed["logprobs"] = tuple(_redact_token(token, redactor) for token in completion.logprobs)
    return msgspec.structs.replace(completion, **changed) if changed else completion


def _redact_token(token: TokenLogprob, redactor: Redactor) -> TokenLogprob:
    top = {redactor.redact_answer(text): logprob for text, logprob in token.top.items()}
    return TokenLogprob(redactor.redact_answer(token.token), token.logprob, top)


# --- A host's reply read into a struct: what cannot be read of it is left out, and the text stays

# Nearly all replies are as documented and take the fast way. The others hold one odd field beside a good
# answer: parts as bare strings, a text in an object, nulls in log-probabilities, half of a surrogate pair.

T = TypeVar("T")

MENDED = "invalid characters were replaced"
# Where a text lies in an object (OpenAI's Assistants have ``{"value": …}``); what a bare string is of a part.
_TEXTS = ("text", "value", "content", "parts")
# Reports of a reply that has hundreds of odd parts stay short.
_MOST_NOTES = 8
# No reply that hosts document nests half as deep.
_DEEPEST = 16


class Read(NamedTuple, Generic[T]):
    """A decoded reply, with a note on each thing that was left out or replaced."""

    value: T
    notes: tuple[str, ...] = ()


def make_reply_reader(kind: type[T]) -> Callable[[bytes], Read[T]]:
    """Make a reader of replies of one type. A list loses the items that do not fit, a tuple is whole or left
    out, an optional field falls back to its default. Raises Undecodable: it is no JSON, or lacks what
    ``kind`` requires."""
    read = foreign.make_decoder(kind)

    def read_reply(body: bytes) -> Read[T]:
        try:
            return Read(read(body))
        except errors.Undecodable as error:
            fit = _ReplyFit()
            try:
                reply, is_mended = foreign.decode_replacing_surrogates(body)
                value = fit.fit_value_or_raise_unfit(reply, kind, "")
            except (_Unfit, errors.Undecodable):
                raise error from None
            return Read(value, (*[MENDED] * is_mended, *fit.notes)[:_MOST_NOTES])

    return read_reply


def encode_arguments(arguments: Any) -> str:
    """Encode a tool call's arguments as JSON: some hosts send an object, others its text."""
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


class _Unfit(Exception):
    """A value does not fit its type."""


class _ReplyFit:
    """Fits parsed JSON to types; ``notes`` collects the names of fields that were left out."""

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}

    def fit_value_or_raise_unfit(self, value: Any, kind: Any, where: str) -> Any:
        """Fit ``value`` to ``kind``; _Unfit if nothing of it fits."""
        if where.count(".") > _DEEPEST:
            raise _Unfit
        members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        # Parts say more than their texts in a row.
        for member in sorted(members, key=lambda member: (member is str) != isinstance(value, str)):
            try:
                return self._fit_union_member(value, member, where)
            except _Unfit:
                continue
        raise _Unfit

    def _fit_union_member(self, value: Any, kind: Any, where: str) -> Any:
        if kind is str:
            return self._fit_text(value)
        if get_origin(kind) is list:
            return self._fit_items_leaving_out_bad(value, get_args(kind)[0], where)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._fit_struct(value, kind, where)
        if kind is msgspec.Raw:
            return msgspec.Raw(msgspec.json.encode(value))
        try:
            return foreign.convert(value, kind)
        except errors.Misshapen:
            raise _Unfit from None

    def _fit_text(self, value: Any, depth: int = 0) -> str:
        match value:
            case str():
                return value
            case list() if depth < _DEEPEST:
                return "".join(self._fit_text(item, depth + 1) for item in value)
            case dict() if depth < _DEEPEST:
                inner = next((value[name] for name in _TEXTS if value.get(name) is not None), None)
                return self._fit_text(inner, depth + 1)
        raise _Unfit

    def _fit_items_leaving_out_bad(self, value: Any, kind: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            return [self.fit_value_or_raise_unfit(value, kind, where)]
        items: list[Any] = []
        for item in value:
            try:
                items.append(self.fit_value_or_raise_unfit(item, kind, where))
            except _Unfit:
                self._add_note(item, where)
        if not items and any(item is not None for item in value):
            raise _Unfit
        return items

    def _fit_struct(self, value: Any, kind: type[msgspec.Struct], where: str) -> Any:
        """Fit an object, or the text of one, to a struct; leave out fields that do not fit."""
        fields = msgspec.structs.fields(kind)
        if isinstance(value, str):
            value = dict([(field.encode_name, value) for field in fields if field.name in _TEXTS][:1]) or None
        if not isinstance(value, dict):
            raise _Unfit
        values: dict[str, Any] = {}
        for field in fields:
            name = field.encode_name
            path = f"{where}.{name}".lstrip(".")
            if name in value:
                try:
                    values[field.name] = self.fit_value_or_raise_unfit(value[name], field.type, path)
                    continue
                except _Unfit:
                    self._add_note(value[name], path)
            if field.required:
                raise _Unfit
        return kind(**values)

    def _add_note(self, value: Any, where: str) -> None:
        if value is not None:
            self.notes[f"{where} could not be read and was left out"] = None


# --- How an answer ended, in the words of every house: one table for all dialects

Ending: TypeAlias = Literal["stop", "length", "tool_calls", "filtered", "broken_off", "unusable"]

_ENDINGS: Mapping[str, Ending] = {
    word: ending
    for ending, words in msgspec.toml.decode(
        Path(__file__).with_name("endings.toml").read_bytes(), type=dict[Ending, str]
    ).items()
    for word in words.split()
}
_NO_LETTER = re.compile(r"[^a-z]")
# Of enumerations: ``FinishReason.SAFETY``, ``FINISH_REASON_UNSPECIFIED``, xAI's ``REASON_MAX_LEN``.
_ENUM = re.compile(r"^(?:finish|stop)?reason")


def finish_reason_or_raise(reason: str | None, usage: Usage, why: str = "", text: str | None = None) -> str:
    """Return ``stop``, ``length`` or ``tool_calls`` for a host's finish reason, or an unknown one as it came.
    ``why`` is what the host says of it, redacted. With a ``text``, "other" says nothing against it. Raises
    ContentFiltered: the host withheld the answer; ServerFault, Unreadable: it broke it off."""
    if not reason:
        return "stop"
    ending = _ENDINGS.get(reason) or _ENDINGS.get(_ENUM.sub("", _NO_LETTER.sub("", reason.lower())))
    detail = f"{reason}: {why}" if why else reason
    match ending:
        case "filtered":
            raise errors.ContentFiltered(
                f"the host's content filter withheld the answer ({detail})", usage=usage
            )
        case "broken_off":
            raise errors.ServerFault(f"the host broke off its answer (finish reason {detail})", usage=usage)
        case "unusable" if not (text and reason.lower() == "other"):
            raise errors.Unreadable(f"the host broke off its answer (finish reason {detail})", usage=usage)
        case "unusable" | None:
            return reason
    return ending
