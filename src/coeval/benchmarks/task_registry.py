"""The tasks by name, in the order in which they are shown: one row each, loaded when it is asked for.

`coeval_run` serves ``coeval:PATH``.
"""

from __future__ import annotations

from pathlib import Path

from coeval.benchmarks.benchmark import Benchmark
from coeval.benchmarks.task_row import RESPONSES, TaskOption, TaskRow
from coeval.core.entry_points import Registry, loaded
from coeval.core.errors import UsageError

__all__ = [
    "ALPACA_DATASET",
    "ALPACA_REFERENCE",
    "ARENA_BENCHMARK",
    "ARENA_FOLDER",
    "IFBENCH_FOLDER",
    "PREFIX",
    "TASKS",
    "WRITE_EXCEL",
    "kind_of",
]

PREFIX = "coeval:"
"""What begins the name of a task that is a run of our own, as in ``coeval:PATH``."""

IFBENCH_FOLDER = TaskOption(name="ifbench-dir", kind=Path, help="A checkout of IFBench, for its prompts.")
WRITE_EXCEL = TaskOption(
    name="writingbench-write-excel", kind=bool, help="Also write scores.xlsx.", default=False
)
ARENA_FOLDER = TaskOption(
    name="arena-hard-dir", kind=Path, help="A checkout of arena-hard-auto, for its data."
)
ARENA_BENCHMARK = TaskOption(
    name="arena-hard-benchmark", kind=str, help="Which of its benchmarks.", default="arena-hard-v2.0"
)
ALPACA_REFERENCE = TaskOption(
    name="alpaca-eval-reference",
    kind=Path,
    help="Instructions with reference outputs (JSON).",
    fills="alpaca-eval/baseline",
)
ALPACA_DATASET = TaskOption(
    name="alpaca-eval-hf-dataset",
    kind=str,
    help="Hub dataset to fetch the reference from.",
    shown_default="tatsu-lab/alpaca_eval",
    metavar="REPO",
)

_ROWS = (
    TaskRow(
        name="ifeval",
        place="coeval.benchmarks.tasks.ifeval.ifeval_task:IFEval",
        options=(
            TaskOption(
                name="ifeval-input",
                kind=Path,
                help="Your own prompts, in place of the official ones.",
                fills="ifeval/prompts",
            ),
            TaskOption(
                name="ifeval-responses",
                kind=Path,
                help="Score these: JSONL of {key or prompt, response}. Asks nobody.",
                fills=RESPONSES,
            ),
        ),
    ),
    TaskRow(
        name="ifbench",
        place="coeval.benchmarks.tasks.ifbench.ifbench_task:IFBench",
        options=(
            IFBENCH_FOLDER,
            TaskOption(name="ifbench-input", kind=Path, help="Your own prompts.", fills="ifbench/prompts"),
            TaskOption(name="ifbench-responses", kind=Path, help="As --ifeval-responses.", fills=RESPONSES),
        ),
    ),
    TaskRow(
        name="writingbench",
        place="coeval.benchmarks.tasks.writingbench:WritingBench",
        options=(
            TaskOption(
                name="writingbench-query",
                kind=Path,
                help="Your own queries with criteria.",
                fills="writingbench/queries",
            ),
            WRITE_EXCEL,
        ),
    ),
    TaskRow(
        name="healthbench",
        place="coeval.benchmarks.tasks.healthbench:HealthBench",
        options=(
            TaskOption(
                name="healthbench-data",
                kind=Path,
                help="Conversations with rubrics, such as all 5,000.",
                fills="healthbench/examples",
            ),
        ),
    ),
    TaskRow(
        name="arena-hard",
        place="coeval.benchmarks.tasks.arena_hard:ArenaHard",
        options=(ARENA_FOLDER, ARENA_BENCHMARK),
    ),
    TaskRow(
        name="alpaca-eval",
        place="coeval.benchmarks.tasks.alpaca_eval:AlpacaEval",
        options=(ALPACA_REFERENCE, ALPACA_DATASET),
    ),
)

TASKS: Registry[TaskRow] = Registry(
    "coeval.benchmarks",
    {row.name: row for row in _ROWS},
    wanted="a coeval.benchmarks.task_row.TaskRow",
    accepts=lambda name, found: isinstance(found, TaskRow) and found.name == name,
)
"""Other packages bring theirs in the entry point group ``coeval.benchmarks``."""


def kind_of(name: str) -> type[Benchmark]:
    """The benchmark that a task is.

    Raises
    ------
    UsageError
        there is no such task, or another package's cannot be loaded.
    """
    if name.startswith(PREFIX):
        kind = loaded("coeval.benchmarks.tasks.coeval_run:CoevalRun", name)
    elif name in TASKS:
        kind = loaded(TASKS[name].place, name)
    else:
        raise UsageError(f"there is no task {name!r}; tasks are {', '.join(TASKS)}, and {PREFIX}PATH_TO_RUN")
    if not (isinstance(kind, type) and issubclass(kind, Benchmark)):
        raise UsageError(f"{name}: {TASKS[name].place} is no Benchmark; reinstall its package")
    return kind
