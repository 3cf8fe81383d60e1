"""``summary_agg.json``: a task at a checkpoint over the samples of each prompt.

Every figure is there as `coeval.analysis.training.sample_figures` makes it. A single sample has no spread:
``std`` and ``sem`` are null then, and only the intervals over prompts are left.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval import __version__
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.training.checkpoint_scores import (
    AGGREGATE,
    ItemColumn,
    JudgedBy,
    LeftOutRun,
    RunFacts,
    choose_task_runs,
)
from coeval.analysis.training.sample_figures import SampleFigure, TaskFigures, compute_task_figures
from coeval.core.errors import UsageError
from coeval.core.text import join_names
from coeval.store.jsonl import store_error, write_json_atomic
from coeval.store.output_folder import list_task_folders
from coeval.store.rundir import refuse_foreign, utc_now

# --- Checkpoint folders of a training run

STEP = "{step}"
PATTERN = f"step_{STEP}"


class EvaluatedStep(NamedTuple):
    """A step of training, and the output folder of what was evaluated there."""

    step: int
    folder: Path


def find_evaluated_steps(
    root: Path, pattern: str = PATTERN, steps: Collection[int] | None = None, base: int | None = None
) -> tuple[EvaluatedStep, ...]:
    """Find the checkpoints below ``root`` whose folders hold results, by step; ``steps``: only these.

    Parameters
    ----------
    pattern : the folders' name or path below ``root``, with ``{step}`` once
    base : a step that has to be among them

    Raises
    ------
    UsageError
        the pattern cannot be used, nothing fits it, two folders are of one step, or the base is missing.
    StoreError
        a folder cannot be read.
    """
    if pattern.count(STEP) != 1 or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise UsageError(f"{pattern!r} is no pattern of folders: it holds {STEP} once, as {PATTERN} does")
    if not root.is_dir():
        raise UsageError(f"there is no folder {root}")
    before, after = pattern.split(STEP)
    pattern_with_step = re.compile(re.escape(before) + r"(\d+)" + re.escape(after))
    try:
        paths = sorted(root.glob(f"{escape(before)}*{escape(after)}"))
    except OSError as error:
        raise store_error("read", root, error) from error
    folders: dict[int, Path] = {}
    for path in paths:
        step_of = pattern_with_step.fullmatch(path.relative_to(root).as_posix())
        if step_of is None or not list_task_folders(path):
            continue
        step = int(step_of[1])
        if step in folders:
            raise UsageError(f"{folders[step]} and {path} are both of step {step}; move one of them away")
        folders[step] = path
    if not folders:
        raise UsageError(
            f"{root} holds no results in folders {pattern}; name theirs with --name-pattern, for example "
            f"--name-pattern 'global_step_{STEP}'"
        )
    chosen = sorted(folders.keys() & set(folders if steps is None else steps))
    if not chosen:
        none = f"{root} has no results for the steps {join_names(map(str, steps or ()))}"
        raise UsageError(f"{none}; it has {join_names(map(str, sorted(folders)))}")
    if base is not None and base not in chosen:
        steps_found = join_names(map(str, chosen))
        raise UsageError(f"--base {base}: {root} has no results for this step; it has {steps_found}")
    return tuple(EvaluatedStep(step, folders[step]) for step in chosen)


class TaskAggregate(SampleFigure, frozen=True, kw_only=True):
    """A task's ``summary_agg.json``: the headline ``metric`` at the top, all of them in ``metrics``.

    ``runs`` are the samples that count, ``left_out`` those that do not; ``expected_runs`` is how many were
    asked for, where that is known. ``missing`` counts answers and judgments without a value. ``how`` is a
    hash of how the answers were made and judged, but for the seed: checkpoints are held against each other
    where it is the same. ``complete``: the samples asked for are all there, with all their records.
    """

    task: str
    step: int
    model: str
    metric: str
    judge: JudgedBy | None
    sampling: dict[str, Any]
    how: tuple[str, str]
    runs: tuple[int, ...]
    expected_runs: int | None
    left_out: tuple[LeftOutRun, ...]
    missing: int
    complete: bool
    notes: tuple[str, ...]
    metrics: dict[str, SampleFigure]
    coeval_version: str
    written_at: str


class CheckpointAggregate(NamedTuple):
    """A checkpoint's tasks over their samples; ``unscored``: by task, why there is no figure; ``items``: by
    task, the scores behind conclusions, of the first metric that items have scores in; ``facts``: how its
    samples were made and judged."""

    checkpoint: EvaluatedStep
    tasks: dict[str, TaskAggregate]
    unscored: dict[str, tuple[str, ...]]
    items: dict[str, ItemColumn]
    facts: dict[str, RunFacts]


def aggregate_checkpoint(
    checkpoint: EvaluatedStep, tasks: Sequence[str] | None = None, expected: Mapping[str, int] | None = None
) -> CheckpointAggregate:
    """Aggregate the samples of a checkpoint's tasks, without writing anything.

    Parameters
    ----------
    tasks : only these
    expected : how many samples were requested, by task; None: as many as at the last aggregation

    Raises
    ------
    StoreError
        a file cannot be read at all.
    """
    all_runs = choose_task_runs(checkpoint.folder, tasks, expected)
    without = {runs.task: runs.notes for runs in all_runs if not runs.runs}
    by_task: dict[str, TaskFigures] = {}
    if chosen := [runs for runs in all_runs if runs.runs]:
        with OutputReader(checkpoint.folder) as reader:
            by_task = {
                figures.runs.task: figures for figures in compute_task_figures(reader, chosen).values()
            }
    return CheckpointAggregate(
        checkpoint,
        {task: _build_task_aggregate(checkpoint.step, figures) for task, figures in by_task.items()},
        without,
        {task: next(iter(figures.items.values())) for task, figures in by_task.items() if figures.items},
        {task: figures.runs.facts[0] for task, figures in by_task.items()},
    )


def aggregate_all_checkpoints(root: Path, expected: Mapping[str, int]) -> list[CheckpointAggregate]:
    """Aggregate every checkpoint below ``root``, by step, for the tasks and sample counts in ``expected``;
    empty if nothing is scored.

    Raises UsageError if two folders are of one step; StoreError if a file cannot be read at all.
    """
    if not any(root.glob(f"{PATTERN.replace(STEP, '*')}/run_*/*/summary.json")):
        return []
    return [
        aggregate_checkpoint(checkpoint, list(expected), expected)
        for checkpoint in find_evaluated_steps(root)
    ]


def write_aggregates(aggregate: CheckpointAggregate) -> list[Path]:
    """Write ``<checkpoint>/<task>/summary_agg.json`` for each task, replaced whole.

    Raises StoreError: a file cannot be written.
    """
    written = []
    for task, task_aggregate in aggregate.tasks.items():
        path = aggregate.checkpoint.folder / task / AGGREGATE
        refuse_foreign(aggregate.checkpoint.folder, [task])
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise store_error("write", path, error) from error
        write_json_atomic(path, task_aggregate)
        written.append(path)
    return written


def _build_task_aggregate(step: int, figures: TaskFigures) -> TaskAggregate:
    """Build the record of ``summary_agg.json`` from a task's figures."""
    runs, expected = figures.runs, figures.runs.expected
    made = runs.facts[0].inference
    return TaskAggregate(
        **msgspec.structs.asdict(figures.metrics[figures.headline]),
        task=runs.task,
        step=step,
        model=runs.facts[0].model,
        metric=figures.headline,
        judge=runs.judge,
        sampling={} if made is None else made.sampling,
        how=runs.recipe_hashes,
        runs=runs.runs,
        expected_runs=expected,
        left_out=runs.left_out,
        missing=runs.missing,
        complete=not runs.missing and len(runs.runs) >= (expected or 1),
        notes=runs.notes,
        metrics=figures.metrics,
        coeval_version=__version__,
        written_at=utc_now(),
    )
