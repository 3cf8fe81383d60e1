"""Counts of a whole plan: records planned, owed and changed, by phase, task and model.

They decide what ``--dry-run`` and the progress bars show, whether a run with records of another
configuration is refused, and which items the run has to visit.
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
from coeval.pipeline.plan.run_plan import ChangedRecords, Node, Plan, ReusableRecords
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.plan.walk import PlanWalk
from coeval.pipeline.run_options import ChangePolicy
from coeval.store.jsonl import read_json, write_json_atomic
from coeval.store.rundir import RunDir


@dataclass(slots=True)
class PlanCount(WorkCounts):
    """Counts of a plan. ``open_slots`` has one byte per slot, in order: 1 if anything of it is owed.

    ``examples`` holds the first record of each kind of change. ``unsupplied`` items, which benchmark
    teachers have yet to supply, are not planned; nor are ``unanswered`` ones, by task and student, that
    should have an existing answer.
    """

    changed: Counter[ChangedRecords] = field(default_factory=Counter)
    examples: dict[ChangedRecords, str] = field(default_factory=dict)
    open_slots: bytearray = field(default_factory=bytearray)
    unsupplied: int = 0
    unanswered: Counter[tuple[str, str]] = field(default_factory=Counter)

    def count_node(self, setup: TaskSetup, node: Node) -> None:
        count = self.count_for(node.phase, setup.task.name, node.name)
        count.planned += node.records
        if node.owed:
            count.owed += node.records
            count.calls += node.records * node.calls
        for change in node.status.changed:
            self.changed[change] += 1
            self.examples.setdefault(change, node.key)

    def count_reusable_records(self, setup: TaskSetup, reusable: ReusableRecords) -> None:
        count = self.count_for(reusable.phase, setup.task.name, reusable.name)
        count.reusable += reusable.records
        count.reusable_calls += reusable.calls


def count_plan(plan: Plan, counts: PlanCount | None = None) -> PlanCount:
    """Count a whole plan, into ``counts`` if given. Only the indexes are read."""
    counts = PlanCount() if counts is None else counts
    for setup in plan.setups:
        walk, task = PlanWalk(plan, setup), setup.task.name
        for slot in plan.list_slots(setup):
            is_open = False
            for node in walk.walk_slot(slot):
                counts.count_node(setup, node)
                is_open = is_open or node.owed
            counts.open_slots.append(is_open)
        for node in walk.list_nodes_of_alike_records():
            counts.count_node(setup, node)
        for reusable in walk.reusable:
            counts.count_reusable_records(setup, reusable)
        counts.unanswered.update({(task, student): n for student, n in walk.unanswered.items() if n})
        counts.unsupplied += sum(plan.count_unsupplied_items(setup).values())
    return counts


# --- Records of another configuration

NOUN = {"data_generation": "datapoints", "response_collection": "responses", "evaluation": "evaluations"}
# Lines of a screen; the reasons after that repeat the same few keys.
_SHOWN = 20


def describe_mixed_records(changed: Mapping[ChangedRecords, int]) -> str:
    """Say how many good records of another configuration a run's scores include; empty if none."""
    counts = {phase: sum(n for changes, n in changed.items() if changes.phase == phase) for phase in NOUN}
    listing = ", ".join(f"{count:,} {NOUN[phase]}" for phase, count in counts.items() if count)
    if not listing:
        return ""
    return f"of another configuration, but counted: {listing}; {REDO_CHANGED} regenerates them"


def refuse_changed_records(
    plan_count: PlanCount,
    setups: Sequence[TaskSetup],
    folder: RunDir,
    change_policy: ChangePolicy,
    table_changes: Mapping[str, str] | None = None,
) -> None:
    """Refuse records of another configuration under `ChangePolicy.REFUSE`. Raises RecordsChanged: good
    records in ``folder`` would be made otherwise now; it counts them by difference, tables' by task."""
    if not plan_count.changed or change_policy is not ChangePolicy.REFUSE:
        return
    old, new = read_recipes(folder), _collect_recipes(setups)
    scales = _describe_changed_scales(setups, folder)
    reasons: dict[str, tuple[int, str]] = {}
    for changed, count in plan_count.changed.items():
        for reason in _explain_change(changed, old, new, table_changes or {}, scales):
            before, example = reasons.get(reason, (0, plan_count.examples[changed]))
            reasons[reason] = (before + count, example)
    total = sum(plan_count.changed.values())
    lines = [f"  {reason}: {count} (first: {example})" for reason, (count, example) in reasons.items()]
    if len(lines) > _SHOWN:
        lines = [*lines[:_SHOWN], f"  … and {len(lines) - _SHOWN} more differences"]
    raise RecordsChanged(
        "\n".join((f"{folder.path} holds {total} records of another configuration. They differ in:", *lines)),
        f"Use {REDO_CHANGED} (regenerate these and all that depend on them), {KEEP_CHANGED} "
        "(leave them unchanged), or another experiment id.",
    )


def _explain_change(
    changed: ChangedRecords,
    old_recipes: Mapping[str, Mapping[str, str]],
    new_recipes: Mapping[str, Mapping[str, str]],
    table_changes: Mapping[str, str],
    scale_changes: Mapping[tuple[str, str], str],
) -> Iterator[str]:
    """Name the settings or content by which records of another configuration differ."""
    noun = NOUN[changed.phase]
    if changed.factor:
        scale = scale_changes.get((changed.task, changed.factor), "")
        yield f"tasks.{changed.task}.rubric.{changed.factor}{scale} ({noun})"
    elif changed.change == "input" and (table := table_changes.get(changed.task)) is not None:
        yield f"{table} (task {changed.task}, {noun})"
    elif changed.change == "input" and changed.phase == "data_generation":
        yield f"tasks.{changed.task}.documents: the passages they were made from have changed ({noun})"
    elif changed.change == "input":
        source = "datapoint" if changed.phase == "response_collection" else "datapoint or response"
        yield f"the content of the {source} they were made from (task {changed.task}, {noun})"
    elif (before := old_recipes.get(changed.old_recipe)) is None:
        yield f"made by a configuration unknown to recipes.json ({noun})"
    elif parts := differing_parts(before, new_recipes[changed.new_recipe]):
        for part in parts:
            yield f"{part if part.startswith('tasks.') else f'models.{changed.model}.{part}'} ({noun})"
    else:
        yield f"how this version of CoEval builds a recipe ({noun})"


def _describe_changed_scales(setups: Sequence[TaskSetup], folder: RunDir) -> dict[tuple[str, str], str]:
    """Describe factors whose scale has changed since the run's last start, by task and factor."""
    try:
        before = {task.name: task for task in load_config(folder.config).tasks}
    except ConfigError:
        return {}
    return {
        (setup.task.name, factor): f": its scale was {old.levels_text()}, now {new.levels_text()}"
        for setup in setups
        if setup.task.name in before
        for factor in setup.criteria
        if (new := setup.task.scale_of(factor)) != (old := before[setup.task.name].scale_of(factor))
    }


def read_recipes(folder: RunDir) -> dict[str, dict[str, str]]:
    """Read the parts of every recipe that made records in this folder, by hash."""
    return read_json(folder.recipes, dict[str, dict[str, str]], missing={})


def record_recipes(folder: RunDir, setups: Sequence[TaskSetup]) -> None:
    recorded = read_recipes(folder)
    updated = recorded | _collect_recipes(setups)
    if updated != recorded:
        write_json_atomic(folder.recipes, updated)


def _collect_recipes(setups: Sequence[TaskSetup]) -> dict[str, dict[str, str]]:
    return dict(recipe for setup in setups for recipe in setup.recipes)
