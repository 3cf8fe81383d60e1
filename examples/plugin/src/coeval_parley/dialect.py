"""The wire format: turns in, what was said out.

POST /say  {"model": "m", "turns": [{"by": "user", "text": "Hello"}], "settings": {"temperature": 0.7}}
200        {"said": "Good day.", "heard": 2, "spoken": 3, "ended": "done"}
401        {"wrong": "this token is not valid now"}
GET /minds 200  {"minds": [{"called": "m", "remembers": 8192}], "more": "m"}  and so on: /minds?after=m
"""

from __future__ import annotations

import msgspec

from coeval.core.errors import AccessDenied, ModelError, Undecodable
from coeval.core.foreign import decode
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Request, Usage
from coeval.core.redaction import Redactor
from coeval.models.catalog import Host
from coeval.models.dialects.dialect import Dialect, ListedModel, ModelList, ModelPage, redact_completion
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.faults import excerpt

__all__ = ["PARLEY_DIALECT", "ParleyDialect"]


class _Reply(msgspec.Struct):
    said: str
    heard: int = 0
    spoken: int = 0
    ended: str = "done"


class _Wrong(msgspec.Struct):
    wrong: str


class _Mind(msgspec.Struct):
    called: str
    remembers: int | None = None


class _Minds(msgspec.Struct):
    minds: tuple[_Mind, ...]
    more: str | None = None


def _read_page(body: bytes) -> ModelPage:
    listed = decode(body, _Minds)
    return ModelPage(tuple(ListedModel(mind.called, mind.remembers) for mind in listed.minds), listed.more)


class ParleyDialect(Dialect):
    """See `Dialect`; the format has no schemas, and no field that tells of labels."""

    labels_field = None
    model_list = ModelList("/minds", _read_page, after="after")

    def path(self, _: ModelSpec) -> str:
        return "/say"

    def encode(self, request: Request, spec: ModelSpec, _: Host, *, structured: bool = True) -> bytes:  # noqa: ARG002
        settings = request.sampling.to_dict()
        if request.seed is not None:
            settings["seed"] = request.seed
        turns = [{"by": message.role, "text": message.content} for message in request.messages]
        return msgspec.json.encode(
            {"model": spec.model, "turns": turns, "settings": settings, **spec.extra_body}
        )

    def decode(self, body: bytes, redactor: Redactor) -> Completion:
        reply = decode(body, _Reply)  # raises Undecodable, and the request is sent once more
        cut = reply.ended == "limit"
        completion = Completion(
            text=reply.said,
            usage=Usage(reply.heard, reply.spoken),
            finish_reason="length" if cut else "stop",
            truncated=cut,
        )
        return redact_completion(completion, redactor)

    def explain(self, reply: HttpReply, url: str, redactor: Redactor) -> ModelError | None:  # noqa: ARG002
        """Why a token was refused; of everything else the status tells enough."""
        if reply.status != 401:
            return None
        try:
            return AccessDenied(excerpt(decode(reply.body, _Wrong).wrong, redactor), status=reply.status)
        except Undecodable:
            return None


PARLEY_DIALECT = ParleyDialect()
