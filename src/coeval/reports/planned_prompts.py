"""The prompts of an experiment as they will be sent, with a sampled item's attributes filled in.

Stand-ins mark texts that a model will write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from secrets import token_hex
from typing import NamedTuple

from coeval.core.errors import StoreError
from coeval.core.records import Datapoint, Purpose, Request, Schema
from coeval.core.text import join_names
from coeval.engine.model_work import RoleModel
from coeval.pipeline.phases.blueprint import KINDS, PHASE_OF, Kind
from coeval.pipeline.plan.preview import Preview
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.prompts import BENCHMARK_ITEM, QUOTED_ITEM, render_attributes
from coeval.pipeline.samples import KnownNuance, Samples
from coeval.reports.content import PassagePart

# --- Planned attributes of a task's items

# Items of a teacher that are drawn; what so many have says how the rest is spread.
MOST_DRAWN = 20_000


def count_planned_values(setup: TaskSetup, preview: Preview) -> dict[tuple[str, str, str], int]:
    """Count the items that have each declared value, by kind, attribute and value: existing items, and those
    that teachers will write, whose attributes are sampled."""
    space = setup.space
    declared = (("target", space.target), ("nuanced", space.nuance))
    counts = {
        (kind, name, value): 0
        for kind, attributes in declared
        for name, values in attributes.items()
        for value in values
    }
    for kind, attributes in _item_attributes_by_kind(setup, preview):
        for name, value in attributes.items():
            if (kind, name, value) in counts:
                counts[kind, name, value] += 1
    return counts


def _item_attributes_by_kind(setup: TaskSetup, preview: Preview) -> Iterator[tuple[Kind, Mapping[str, str]]]:
    """Yield the target attributes and the nuance of each item, with their kind."""
    task, recorded = setup.task, preview.plan.recorded
    for source in setup.sources:
        for key, attributes in recorded.items_by_teacher.get((task.name, source), {}).items():
            if key not in recorded.assumed:
                yield "target", attributes
    for teacher in setup.teachers if setup.space.target or setup.space.nuance else ():
        samples = Samples(setup.space, seed=task.sampling.seed, task=task.name, teacher=teacher.name)
        for n in range(1, min(task.sampling.max_items or 0, MOST_DRAWN) + 1):
            sample = samples.draw_sample(n)
            yield "target", sample.target
            yield "nuanced", sample.nuance


class PlannedPrompt(NamedTuple):
    """A prompt that the ``models`` share in a phase of a task, for the first of them. ``output``: what it
    asks for; ``item``: its item, in words; ``structured``: a schema sets the answer's shape if the host
    can."""

    task: str
    phase: Purpose
    output: str
    models: tuple[str, ...]
    item: str
    structured: bool
    parts: tuple[PassagePart, ...]

    @property
    def known_characters(self) -> int:
        """Return the length of the text without stand-ins."""
        return sum(len(part.text) for part in self.parts if not part.stand_in)


class _StandIns:
    """Marks in a prompt for texts that do not exist yet; a random nonce keeps texts from holding one."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._nonce = token_hex(8)
        self._mark = re.compile(f"\ue000{self._nonce} ([0-9]+)\ue001")

    def mark(self, words: str) -> str:
        self._texts.append(words)
        return f"\ue000{self._nonce} {len(self._texts) - 1}\ue001"

    def split_parts(self, text: str) -> Iterator[PassagePart]:
        """Split a text at its marks."""
        for index, piece in enumerate(self._mark.split(text)):
            if index % 2:
                yield PassagePart(self._texts[int(piece)], stand_in=True)
            elif piece:
                yield PassagePart(piece)


def list_planned_prompts(setup: TaskSetup, preview: Preview) -> list[PlannedPrompt]:
    """List the prompts of a task, phase by phase, one for all models that share it."""
    return list(_TaskPrompts(setup, preview).list_prompts())


class _TaskPrompts:
    """The prompts of one task; ``_known``: None for each part of its design that is yet to be proposed."""

    def __init__(self, setup: TaskSetup, preview: Preview) -> None:
        self._setup, self._preview = setup, preview
        self._known: Mapping[Kind, object | None] = {
            kind: preview.blueprint.read_part_or_declared(setup.task, kind) for kind in KINDS
        }
        self._stand_ins = _StandIns()

    def list_prompts(self) -> Iterator[PlannedPrompt]:
        """Yield the prompts of proposals, items, answers, and comparisons or judgments."""
        setup = self._setup
        for kind in KINDS:
            owed = self._preview.blueprint.list_owed_proposals(setup.task, kind)
            for alike in _group_by_template([teacher for teacher, _ in owed]):
                noun = "rubric" if kind == "rubric" else f"{kind} attributes"
                request = alike[0].prompt({}, None)
                yield self._make_prompt(PHASE_OF[kind], noun, alike, request, "")
        for alike in _group_by_template(setup.teachers):
            values, item = self._sample_first_item_variables(alike[0].name)
            form = BENCHMARK_ITEM if setup.task.documents is None else QUOTED_ITEM
            yield self._make_prompt("data_generation", "item", alike, alike[0].prompt(values, form), item)
        item_values, item = self._item_variables_and_name()
        for alike in _group_by_template(
            [
                student
                for student in setup.students
                if student.name not in setup.students_with_existing_answers
            ]
        ):
            yield self._make_prompt(
                "response_collection", "answer", alike, alike[0].prompt(item_values), item
            )
        names = [student.name for student in setup.students]
        student = names[0] if len(names) == 1 else f"one of {join_names(names, 4)}"
        answer = self._stand_ins.mark(f"the answer that {student} will give")
        if setup.pairs is not None:
            other = self._stand_ins.mark("the answer that another student will give")
            variables = {**item_values, "answer_a": answer, "answer_b": other}
            variables["answer_format"] = setup.pairs.answer_format
            for alike in _group_by_template(setup.judges):
                request = alike[0].prompt(variables, setup.pairs.schema)
                yield self._make_prompt("evaluation", "comparison", alike, request, item)
            return
        for alike in _group_by_template(setup.judges):
            criteria, schema, output = self._judge_variables_schema_and_name()
            variables = {**item_values, "response": answer, **criteria}
            yield self._make_prompt("evaluation", output, alike, alike[0].prompt(variables, schema), item)

    def _make_prompt(
        self, phase: Purpose, output: str, role_models: Sequence[RoleModel], request: Request, item: str
    ) -> PlannedPrompt:
        sent = role_models[0].request(request, phase, "", 0)
        several = len(sent.messages) > 1
        text = "\n\n".join(
            f"[{message.role}]\n{message.content}" if several else message.content
            for message in sent.messages
        )
        names = tuple(model.name for model in role_models)
        structured = request.schema is not None or phase in ("attribute_mapping", "rubric_mapping")
        parts = tuple(self._stand_ins.split_parts(text))
        return PlannedPrompt(self._setup.task.name, phase, output, names, item, structured, parts)

    def _sample_first_item_variables(self, teacher: str) -> tuple[dict[str, str], str]:
        """Sample the attributes of a teacher's first item, as prompt variables, and name the item."""
        task = self._setup.task
        samples = Samples(self._setup.space, seed=task.sampling.seed, task=task.name, teacher=teacher)
        first = samples.draw_sample(1)
        values = {
            **first.prompt_variables,
            "target_attributes": self._render_attributes("target", first.target),
            "nuanced_attributes": self._render_attributes("nuanced", first.nuance),
        }
        return values, f"item 1 of {teacher}"

    def _render_attributes(self, kind: Kind, sampled: Mapping[str, str]) -> str:
        if self._known[kind] is None:
            return self._stand_ins.mark(f"{kind} attributes, sampled of those that the teachers propose")
        return render_attributes(sampled)

    def _item_variables_and_name(self) -> tuple[dict[str, str], str]:
        """Return an item's variables for students and judges, as stand-ins if it is to come; and its name."""
        setup, mark = self._setup, self._stand_ins.mark
        slot = next(self._preview.plan.list_slots(setup), None)
        name = slot.teacher_name if slot is not None else "nobody"
        if slot is not None and (item_record := self._load_item(slot.id)) is not None:
            nuance = KnownNuance(setup.task, setup.space.nuance).find_nuance(item_record)
            return {
                "input": item_record.prompt or "",
                "reference": item_record.reference_response or "",
                "target_attributes": render_attributes(item_record.sampled_target_attributes),
                "nuanced_attributes": render_attributes(nuance),
            }, f"item {slot.id}"
        if slot is not None and slot.teacher is not None:
            values, item = self._sample_first_item_variables(name)
            verb = "will write"
        else:
            values = {
                key: mark("attributes of the item") for key in ("target_attributes", "nuanced_attributes")
            }
            item, verb = "the first item", "will supply"
        return {
            **values,
            "input": mark(f"the prompt that {name} {verb}"),
            "reference": mark(f"the reference answer that {name} {verb}"),
        }, item

    def _load_item(self, item_id: str) -> Datapoint | None:
        """Load an item of the run's folder, or return None if it does not exist yet or cannot be read."""
        recorded = self._preview.plan.recorded
        if item_id in recorded.assumed:
            return None
        entry = recorded.items.get(item_id)
        if entry is None or not entry.good:
            return None
        try:
            return recorded.items.load(item_id, Datapoint)
        except StoreError:
            return None

    def _judge_variables_schema_and_name(self) -> tuple[Mapping[str, str], Schema | None, str]:
        """Return the rubric's variables for judges, the schema of their answer, and what it is called."""
        setup, mark = self._setup, self._stand_ins.mark
        factors = tuple(setup.criteria)
        if setup.task.evaluation_mode == "per_factor":
            if self._known["rubric"] is None:
                form = setup.form.build_factor_question(factors[0])
                proposed = {
                    key: mark(f"a {key} that the teachers propose") for key in ("factor", "criterion")
                }
                return {**form.values, **proposed}, form.schema, "judgment of one factor"
            form = setup.form.build_factor_question(factors[0])
            return form.values, form.schema, f"judgment of one factor: {factors[0]}"
        form = setup.form.build_joint_question(factors)
        if self._known["rubric"] is None:
            proposed = {"rubric": mark("the factors that the teachers propose")}
            return {**form.values, **proposed}, form.schema, "judgment"
        return form.values, form.schema, "judgment"


def _group_by_template(role_models: Sequence[RoleModel]) -> list[list[RoleModel]]:
    """Group models that get the same template and system prompt."""
    groups: dict[tuple[str, str | None], list[RoleModel]] = {}
    for role_model in role_models:
        groups.setdefault((role_model.template, role_model.system), []).append(role_model)
    return list(groups.values())
