"""The judging of a sweep: several evaluations at a time in one process, with one way to the judge.

Each order is a task of a checkpoint, all its samples together. Preparing and scoring would hold up the
loop, so they go to a thread, one at a time: verifiers are not made to run side by side.
"""

from __future__ import annotations

import asyncio
import logging
import os
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec

from coeval.analysis.run_results import read_model_costs
from coeval.benchmarks.benchmark import count_failures
from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.benchmarks.run.runner import (
    Prepared,
    ask_owed,
    lock_folders_and_merge_shards,
    prepare_evaluation,
    usage_file,
)
from coeval.benchmarks.run.task_summary import Outcome, conclude
from coeval.core.errors import CoevalError, Undecodable, WindowExceeded
from coeval.core.foreign import make_decoder
from coeval.core.text import pluralize
from coeval.engine.probing import Probing
from coeval.engine.progress import Board
from coeval.models.keys import Keys
from coeval.models.pacing.throttle import Throttle
from coeval.models.transport.http import SharedHosts
from coeval.sweeps.engine import start_process

# --- Messages between a sweep and its judge worker


class ConcludeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order to judge and score a task of a checkpoint: ``evaluation`` is of mode ``conclude``."""

    name: str
    evaluation: EvalSpec


class SampleConcluded(msgspec.Struct, frozen=True, kw_only=True):
    """One sample: so many prompts have no good answer, and so many judgments are missing besides. ``problem``
    says why there is no figure."""

    run: int
    unanswered: int = 0
    unscored: int = 0
    problem: str = ""


class ConcludeProgress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """How far an order is: ``done`` of ``planned`` judgments are recorded."""

    name: str
    done: int = 0
    planned: int = 0


class Concluded(msgspec.Struct, frozen=True, kw_only=True, tag="concluded"):
    """The end of an order. ``samples`` are those scored; ``problem`` says why others were not, or are to be
    tried again since the judge was away. ``cost_usd`` is what its judging has cost over all starts, None if
    unknown. ``refused``: the settings do not fit the judge's server, so another attempt would end alike."""

    name: str
    samples: tuple[SampleConcluded, ...] = ()
    problem: str = ""
    interrupted: bool = False
    refused: bool = False
    cost_usd: float | None = None


JudgingMessage: TypeAlias = ConcludeProgress | Concluded

read_order = make_decoder(ConcludeOrder)
"""Of a line; raises Undecodable."""


read_message: Callable[[bytes], JudgingMessage] = make_decoder(JudgingMessage)  # type: ignore[arg-type]  # a union
"""Likewise; the line may be a warning that some package prints."""


def encode_line(message: ConcludeOrder | JudgingMessage) -> bytes:
    return msgspec.json.encode(message, enc_hook=os.fspath) + b"\n"


log = logging.getLogger("coeval")

# Once a second is as often as a person reads figures.
TELL_S = 1.0
AWAY = frozenset({"missing", "connection", "timeout", "server", "rate_limited"})
"""Why there is no judgment where asking later may help."""


async def conclude_orders(
    orders: AsyncIterator[ConcludeOrder],
    tell: Callable[[JudgingMessage], None],
    keys: Keys,
    interrupt: asyncio.Event,
    throttle: Throttle | None = None,
) -> None:
    """Conclude every order as it comes, side by side; ``tell`` takes their progress and ends. ``throttle`` is
    the pace shared with other processes. Return when there are no more orders and all are reported;
    setting ``interrupt`` ends those under way soon, and later ones at once."""
    async with SharedHosts(throttle=throttle) as hosts, asyncio.TaskGroup() as group:
        judging = _Judging(keys, interrupt, hosts)
        telling = group.create_task(judging.report_progress(tell))
        async with asyncio.TaskGroup() as concluding:
            async for order in orders:
                concluding.create_task(judging.conclude_and_tell(order, tell))
        telling.cancel()


class _Judging:
    """Concludes orders side by side, one of them at a time on the processor."""

    def __init__(self, keys: Keys, interrupt: asyncio.Event, hosts: SharedHosts) -> None:
        self._keys = keys
        self._interrupt = interrupt
        self._hosts = hosts
        self._processor = asyncio.Lock()
        self._onlookers: dict[str, _Onlooker] = {}
        self._met = False

    async def conclude_and_tell(self, order: ConcludeOrder, tell: Callable[[JudgingMessage], None]) -> None:
        onlooker = self._onlookers[order.name] = _Onlooker(order.name)
        try:
            concluded = await self._conclude_order(order, onlooker)
        except CoevalError as error:
            log.warning("%s: %s", order.name, error)
            interrupted, refused = self._interrupt.is_set(), isinstance(error, WindowExceeded)
            concluded = Concluded(
                name=order.name, problem=str(error), interrupted=interrupted, refused=refused
            )
        finally:
            del self._onlookers[order.name]
        tell(concluded)

    async def _conclude_order(self, order: ConcludeOrder, onlooker: _Onlooker) -> Concluded:
        """Prepare an order's evaluation, request its judgments and score it."""
        if self._interrupt.is_set():
            return Concluded(name=order.name, interrupted=True)
        async with self._processor:
            evaluation = order.evaluation
            if self._met:  # a judge that answered an evaluation before needs not be tried for this one
                evaluation = msgspec.structs.replace(evaluation, probing=Probing("disable"))
            prepared = await asyncio.to_thread(prepare_evaluation, evaluation, onlooker)
        with lock_folders_and_merge_shards(prepared):
            ended = await ask_owed(prepared, self._keys, onlooker, self._interrupt, self._hosts)
            async with self._processor:
                outcome = await asyncio.to_thread(conclude, prepared, ended)
                concluded = await asyncio.to_thread(_summarise_order, order, prepared, outcome)
            self._met = ended.begun and evaluation.judge is not None and not concluded.problem
            return concluded

    async def report_progress(self, tell: Callable[[JudgingMessage], None]) -> None:
        reported: dict[str, ConcludeProgress] = {}
        while True:
            await asyncio.sleep(TELL_S)
            for onlooker in list(self._onlookers.values()):
                progress = onlooker.progress()
                if reported.get(onlooker.name) != progress:
                    reported[onlooker.name] = progress
                    tell(progress)


def _summarise_order(order: ConcludeOrder, prepared: Prepared, outcome: Outcome) -> Concluded:
    """Summarise an order's samples, the judgments it lacks, and what it has cost."""
    samples: list[SampleConcluded] = []
    away: Counter[str] = Counter()
    for task_run, task in zip(prepared.task_runs, outcome.tasks, strict=False):
        if task.left_at is not None:
            continue
        missed = count_failures(task_run.judgments.get(key) for key in task_run.needed)
        if not outcome.stopped:  # else the judge was given up, and all of them are requested again
            missed = {reason: n for reason, n in missed.items() if reason in AWAY}
        if missed:
            away.update(missed)
            continue
        counts = task_run.count_good()
        unanswered = counts.prompts - counts.answers
        missing = sum(task.summary.missing.values()) if task.summary is not None else 0
        lacks = {"unanswered": unanswered, "unscored": max(0, missing - unanswered)}
        samples.append(SampleConcluded(run=task_run.run or 0, problem=task.problem or "", **lacks))
    problems = list(outcome.stopped.values())
    if away:
        kinds = ", ".join(f"{kind}: {number:,}" for kind, number in away.items())
        problems.append(f"the judge did not answer for {pluralize(away.total(), 'judgment')} ({kinds})")
    costs = (cost.cost_usd for cost in read_model_costs(usage_file(prepared.evaluation)))
    known_usd = [usd for usd in costs if usd is not None]
    return Concluded(
        name=order.name,
        samples=tuple(samples),
        problem="; ".join(problems),
        interrupted=outcome.interrupted,
        cost_usd=sum(known_usd) if known_usd else None,
    )


class _Onlooker:
    """The watcher of one order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._board: Board | None = None

    def note(self, message: str) -> None:
        log.info("%s: %s", self.name, message)

    def warn(self, message: str) -> None:
        log.warning("%s: %s", self.name, message)

    def begin(self, board: Board) -> None:
        self._board = board

    def progress(self) -> ConcludeProgress:
        phases = self._board.phases.values() if self._board is not None else ()
        judging = [count for count in phases if count.name.endswith(" judging")]
        return ConcludeProgress(
            name=self.name,
            done=sum(count.recorded + count.done for count in judging),
            planned=sum(count.planned for count in judging),
        )


# --- The judging process, as the sweep sees it: fed order by order, begun again where it dies

JUDGING_MODULE = "coeval.cli.eval_framework.judging_process"
"""What it runs; its arguments are its log and, if there is one, the user's file of credentials."""
# Bytes: a task's whole summary is one line of the conversation.
_LONGEST_LINE = 1 << 24


class JudgingProcess:
    """Has tasks of checkpoints judged and scored. ``command`` starts it, with its log in ``log``, when the
    first order comes. What was under way when it died goes one by one then. ``progress`` is how far the
    orders under way are, by name."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._command = command
        self._log = log
        self._environment = environment
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[Concluded]] = {}
        self.progress: dict[str, ConcludeProgress] = {}
        self._suspects: set[str] = set()
        self._starting, self._turn = asyncio.Lock(), asyncio.Lock()
        self._closing = False

    async def conclude(self, name: str, evaluation: EvalSpec) -> Concluded:
        """Send an order and wait for its end, whatever that is."""
        if not self._suspects:
            return await self._send_order(name, evaluation)
        async with self._turn:  # one of them may have been its death, and is not to take others along
            return await self._send_order(name, evaluation)

    async def _send_order(self, name: str, evaluation: EvalSpec) -> Concluded:
        """Send an order to the process, and wait until it or the process ends."""
        process = await self._ensure_started_unless_closing()
        if process is None:
            return Concluded(name=name, interrupted=True)
        waiting: asyncio.Future[Concluded] = asyncio.get_running_loop().create_future()
        self._waiting[name] = waiting
        with suppress(ConnectionError):  # it died: its reader says so
            if process.stdin is not None:
                process.stdin.write(encode_line(ConcludeOrder(name=name, evaluation=evaluation)))
                await process.stdin.drain()
        try:
            return await waiting
        finally:
            self._waiting.pop(name, None)
            self.progress.pop(name, None)

    async def _ensure_started_unless_closing(self) -> Process | None:
        """Return the process, started if none lives; None while it is being closed."""
        async with self._starting:
            if self._closing:
                return None
            if self._process is not None and self._reading is not None and not self._reading.done():
                return self._process
            self._process = await start_process(
                self._command, self._log, self._environment, longest_line=_LONGEST_LINE
            )
            self._reading = asyncio.create_task(self._read_messages(self._process))
            return self._process

    async def _read_messages(self, process: Process) -> None:
        """Read the process's messages until it ends; then end what it left, and suspect it."""
        while process.stdout is not None and (line := await process.stdout.readline()):
            try:
                message = read_message(line)
            except Undecodable:
                continue
            if isinstance(message, ConcludeProgress):
                self.progress[message.name] = message
                continue
            waiting = self._waiting.get(message.name)
            self._suspects.discard(message.name)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        await process.wait()
        for name, waiting in self._waiting.items():
            if not waiting.done():
                self._suspects.add(name)
                problem = f"the judging process ended before it had concluded this; see {self._log}"
                waiting.set_result(Concluded(name=name, problem=problem, interrupted=self._closing))

    async def aclose(self) -> None:
        """End the orders under way soon, and wait for that; cancelled, end them at once."""
        self._closing = True
        async with self._starting:
            process, reading = self._process, self._reading
        if process is None or reading is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.shield(reading)
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.kill()
            await reading
            raise
