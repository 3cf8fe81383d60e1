"""Task registry: a row per task, in display order, loaded on demand.

`coeval_run` serves ``coeval:PATH``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from coeval.benchmarks.benchmark import Benchmark, OptionValues
from coeval.core.entry_points import Registry, import_object
from coeval.core.errors import UsageError

# --- Task rows: name, flags, where its code is

RESPONSES = "responses"
"""Target of an option whose file holds the answers to score, so that no model is asked."""


class TaskOption(msgspec.Struct, frozen=True):
    """The flag ``--{name}``; it begins with its task's name, so that no other task has it.

    ``kind`` is ``Path``, ``str``, ``int``, ``float`` or ``bool`` (a switch). ``fills`` is the asset that the
    file replaces, or `RESPONSES`; empty: the task reads the value from ``TaskSettings.options``.
    ``shown_default`` describes what happens without it; ``metavar`` stands for the value in ``--help``.
    """

    name: str
    kind: type
    help: str
    default: Any = None
    fills: str = ""
    shown_default: str | None = None
    metavar: str | None = None

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def parameter(self) -> str:
        return self.name.replace("-", "_")

    def require_file(self, path: Path) -> Path:
        """Return ``path``; raise UsageError unless it is a file."""
        if not path.is_file():
            raise UsageError(
                f"{self.flag}: there is no file {path}; correct it, or leave it out to use the fetched one"
            )
        return path


class TaskRow(msgspec.Struct, frozen=True):
    """A task's name, its ``options``, and the ``place`` of its `Benchmark`, as ``package.module:Class``."""

    name: str
    place: str
    options: tuple[TaskOption, ...] = ()

    @property
    def responses(self) -> TaskOption | None:
        return next((option for option in self.options if option.fills == RESPONSES), None)

    def own_files(self, values: OptionValues) -> dict[str, Path]:
        """Return the user's own files by asset, from the options' values; raises UsageError."""
        return {
            option.fills: option.require_file(path)
            for option in self.options
            if option.fills not in ("", RESPONSES) and (path := values[option.name]) is not None
        }


PREFIX = "coeval:"
"""Name prefix of a task that is a run of our own: ``coeval:PATH``."""

IFBENCH_FOLDER = TaskOption("ifbench-dir", Path, "A checkout of IFBench, for its prompts.")
WRITE_EXCEL = TaskOption("writingbench-write-excel", bool, "Also write scores.xlsx.", default=False)
ARENA_FOLDER = TaskOption("arena-hard-dir", Path, "A checkout of arena-hard-auto, for its data.")
ARENA_BENCHMARK = TaskOption(
    "arena-hard-benchmark", str, "Which of its benchmarks.", default="arena-hard-v2.0"
)
ALPACA_REFERENCE = TaskOption(
    "alpaca-eval-reference", Path, "Instructions with reference outputs (JSON).", fills="alpaca-eval/baseline"
)
ALPACA_DATASET = TaskOption(
    "alpaca-eval-hf-dataset",
    str,
    "Hub dataset to fetch the reference from.",
    shown_default="tatsu-lab/alpaca_eval",
    metavar="REPO",
)
_IFEVAL_PROMPTS = "Your own prompts, in place of the official ones."
_IFEVAL_RESPONSES = "Score these: JSONL of {key or prompt, response}. No model is called."
_HEALTH_EXAMPLES = "Conversations with rubrics, such as all 5,000."

_ROWS = (
    TaskRow(
        "ifeval",
        "coeval.benchmarks.tasks.following:IFEval",
        (
            TaskOption("ifeval-input", Path, _IFEVAL_PROMPTS, fills="ifeval/prompts"),
            TaskOption("ifeval-responses", Path, _IFEVAL_RESPONSES, fills=RESPONSES),
        ),
    ),
    TaskRow(
        "ifbench",
        "coeval.benchmarks.tasks.following:IFBench",
        (
            IFBENCH_FOLDER,
            TaskOption("ifbench-input", Path, "Your own prompts.", fills="ifbench/prompts"),
            TaskOption("ifbench-responses", Path, "As --ifeval-responses.", fills=RESPONSES),
        ),
    ),
    TaskRow(
        "writingbench",
        "coeval.benchmarks.tasks.writingbench:WritingBench",
        (
            TaskOption(
                "writingbench-query", Path, "Your own queries with criteria.", fills="writingbench/queries"
            ),
            WRITE_EXCEL,
        ),
    ),
    TaskRow(
        "healthbench",
        "coeval.benchmarks.tasks.healthbench:HealthBench",
        (TaskOption("healthbench-data", Path, _HEALTH_EXAMPLES, fills="healthbench/examples"),),
    ),
    TaskRow("arena-hard", "coeval.benchmarks.tasks.arena_hard:ArenaHard", (ARENA_FOLDER, ARENA_BENCHMARK)),
    TaskRow(
        "alpaca-eval",
        "coeval.benchmarks.tasks.alpaca_eval:AlpacaEval",
        (ALPACA_REFERENCE, ALPACA_DATASET),
    ),
)

TASKS: Registry[TaskRow] = Registry(
    "coeval.benchmarks",
    {row.name: row for row in _ROWS},
    needed="a coeval.benchmarks.task_registry.TaskRow",
    accepts=lambda name, found: isinstance(found, TaskRow) and found.name == name,
)
"""Built-in tasks; other packages add theirs in the entry point group ``coeval.benchmarks``."""


def benchmark_class(name: str) -> type[Benchmark]:
    """Return a task's benchmark class; raises UsageError: it is unknown, or cannot be loaded."""
    if name.startswith(PREFIX):
        kind = import_object("coeval.benchmarks.tasks.coeval_run:CoevalRun", name)
    elif name in TASKS:
        kind = import_object(TASKS[name].place, name)
    else:
        raise UsageError(f"there is no task {name!r}; tasks are {', '.join(TASKS)}, and {PREFIX}PATH_TO_RUN")
    if not (isinstance(kind, type) and issubclass(kind, Benchmark)):
        raise UsageError(f"{name}: {TASKS[name].place} is not a Benchmark; reinstall its package")
    return kind
