"""What a sweep shows of itself: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from cli.terminal import on_terminal
from rich.console import Console
from sweeping import Sweeping

from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.cli.commands.sweep.sweep_view import board_table, tell_end
from coeval.sweeps.engine import WorkerSlot
from coeval.sweeps.judging_run import SampleConcluded
from coeval.sweeps.scheduler import SweepBoard
from coeval.sweeps.sweep import Sweep
from coeval.sweeps.worker_files import Worker, WorkerProgress, write_progress


def drawn(board: SweepBoard, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(board_table(board, width - 2, height))
    shown = console.file
    assert isinstance(shown, io.StringIO)
    return [line.rstrip() for line in shown.getvalue().splitlines()]


def busy_board(tmp_path: Path, slots: int) -> SweepBoard:
    """All slots but the last one have a worker."""
    board = SweepBoard([WorkerSlot(number, (str(number),)) for number in range(slots)])
    board.expect(30 * slots, slots)
    for number in range(slots - 1):
        folder = tmp_path / f"step_{number}"
        folder.mkdir()
        evaluation = EvalSpec(output=tmp_path, tasks=())
        board.begin_worker(
            WorkerSlot(number, (str(number),)),
            Worker(name=f"step_{number}", folder=folder, evaluation=evaluation),
        )
        write_progress(
            folder,
            WorkerProgress(
                at=0.0,
                state="asking",
                done=1_312,
                planned=4_328,
                output_tokens_per_s=5_210.4,
                remaining_s=185.0,
                tasks={"run_0 ifeval": (541, 541), "run_1 writingbench\x1b[31m": (3, 541)},
            ),
        )
    return board


def test_each_slot_says_what_it_does_within_a_narrow_terminal(tmp_path: Path) -> None:
    lines = drawn(busy_board(tmp_path, 3), 80, 24)
    assert max(map(len, lines)) <= 78
    assert lines[0].split() == ["slot", "checkpoint", "task", "done", "tokens/s", "left"]
    assert lines[1].split()[:2] == ["0", "step_0"]
    assert "1,312/4,328" in lines[1]
    assert lines[1].split()[-2:] == ["5.2k", "3:05"]
    assert "\x1b[31m" not in "".join(lines), "names obey nothing"
    assert lines[3].split() == ["2", "free"]
    assert lines[-1].endswith("0 of 90 jobs done, 1 waiting for a slot")


def test_of_many_slots_those_with_a_worker_are_shown(tmp_path: Path) -> None:
    lines = drawn(busy_board(tmp_path, 40), 80, 12)
    assert len(lines) <= 12
    assert not any("free" in line for line in lines)
    assert lines[-1].endswith(" more slots")


@pytest.mark.slow
async def test_a_sweep_on_a_terminal_leaves_its_results_and_no_table(tmp_path: Path) -> None:
    sweeping = Sweeping(tmp_path)
    sweeping.trained(40)
    words = ("python", "-m", "coeval", *sweeping.flags("--no-plot"))
    how: Any = {"cwd": tmp_path, "rows": 24, **sweeping.environment()}
    seen = await asyncio.to_thread(lambda: on_terminal(words, 80, **how))
    assert seen.code == 0, seen.screen
    assert any("step_40" in line for line in seen.written), "while it went on"
    assert not any(line.startswith("slot") for line in seen.screen)
    assert "2 of 2 jobs done" in " ".join(seen.screen)
    assert max(map(len, seen.written)) <= 80


def test_a_job_with_gaps_is_not_done_and_one_cause_is_told_once(tmp_path: Path) -> None:
    board = SweepBoard([])
    board.jobs = 3
    board.count_concluded(SampleConcluded(run=0), judged=True)
    board.count_concluded(SampleConcluded(run=1, unscored=26), judged=True)
    for step in (20, 40):
        board.tell_problem(f"step_{step}", "there is no such model", given_up=True)
    out, err = io.StringIO(), io.StringIO()
    sweep = Sweep(evaluation=EvalSpec(output=tmp_path, tasks=()), served_name="x")
    code = tell_end(board, sweep, Console(file=out, width=200), Console(file=err, width=200))
    assert code == 3
    assert "1 of 3 jobs done, 1 with gaps" in out.getvalue()
    assert err.getvalue().count("there is no such model") == 1
    assert "step_20, step_40: there is no such model" in err.getvalue()
