"""A whole plan in numbers: what is planned and owed of each phase, task and model, and what no longer stands.

It decides the counts that ``--dry-run`` and the progress bars show, the refusal where records of
another configuration stand, and which items the run has to look at again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from coeval.core.errors import ConfigError, RecordsChanged
from coeval.core.options import KEEP_CHANGED, REDO_CHANGED
from coeval.engine.model_work import differing_parts
from coeval.engine.progress import WorkCounts
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.plan.run_plan import Changed, Node, Plan, Spared
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.plan.walk import Walk
from coeval.pipeline.run_options import ChangePolicy
from coeval.store.jsonl import read_json, write_json_atomic
from coeval.store.rundir import RunDir


@dataclass(slots=True)
class PlanCount(WorkCounts):
    """``open_slots`` has one byte per slot of the plan, in order: 1 where something is owed of it.

    ``examples`` holds the first record of each kind of change. ``unsupplied`` items lack to the totals of
    benchmark teachers, and are not among the planned ones; nor are ``unanswered`` items, by task and student,
    for which an answer should exist and does not.
    """

    changed: Counter[Changed] = field(default_factory=Counter)
    examples: dict[Changed, str] = field(default_factory=dict)
    open_slots: bytearray = field(default_factory=bytearray)
    unsupplied: int = 0
    unanswered: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, setup: TaskSetup, node: Node) -> None:
        count = self.count_for(node.phase, setup.task.name, node.name)
        count.planned += node.records
        if node.owed:
            count.owed += node.records
            count.calls += node.records * node.calls
        for change in node.status.changed:
            self.changed[change] += 1
            self.examples.setdefault(change, node.key)

    def spare(self, setup: TaskSetup, spared: Spared) -> None:
        count = self.count_for(spared.phase, setup.task.name, spared.name)
        count.spared += spared.records
        count.spared_calls += spared.calls


def count_plan(plan: Plan, found: PlanCount | None = None) -> PlanCount:
    """Count a whole plan, into ``found`` if given. Nothing is read but the indexes."""
    found = PlanCount() if found is None else found
    for setup in plan.setups:
        walk, task = Walk(plan, setup), setup.task.name
        for slot in plan.slots(setup):
            is_open = False
            for node in walk.of_slot(slot):
                found.add(setup, node)
                is_open = is_open or node.owed
            found.open_slots.append(is_open)
        for node in walk.alike():
            found.add(setup, node)
        for spared in walk.spared:
            found.spare(setup, spared)
        found.unanswered.update({(task, student): n for student, n in walk.unanswered.items() if n})
        found.unsupplied += sum(plan.unsupplied(setup).values())
    return found


# --- Records of another configuration

NOUN = {
    "data_generation": "datapoints",
    "response_collection": "responses",
    "evaluation": "evaluations",
}
# Lines of a screen; the reasons after that repeat the same few keys.
_SHOWN = 20


def mixed_sentence(changed: Mapping[Changed, int]) -> str:
    """How many good records of another configuration stand in a run, and so in its scores; empty: none."""
    counts = {phase: sum(n for of, n in changed.items() if of.phase == phase) for phase in NOUN}
    shown = ", ".join(f"{count:,} {NOUN[phase]}" for phase, count in counts.items() if count)
    if not shown:
        return ""
    return f"of another configuration, and counted all the same: {shown}; {REDO_CHANGED} makes them again"


def refuse_changed(
    plan_count: PlanCount,
    setups: Sequence[TaskSetup],
    folder: RunDir,
    stance: ChangePolicy,
    tables: Mapping[str, str] | None = None,
) -> None:
    """``tables`` says of tasks how the table of their items has changed.

    Raises RecordsChanged: good records stand in ``folder`` that would be made otherwise now. It counts
    them by what differs, and names the ways on. Not where ``stance`` says what to do with them.
    """
    if not plan_count.changed or stance is not ChangePolicy.REFUSE:
        return
    old, new, scales = read_recipes(folder), _recipes(setups), _changed_scales(setups, folder)
    reasons: dict[str, tuple[int, str]] = {}
    for changed, count in plan_count.changed.items():
        for reason in _reasons(changed, old, new, tables or {}, scales):
            before, example = reasons.get(reason, (0, plan_count.examples[changed]))
            reasons[reason] = (before + count, example)
    total = sum(plan_count.changed.values())
    lines = [f"  {reason}: {count} (first: {example})" for reason, (count, example) in reasons.items()]
    if len(lines) > _SHOWN:
        lines = [*lines[:_SHOWN], f"  … and {len(lines) - _SHOWN} more differences"]
    raise RecordsChanged(
        "\n".join((f"{folder.path} holds {total} records of another configuration. They differ in:", *lines)),
        f"Use {REDO_CHANGED} (make these and all that follow from them again), {KEEP_CHANGED} "
        "(leave them as they are), or another experiment id.",
    )


def _reasons(
    changed: Changed,
    old: Mapping[str, Mapping[str, str]],
    new: Mapping[str, Mapping[str, str]],
    tables: Mapping[str, str],
    scales: Mapping[tuple[str, str], str],
) -> Iterator[str]:
    noun = NOUN[changed.phase]
    if changed.factor:
        scale = scales.get((changed.task, changed.factor), "")
        yield f"tasks.{changed.task}.rubric.{changed.factor}{scale} ({noun})"
    elif changed.change == "input" and (table := tables.get(changed.task)) is not None:
        yield f"{table} (task {changed.task}, {noun})"
    elif changed.change == "input" and changed.phase == "data_generation":
        yield f"tasks.{changed.task}.documents: the passages they were made from have changed ({noun})"
    elif changed.change == "input":
        source = "datapoint" if changed.phase == "response_collection" else "datapoint or response"
        yield f"the content of the {source} they were made from (task {changed.task}, {noun})"
    elif (before := old.get(changed.old_recipe)) is None:
        yield f"made by a configuration that recipes.json does not know ({noun})"
    elif parts := differing_parts(before, new[changed.new_recipe]):
        for part in parts:
            yield f"{part if part.startswith('tasks.') else f'models.{changed.model}.{part}'} ({noun})"
    else:
        yield f"how this version of coeval puts a recipe together ({noun})"


def _changed_scales(setups: Sequence[TaskSetup], folder: RunDir) -> dict[tuple[str, str], str]:
    """By task and factor, from which scale to which one it changed, as the run's own configuration tells."""
    try:
        before = {task.name: task for task in load_config(folder.config).tasks}
    except ConfigError:
        return {}
    return {
        (setup.task.name, factor): f": its scale was {was.levels_text()}, now {now.levels_text()}"
        for setup in setups
        if setup.task.name in before
        for factor in setup.criteria
        if (now := setup.task.scale_of(factor)) != (was := before[setup.task.name].scale_of(factor))
    }


def read_recipes(folder: RunDir) -> dict[str, dict[str, str]]:
    """The parts of every recipe that made something here, by hash."""
    return read_json(folder.recipes, dict[str, dict[str, str]], missing={})


def remember_recipes(folder: RunDir, setups: Sequence[TaskSetup]) -> None:
    """Add the recipes of this start to ``recipes.json``."""
    known = read_recipes(folder)
    needed = known | _recipes(setups)
    if needed != known:
        write_json_atomic(folder.recipes, needed)


def _recipes(setups: Sequence[TaskSetup]) -> dict[str, dict[str, str]]:
    return dict(recipe for setup in setups for recipe in setup.recipes)
