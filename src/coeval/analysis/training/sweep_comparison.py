"""Which checkpoint to ship, of which training run: the best one and those tied with it, whether scores still
rise, and runs held against each other at equal steps; in figures and in sentences.

All of it is paired, on the items that every checkpoint has (`coeval.analysis.training.shared_scores`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations, groupby, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec
import numpy as np

from coeval.analysis.comparison.comparison_report import format_difference
from coeval.analysis.comparison.family import (
    FamilyMember,
    LeadVerdict,
    PairDifference,
    adjust_family,
    lead_verdict,
)
from coeval.analysis.comparison.paired_difference import Difference, holm_adjust, single_judge_estimate
from coeval.analysis.intervals import ALPHA
from coeval.analysis.training.shared_scores import CheckpointMatrix, TrainedCheckpoint, match_runs
from coeval.analysis.training.training_curves import TrainingRun, read_training_curves
from coeval.core.errors import UsageError
from coeval.core.figures import metric_text
from coeval.core.shown_names import short_paths
from coeval.core.text import join_names, pluralize

# Names in a sentence; the table has all.
_MOST_NAMED = 4
# Characters of a sentence.
_LONGEST = 200


class CheckpointChoice(msgspec.Struct, frozen=True):
    """The ``best`` of ``of`` checkpoints in a task (None: over tasks), in the metric's unit.

    ``peers`` are tied with it: paired tests, by Holm over all pairs of checkpoints, do not tell them from it.
    ``verdict``: on the best against the others.
    """

    task: str | None
    metric: str
    unit: str
    best: TrainedCheckpoint
    mean: float
    peers: tuple[TrainedCheckpoint, ...]
    n_items: int
    of: int
    verdict: LeadVerdict


class OverallMean(msgspec.Struct, frozen=True):
    """A checkpoint's mean over the tasks, each counting alike, as a share, with its interval over
    items."""

    run: str
    step: int
    mean: float
    ci95: tuple[float, float]
    n_items: int


class CheckpointDifference(PairDifference, frozen=True):
    """Checkpoint b − checkpoint a in a task (None: over tasks), paired by item, in the metric's unit;
    ``p_adjusted``, ``ci95_adjusted`` and ``verdict`` allow for all of its kind: steps and runs, over the
    tasks or in single ones."""

    a: TrainedCheckpoint
    b: TrainedCheckpoint
    task: str | None
    unit: str
    mean_a: float
    mean_b: float
    identical: bool

    @property
    def swapped(self) -> Self:
        return msgspec.structs.replace(
            super().swapped, a=self.b, b=self.a, mean_a=self.mean_b, mean_b=self.mean_a
        )

    @property
    def trend(self) -> Literal["rising", "falling", "no significant change"]:
        if not self.significant:
            return "no significant change"
        return "rising" if self.difference > 0 else "falling"


class SweepComparison(msgspec.Struct, frozen=True):
    """Training runs as ``coeval compare`` holds them against each other: ``folders`` by label.

    ``overall``: means over the tasks, where there are several; ``choices``, ``changes`` (of a run's last step
    from the one before) and ``differences`` (of two runs at equal steps) begin with those over the tasks.
    Where runs share no task, choices are of each run by itself.
    ``only_in``: by run, the steps that no other one has. ``sentences`` say which checkpoint to ship,
    ``notes`` what could not be compared.
    """

    folders: dict[str, str]
    overall: tuple[OverallMean, ...]
    choices: tuple[CheckpointChoice, ...]
    changes: tuple[CheckpointDifference, ...]
    differences: tuple[CheckpointDifference, ...]
    only_in: dict[str, tuple[int, ...]]
    sentences: tuple[str, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: what ``coeval compare --json`` prints of sweeps."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def group_by_task(self) -> Iterator[list[CheckpointDifference]]:
        """The differences of each pair of runs in each task, by step."""
        for _, found in groupby(self.differences, key=lambda one: (one.task, one.a.run, one.b.run)):
            yield list(found)


def read_sweeps(
    folders: Sequence[Path], tasks: Sequence[str] | None = None, steps: Collection[int] | None = None
) -> tuple[TrainingRun, ...]:
    """The curves of several sweeps' folders, each labelled by the shortest end of its path.

    Raises UsageError: there are no two of them, or one holds no results; StoreError: a file cannot be read.
    """
    if len({folder.resolve() for folder in folders}) < len(folders) or len(folders) < 2:
        raise UsageError(
            "name two sweeps to compare, each once: coeval compare outputs/run_a outputs/run_b; the curves "
            "of one: coeval sweep plot"
        )
    labels = short_paths(folders)
    return read_training_curves({labels[str(folder)]: folder for folder in folders}, tasks, steps)


def compare_sweeps(runs: Sequence[TrainingRun]) -> SweepComparison:
    """`compare_runs` of several runs.

    Raises UsageError: they share no task that was scored alike; the message says why.
    """
    found = compare_runs(runs)
    if not found.differences:
        raise UsageError(
            "; ".join(["nothing to compare: no task is scored alike at a step of both", *found.notes])
        )
    points = [(run.label, point) for run in runs for curve in run.curves.values() for point in curve.points]
    told = [f"{label}: {one.task}, step {one.step}: {note}" for label, one in points for note in one.notes]
    return msgspec.structs.replace(found, notes=(*found.notes, *told))


def compare_runs(runs: Sequence[TrainingRun]) -> SweepComparison:
    """Choose among all checkpoints of one or several runs, and hold the runs against each other."""
    together = match_runs(runs)
    each = [together] if together.shared else [match_runs([run]) for run in runs]
    shared = [one for found in each for one in found.shared]
    notes = [*together.notes, *(note for found in each for note in found.notes)]
    only_in = _unshared_steps(runs)
    for label, steps in only_in.items():
        notes.append(f"only {label} has {_steps_text(steps)}: no other run is compared with it there")
    found = SweepComparison(
        folders={run.label: str(run.folder) for run in runs},
        overall=tuple(
            OverallMean(each.run, each.step, mean, one.mean_interval(each), one.items)
            for one in shared
            if one.task is None
            for each, mean in zip(one.checkpoints, one.means, strict=True)
        ),
        choices=tuple(chosen for one in shared if (chosen := choose_checkpoint(one)) is not None),
        changes=_adjust_differences([change for one in shared for change in changes(one)]),
        differences=_adjust_differences([gap for one in together.shared for gap in differences(one)]),
        only_in=only_in,
        sentences=(),
        notes=tuple(dict.fromkeys(notes)),
    )
    left_out = [one for found in each for one in found.left_out]
    return msgspec.structs.replace(found, sentences=tuple(_sentences(found, left_out)))


def _unshared_steps(runs: Sequence[TrainingRun]) -> dict[str, tuple[int, ...]]:
    steps = {run.label: set(run.steps) for run in runs}
    found = {}
    for label, own in steps.items() if len(runs) > 1 else ():
        others = set[int]().union(*(theirs for other, theirs in steps.items() if other != label))
        if alone := sorted(own - others):
            found[label] = tuple(alone)
    return found


# --- The best checkpoint and those tied with it


def choose_checkpoint(shared: CheckpointMatrix) -> CheckpointChoice | None:
    """The highest mean, and those that paired tests do not tell from it; None where there is no choice."""
    count, means = len(shared.checkpoints), shared.means
    if count < 2 or shared.items < 2:
        return None
    best = shared.checkpoints[int(np.argmax(means))]
    others = [one for one in shared.checkpoints if one != best]
    gaps = [shared.difference(one, best) for one in others]
    # Holm over all pairs: which of them are the best one's is known only once the scores are.
    untested = [1.0] * (count * (count - 1) // 2 - len(others))
    adjusted = holm_adjust([1.0 if gap.p is None else gap.p for gap in gaps] + untested)
    peers = [
        one
        for one, gap, p in zip(others, gaps, adjusted, strict=False)
        if p >= ALPHA or gap.difference <= 0  # a benchmark's own figure may differ from its items' mean
    ]
    return CheckpointChoice(
        task=shared.task,
        metric=shared.metric,
        unit=shared.unit,
        best=best,
        mean=max(means),
        peers=tuple(sorted(peers, key=lambda one: -means[shared.column_of(one)])),
        n_items=shared.items,
        of=count,
        verdict="tied" if peers else lead_verdict(0.0, None, shared.judges),
    )


# --- The last step against the one before; run against run, at equal steps


class _ComparedCheckpoints(NamedTuple):
    shared: CheckpointMatrix
    a: TrainedCheckpoint
    b: TrainedCheckpoint
    found: Difference


def changes(shared: CheckpointMatrix) -> Iterator[_ComparedCheckpoints]:
    for run in dict.fromkeys(one.run for one in shared.checkpoints):
        for steps in pairwise(sorted(shared.steps_of_run(run))[-2:]):
            before, last = (TrainedCheckpoint(run, step) for step in steps)
            yield _ComparedCheckpoints(shared, before, last, shared.difference(before, last))


def differences(shared: CheckpointMatrix) -> Iterator[_ComparedCheckpoints]:
    runs = list(dict.fromkeys(one.run for one in shared.checkpoints))
    pairs = [
        (TrainedCheckpoint(a, step), TrainedCheckpoint(b, step))
        for a, b in combinations(runs, 2)
        for step in sorted({*shared.steps_of_run(a)} & {*shared.steps_of_run(b)})
    ]
    return (_ComparedCheckpoints(shared, a, b, shared.difference(a, b, len(pairs))) for a, b in pairs)


def _adjust_differences(compared: Sequence[_ComparedCheckpoints]) -> tuple[CheckpointDifference, ...]:
    """Tested as one family: what is over tasks, and single tasks as a branch of their own."""
    members = [
        FamilyMember(
            each.found,
            None if each.shared.judges is None else single_judge_estimate(each.found),
            branch=each.shared.task is None,
            width=each.shared.scale.width,
        )
        for each in compared
    ]
    return tuple(
        CheckpointDifference(
            **msgspec.structs.asdict(tested),
            a=a,
            b=b,
            task=shared.task,
            unit=shared.unit,
            mean_a=shared.means[shared.column_of(a)],
            mean_b=shared.means[shared.column_of(b)],
            identical=found.identical,
        )
        for (shared, a, b, found), tested in zip(compared, adjust_family(members), strict=True)
    )


# --- In sentences: what to ship, whether scores still rise, which run is ahead


def _sentences(found: SweepComparison, left_out: Sequence[TrainedCheckpoint]) -> Iterator[str]:
    """Over the tasks where there are several; of few tasks that are no mean, of each."""
    several = len(found.folders) > 1
    main = [one for one in found.choices if one.task is None] or found.choices
    for chosen in main:
        yield ship_sentence(chosen, several=several)
    if main and left_out:
        names = [checkpoint_label(one, several=several) for one in left_out]
        why = "Not compared, since items or tasks are missing or were made otherwise"
        texts = (f"{why}: {join_names(names, most)}." for most in range(_MOST_NAMED, 0, -1))
        yield _first_short_enough(texts) or f"{why}: {pluralize(len(names), 'checkpoint')}."
    tasks = {one.task for one in main}
    for task in dict.fromkeys(one.task for one in main):
        if said := rising_sentence([one for one in found.changes if one.task == task], several=several):
            yield said
    for rows in found.group_by_task():
        if rows[0].task in tasks:
            yield run_difference_sentence(rows)


def checkpoint_label(one: TrainedCheckpoint, *, several: bool) -> str:
    """``step 160``, or ``run_a step 160`` of several runs"""
    return f"{one.run} step {one.step}" if several else f"step {one.step}"


def task_phrase(task: str | None) -> str:
    """``overall`` or ``on ifeval``"""
    return "overall" if task is None else f"on {task}"


def ship_sentence(one: CheckpointChoice, *, several: bool) -> str:
    """Name the checkpoint to ship, and those that are as good on this evidence.

    ``Ship step 160, 88.3 overall: it leads the 7 others.``
    """
    name = checkpoint_label(one.best, several=several)
    where = f"{metric_text(one.mean, one.unit)} {task_phrase(one.task)}"
    if not one.peers:
        others = f"the {one.of - 1} others" if one.of > 2 else "the other"
        return f"Ship {name}, {where}: it {one.verdict.replace('leads', f'leads {others}')}."
    texts = (
        f"Ship {name}, {where}, or a checkpoint tied with it: {peers}."
        for most in range(_MOST_NAMED, 0, -1)
        if (peers := list_peers(one, several=several, most=most))
    )
    return _first_short_enough(texts) or (
        f"Ship {name}, {where}, or one of the {pluralize(len(one.peers), 'checkpoint')} tied with it."
    )


def _first_short_enough(texts: Iterable[str]) -> str:
    """The first that is no longer than a sentence may be; empty where none is."""
    return next((text for text in texts if len(text) <= _LONGEST), "")


def list_peers(one: CheckpointChoice, *, several: bool, most: int = _MOST_NAMED) -> str:
    """The checkpoints tied with the best, the highest first, by run: ``steps 140, 180``"""
    shown = one.peers[:most]
    by_run: dict[str, list[str]] = {}
    for peer in shown:
        by_run.setdefault(peer.run, []).append(str(peer.step))
    parts = [
        f"{f'{run} ' if several else ''}step{'s' * (len(steps) > 1)} {', '.join(steps)}"
        for run, steps in by_run.items()
    ]
    more = len(one.peers) - len(shown)
    return "; ".join(parts) + (f" and {more} more" if more else "")


def rising_sentence(found: Sequence[CheckpointDifference], *, several: bool) -> str:
    """Whether the last step of each run gained on the one before; empty where no run has two.

    ``Rising at the last step: step 800 − step 700 is 3.6 ± 1.4 points.``
    """
    if not found:
        return ""
    where = "" if found[0].task is None else f" {task_phrase(found[0].task)}"
    if not several:
        one = found[0]
        gap = f"step {one.b.step} − step {one.a.step} is {format_difference(one, one.unit)} points"
        return f"{one.trend[:1].upper()}{one.trend[1:]} at the last step{where}: {gap}."
    parts = [f"{one.b.run} {one.trend} ({format_difference(one, one.unit)} points)" for one in found]
    head = f"Last step against the one before{where}"
    rising = sum(one.trend == "rising" for one in found)
    return _first_short_enough(
        f"{head}: {join_names(parts, most)}." for most in range(len(parts), 0, -1)
    ) or (f"{head}: {rising} of {pluralize(len(found), 'run')} still rising.")


def run_difference_sentence(rows: Sequence[CheckpointDifference]) -> str:
    """At how many equal steps one run is ahead of the other; ``rows``: of one pair and task, by step."""
    a, b, task, steps = rows[0].a.run, rows[0].b.run, rows[0].task, [row.b.step for row in rows]
    ahead = {
        b: [row.significant and row.difference > 0 for row in rows],
        a: [row.significant and row.difference < 0 for row in rows],
    }
    where = "" if task is None else f" {task_phrase(task)}"
    largest = max(rows, key=lambda row: abs(row.difference))
    by = f"{format_difference(largest, largest.unit)} points"
    gap = f"{b} − {a} is {by} at step {largest.b.step}, the largest gap"
    better, worse = sorted(ahead, key=lambda run: -sum(ahead[run]))
    if not any(ahead[better]):
        every = f"all {pluralize(len(rows), 'equal step')}" if len(rows) > 1 else f"step {steps[0]}"
        if all(row.identical for row in rows):
            return f"{a} and {b} have identical scores at {every}{where}."
        return f"{a} and {b} are tied at {every}{where}: {gap}."
    also = f", {worse} at {_step_ranges_text(steps, ahead[worse])}" if any(ahead[worse]) else ""
    verdict = next(row.verdict for row in rows if row.significant)
    head = f"{better} {verdict} at {_step_ranges_text(steps, ahead[better])}{also}{where}"
    return _first_short_enough([f"{head}: {gap}.", f"{head}."]) or (
        f"{better} {verdict} at {pluralize(sum(ahead[better]), 'step')}{where}."
    )


def _step_ranges_text(steps: Sequence[int], which: Sequence[bool]) -> str:
    """``steps 200–500, 800``: those that are marked, neighbours together."""
    spans: list[list[int]] = []
    for at, (step, marked) in enumerate(zip(steps, which, strict=True)):
        if marked and at and which[at - 1]:
            spans[-1][1:] = [step]
        elif marked:
            spans.append([step])
    texts = ["–".join(map(str, span)) for span in spans]
    return f"step{'s' * (sum(which) > 1)} {join_names(texts)}"


def _steps_text(steps: Iterable[int]) -> str:
    shown = [str(step) for step in steps]
    return f"step{'s' * (len(shown) > 1)} {join_names(shown)}"
