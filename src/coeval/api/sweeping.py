"""``coeval.sweep``: the checkpoints of a training run evaluated, from Python."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coeval.api.stoppable import View, draw_progress, wait_for
from coeval.core.errors import UNAVAILABLE, ModelUnavailable
from coeval.core.html_table import html_lines
from coeval.core.process_limits import require_address_space_for_results
from coeval.core.settings import with_keywords_of
from coeval.engine.progress import Unwatched
from coeval.exchange.trackers import log_after_command, parse_destinations
from coeval.models.keys import load_keys
from coeval.pipeline.config.settings_file import check_settings
from coeval.sweeps.scheduler import SweepBoard
from coeval.sweeps.sweep import JobPlan, sweep_folder
from coeval.sweeps.sweep_choice import make_sweep_request
from coeval.sweeps.sweep_settings import SweepSettings
from coeval.sweeps.sweep_start import SweepWatcher, open_sweep, require_checkpoints, should_draw_results

if TYPE_CHECKING:
    from coeval.analysis.training.aggregate import TaskAggregate
    from coeval.analysis.training.sweep_comparison import SweepComparison


@dataclass(frozen=True, slots=True, repr=False)
class SweepRun:
    """The outcome of a sweep; ``path`` is its output folder, ``board`` has the counts of this call."""

    path: Path
    board: SweepBoard

    @property
    def gaps(self) -> tuple[str, ...]:
        """Say what is missing; the same call again tries it."""
        return self.board.gaps

    @property
    def exit_code(self) -> int:
        """Return 0 if complete, 3 with gaps or failed jobs, 130 if interrupted."""
        return self.board.exit_code

    def results(self) -> list[TaskAggregate]:
        """Return the tasks of each checkpoint over their samples, by step; empty if nothing is scored. Each
        has ``mean``, ``ci95``, ``std``, ``sem``, ``n_runs``, ``n_items`` and ``unit`` of the headline
        ``metric``, and all others in ``metrics``."""
        require_address_space_for_results()
        from coeval.analysis.training.aggregate import aggregate_all_checkpoints

        checkpoints = aggregate_all_checkpoints(self.path, JobPlan.read(sweep_folder(self.path)).samples)
        return [row for checkpoint in checkpoints for row in checkpoint.tasks.values()]

    def __repr__(self) -> str:
        return f"SweepRun({str(self.path)!r}, {self.board.describe_counts()})"

    def _repr_html_(self) -> str:
        return html_lines([f"{self.path}: {self.board.describe_counts()}", *self.gaps])


class SweepRunView(View[SweepBoard]):
    """A `SweepWatcher` that shows one line of counts."""

    def sentences(self) -> list[str]:
        return [] if self.board is None else [self.board.describe_counts()]


class SweepCall(SweepSettings, frozen=True, kw_only=True):
    """The keywords of `sweep`: all settings, and how to watch and stop it."""

    progress: bool | None = None
    watcher: SweepWatcher | None = None
    interrupt: asyncio.Event | None = None


@with_keywords_of(SweepCall)
def sweep(requested: SweepCall) -> SweepRun:
    """Evaluate the checkpoints of a training run, as ``coeval sweep`` does: serve each, ask it every task,
    judge, and aggregate the samples. The same call again does only what is missing.

    Works and ends as `evaluate` does, with the same ``progress`` and ``interrupt``; the ``watcher``
    receives messages and the `SweepBoard`.

    Raises UsageError: the request was wrong, or another process is at work in the folder;
    ModelUnavailable: no server came up; StoreError: the output folder cannot be read or written.

    >>> swept = coeval.sweep(
    ...     checkpoints="checkpoints", name_pattern="step_{step}", out="outputs/run_a",
    ...     external="http://localhost:8000/v1", judge_model="judge", judge_base_url="http://localhost:8000/v1",
    ...     tasks={"coeval:runs/quickstart": 1}, max_examples=5,
    ... )
    >>> [row.step for row in swept.results()]
    [10, 20]
    """
    settings = check_settings(requested)
    chosen, log_to = (
        make_sweep_request(settings, load_keys(settings.keys)),
        parse_destinations(settings.log_to),
    )
    event = requested.interrupt or asyncio.Event()
    view = SweepRunView(requested.watcher or Unwatched(), event)
    checkpoints = require_checkpoints(chosen, view.warn)
    with open_sweep(chosen, checkpoints, view) as sweeping:
        board = sweeping.board

        async def run_jobs() -> None:
            async with draw_progress(view, requested.progress, own_watcher=requested.watcher is not None):
                await sweeping.run(event)

        wait_for(run_jobs, event)
        if board.exit_code == UNAVAILABLE:
            raise ModelUnavailable("; ".join(board.gaps))
        if should_draw_results(chosen, board):
            if settings.plot:
                require_address_space_for_results()
                from coeval.reports.training_files import aggregate_and_write_sweep

                aggregate_and_write_sweep(chosen.sweep.out, chosen.plan.samples)
            log_after_command(chosen.sweep.out, log_to, view.warn)
    return SweepRun(chosen.sweep.out, board)


def compare_sweeps(
    *folders: SweepRun | str | Path, tasks: Sequence[str] | None = None, steps: Collection[int] | None = None
) -> SweepComparison:
    """Compare training runs at equal steps, and say which checkpoint to ship: docs/training-runs.md. No model
    is called, and nothing is written. ``tasks`` and ``steps`` limit the comparison.

    Raises UsageError: there are no two sweeps, one holds no results, or they share no task that was scored
    alike; StoreError: a file cannot be read at all.

    >>> print(coeval.compare_sweeps("outputs/run_a", "outputs/run_b").sentences[0])
    Ship run_a step 20, ...
    """
    require_address_space_for_results()
    from coeval.analysis.training.sweep_comparison import compare_sweeps as compared
    from coeval.analysis.training.sweep_comparison import read_sweeps

    paths = [folder.path if isinstance(folder, SweepRun) else Path(folder) for folder in folders]
    return compared(read_sweeps(paths, tasks, steps))
