"""Which checkpoint of which training run to ship: the best and those tied with it, whether scores still rise,
and runs compared at equal steps; in figures and in sentences.

All of it is paired, on the items that every checkpoint has (`coeval.analysis.training.training_curves`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations, groupby, pairwise
from pathlib import Path
from typing import Literal, NamedTuple, Self

import msgspec
import numpy as np

from coeval.analysis.comparison.comparison_report import PlainReport, format_difference
from coeval.analysis.comparison.family import (
    FamilyMember,
    LeadVerdict,
    PairDifference,
    adjust_family,
    lead_verdict,
)
from coeval.analysis.comparison.paired_difference import Difference, holm_adjust, single_judge_estimate
from coeval.analysis.intervals import ALPHA
from coeval.analysis.training.training_curves import (
    CheckpointMatrix,
    TrainedCheckpoint,
    TrainingRun,
    match_runs,
    read_training_curves,
)
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

    ``peers`` are tied with it: not significantly different in paired tests, by Holm over all pairs of
    checkpoints. ``verdict``: on the best against the others.
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
    """A checkpoint's mean over the tasks, each counting alike, as a share, with its interval."""

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


class SweepComparison(PlainReport, frozen=True):
    """A comparison of training runs, as ``coeval compare`` makes it; ``folders`` by label.

    ``overall``: means over the tasks, if there are several; ``choices``, ``changes`` (of a run's last step
    from the one before) and ``differences`` (of two runs at equal steps) begin with those over the tasks.
    If runs share no task, choices are of each run by itself. ``only_in``: by run, the steps that no other
    one has. ``sentences``: which checkpoint to ship; ``notes``: what could not be compared.
    """

    folders: dict[str, str]
    overall: tuple[OverallMean, ...]
    choices: tuple[CheckpointChoice, ...]
    changes: tuple[CheckpointDifference, ...]
    differences: tuple[CheckpointDifference, ...]
    only_in: dict[str, tuple[int, ...]]
    sentences: tuple[str, ...]
    notes: tuple[str, ...]

    def differences_by_runs_and_task(self) -> Iterator[list[CheckpointDifference]]:
        """Group the differences by pair of runs and task, by step."""
        for _, gaps in groupby(self.differences, key=lambda gap: (gap.task, gap.a.run, gap.b.run)):
            yield list(gaps)


def read_sweeps(
    folders: Sequence[Path], tasks: Sequence[str] | None = None, steps: Collection[int] | None = None
) -> tuple[TrainingRun, ...]:
    """Read the curves of several sweeps' folders, each labelled by the shortest end of its path.

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
    """Compare runs by `compare_checkpoints`, with the notes on their points. Raises UsageError if they share
    no task that was scored alike; the message says why."""
    comparison = compare_checkpoints(runs)
    if not comparison.differences:
        raise UsageError(
            "; ".join(["nothing to compare: no task is scored alike at a step of both", *comparison.notes])
        )
    points = [(run.label, point) for run in runs for curve in run.curves.values() for point in curve.points]
    point_notes = [f"{label}: {p.task}, step {p.step}: {note}" for label, p in points for note in p.notes]
    return msgspec.structs.replace(comparison, notes=(*comparison.notes, *point_notes))


def compare_checkpoints(runs: Sequence[TrainingRun]) -> SweepComparison:
    """Choose among all checkpoints of one or several runs, and compare the runs with each other."""
    together = match_runs(runs)
    groups = [together] if together.shared else [match_runs([run]) for run in runs]
    shared = [matrix for group in groups for matrix in group.shared]
    notes = [*together.notes, *(note for group in groups for note in group.notes)]
    only_in = _steps_of_one_run_only(runs)
    for label, steps in only_in.items():
        texts = f"step{'s' * (len(steps) > 1)} {join_names(map(str, steps))}"
        notes.append(f"only {label} has {texts}: no other run is compared with it there")
    comparison = SweepComparison(
        folders={run.label: str(run.folder) for run in runs},
        overall=tuple(
            OverallMean(step.run, step.step, mean, matrix.mean_interval(step), matrix.items)
            for matrix in shared
            if matrix.task is None
            for step, mean in zip(matrix.checkpoints, matrix.means, strict=True)
        ),
        choices=tuple(chosen for matrix in shared if (chosen := choose_best_checkpoint(matrix)) is not None),
        changes=_adjust_differences([pair for matrix in shared for pair in _pair_last_two_steps(matrix)]),
        differences=_adjust_differences(
            [pair for matrix in together.shared for pair in _pair_runs_at_equal_steps(matrix)]
        ),
        only_in=only_in,
        sentences=(),
        notes=tuple(dict.fromkeys(notes)),
    )
    left_out = [checkpoint for group in groups for checkpoint in group.left_out]
    return msgspec.structs.replace(comparison, sentences=tuple(_sweep_sentences(comparison, left_out)))


def _steps_of_one_run_only(runs: Sequence[TrainingRun]) -> dict[str, tuple[int, ...]]:
    steps = {run.label: set(run.steps) for run in runs}
    own_steps = {}
    for label, own in steps.items() if len(runs) > 1 else ():
        others = set[int]().union(*(theirs for other, theirs in steps.items() if other != label))
        if alone := sorted(own - others):
            own_steps[label] = tuple(alone)
    return own_steps


# --- The best checkpoint and those tied with it


def choose_best_checkpoint(shared: CheckpointMatrix) -> CheckpointChoice | None:
    """Choose the checkpoint with the highest mean, and those tied with it; None if there is no choice."""
    count, means = len(shared.checkpoints), shared.means
    if count < 2 or shared.items < 2:
        return None
    best = shared.checkpoints[int(np.argmax(means))]
    others = [checkpoint for checkpoint in shared.checkpoints if checkpoint != best]
    gaps = [shared.difference(checkpoint, best) for checkpoint in others]
    # Holm over all pairs: which of them are the best one's is known only once the scores are.
    untested = [1.0] * (count * (count - 1) // 2 - len(others))
    adjusted = holm_adjust([1.0 if gap.p is None else gap.p for gap in gaps] + untested)
    peers = [
        checkpoint
        for checkpoint, gap, p in zip(others, gaps, adjusted, strict=False)
        if p >= ALPHA or gap.difference <= 0  # a benchmark's own figure may differ from its items' mean
    ]
    return CheckpointChoice(
        task=shared.task,
        metric=shared.metric,
        unit=shared.unit,
        best=best,
        mean=max(means),
        peers=tuple(sorted(peers, key=lambda checkpoint: -means[shared.column_of(checkpoint)])),
        n_items=shared.items,
        of=count,
        verdict="tied" if peers else lead_verdict(0.0, None, shared.judges),
    )


# --- The last step against the one before; run against run, at equal steps


class _ComparedCheckpoints(NamedTuple):
    shared: CheckpointMatrix
    a: TrainedCheckpoint
    b: TrainedCheckpoint
    difference: Difference


def _pair_last_two_steps(shared: CheckpointMatrix) -> Iterator[_ComparedCheckpoints]:
    for run in dict.fromkeys(checkpoint.run for checkpoint in shared.checkpoints):
        for steps in pairwise(sorted(shared.steps_of_run(run))[-2:]):
            before, last = (TrainedCheckpoint(run, step) for step in steps)
            yield _ComparedCheckpoints(shared, before, last, shared.difference(before, last))


def _pair_runs_at_equal_steps(shared: CheckpointMatrix) -> Iterator[_ComparedCheckpoints]:
    runs = list(dict.fromkeys(checkpoint.run for checkpoint in shared.checkpoints))
    pairs = [
        (TrainedCheckpoint(a, step), TrainedCheckpoint(b, step))
        for a, b in combinations(runs, 2)
        for step in sorted({*shared.steps_of_run(a)} & {*shared.steps_of_run(b)})
    ]
    return (_ComparedCheckpoints(shared, a, b, shared.difference(a, b, len(pairs))) for a, b in pairs)


def _adjust_differences(compared: Sequence[_ComparedCheckpoints]) -> tuple[CheckpointDifference, ...]:
    """Adjust the differences as one family: those over tasks, and in single tasks a branch of its own."""
    members = [
        FamilyMember(
            pair.difference,
            None if pair.shared.judges is None else single_judge_estimate(pair.difference),
            branch=pair.shared.task is None,
            width=pair.shared.scale.width,
        )
        for pair in compared
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
            identical=single.identical,
        )
        for (shared, a, b, single), tested in zip(compared, adjust_family(members), strict=True)
    )


# --- In sentences: what to ship, whether scores still rise, which run is ahead


def _sweep_sentences(comparison: SweepComparison, left_out: Sequence[TrainedCheckpoint]) -> Iterator[str]:
    """State the choice over the tasks if there are several; of a few tasks without a mean, for each."""
    several = len(comparison.folders) > 1
    main = [choice for choice in comparison.choices if choice.task is None] or comparison.choices
    for chosen in main:
        yield ship_sentence(chosen, several=several)
    if main and left_out:
        names = [checkpoint_label(checkpoint, several=several) for checkpoint in left_out]
        why = "Not compared, since items or tasks are missing or were made differently"
        texts = (f"{why}: {join_names(names, most)}." for most in range(_MOST_NAMED, 0, -1))
        yield _first_text_short_enough(texts) or f"{why}: {pluralize(len(names), 'checkpoint')}."
    tasks = dict.fromkeys(choice.task for choice in main)
    for task in tasks:
        changes = [change for change in comparison.changes if change.task == task]
        if sentence := last_step_trend_sentence(changes, several=several):
            yield sentence
    for rows in comparison.differences_by_runs_and_task():
        if rows[0].task in tasks:
            yield run_difference_sentence(rows)


def checkpoint_label(checkpoint: TrainedCheckpoint, *, several: bool) -> str:
    """Return ``step 160``, or ``run_a step 160`` if there are several runs."""
    return f"{checkpoint.run} step {checkpoint.step}" if several else f"step {checkpoint.step}"


def task_phrase(task: str | None) -> str:
    """Return ``overall`` or ``on ifeval``."""
    return "overall" if task is None else f"on {task}"


def ship_sentence(choice: CheckpointChoice, *, several: bool) -> str:
    """Name the checkpoint to ship, and those that are as good on this evidence. ``Ship step 160, 88.3
    overall: it leads the 7 others.``"""
    name = checkpoint_label(choice.best, several=several)
    where = f"{metric_text(choice.mean, choice.unit)} {task_phrase(choice.task)}"
    if not choice.peers:
        others = f"the {choice.of - 1} others" if choice.of > 2 else "the other"
        return f"Ship {name}, {where}: it {choice.verdict.replace('leads', f'leads {others}')}."
    texts = (
        f"Ship {name}, {where}, or a checkpoint tied with it: {peers}."
        for most in range(_MOST_NAMED, 0, -1)
        if (peers := tied_steps_text(choice, several=several, most=most))
    )
    return _first_text_short_enough(texts) or (
        f"Ship {name}, {where}, or one of the {pluralize(len(choice.peers), 'checkpoint')} tied with it."
    )


def _first_text_short_enough(texts: Iterable[str]) -> str:
    """Return the first text that is no longer than a sentence may be, or ''."""
    return next((text for text in texts if len(text) <= _LONGEST), "")


def tied_steps_text(choice: CheckpointChoice, *, several: bool, most: int = _MOST_NAMED) -> str:
    """List the checkpoints tied with the best, the highest first, by run: ``steps 140, 180``."""
    named = choice.peers[:most]
    by_run: dict[str, list[str]] = {}
    for peer in named:
        by_run.setdefault(peer.run, []).append(str(peer.step))
    parts = [
        f"{f'{run} ' if several else ''}step{'s' * (len(steps) > 1)} {', '.join(steps)}"
        for run, steps in by_run.items()
    ]
    more = len(choice.peers) - len(named)
    return "; ".join(parts) + (f" and {more} more" if more else "")


def last_step_trend_sentence(changes: Sequence[CheckpointDifference], *, several: bool) -> str:
    """State whether the last step of each run gained on the one before; empty if no run has two. ``Rising at
    the last step: step 800 − step 700 is 3.6 ± 1.4 points.``"""
    if not changes:
        return ""
    where = "" if changes[0].task is None else f" {task_phrase(changes[0].task)}"
    if not several:
        change = changes[0]
        gap = (
            f"step {change.b.step} − step {change.a.step} is {format_difference(change, change.unit)} points"
        )
        return f"{change.trend[:1].upper()}{change.trend[1:]} at the last step{where}: {gap}."
    parts = [
        f"{change.b.run} {change.trend} ({format_difference(change, change.unit)} points)"
        for change in changes
    ]
    head = f"Last step against the one before{where}"
    rising = sum(change.trend == "rising" for change in changes)
    return _first_text_short_enough(
        f"{head}: {join_names(parts, most)}." for most in range(len(parts), 0, -1)
    ) or (f"{head}: {rising} of {pluralize(len(changes), 'run')} still rising.")


def run_difference_sentence(rows: Sequence[CheckpointDifference]) -> str:
    """State at how many equal steps one run is ahead of the other; ``rows``: of a pair and task, by step."""
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
    return _first_text_short_enough([f"{head}: {gap}.", f"{head}."]) or (
        f"{better} {verdict} at {pluralize(sum(ahead[better]), 'step')}{where}."
    )


def _step_ranges_text(steps: Sequence[int], is_marked: Sequence[bool]) -> str:
    """Write ``steps 200–500, 800``: the marked steps, with neighbours as a range."""
    spans: list[list[int]] = []
    for at, (step, marked) in enumerate(zip(steps, is_marked, strict=True)):
        if marked and at and is_marked[at - 1]:
            spans[-1][1:] = [step]
        elif marked:
            spans.append([step])
    texts = ["–".join(map(str, span)) for span in spans]
    return f"step{'s' * (sum(is_marked) > 1)} {join_names(texts)}"
