"""What a dialect is: a wire format, as functions over bytes; and what all dialects read replies with."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
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

from coeval.core import foreign
from coeval.core.errors import (
    BadRequest,
    ContentFiltered,
    Misshapen,
    ModelError,
    ServerFault,
    Undecodable,
    Unreadable,
)
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
    """A model that a host says it serves, by the id that it is asked by.

    ``context_window`` is in tokens; None is not told. ``routed``: a gateway lists it, whatever becomes of a
    request for it. ``bounds``: a prompt and its answer together never exceed ``context_window``, which may be
    of prompts alone, or of one of several that serve the model.
    """

    id: str
    context_window: int | None = None
    routed: bool = False
    bounds: bool = True


class ModelPage(NamedTuple):
    """A page of a host's list; ``next`` is what the host calls the page after it, None after the last one."""

    models: tuple[ListedModel, ...]
    next: str | None = None


class ModelList(NamedTuple):
    """How a host lists the models that it can be asked for, page by page, each by a GET without a body.

    ``first`` is what is appended to the base URL, a query included, for the first page; ``after`` the
    parameter that asks for the page which ``ModelPage.next`` named. ``decode`` reads a page; it leaves out
    what the host no longer serves and, where the host tells, what answers no messages. It raises Undecodable
    where the body is no such list. Ids are freed of credentials by whoever asks (`models.hosted`).
    """

    first: str
    decode: Callable[[bytes], ModelPage]
    after: str = ""

    def path(self, page: str | None) -> str:
        """Where a page is asked for, by what the host calls it; None: the first one."""
        if page is None:
            return self.first
        return f"{self.first}{'&' if '?' in self.first else '?'}{self.after}={quote(page, safe='')}"


class SchemaRejected(BadRequest):
    """The host, or this model of it, does not take the schema it was sent."""


class FieldRejected(BadRequest):
    """The host, or this model of it, does not take a parameter, ``field`` by our name for it: known before
    anything is sent, or learnt from its answer."""

    def __init__(self, message: str, *, field: str, status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.field = field


class LimitRenamed(BadRequest):
    """The model's limit on output has the other one of OpenAI's two names."""


@runtime_checkable
class Dialect(Protocol):
    """How a host is asked over HTTP, and what its replies mean. It keeps nothing between calls.

    ``labels_field`` is the field that tells of a request's labels, if the dialect has one: a host that
    does not know it is asked without. ``model_list`` is how its hosts list their models, None where they do
    not.
    """

    labels_field: str | None
    model_list: ModelList | None = None

    def path(self, spec: ModelSpec, /) -> str:
        """Where a model is asked, appended to the base URL and sent as it stands: what has to be quoted in a
        URL is."""

    def encode(self, request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
        """The body of a request; ``structured=False`` leaves its schema out. What the provider has besides,
        and then ``extra_body``, are laid over what is ours.

        Raises BadRequest: it sets a parameter that the host, or this model of it, has nothing for; the
        message names it. A `FieldRejected` is treated as the host's own: what nobody asked for is left out.
        """

    def keeps_prefix(self, request: Request, spec: ModelSpec, /) -> bool:  # noqa: ARG002
        """Whether the body of a request that shares its beginning with others tells the host to keep that in
        its cache, so that these are worth holding back until it is there."""
        return False

    def decode(self, body: bytes, redactor: Redactor) -> Completion:
        """The answer in a 2xx body, without the credentials that the redactor knows.

        Raises Undecodable: it is no answer; the request is sent once more; ModelError: it holds an error in
        place of an answer.
        """

    def explain(self, reply: HttpReply, url: str, redactor: Redactor) -> ModelError | None:
        """What an answer says that is an error, `FieldRejected` and `SchemaRejected` among it; None leaves it
        to the status alone. ``url`` is the base URL. What it quotes has passed the redactor before it is
        cut."""


P = TypeVar("P", bound=msgspec.Struct)


def problem_of(body: bytes, kind: type[P]) -> P:
    """The parts of an error that decide what it is; none where the body is nothing like it.

    Some hosts leave out the `error` around them, some gateways put that into a list.
    """
    try:
        trouble = foreign.decode(body)
        if isinstance(trouble, list) and trouble:
            trouble = trouble[0]
        inner = trouble.get("error") if isinstance(trouble, dict) else None
        return foreign.convert(inner if isinstance(inner, dict) else trouble, kind)
    except Undecodable:
        return kind()


# --- What of a request every dialect asks in the same way


def seed_of(request: Request) -> int | None:
    """The seed that a request is sent with: its own before that of its sampling parameters."""
    return request.sampling.seed if request.seed is None else request.seed


def schema_for(request: Request, spec: ModelSpec, *, structured: bool) -> Schema | None:
    """The schema that the answer is to follow, where the model is told of one."""
    return request.schema if structured and spec.structured_output else None


# --- Extra body fields set by users


def lay_over(body: dict[str, Any], fields: Mapping[str, Any], groups: Container[str]) -> None:
    """Put fields in the place of those of a body; of an object that ``groups`` names, those within it."""
    for name, value in fields.items():
        there = body.get(name)
        grouped = name in groups and isinstance(there, dict) and isinstance(value, dict)
        body[name] = there | value if grouped else value


# --- An answer as a host gave it: its reasoning apart, and without credentials


def reasoning_apart(completion: Completion) -> Completion:
    """The same answer, the reasoning taken out that its text begins with. Where the host told some apart, a
    closing tag alone is part of the answer."""
    apart = completion.reasoning
    text, reasoning, unclosed = split_reasoning(completion.text, unopened=apart is None)
    if reasoning is None and text == completion.text:
        return completion
    reasoning = "\n".join(filter(None, (apart, reasoning))) or None
    truncated = completion.truncated or unclosed
    return msgspec.structs.replace(completion, text=text, reasoning=reasoning, truncated=truncated)


# Characters; the longest that hosts document has some 100.
_LONGEST_NAME = 200


def name_of(reported: object) -> str:
    """The model that a reply names, as hosts document it: a short text; else empty."""
    return reported[:_LONGEST_NAME] if isinstance(reported, str) else ""


def finished(completion: Completion, redactor: Redactor, notes: tuple[str, ...] = ()) -> Completion:
    """Return the answer with its reasoning apart, and without the credentials that the redactor knows.

    Raises Misshapen: ``notes`` say that something of the reply was left out, and no answer is left.
    """
    completion = reasoning_apart(completion)
    if notes:
        lost_in_reasoning = completion.truncated and completion.reasoning
        if not (completion.text or completion.refusal or lost_in_reasoning or notes == (MENDED,)):
            raise Misshapen("; ".join(notes))
        completion = msgspec.structs.replace(completion, notes=(*completion.notes, *notes))
    return without_secrets(completion, redactor)


def without_secrets(completion: Completion, redactor: Redactor) -> Completion:
    """The same answer, its every text as `Redactor.redact_answer` leaves it."""
    if not redactor.knows_any:
        return completion
    changed: dict[str, Any] = {}
    for name in ("text", "finish_reason", "reasoning", "refusal", "served_by", "reply_id"):
        said = getattr(completion, name)
        if said and (redacted := redactor.redact_answer(said)) != said:
            changed[name] = redacted
    # Few tokens are long enough to be a part of a secret.
    if any(len(said) >= PART for token in completion.logprobs for said in (token.token, *token.top)):
        changed["logprobs"] = tuple(_token(token, redactor) for token in completion.logprobs)
    return msgspec.structs.replace(completion, **changed) if changed else completion


def _token(token: TokenLogprob, redactor: Redactor) -> TokenLogprob:
    top = {redactor.redact_answer(said): logprob for said, logprob in token.top.items()}
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
    """A reply, and a note on each thing that was left out or replaced in it."""

    value: T
    notes: tuple[str, ...] = ()


def reply_reader(kind: type[T]) -> Callable[[bytes], Read[T]]:
    """Make a reader of replies of one type.

    A list loses the items that do not fit, a tuple is whole or left out, an optional field falls back to its
    default. Raises Undecodable: it is no JSON, or lacks what ``kind`` requires.
    """
    read = foreign.make_decoder(kind)

    def read_reply(body: bytes) -> Read[T]:
        try:
            return Read(read(body))
        except Undecodable as error:
            fit = _ReplyFit()
            try:
                reply, is_mended = foreign.decode_damaged(body)
                value = fit.to(reply, kind, "")
            except (_Unfit, Undecodable):
                raise error from None
            return Read(value, (*[MENDED] * is_mended, *fit.notes)[:_MOST_NOTES])

    return read_reply


def arguments_text(given: Any) -> str:
    """Return what a tool was called with as JSON: some hosts hand over the object, others a text of it."""
    if given is None:
        return ""
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()


class _Unfit(Exception):
    """A value is nothing like its type."""


class _ReplyFit:
    """Fit parsed JSON to types; ``notes`` collects what was left out, by the names of its fields."""

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}

    def to(self, value: Any, kind: Any, where: str) -> Any:
        """Return ``value`` as a ``kind``; raises _Unfit where nothing of it can be."""
        if where.count(".") > _DEEPEST:
            raise _Unfit
        members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        # Parts say more than their texts in a row.
        for member in sorted(members, key=lambda member: (member is str) != isinstance(value, str)):
            try:
                return self._member(value, member, where)
            except _Unfit:
                continue
        raise _Unfit

    def _member(self, value: Any, kind: Any, where: str) -> Any:
        if kind is str:
            return self._text(value)
        if get_origin(kind) is list:
            return self._items(value, get_args(kind)[0], where)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._struct(value, kind, where)
        if kind is msgspec.Raw:
            return msgspec.Raw(msgspec.json.encode(value))
        try:
            return foreign.convert(value, kind)
        except Misshapen:
            raise _Unfit from None

    def _text(self, value: Any, depth: int = 0) -> str:
        match value:
            case str():
                return value
            case list() if depth < _DEEPEST:
                return "".join(self._text(item, depth + 1) for item in value)
            case dict() if depth < _DEEPEST:
                inner = next((value[name] for name in _TEXTS if value.get(name) is not None), None)
                return self._text(inner, depth + 1)
        raise _Unfit

    def _items(self, value: Any, kind: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            return [self.to(value, kind, where)]
        items: list[Any] = []
        for item in value:
            try:
                items.append(self.to(item, kind, where))
            except _Unfit:
                self._note(item, where)
        if not items and any(item is not None for item in value):
            raise _Unfit
        return items

    def _struct(self, value: Any, kind: type[msgspec.Struct], where: str) -> Any:
        fields = msgspec.structs.fields(kind)
        if isinstance(value, str):
            value = dict([(field.encode_name, value) for field in fields if field.name in _TEXTS][:1]) or None
        if not isinstance(value, dict):
            raise _Unfit
        given: dict[str, Any] = {}
        for field in fields:
            name = field.encode_name
            place = f"{where}.{name}".lstrip(".")
            if name in value:
                try:
                    given[field.name] = self.to(value[name], field.type, place)
                    continue
                except _Unfit:
                    self._note(value[name], place)
            if field.required:
                raise _Unfit
        return kind(**given)

    def _note(self, value: Any, where: str) -> None:
        if value is not None:
            self.notes[f"{where} could not be read, and was left out"] = None


# --- How an answer ended, in the words of every house: one table for all dialects

# A gateway hands on the words of the house behind it, so that any dialect meets those of any other. Sources:
# the references of OpenAI, Azure, Anthropic, Google, Cohere, AWS (Converse, Titan), Mistral, DeepSeek, Zhipu,
# Tencent, Baidu, IBM watsonx, Ollama, llama.cpp, TGI, vLLM, SGLang and xAI.

Ending: TypeAlias = Literal["stop", "length", "tool_calls", "filtered", "broken_off", "unusable"]

# Letters alone, in small: ``MAX_TOKENS``, ``maxTokens`` and ``max-tokens`` are one word.
_WORDS: Mapping[Ending, str] = {
    "stop": "stop stopsequence stoptoken endturn eos eostoken endoftext end complete completed finish "
    "finished done normal unspecified",
    "length": "length lengthlimit maxlen maxlength maxtoken maxtokens maxnewtokens maxoutputtokens "
    "maxcontext modellength tokenlimit tokenlimitreached contextlength contextlengthexceeded "
    "contextwindowexceeded modelcontextwindowexceeded continuation errorlimit incomplete",
    "tool_calls": "toolcalls toolcall tooluse functioncall",
    # Google's reasons that speak of images come with its models that paint as well.
    "filtered": "contentfilter contentfiltered contentfiltering contentpolicy contentpolicyviolation safety "
    "recitation prohibitedcontent blocklist blocked spii sensitive language escalation modelarmor "
    "puplimiteddisabled imagesafety imageprohibitedcontent imagerecitation guardrail guardrailintervened "
    "guardrails moderation flagged refusal errortoxic datainspectionfailed",
    # By the host, which may well answer next time.
    "broken_off": "error abort aborted cancel cancelled canceled usercancel failed timeout timelimit "
    "networkerror servererror internalerror engineerror insufficientsystemresource",
    # By the model, which made what its host cannot hand over.
    "unusable": "malformedfunctioncall malformedresponse malformedmodeloutput malformedtooluse imageother "
    "noimage missingthoughtsignature other toomanytoolcalls unexpectedtoolcall",
}
_ENDINGS: Mapping[str, Ending] = {word: ending for ending, words in _WORDS.items() for word in words.split()}
_NO_LETTER = re.compile(r"[^a-z]")
# Of enumerations: ``FinishReason.SAFETY``, ``FINISH_REASON_UNSPECIFIED``, xAI's ``REASON_MAX_LEN``.
_ENUM = re.compile(r"^(?:finish|stop)?reason")


def finish_of(reason: str | None, usage: Usage, why: str = "", text: str | None = None) -> str:
    """Return ``stop``, ``length`` or ``tool_calls`` for a host's finish reason, or an unknown one as it came.

    ``why`` is what the host says of it, redacted. With a ``text``, "other" says nothing against it.

    Raises ContentFiltered: the host withheld the answer; ServerFault, Unreadable: it broke it off.
    """
    if not reason:
        return "stop"
    ending = _ENDINGS.get(reason) or _ENDINGS.get(_ENUM.sub("", _NO_LETTER.sub("", reason.lower())))
    detail = f"{reason}: {why}" if why else reason
    match ending:
        case "filtered":
            raise ContentFiltered(f"the host's content filter withheld the answer ({detail})", usage=usage)
        case "broken_off":
            raise ServerFault(f"the host broke off its answer (finish reason {detail})", usage=usage)
        case "unusable" if not (text and reason.lower() == "other"):
            raise Unreadable(f"the host broke off its answer (finish reason {detail})", usage=usage)
        case "unusable" | None:
            return reason
    return ending
