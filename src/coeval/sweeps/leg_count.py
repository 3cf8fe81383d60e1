"""How far a leg has come: what ``progress.json`` says, kept over all starts of its server."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coeval.benchmarks.benchmark import count_failures
from coeval.benchmarks.run.task_run import TaskRun
from coeval.core.good import is_good
from coeval.core.plain import plain, shortened
from coeval.engine.progress import LEAST_MADE, PACE_S, Board, PhaseCount
from coeval.sweeps.leg import LegProgress, LegState, TaskAnswered

__all__ = ["LegCount"]

log = logging.getLogger("coeval")

_LONGEST_MESSAGE = 300


class AskedLast(NamedTuple):
    """Good answers, and failed ones by kind."""

    done: int
    failed: Counter[str]


class _Pace(NamedTuple):
    """None where it cannot be told."""

    output_tokens_per_s: float | None
    remaining_s: float | None


class _Mark(NamedTuple):
    at: float
    ended: int
    output_tokens: int


class LegCount:
    """Counts of a leg, and who looks on at its asking: each time it is asked there is a board of its own."""

    def __init__(self) -> None:
        self.state: LegState = "reading"
        self.starts = 0
        self.message = ""
        self._task_runs: Sequence[TaskRun] = ()
        self._boards: list[Board] = []
        self._marks: deque[_Mark] = deque()

    def read(self, task_runs: Sequence[TaskRun]) -> None:
        """From here on it is about these."""
        self._task_runs = task_runs

    def note(self, message: str) -> None:
        log.info("%s", message)

    def warn(self, message: str) -> None:
        log.warning("%s", message)
        self.say(message)

    def say(self, message: str) -> None:
        self.message = shortened(plain(message), _LONGEST_MESSAGE)

    def begin(self, board: Board) -> None:
        self._boards.append(board)
        self._marks.clear()
        self.state = "asking"
        self.message = ""

    @property
    def input_tokens(self) -> int:
        return sum(count.input_tokens for count in self._counts())

    @property
    def output_tokens(self) -> int:
        return sum(count.output_tokens for count in self._counts())

    def _counts(self) -> Iterator[PhaseCount]:
        for board in self._boards:
            yield from board.phases.values()

    def asked_last(self) -> AskedLast:
        """What became of the records that were asked for last."""
        failed: Counter[str] = Counter()
        done = 0
        for board in self._boards[-1:]:
            for count in board.phases.values():
                done += count.done
                failed.update(count.failed)
        return AskedLast(done, failed)

    def progress(self) -> LegProgress:
        """As it is now; to be called about once a second."""
        tasks = {run.label: self._of_task(run) for run in self._task_runs}
        done = sum(there for there, _ in tasks.values())
        planned = sum(wanted for _, wanted in tasks.values())
        pace = self._pace(planned - done)
        return LegProgress(
            at=time.time(),
            state=self.state,
            done=done,
            planned=planned,
            failed=sum(count.failed.total() for count in self._counts()),
            output_tokens=self.output_tokens,
            output_tokens_per_s=pace.output_tokens_per_s,
            remaining_s=pace.remaining_s,
            starts=self.starts,
            tasks=tasks,
            message=self.message,
        )

    def _of_task(self, task_run: TaskRun) -> tuple[int, int]:
        if not self._boards:
            return sum(map(is_good, task_run.answers.values())), len(task_run.items)
        count = self._boards[-1].phases[task_run.label]
        return count.recorded + count.done, len(task_run.items)

    def _pace(self, left: int) -> _Pace:
        """By the last minute."""
        now = time.monotonic()
        ended = sum(count.done + count.failed.total() for count in self._counts())
        self._marks.append(_Mark(now, ended, self.output_tokens))
        while now - self._marks[0].at > PACE_S:
            self._marks.popleft()
        since, before, tokens = self._marks[0]
        if self.state != "asking" or now - since < 1.0:
            return _Pace(None, None)
        made = ended - before
        remaining_s = left * (now - since) / made if made >= LEAST_MADE and left else None
        return _Pace((self.output_tokens - tokens) / (now - since), remaining_s)

    def answered(self) -> tuple[TaskAnswered, ...]:
        """What stands of each task and sample."""
        return tuple(
            TaskAnswered(
                task=run.task,
                run=run.run or 0,
                prompts=len(run.items),
                answers=sum(map(is_good, run.answers.values())),
                failed=count_failures(run.answers.values()),
            )
            for run in self._task_runs
        )
