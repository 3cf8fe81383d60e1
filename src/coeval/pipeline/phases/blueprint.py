"""Phases 1–2: each task's attributes and rubric, declared in the file or proposed by the teachers.

Every proposal is journalled, so a crash repeats none. The merged artifact (``…_target_attrs.json``,
``….rubric.json``) is written once all teachers have been asked, and is authoritative from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from coeval.core.errors import StoreError
from coeval.core.records import Completion, Kept, Purpose, Request, Schema, is_good, proposal_id
from coeval.engine.model_work import Asking, ModelWork, RecordFields, RoleModel, text_unless_refused
from coeval.pipeline.config.schema import Config, Phase, TaskConfig
from coeval.pipeline.phases.proposals import merge_attributes, merge_rubrics, parse_attributes, parse_rubric
from coeval.pipeline.plan.task_setup import TaskBlueprint, build_role_model
from coeval.pipeline.prompts import NUANCED_ATTRIBUTES, RUBRIC, TARGET_ATTRIBUTES
from coeval.store.jsonl import read_json, write_json_atomic
from coeval.store.record_index import NOT_TRIED, Index, RequestAttempts, count_attempts
from coeval.store.rundir import RunDir, utc_now

Kind: TypeAlias = Literal["target", "nuanced", "rubric"]
PROPOSALS = "proposals.jsonl"
Attributes: TypeAlias = dict[str, list[str]]
_REQUESTED: dict[Kind, tuple[Phase, str, Schema]] = {
    "target": ("attribute_mapping", "map_target_attrs", TARGET_ATTRIBUTES),
    "nuanced": ("attribute_mapping", "map_nuanced_attrs", NUANCED_ATTRIBUTES),
    "rubric": ("rubric_mapping", "autorubric", RUBRIC),
}
"""How teachers are asked: in which phase, by which template, for a reply of which shape."""
KINDS = tuple(_REQUESTED)
PHASE_OF = {kind: phase for kind, (phase, _, _) in _REQUESTED.items()}


class Proposal(Kept, frozen=True, kw_only=True, omit_defaults=True):
    """What one teacher proposed: attribute → values, or factor → criterion."""

    task_id: str
    teacher_model_id: str
    kind: Kind
    attributes: dict[str, list[str]] | None = None
    rubric: dict[str, str] | None = None
    proposed_at: str = ""

    @property
    def value(self) -> dict[str, str] | dict[str, list[str]] | None:
        return (self.rubric if self.kind == "rubric" else self.attributes) or None


class _ProposalEntry(msgspec.Struct, frozen=True):
    good: bool
    attempts: RequestAttempts
    recipe: str


@dataclass(slots=True)
class ProposalWork(ModelWork[Proposal]):
    """Asks one teacher for one kind of proposal."""

    task: str
    kind: Kind
    phase: Phase

    weight = 1
    record = Proposal

    @property
    def purpose(self) -> Purpose:
        return self.phase

    def question(self, _: int) -> Request:
        return self.role_model.prompt({}, _REQUESTED[self.kind][2])

    def parse_fields(self, completion: Completion) -> RecordFields:
        text = text_unless_refused(completion, "the teacher")
        if self.kind == "rubric":
            return {"rubric": parse_rubric(text)}
        parsed = parse_attributes(text)
        return {"attributes": parsed.values, "repaired": parsed.repaired}

    def identity_fields(self) -> RecordFields:
        return {
            "task_id": self.task,
            "teacher_model_id": self.role_model.name,
            "kind": self.kind,
            "proposed_at": utc_now(),
        }


class Blueprint:
    """The artifacts of phases 1–2 in one run folder, and the proposals that are owed. ``follow_file``:
    declared sections follow the experiment file, as ``--continue`` does; ``inherited`` is the folder whose
    rubric ``rubric: extend`` starts from."""

    def __init__(
        self, config: Config, folder: RunDir, *, follow_file: bool, inherited: RunDir | None = None
    ) -> None:
        self._config = config
        self._folder = folder
        self._follow_file = follow_file
        self._inherited = inherited
        self._proposals: Index[_ProposalEntry] = Index()
        paths = [folder.folder(phase) / PROPOSALS for phase in dict.fromkeys(PHASE_OF.values())]
        self._proposals.read(
            paths,
            Proposal,
            lambda proposal: _ProposalEntry(is_good(proposal), count_attempts(proposal), proposal.recipe),
        )

    def record_path(self, record: Kept) -> Path:
        """Return the file that a proposal is appended to."""
        kind = record.kind if isinstance(record, Proposal) else "target"
        return self._folder.folder(PHASE_OF[kind]) / PROPOSALS

    def artifact_path(self, task: str, kind: Kind) -> Path:
        if kind == "rubric":
            return self._folder.rubric(task)
        return self._folder.target_attrs(task) if kind == "target" else self._folder.nuanced_attrs(task)

    def list_owed_proposals(self, task: TaskConfig, kind: Kind) -> list[tuple[RoleModel, str]]:
        """List teacher and key of each proposal that is still to be requested."""
        if not isinstance(find_declaration(task, kind), str) or self.artifact_path(task.name, kind).exists():
            return []
        return [
            request for request in self.list_possible_proposals(task, kind) if not self._is_recorded(*request)
        ]

    def list_possible_proposals(self, task: TaskConfig, kind: Kind) -> Iterator[tuple[RoleModel, str]]:
        """Yield teacher and key of all proposals of this kind, in the order of the file."""
        for model in self._config.with_role("teacher"):
            if model.interface != "benchmark":
                seed = self._config.experiment.seed
                yield (
                    build_role_model(model, "teacher", task, _REQUESTED[kind][1], seed),
                    proposal_id(task.name, model.name, kind),
                )

    def _is_recorded(self, teacher: RoleModel, key: str) -> bool:
        """Check whether a proposal is on record and not requested again, whatever its recipe."""
        del teacher
        entry = self._proposals.get(key)
        return entry is not None and entry.good

    def make_works(self, asking: Asking) -> Iterator[ProposalWork]:
        for task in self._config.tasks:
            for kind in KINDS:
                for teacher, key in self.list_owed_proposals(task, kind):
                    entry = self._proposals.get(key)
                    tried = entry.attempts if entry else NOT_TRIED
                    yield ProposalWork(asking, teacher, key, tried, task.name, kind, PHASE_OF[kind])

    def write_and_return_blueprint(
        self, task: TaskConfig, made_now: Mapping[str, Proposal]
    ) -> TaskBlueprint | None:
        """Write the task's artifacts if they are missing or follow the file, and return them; None if no
        teacher has proposed something that is needed. ``made_now`` holds this run's good proposals by key."""
        values: dict[Kind, Any] = {}
        for kind in KINDS:
            value = self._write_and_return_part(task, kind, made_now)
            if value is None:
                return None
            values[kind] = value
        return TaskBlueprint(values["target"], values["nuanced"], values["rubric"])

    def read_blueprint_if_known(self, task: TaskConfig) -> TaskBlueprint | None:
        """Return the blueprint if file and folder determine it, else None; nothing is written."""
        target, nuanced, rubric = (self.read_part_or_declared(task, kind) for kind in KINDS)
        if target is None or nuanced is None or rubric is None:
            return None
        return TaskBlueprint(target, nuanced, rubric)

    def read_part_or_declared(self, task: TaskConfig, kind: Kind) -> Any:
        """Return one kind, as `read_blueprint_if_known` does."""
        declared, path = find_declaration(task, kind), self.artifact_path(task.name, kind)
        if path.exists():
            return self._merge_for_plan_and_file(task, kind, _read_existing_mapping(path))[0]
        return None if isinstance(declared, str) else declared

    def _write_and_return_part(self, task: TaskConfig, kind: Kind, made_now: Mapping[str, Proposal]) -> Any:
        """Write one artifact if it is missing or follows the file; return what the plan uses."""
        path, declared = self.artifact_path(task.name, kind), find_declaration(task, kind)
        if path.exists():
            stored = _read_existing_mapping(path)
            planned, merged = self._merge_for_plan_and_file(task, kind, stored)
            if merged != stored:
                write_json_atomic(path, merged)
            return planned
        if not isinstance(declared, str):
            write_json_atomic(path, declared)
            return declared
        value = self.merge_seeds_and_proposals(task, kind, made_now)
        if value is not None:
            write_json_atomic(path, value)
        return value

    def merge_seeds_and_proposals(
        self, task: TaskConfig, kind: Kind, made_now: Mapping[str, Proposal]
    ) -> Any:
        """Merge the teachers' proposals; None if there are none."""
        proposals = [p for p in self._collect_proposals(task, kind, made_now).values() if p]
        if proposals and kind == "rubric":
            return merge_rubrics(self.read_rubric_to_extend(task), *proposals)
        return merge_attributes(_find_seed_attributes(task, kind) or {}, *proposals) if proposals else None

    def list_proposers(self, task: TaskConfig, kind: Kind, made_now: Mapping[str, Proposal]) -> list[str]:
        return [name for name, value in self._collect_proposals(task, kind, made_now).items() if value]

    def _merge_for_plan_and_file(self, task: TaskConfig, kind: Kind, stored: Any) -> tuple[Any, Any]:
        """Return what the plan uses, and what the file is to hold, where an artifact exists already."""
        declared = find_declaration(task, kind)
        if not self._follow_file:
            return stored, stored
        if isinstance(declared, str):
            seeds = _find_seed_attributes(task, kind)
            value = merge_attributes(seeds, stored) if seeds else stored
            return value, value
        if kind == "rubric":
            return declared, {**declared, **{f: c for f, c in stored.items() if f not in declared}}
        labels = task.label_attributes if kind == "target" else ()
        # see `declare_item_labels`; what is declared keeps its order, in which items draw their values
        label_values = {name: stored[name] for name in labels if name in stored and name not in declared}
        return {**declared, **label_values}, merge_attributes(declared, stored)

    def _collect_proposals(
        self, task: TaskConfig, kind: Kind, made_now: Mapping[str, Proposal]
    ) -> dict[str, Any]:
        """Return the proposals by teacher, in the order of the file, from this run or earlier."""
        proposals = {}
        for teacher, key in self.list_possible_proposals(task, kind):
            proposal = made_now.get(key)
            if proposal is None and self._is_recorded(teacher, key):
                proposal = self._proposals.load(key, Proposal)
            if proposal is not None:
                proposals[teacher.name] = proposal.rubric if kind == "rubric" else proposal.attributes
        return proposals

    def merge_inherited_and_proposed_rubrics(self, task: TaskConfig) -> dict[str, str]:
        """Return the rubric as far as it is known: inherited, with teachers' proposals so far."""
        return merge_rubrics(
            self.read_rubric_to_extend(task), *self._collect_proposals(task, "rubric", {}).values()
        )

    def read_rubric_to_extend(self, task: TaskConfig) -> dict[str, str]:
        """Return the rubric that ``rubric: extend`` adds to; empty for any other."""
        if task.rubric != "extend" or self._inherited is None:
            return {}
        path = self._inherited.rubric(task.name)
        return dict(_read_existing_mapping(path)) if path.exists() else {}


def find_declaration(task: TaskConfig, kind: Kind) -> Any:
    """Return what the file declares of a kind; a word if that is left to the teachers."""
    if kind == "rubric":
        return task.rubric_texts_or_word
    return task.target_attributes if kind == "target" else task.nuanced_attributes


def _find_seed_attributes(task: TaskConfig, kind: Kind) -> Attributes | None:
    if kind == "rubric":
        return None
    return task.target_attributes_seed if kind == "target" else task.nuanced_attributes_seed


def _read_existing_mapping(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise StoreError(f"{path} holds no mapping; restore it, or remove it to regenerate it")
    return value
