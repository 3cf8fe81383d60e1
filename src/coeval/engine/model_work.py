"""Work of one model on one record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from coeval.core.errors import CoevalError, Refused, describe_error
from coeval.core.model import Model, ModelSpec
from coeval.core.records import (
    CallId,
    Completion,
    Failure,
    Kept,
    Message,
    Purpose,
    Request,
    Role,
    SamplingParameters,
    Schema,
)
from coeval.core.text import break_closing_tags, canonical_json, digest, fill_template, shared_prefix_length
from coeval.engine.work import Tally, ask
from coeval.models.catalog import HOSTS
from coeval.models.local.callables import hash_scripts, hash_source
from coeval.store.record_index import RequestAttempts

# --- Model roles and recipes
#
# A recipe names everything that shapes an answer (interface, model id, the role's sampling parameters, system
# prompt, ``extra_body``, template, and what else the asker names) and nothing that does not (URL, keys,
# timeouts, limits, batch): so that nothing is ever relabelled.

PRIORITY_BY_ROLE: dict[Role, int] = {"teacher": 0, "student": 1, "judge": 2}
"""Priority at a shared endpoint: judging before answering before generating."""

_NO_PART = frozenset({"latency_s", "device", "env", "max_model_len", "gpu_memory_utilization"})
_SOURCE, _SCRIPTS = "source of parameters.callable", "source of parameters.argv"


class Recipe(NamedTuple):
    """A recipe's ``hash`` (12 hex digits) and its parts by name: ``interface``, ``parameters.temperature
    (judge)``; texts by their digest."""

    hash: str
    parts: dict[str, str]

    @classmethod
    def of(cls, parts: Mapping[str, Any]) -> Recipe:
        texts = {
            name: value if isinstance(value, str) else canonical_json(value) for name, value in parts.items()
        }
        return cls(digest(canonical_json(texts))[:12], texts)


def make_recipe(
    spec: ModelSpec, role: Role, sampling: SamplingParameters, system: str | None, others: Mapping[str, Any]
) -> Recipe:
    """Make the recipe of a model's output in ``role``; ``others`` are further parts."""
    parts: dict[str, Any] = {"interface": spec.interface, "parameters.model": spec.model}
    parts |= {f"parameters.{name} ({role})": value for name, value in sampling.to_dict().items()}
    host = HOSTS.get(spec.interface)  # none for an ``auto`` that is only counted, not asked
    no_part = _NO_PART | (host.places if host is not None else frozenset())
    parts |= {f"parameters.{name}": value for name, value in spec.options.items() if name not in no_part}
    if "callable" in spec.options:
        parts["parameters.callable"] = str(spec.options["callable"]).partition("#")[0]
        parts[_SOURCE] = hash_source(str(spec.options["callable"]))
    if scripts := hash_scripts(spec.options.get("argv", ())):
        parts[_SCRIPTS] = scripts
    if spec.extra_body:
        parts["parameters.extra_body"] = spec.extra_body
    if system:
        parts[f"parameters.system_prompt ({role})"] = digest(system)
    return Recipe.of(parts | dict(others))


def find_absent_code_recipe(current: Recipe, recorded_parts: Mapping[str, Mapping[str, str]]) -> Recipe:
    """Return the recorded recipe (parts by hash) that equals ``current`` but for the source of a function
    or program that is not on this machine; else ``current`` itself."""
    lacking = [[name] for name in (_SOURCE, _SCRIPTS) if not current.parts.get(name)]
    if current.hash in recorded_parts:
        return current
    alike = (
        recipe_hash
        for recipe_hash, parts in recorded_parts.items()
        if differing_parts(parts, current.parts) in lacking
    )
    match = next(alike, current.hash)
    return Recipe(match, {**recorded_parts.get(match, current.parts)})


def differing_parts(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    names = list(new) + [name for name in old if name not in new]
    return [name for name in names if old.get(name) != new.get(name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleModel:
    """A model in one role at one task.

    ``name`` makes the records; ``model`` is the provider's identifier; ``variant_of`` the configured model
    that is called instead of ``name``, shared by the variants of a student. Seeds of requests derive from
    ``seed`` (`choose_base_seed`); None: none is sent. ``sample`` is the index, from 0, of one of ``samples``
    answers per item. ``droppable`` names parameters of ``sampling`` that no user set: if a host refuses one,
    `Kept.dropped` says so, and the recipe and what is owed stay. ``fields`` are the values of ``template``
    that no item changes. ``labels``: see `Request`.
    """

    name: str
    model: str
    role: Role
    recipe: Recipe
    sampling: SamplingParameters = field(default_factory=SamplingParameters)
    system: str | None = None
    seed: int | None = None
    sample: int = 0
    samples: int = 1
    droppable: tuple[str, ...] = ()
    template: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    variant_of: str = ""

    def split_by_sample(self) -> list[RoleModel]:
        """Return a copy for each sample, itself first."""
        return [self, *(replace(self, sample=k) for k in range(1, self.samples))]

    @property
    def called_name(self) -> str:
        """Return the name of the open model that is called: a variant's own model."""
        return self.variant_of or self.name

    def prompt(
        self, values: Mapping[str, str], schema: Schema | None = None, varying: Collection[str] = ()
    ) -> Request:
        """Fill the template for one item; ``varying`` are the values that differ between requests for that
        item. Nothing that a judge is shown can end the block that it stands in."""
        filled: Mapping[str, str] = {**self.fields, **values}
        if self.role == "judge":
            filled = break_closing_tags(self.template, filled)
        text = fill_template(self.template, filled)
        shared = shared_prefix_length(self.template, filled, varying) if varying else 0
        return Request((Message("user", text),), schema=schema, labels=self.labels, shared=shared)

    def request(
        self, requested: Request, purpose: Purpose, key: str, attempt: int, unanswered: int = 0
    ) -> Request:
        """Make the request for the record ``key``, with system prompt, sampling and seed; ``attempt`` counts
        from 0 over all starts. Those that were ``unanswered`` do not move the seed."""
        call = CallId(key, self.sample, attempt)
        return msgspec.structs.replace(
            requested,
            messages=(Message("system", self.system), *requested.messages)
            if self.system
            else requested.messages,
            sampling=self.sampling,
            purpose=purpose,
            call=call,
            seed=self._choose_seed(call._replace(attempt=attempt - unanswered)),
            priority=PRIORITY_BY_ROLE[self.role],
            droppable=self.droppable if self.sampling.seed is not None else (*self.droppable, "seed"),
            fresh=self.samples > 1 or self.sample > 0,
        )

    def _choose_seed(self, call: CallId) -> int | None:
        """Return the seed of a request: the user's own for a first answer; others derive from the base."""
        theirs = self.sampling.seed is not None and not (call.sample or call.attempt)
        return self.seed if self.seed is None or theirs else call.seed(self.seed)


def choose_base_seed(spec: ModelSpec, sampling: SamplingParameters, run_seed: int | None) -> int | None:
    """Return the seed that request seeds derive from: the user's, else ``run_seed`` if the host takes one."""
    host = HOSTS.get(spec.interface)
    own = run_seed if host is not None and host.seeds_by_default else None
    return own if sampling.seed is None else sampling.seed


RecordFields: TypeAlias = dict[str, Any]
"""Fields of a record by name, as its class takes them."""

KeptT = TypeVar("KeptT", bound=Kept)
ValueT = TypeVar("ValueT")

# Several times a host's longest refusals; a host that repeats the prompt does not double every record.
LONGEST_MESSAGE = 2_000
_PURPOSE: dict[Role, Purpose] = {
    "teacher": "data_generation",
    "student": "response_collection",
    "judge": "evaluation",
}


class Asking(NamedTuple):
    """The open models, and the retries of a record beyond the transport's."""

    models: Mapping[str, Model]
    retries: int


@dataclass(slots=True)
class _WorkFields:
    """What each work of a model has; ``tried`` counts the askings that earlier starts recorded."""

    asking: Asking
    role_model: RoleModel
    key: str
    tried: RequestAttempts
    tally: Tally = field(default_factory=Tally, init=False)


class ModelWork(_WorkFields, ABC, Generic[KeptT]):
    """A `Work` that asks ``role_model`` for the record ``key``, of the class ``record``. `parse_fields` takes
    the record's own fields from the answer to `question`; `identity_fields` it has even if it fails."""

    __slots__ = ()

    phase: str
    record: type[KeptT]
    at_once = False

    @property
    def model(self) -> str:
        return self.role_model.called_name

    @property
    def calls(self) -> int:
        return self.tally.calls

    @property
    def purpose(self) -> Purpose:
        """Return the purpose of requests; proposals of teachers override it."""
        return _PURPOSE[self.role_model.role]

    @abstractmethod
    def question(self, attempt: int, /) -> Request:
        """Make the request's messages, without the role's own; ``attempt`` counts from 0 over all starts."""

    @abstractmethod
    def parse_fields(self, completion: Completion) -> RecordFields:
        """Parse the record's fields from an answer; raises ReplyError where it gives none."""

    @abstractmethod
    def identity_fields(self) -> RecordFields:
        """Return what says what the record is about, beside its id and recipe."""

    async def do(self) -> KeptT:
        return self.make_record(await self.ask(self.key, self.question, self.parse_fields, self.tally))

    def make_record(self, fields: Mapping[str, Any]) -> KeptT:
        return self.record(**{**self._common_fields(), **fields})

    def make_failed_record(self, error: Exception) -> KeptT:
        return self.record(**self._common_fields(), status="failed", error=make_failure(error))

    def _common_fields(self) -> RecordFields:
        """Return the record's identity, its usage and how the last answer came, good or not."""
        tally = self.tally
        fields = {"id": self.key, "recipe": self.role_model.recipe.hash, **self.identity_fields()}
        fields["usage"] = tally.usage
        fields["attempts"] = self.tried.made + tally.attempts
        fields["unanswered"] = self.tried.unanswered + tally.unanswered
        if (last := tally.last) is not None:
            fields |= {
                "latency_s": round(last.latency_s, 4),
                "finish_reason": last.finish_reason,
                "reasoning": last.reasoning,
                "truncated": last.truncated,
                "dropped": last.dropped,
                "served_by": last.served_by,
                "notes": last.notes,
                "served_as": last.served_as,
                "reply_id": last.reply_id if self.role_model.samples > 1 else "",
            }
        return fields

    def ask(
        self, key: str, question: Callable[[int], Request], read: Callable[[Completion], ValueT], tally: Tally
    ) -> Coroutine[Any, Any, ValueT]:
        """Ask the role's model as `engine.work.ask` does; ``key`` names the record, or a part of it."""

        role_model, purpose = self.role_model, self.purpose

        def make_request_from_tally(_: int) -> Request:
            attempt = self.tried.made + tally.attempts
            unanswered = self.tried.unanswered + tally.unanswered
            request = role_model.request(question(attempt), purpose, key, attempt, unanswered)
            return request if tally.last is None else msgspec.structs.replace(request, goes_on=True)

        model = self.asking.models[role_model.called_name]
        return ask(model, make_request_from_tally, read, retries=self.asking.retries, tally=tally)


def make_failure(error: Exception) -> Failure:
    kind, message = (
        (error.kind, str(error)) if isinstance(error, CoevalError) else ("internal", describe_error(error))
    )
    return Failure(kind, message[:LONGEST_MESSAGE] or type(error).__name__)


def text_unless_refused(completion: Completion, answerer: str) -> str:
    """Return the answer's text; raises Refused where the model declined. ``answerer`` names it."""
    if completion.refusal is not None:
        raise Refused(f"{answerer} declined: {completion.refusal[:200]}", raw=completion.refusal)
    return completion.text
