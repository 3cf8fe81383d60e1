"""What a dialect is: a provider's wire format, as functions over bytes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from coeval.core.errors import BadRequest, ModelError
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Request
from coeval.core.secrets.redaction import Redactor
from coeval.models.catalog import Host

__all__ = ["Dialect", "FieldRejected", "SchemaRejected"]


class SchemaRejected(BadRequest):
    """The host, or this model of it, does not take the schema it was sent."""


class FieldRejected(BadRequest):
    """The host does not know a field that others who speak the dialect take: ``field``."""

    field = ""


@runtime_checkable
class Dialect(Protocol):
    """How a host is asked over HTTP, and what its replies mean. It keeps nothing between calls.

    ``labels_field`` is the field that tells of a request's labels, if the dialect has one: a host that
    does not know it is asked without.
    """

    labels_field: str | None

    def path(self, spec: ModelSpec, /) -> str:
        """Where a model is asked, appended to the base URL."""

    def encode(self, request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
        """The body of a request; ``structured=False`` leaves its schema out.

        Raises
        ------
        BadRequest
            it sets a parameter that the host has nothing for; the message names it.
        """

    def decode(self, body: bytes, redactor: Redactor) -> Completion:
        """The answer in a 2xx body, without the credentials that the redactor knows.

        Raises
        ------
        Undecodable
            it is no answer; the request is sent once more.
        ModelError
            it holds an error in place of an answer.
        """

    def explain(self, status: int, body: bytes, url: str, redactor: Redactor) -> ModelError | None:
        """What an error body says, `FieldRejected` and `SchemaRejected` among it; None leaves it to the
        status alone. ``url`` is the base URL. What it quotes has passed the redactor before it is cut."""
