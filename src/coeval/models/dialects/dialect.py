"""What a dialect is: a provider's wire format, as functions over bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from coeval.core.errors import BadRequest, ModelError
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Request
from coeval.core.secrets.redaction import Redactor
from coeval.models.catalog import Host
from coeval.models.connections.reply_parser import HttpReply

__all__ = [
    "Dialect",
    "FieldRejected",
    "LimitRenamed",
    "ListedModel",
    "ModelList",
    "ModelPage",
    "SchemaRejected",
]


class ListedModel(NamedTuple):
    """A model that a host says it serves, by the id that it is asked by.

    ``context_window`` is in tokens; prices are US dollars per million tokens. None is not told.
    """

    id: str
    context_window: int | None = None
    input_usd_per_mtok: float | None = None
    output_usd_per_mtok: float | None = None


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

        Raises
        ------
        BadRequest
            it sets a parameter that the host has nothing for; the message names it. A `FieldRejected` is
            treated as the host's own: what nobody asked for is left out.
        """

    def keeps_prefix(self, request: Request, spec: ModelSpec, /) -> bool:  # noqa: ARG002
        """Whether the body of a request that shares its beginning with others tells the host to keep that in
        its cache, so that these are worth holding back until it is there."""
        return False

    def decode(self, body: bytes, redactor: Redactor) -> Completion:
        """The answer in a 2xx body, without the credentials that the redactor knows.

        Raises
        ------
        Undecodable
            it is no answer; the request is sent once more.
        ModelError
            it holds an error in place of an answer.
        """

    def explain(self, reply: HttpReply, url: str, redactor: Redactor) -> ModelError | None:
        """What an answer says that is an error, `FieldRejected` and `SchemaRejected` among it; None leaves it
        to the status alone. ``url`` is the base URL. What it quotes has passed the redactor before it is
        cut."""
