"""What an interface supplies to the conformance suite: its fake host, and how that is spoken to.

The suite says what a host is to answer (`Said`) and reads what it was asked (`Heard`) in nobody's words; an
`Interface` puts both into those of its provider.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from fakes.openai_chat import Raw, Requested

from coeval.core.model import ModelSpec
from coeval.core.records import Schema, Usage

SECRET = "sk-planted-7Qm2vX9tLw4Rz8Kc"
"""The key that every interface is opened with; one whose credential has parts has it in one of them."""

LEVELS = Schema(
    "scores",
    {
        "type": "object",
        "properties": {"tone": {"type": "string", "enum": ["High", "Medium", "Low"]}},
        "required": ["tone"],
        "additionalProperties": False,
    },
)

Ending: TypeAlias = Literal["stop", "length", "stop sequence"]
Behaviour: TypeAlias = Any
"""What an interface's own fake is scripted with; every fake takes `Raw` and `Broken` of OpenAI's too."""


class Said(msgspec.Struct, frozen=True):
    """An answer. ``usage`` is as ours: the whole prompt, cached parts included, and all that was made.
    ``as_schema``: the text is JSON after the schema that was asked for, which some hosts hand over as a call
    of a tool."""

    text: str = "ok"
    ends: Ending = "stop"
    reasoning: str | None = None
    usage: Usage = Usage(11, 3)
    logprobs: Sequence[tuple[str, float]] = ()
    as_schema: bool = False


class Heard(msgspec.Struct, frozen=True):
    """A request as it arrived. ``sampling`` are the typed parameters by our names, those that were sent;
    ``turns`` are role (``user`` or ``assistant``) and text; ``key`` is the credential as it was shown."""

    model: str
    turns: Sequence[tuple[str, str]]
    system: str | None = None
    sampling: Mapping[str, Any] = {}
    schema: Mapping[str, Any] | None = None
    top_logprobs: int | None = None
    key: str | None = None


class Host(Protocol):
    """A running fake; ``url`` is what a model's ``base_url`` is set to."""

    url: str

    @property
    def requested(self) -> Sequence[Requested]:
        """The requests for an answer in order of arrival, refused ones included; not those for tokens."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Interface(ABC):
    """One interface, as the suite tries it; those that differ in a few words are instances of one class.

    ``env`` holds its credentials, and `SECRET` among them. ``refuses`` are the typed parameters that no
    request is sent with, ``hosts_refusal`` those that the strict fake answers with 400: the error names the
    parameter either way. ``tells`` are the fields of `Usage` beyond the two counts that its host reports.
    ``schema``, ``logprobs``, ``reasoning``: the host has them. ``renews``: its credential is a token that
    expires; see `expire`. ``values`` are those of typed parameters where the suite's own are none of this
    provider's, and ``models`` the model that takes a parameter where ``model`` is of a family that does not.
    ``schema_refusals`` are words by which its host declines a schema, and ``field_refusals`` those by which
    it declines a parameter, each with our name of that.
    """

    name: str
    model: str
    env: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    refuses: frozenset[str] = frozenset()
    hosts_refusal: frozenset[str] = frozenset()
    tells: frozenset[str] = frozenset()
    schema: bool = True
    logprobs: bool = False
    reasoning: bool = True
    renews: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    schema_refusals: Sequence[str] = ()
    field_refusals: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.name

    def spec(self, url: str, **fields: Any) -> ModelSpec:
        """The model as an experiment names it; ``fields`` go before what the interface has."""
        usual = {"name": "m", "interface": self.name, "model": self.model, "base_url": url}
        return ModelSpec(**{**usual, "timeout_s": 30.0, "options": dict(self.options), **fields})

    @abstractmethod
    def serve(self, *script: Behaviour) -> AbstractAsyncContextManager[Host]:
        """The fake on loopback, strict about the credential too; it acts by the script, then answers "ok"."""

    @abstractmethod
    def heard(self, requested: Requested) -> Heard:
        """What a request says."""

    @abstractmethod
    def says(self, said: Said) -> Behaviour:
        """The host's way to answer so."""

    @abstractmethod
    def fails(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Behaviour:
        """The host's error of that status."""

    def refusals(self, words: str) -> Sequence[Behaviour]:
        """Each way the model has to decline, in these words; none where hosts do not tell that apart."""
        return ()

    def filters(self) -> Sequence[Behaviour]:
        """Each way of the host to withhold an answer, or not to look at a prompt."""
        return ()

    def expire(self, host: Host) -> None:
        """Make every token shown so far worthless, as time would: who shows one again gets a 401."""
        raise NotImplementedError

    def garbage(self) -> Sequence[Behaviour]:
        """Bodies of a 200 that are no answer."""
        return tuple(map(Raw, (b"<html>gateway</html>", b"", b'{"half": ', b"[]", b"null", b"\xff\xfe{}")))
