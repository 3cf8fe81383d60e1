"""The tasks by name, in the order in which they are shown; `coeval_run` serves ``coeval:PATH``."""

from __future__ import annotations

from coeval.benchmarks.benchmark import Benchmark
from coeval.benchmarks.tasks.alpaca_eval import AlpacaEval
from coeval.benchmarks.tasks.arena_hard import ArenaHard
from coeval.benchmarks.tasks.healthbench import HealthBench
from coeval.benchmarks.tasks.ifbench.ifbench_task import IFBench
from coeval.benchmarks.tasks.ifeval.ifeval_task import IFEval
from coeval.benchmarks.tasks.writingbench import WritingBench
from coeval.core.entry_points import Registry

__all__ = ["PREFIX", "TASKS"]

PREFIX = "coeval:"
"""What begins the name of a task that is a run of our own, as in ``coeval:PATH``."""

_KINDS: tuple[type[Benchmark], ...] = (IFEval, IFBench, WritingBench, HealthBench, ArenaHard, AlpacaEval)

TASKS: Registry[type[Benchmark]] = Registry(
    "coeval.benchmarks",
    {kind.name: kind for kind in _KINDS},
    wanted="a subclass of coeval.benchmarks.benchmark.Benchmark",
    accepts=lambda name, found: (
        isinstance(found, type) and issubclass(found, Benchmark) and getattr(found, "name", None) == name
    ),
)
"""Other packages bring theirs in the entry point group ``coeval.benchmarks``."""
