"""Slots stay busy, nothing waits for a round to end, what ends short is tried again and then told: in virtual
time, with engines and judges that take as long as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from coeval.benchmarks.run.eval_spec import EvalSpec, TaskRequest
from coeval.core.errors import WindowExceeded
from coeval.core.model import ModelSpec
from coeval.models.keys import Keys
from coeval.sweeps.checkpoints import Checkpoint, CheckpointPlaces
from coeval.sweeps.engine import SweepEngine, WorkerSlot, make_slots
from coeval.sweeps.job_table import JobTable
from coeval.sweeps.judging_run import Concluded, JudgingProcess, SampleConcluded
from coeval.sweeps.scheduler import Scheduler, SweepBoard
from coeval.sweeps.sweep import JobPlan, Sweep, SweepTask
from coeval.sweeps.sweep_choice import SweepRequest
from coeval.sweeps.sweep_settings import SweepSettings
from coeval.sweeps.worker_files import TaskAnswered, Worker, WorkerResult
from perf.virtual import in_virtual_time, now

WORKER_S, JUDGING_S = 100.0, 30.0

Span = tuple[str, int, float, float]
"""Name, slot, begin, end."""


class TimedEngine(SweepEngine):
    """Workers that take ``WORKER_S`` each, or what ``end`` makes of them."""

    def __init__(self, slots: int, end: Callable[[Worker], WorkerResult | None] = lambda _: None) -> None:
        super().__init__(make_slots((), 1, slots), {})
        self.spans: list[Span] = []
        self._end = end

    async def run(self, worker: Worker, slot: WorkerSlot) -> WorkerResult:
        begun = now()
        await asyncio.sleep(WORKER_S)
        self.spans.append((worker.name, slot.number, begun, now()))
        tasks = tuple(
            TaskAnswered(task=request.name, run=run or 0, prompts=5, answers=5)
            for request in worker.evaluation.tasks
            for run in request.runs
        )
        return self._end(worker) or WorkerResult(end="done", tasks=tasks)


class TimedJudgeWorker(JudgingProcess):
    """Judging that takes ``JUDGING_S`` each."""

    def __init__(self, problems: Mapping[str, int] | None = None) -> None:
        super().__init__((), Path(), {})
        self.spans: list[tuple[str, float, float]] = []
        self.refuses = False
        self._problems = dict(problems or {})

    async def conclude(self, name: str, evaluation: EvalSpec) -> Concluded:
        begun = now()
        await asyncio.sleep(JUDGING_S)
        self.spans.append((name, begun, now()))
        if self._problems.get(name, 0) > 0:
            self._problems[name] -= 1
            return Concluded(name=name, problem="the judge does not answer", refused=self.refuses)
        runs = evaluation.tasks[0].runs
        return Concluded(name=name, samples=tuple(SampleConcluded(run=run or 0) for run in runs))


def swept(
    tmp_path: Path, engine: TimedEngine, judge_worker: TimedJudgeWorker, *, steps: int, shards: int = 1
) -> tuple[SweepBoard, JobTable]:
    """A sweep of one task with two samples, to its end."""
    checkpoints = tuple(Checkpoint(step=step, path=f"/ckpt/{step}") for step in range(steps))
    tested = ModelSpec(name="x", interface="vllm", model="x")
    evaluation = EvalSpec(output=tmp_path, tasks=(TaskRequest(name="ifeval", runs=(0, 1)),), tested=tested)
    sweep = Sweep(
        evaluation=evaluation, served_name="x", shards=shards, external={None: ("http://127.0.0.1:9/v1",)}
    )
    task = SweepTask(
        task="ifeval", label="ifeval", samples=2, judged=False, requested_with="a", judged_with=""
    )
    plan = JobPlan(checkpoints=checkpoints, tasks=(task,), shards=shards)
    table, keys = JobTable(tmp_path, plan), Keys.load(None, env={}, cwd=tmp_path, home=tmp_path)
    places = CheckpointPlaces(checkpoints, None, None, (), None, to_merge=False)
    request = SweepRequest(SweepSettings(), keys, sweep, plan, places, None)
    scheduler = Scheduler(request, table, engine, judge_worker)

    async def work() -> None:
        for checkpoint in checkpoints:
            scheduler.add_checkpoint(checkpoint)
        await scheduler.run(asyncio.Event())

    in_virtual_time(work())
    table.close()
    return scheduler.board, table


def test_eight_workers_on_four_slots_take_the_time_of_two_and_judging_overlaps(tmp_path: Path) -> None:
    engine, judge_worker = TimedEngine(4), TimedJudgeWorker()
    board, _ = swept(tmp_path, engine, judge_worker, steps=8)
    last = max(end for _, _, _, end in engine.spans)
    assert last <= 2 * WORKER_S * 1.1
    assert {slot: sum(s == slot for _, s, _, _ in engine.spans) for slot in range(4)} == dict.fromkeys(
        range(4), 2
    )
    first_judged = min(begun for _, begun, _ in judge_worker.spans)
    assert first_judged < max(begun for _, _, begun, _ in engine.spans) + WORKER_S, "while others are served"
    assert max(end for _, _, end in judge_worker.spans) <= last + JUDGING_S * 1.1
    assert (board.concluded, board.failed, board.jobs) == (16, 0, 16)


def test_a_slot_takes_the_next_checkpoint_while_others_are_busy(tmp_path: Path) -> None:
    """There is no barrier: workers of unequal length leave no slot without one while some wait."""

    class Uneven(TimedEngine):
        async def run(self, worker: Worker, slot: WorkerSlot) -> WorkerResult:
            await asyncio.sleep(900.0 if worker.name == "step_0" else 0.0)
            return await super().run(worker, slot)

    engine = Uneven(2)
    swept(tmp_path, engine, TimedJudgeWorker(), steps=8)
    others = [span for span in engine.spans if span[0] != "step_0"]
    assert {slot for _, slot, _, _ in others} == {1}
    assert max(end for _, _, _, end in others) <= 7 * WORKER_S * 1.01


def test_what_ends_short_is_tried_again_elsewhere_and_then_told(tmp_path: Path) -> None:
    tries: dict[str, int] = {}

    def end(worker: Worker) -> WorkerResult | None:
        tries[worker.name] = tries.get(worker.name, 0) + 1
        if worker.name == "step_2" or (worker.name == "step_1" and tries[worker.name] == 1):
            return WorkerResult(end="server_failed", problem="out of memory")
        return None

    engine = TimedEngine(2, end)
    board, table = swept(
        tmp_path, engine, TimedJudgeWorker({"step_0 ifeval": 1, "step_1 ifeval": 99}), steps=4
    )
    assert tries == {"step_0": 1, "step_1": 2, "step_2": 2, "step_3": 1}
    assert (board.concluded, board.failed) == (4, 4)
    given_up = {problem.what: problem.why for problem in board.problems if problem.given_up}
    assert given_up == {"step_2": "out of memory", "step_1 ifeval": "the judge does not answer"}
    [_, one, two, _] = [table.summarise_task(each, table.plan.tasks[0]) for each in table.plan.checkpoints]
    assert (one.failed, two.failed, two.problem) == (2, 2, "out of memory")


def test_a_judge_whose_window_is_too_small_is_not_tried_again(tmp_path: Path) -> None:
    judge_worker = TimedJudgeWorker({"step_0 ifeval": 99})
    judge_worker.refuses = True
    board, _ = swept(tmp_path, TimedEngine(1), judge_worker, steps=1)
    assert len(judge_worker.spans) == 1
    assert (board.concluded, [problem.given_up for problem in board.problems]) == (0, [True])


def test_settings_that_fit_no_server_end_a_sweep_and_other_ends_do_not(tmp_path: Path) -> None:
    """Where another checkpoint was answered, the settings are not the reason."""
    refused = WorkerResult(end="refused", problem="the window is too small")
    with pytest.raises(BaseExceptionGroup) as caught:
        swept(tmp_path / "a", TimedEngine(1, lambda _: refused), TimedJudgeWorker(), steps=2)
    assert caught.group_contains(WindowExceeded, match="the window is too small")
    engine = TimedEngine(1, lambda worker: refused if worker.name == "step_1" else None)
    board, _ = swept(tmp_path / "b", engine, TimedJudgeWorker(), steps=2)
    assert (board.concluded, board.failed) == (2, 2)


def test_shards_have_a_slot_each_and_are_concluded_together(tmp_path: Path) -> None:
    engine, judge_worker = TimedEngine(4), TimedJudgeWorker()
    swept(tmp_path, engine, judge_worker, steps=2, shards=2)
    assert sorted(name for name, *_ in engine.spans) == [
        f"step_{step}.{part}_of_2" for step in (0, 1) for part in (0, 1)
    ]
    assert {end for *_, end in engine.spans} == {WORKER_S}
    assert [name for name, *_ in judge_worker.spans] == ["step_0 ifeval", "step_1 ifeval"]


def test_where_nothing_comes_of_the_first_the_rest_is_left(tmp_path: Path) -> None:
    engine = TimedEngine(2, lambda _: WorkerResult(end="server_failed", problem="no such command"))
    board, _ = swept(tmp_path, engine, TimedJudgeWorker(), steps=50)
    assert len(engine.spans) <= 10
    assert board.left >= 45
    assert any("all of the first failed" in problem.why for problem in board.problems)
    assert board.unavailable
    assert board.waiting == 0


def test_where_workers_can_run_nowhere_the_rest_is_left_and_what_is_answered_is_judged(
    tmp_path: Path,
) -> None:
    """Workers of a dead cluster never end."""

    class Lost(TimedEngine):
        async def wait_until_lost(self) -> str:
            await asyncio.sleep(2.5 * WORKER_S)
            return "the cluster is dead"

    engine, judge_worker = Lost(2), TimedJudgeWorker()
    board, _ = swept(tmp_path, engine, judge_worker, steps=8)
    assert len(engine.spans) == len(judge_worker.spans) == 4
    assert (board.concluded, board.failed, board.left, board.waiting, board.exit_code) == (8, 0, 4, 0, 3)
    left = "4 more: left, since the cluster is dead; the same command continues"
    assert board.gaps == (left,)


def test_an_engine_that_is_lost_when_all_is_answered_is_no_gap(tmp_path: Path) -> None:
    class Lost(TimedEngine):
        async def wait_until_lost(self) -> str:
            await asyncio.sleep(WORKER_S + JUDGING_S / 2)
            return "the cluster is dead"

    board, _ = swept(tmp_path, Lost(2), TimedJudgeWorker(), steps=2)
    assert (board.concluded, board.gaps, board.exit_code) == (4, (), 0)
