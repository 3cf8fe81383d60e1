"""What a dialect is: a provider's wire format, as functions over bytes."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from coeval.core.errors import BadRequest, Misshapen, ModelError
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Request, TokenLogprob
from coeval.core.redaction import PART, Redactor
from coeval.core.text import split_reasoning
from coeval.models.catalog import Host
from coeval.models.dialects.reply_reader import MENDED
from coeval.models.transport.connection import HttpReply

# No model reads four billion tokens: a larger figure is a host's "unlimited" or a mistake.
MOST_TOKENS = 1 << 32


class ListedModel(NamedTuple):
    """A model that a host says it serves, by the id that it is asked by.

    ``context_window`` is in tokens; prices are US dollars per million tokens. None is not told. ``routed``: a
    gateway lists it, whatever becomes of a request for it. ``bounds``: a prompt and its answer together never
    exceed ``context_window``, which may be of prompts alone, or of one of several that serve the model.
    """

    id: str
    context_window: int | None = None
    input_usd_per_mtok: float | None = None
    output_usd_per_mtok: float | None = None
    routed: bool = False
    bounds: bool = True


class ModelPage(NamedTuple):
    """A page of a host's list; ``next`` is what the host calls the page after it, None after the last one."""

    models: tuple[ListedModel, ...]
    next: str | None = None


class ModelList(NamedTuple):
    """How a host lists the models that it can be asked for, page by page, each by a GET without a body.

    ``path`` gives what is appended to the base URL, a query included, for the first page (None) or for what
    ``ModelPage.next`` named. ``decode`` reads a page; it leaves out what the host no longer serves and, where
    the host tells, what answers no messages. It raises Undecodable where the body is no such list. Ids are
    freed of credentials by whoever asks (`models.listing`).
    """

    path: Callable[[str | None], str]
    decode: Callable[[bytes], ModelPage]


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
        """The body of a request; ``structured=False`` leaves its schema out.

        Raises BadRequest: it sets a parameter that the host has nothing for; the message names it. A
        `FieldRejected` is treated as the host's own: what nobody asked for is left out.
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
    """The same answer, its every text as `Redactor.answer` leaves it."""
    if not redactor.knows_any:
        return completion
    changed: dict[str, Any] = {}
    for name in ("text", "finish_reason", "reasoning", "refusal", "served_by", "reply_id"):
        said = getattr(completion, name)
        if said and (redacted := redactor.answer(said)) != said:
            changed[name] = redacted
    if completion.logprobs and _may_hold(completion.logprobs):
        changed["logprobs"] = tuple(_token(token, redactor) for token in completion.logprobs)
    return msgspec.structs.replace(completion, **changed) if changed else completion


def _may_hold(logprobs: tuple[TokenLogprob, ...]) -> bool:
    """Whether a token is long enough to be a part of a secret; few are."""
    return any(len(said) >= PART for token in logprobs for said in (token.token, *token.top))


def _token(token: TokenLogprob, redactor: Redactor) -> TokenLogprob:
    top = {redactor.answer(said): logprob for said, logprob in token.top.items()}
    return TokenLogprob(redactor.answer(token.token), token.logprob, top)
