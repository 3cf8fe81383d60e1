"""The prompts of an experiment as they will be sent, with a sampled item's attributes filled in. Texts that
a model is yet to write have a stand-in.
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


def planned_values(setup: TaskSetup, preview: Preview) -> dict[tuple[str, str, str], int]:
    """Count the items that have each declared value, by kind and attribute: of those that teachers are to
    write, which are drawn, and of those that lie there."""
    space = setup.space
    declared = (("target", space.target), ("nuanced", space.nuance))
    counts = {
        (kind, name, value): 0 for kind, of in declared for name, values in of.items() for value in values
    }
    for kind, held in _drawn(setup, preview):
        for name, value in held.items():
            if (kind, name, value) in counts:
                counts[kind, name, value] += 1
    return counts


def _drawn(setup: TaskSetup, preview: Preview) -> Iterator[tuple[Kind, Mapping[str, str]]]:
    """The target attributes and the nuance of each item."""
    task, recorded = setup.task, preview.plan.recorded
    for source in setup.sources:
        for key, attributes in recorded.items_by_teacher.get((task.name, source), {}).items():
            if key not in recorded.assumed:
                yield "target", attributes
    for teacher in setup.teachers if setup.space.target or setup.space.nuance else ():
        samples = Samples(setup.space, seed=task.sampling.seed, task=task.name, teacher=teacher.name)
        for n in range(1, min(task.sampling.most or 0, MOST_DRAWN) + 1):
            sample = samples.item(n)
            yield "target", sample.target
            yield "nuanced", sample.nuance


class PlannedPrompt(NamedTuple):
    """What the ``models`` are asked alike in a phase of a task, shown for the first of them; of ``item``, the
    item that it is about, in words. ``structured``: the answer's shape is asked for by schema where the host
    can."""

    task: str
    phase: Purpose
    what: str
    models: tuple[str, ...]
    item: str
    structured: bool
    parts: tuple[PassagePart, ...]

    @property
    def characters(self) -> int:
        """Of what is known of it."""
        return sum(len(part.text) for part in self.parts if not part.stand_in)


class _StandIns:
    """Marks in a filled prompt for texts that are not there yet; no text can hold one by itself."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._nonce = token_hex(8)
        self._mark = re.compile(f"\ue000{self._nonce} ([0-9]+)\ue001")

    def mark(self, words: str) -> str:
        self._texts.append(words)
        return f"\ue000{self._nonce} {len(self._texts) - 1}\ue001"

    def parts(self, text: str) -> Iterator[PassagePart]:
        """The text taken apart at the marks."""
        for place, piece in enumerate(self._mark.split(text)):
            if place % 2:
                yield PassagePart(self._texts[int(piece)], stand_in=True)
            elif piece:
                yield PassagePart(piece)


def planned_prompts(setup: TaskSetup, preview: Preview) -> list[PlannedPrompt]:
    """The prompts of a task, phase by phase; models that are asked alike stand together."""
    return list(_TaskPrompts(setup, preview).all())


class _TaskPrompts:
    """``_target``, ``_nuance`` and ``_rubric`` are None where teachers are yet to propose them."""

    def __init__(self, setup: TaskSetup, preview: Preview) -> None:
        self._setup, self._preview = setup, preview
        known = {kind: preview.blueprint.read_part(setup.task, kind) for kind in KINDS}
        self._known: Mapping[Kind, object | None] = known
        self._stand_ins = _StandIns()

    def all(self) -> Iterator[PlannedPrompt]:
        setup = self._setup
        for kind in KINDS:
            owed = self._preview.blueprint.list_owed_proposals(setup.task, kind)
            for alike in _alike([teacher for teacher, _ in owed]):
                noun = "rubric" if kind == "rubric" else f"{kind} attributes"
                requested = alike[0].prompt({}, None)
                yield self._prompt(PHASE_OF[kind], noun, alike, requested, "")
        for alike in _alike(setup.teachers):
            values, item = self._sampled(alike[0].name)
            form = BENCHMARK_ITEM if setup.task.documents is None else QUOTED_ITEM
            yield self._prompt("data_generation", "item", alike, alike[0].prompt(values, form), item)
        item_values, item = self._item()
        for alike in _alike([each for each in setup.students if each.name not in setup.answered_students]):
            yield self._prompt("response_collection", "answer", alike, alike[0].prompt(item_values), item)
        names = [student.name for student in setup.students]
        student = names[0] if len(names) == 1 else f"one of {join_names(names, 4)}"
        answer = self._stand_ins.mark(f"the answer that {student} will give")
        if setup.pairs is not None:
            other = self._stand_ins.mark("the answer that another of the students will give")
            shown = {**item_values, "answer_a": answer, "answer_b": other}
            shown["answer_format"] = setup.pairs.answer_format
            for alike in _alike(setup.judges):
                requested = alike[0].prompt(shown, setup.pairs.schema)
                yield self._prompt("evaluation", "comparison", alike, requested, item)
            return
        for alike in _alike(setup.judges):
            criteria, schema, what = self._criteria()
            shown = {**item_values, "response": answer, **criteria}
            yield self._prompt("evaluation", what, alike, alike[0].prompt(shown, schema), item)

    def _prompt(
        self, phase: Purpose, what: str, alike: Sequence[RoleModel], requested: Request, item: str
    ) -> PlannedPrompt:
        sent = alike[0].request(requested, phase, "", 0)
        several = len(sent.messages) > 1
        text = "\n\n".join(
            f"[{message.role}]\n{message.content}" if several else message.content
            for message in sent.messages
        )
        names = tuple(each.name for each in alike)
        structured = requested.schema is not None or phase in ("attribute_mapping", "rubric_mapping")
        parts = tuple(self._stand_ins.parts(text))
        return PlannedPrompt(self._setup.task.name, phase, what, names, item, structured, parts)

    def _sampled(self, teacher: str) -> tuple[dict[str, str], str]:
        """The attributes of a teacher's first item, as a prompt shows them."""
        task = self._setup.task
        samples = Samples(self._setup.space, seed=task.sampling.seed, task=task.name, teacher=teacher)
        first = samples.item(1)
        values = {
            **first.values,
            "target_attributes": self._drawn("target", first.target),
            "nuanced_attributes": self._drawn("nuanced", first.nuance),
        }
        return values, f"item 1 of {teacher}"

    def _drawn(self, kind: Kind, sampled: Mapping[str, str]) -> str:
        if self._known[kind] is None:
            return self._stand_ins.mark(f"{kind} attributes, sampled of those that the teachers propose")
        return render_attributes(sampled)

    def _item(self) -> tuple[dict[str, str], str]:
        """The variables of the item that students and judges are shown: one that lies there, else one whose
        texts somebody is yet to write."""
        setup, mark = self._setup, self._stand_ins.mark
        slot = next(self._preview.plan.list_slots(setup), None)
        name = slot.teacher_name if slot is not None else "nobody"
        if slot is not None and (there := self._standing(slot.id)) is not None:
            nuance = KnownNuance(setup.task, setup.space.nuance).of(there)
            return {
                "input": there.prompt or "",
                "reference": there.reference_response or "",
                "target_attributes": render_attributes(there.sampled_target_attributes),
                "nuanced_attributes": render_attributes(nuance),
            }, f"item {slot.id}"
        if slot is not None and slot.teacher is not None:
            values, item = self._sampled(name)
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

    def _standing(self, key: str) -> Datapoint | None:
        """An item that lies in the run's folder, or in the lines that are to be put there."""
        recorded = self._preview.plan.recorded
        if key in recorded.assumed:
            return None
        entry = recorded.items.get(key)
        if entry is None or not entry.good:
            return None
        try:
            return recorded.items.load(key, Datapoint)
        except StoreError:
            return None

    def _criteria(self) -> tuple[Mapping[str, str], Schema | None, str]:
        """What judges are shown of the rubric, the shape of their answer, and what it is of."""
        setup, mark = self._setup, self._stand_ins.mark
        factors = tuple(setup.criteria)
        if setup.task.evaluation_mode == "per_factor":
            if self._known["rubric"] is None:
                one = setup.form.ask_one_factor(factors[0])
                proposed = {
                    key: mark(f"a {key} that the teachers propose") for key in ("factor", "criterion")
                }
                return {**one.values, **proposed}, one.schema, "judgment of one factor"
            one = setup.form.ask_one_factor(factors[0])
            return one.values, one.schema, f"judgment of one factor: {factors[0]}"
        requested = setup.form.ask_all_factors(factors)
        if self._known["rubric"] is None:
            proposed = {"rubric": mark("the factors that the teachers propose")}
            return {**requested.values, **proposed}, requested.schema, "judgment"
        return requested.values, requested.schema, "judgment"


def _alike(role_models: Sequence[RoleModel]) -> list[list[RoleModel]]:
    """Models by what they are told."""
    groups: dict[tuple[str, str | None], list[RoleModel]] = {}
    for each in role_models:
        groups.setdefault((each.template, each.system), []).append(each)
    return list(groups.values())
