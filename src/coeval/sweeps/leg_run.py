"""A leg's work: prepare, start the server where something is owed, ask, and end the server, whatever happens.

A server that dies, or that answers nothing but failures, is started again after a wait that grows; asking
then goes on with what is owed. Answers are on disk as they are made, so whatever ends a leg costs those that
were on their way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import NamedTuple

import msgspec

from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.benchmarks.run.runner import EndOfAsking, Prepared, ask_owed, held, prepare
from coeval.core.errors import CoevalError, Draining, ModelUnavailable, ServerDown, StoreError, UsageError
from coeval.core.good import is_good
from coeval.models.keys import Keys
from coeval.models.probe import ProbeResult
from coeval.store.jsonl import read_json
from coeval.sweeps.leg import Leg, LegEnd, LegResult
from coeval.sweeps.leg_count import LegCount
from coeval.sweeps.leg_files import write_progress, write_result
from coeval.sweeps.leg_server import LegServer, Up
from coeval.sweeps.servers.health import served_names
from coeval.sweeps.servers.leftovers import end_leftover
from coeval.sweeps.servers.server_log import ServerLog

__all__ = ["run_leg"]

log = logging.getLogger("coeval")

PROGRESS_S = 1.0
LONGEST_WAIT_S = 120.0
HELD_BY_OTHERS_S = 60.0
"""How long a task's folder may be held by an earlier leg that is being interrupted."""
OF_SERVERS = frozenset({"connection", "timeout", "server"})
"""Failures that a server is to blame for, and another start may mend."""
ROUNDS = 3
"""How often one server is asked for what it has dropped."""
_LOOK_S = 0.5


class Came(NamedTuple):
    """How a leg ended, and why it is not done."""

    end: LegEnd
    problem: str = ""


async def run_leg(leg: Leg, keys: Keys, interrupt: asyncio.Event) -> LegResult:
    """Do a leg, and write what came of it into its folder. Setting ``interrupt`` ends it; so does cancelling,
    which kills the server at once."""
    began = time.monotonic()
    run = _LegRun(leg, keys, interrupt)
    came = Came("interrupted", "it was ended at once")
    async with run.telling():
        try:
            came = await run.carry_out()
        except ServerDown as error:
            came = Came("server_failed", str(error))
        except CoevalError as error:
            came = Came("failed", run.redacted(str(error)))
        finally:
            count = run.count
            result = LegResult(
                end=came.end,
                tasks=count.answered(),
                problem=came.problem,
                input_tokens=count.input_tokens,
                output_tokens=count.output_tokens,
                seconds=time.monotonic() - began,
                starts=count.starts,
            )
            write_result(leg.folder, result)
    log.info("%s: %s %s", leg.name, result.end, result.problem)
    return result


class _LegRun:
    """A leg under way."""

    def __init__(self, leg: Leg, keys: Keys, interrupt: asyncio.Event) -> None:
        self.count = LegCount()
        self._leg = leg
        self._keys = keys
        self._interrupt = interrupt
        key = leg.key_of(os.environ)
        self._log = ServerLog(leg.folder, os.environ, [key] if key else [])

    def redacted(self, text: str) -> str:
        return self._log.redacted(text)

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """Meanwhile, keep ``progress.json`` up to date."""
        telling = asyncio.create_task(self._tell())
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.wait({telling})
            self.count.state = "ended"
            write_progress(self._leg.folder, self.count.progress())

    async def _tell(self) -> None:
        while True:
            progress = self.count.progress()
            try:
                await asyncio.to_thread(write_progress, self._leg.folder, progress)
            except StoreError as error:  # answers matter more; where the disk is full, they will say so
                log.warning("%s", error)
            await asyncio.sleep(PROGRESS_S)

    async def carry_out(self) -> Came:
        """
        Raises
        ------
        CoevalError
            it cannot be done; a ServerDown where that is the server's fault.
        """
        folder, server = self._leg.folder, self._leg.server
        await asyncio.to_thread(end_leftover, folder)
        prepared = prepare(self._evaluation, self.count)
        async with self._held(prepared):
            for task_run in prepared.task_runs:
                task_run.read_answers()
            self.count.read(prepared.task_runs)
            if not _is_owed(prepared):
                return Came("done")
            if server is None:
                return await self._ask(prepared, None)
            return await self._serve(LegServer(self._leg, server, self.count, self._log), prepared)

    @property
    def _evaluation(self) -> EvalSpec:
        """With the credential that the leg's file does not hold."""
        evaluation = self._leg.evaluation
        if evaluation.tested is None:
            raise UsageError(f"the leg {self._leg.name} names no model to ask")
        tested = msgspec.structs.replace(evaluation.tested, access_key=self._leg.key_of(os.environ))
        return msgspec.structs.replace(evaluation, tested=tested)

    @asynccontextmanager
    async def _held(self, prepared: Prepared) -> AsyncIterator[None]:
        """Be the only writer of the tasks' folders, once an earlier leg has let them go."""
        until = time.monotonic() + HELD_BY_OTHERS_S
        with ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(held(prepared))
                    break
                except UsageError:
                    if time.monotonic() > until or await self._interrupted_within(_LOOK_S):
                        raise
            yield

    async def _serve(self, server: LegServer, prepared: Prepared) -> Came:
        """Ask a server that is started again as often as it may be."""
        wait_s = server.server.wait_s
        while True:
            try:
                async with server.up(self._interrupt) as up:
                    return await self._ask(prepared, up)
            except Draining:
                return Came("interrupted")
            except ServerDown as error:
                problem = error
            log.warning("%s", problem)
            if self._interrupt.is_set():
                return Came("interrupted")
            if not problem.again or self.count.starts >= server.server.starts:
                raise problem
            self.count.state = "restarting"
            self.count.say(str(problem).partition("\n")[0])
            if await self._interrupted_within(wait_s):
                return Came("interrupted")
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def _ask(self, prepared: Prepared, up: Up | None) -> Came:
        """Ask for what is owed, and again for what the server has dropped, as long as that brings answers."""
        if up is not None:
            prepared = _asked_at(prepared, up.url)
        for _ in range(ROUNDS):
            ended = await self._ask_once(prepared, up)
            if self._interrupt.is_set():
                return Came("interrupted")
            if not _is_owed(prepared):
                return Came("done")
            if up is not None and up.process.down.is_set():
                await up.process.gone.wait()
                raise self._down(up, "the server ended while it was asked")
            if ended.stopped:
                return Came("failed", "; ".join(ended.stopped.values()) + await self._served(up))
            made, failed = self.count.asked_last()
            dropped = OF_SERVERS.intersection(failed)
            if dropped and not made and up is not None:
                raise self._down(up, "the server gives nothing but failures")
            if not dropped or not made:
                break
        return Came("done")

    async def _ask_once(self, prepared: Prepared, up: Up | None) -> EndOfAsking:
        stop = asyncio.Event()
        stopping = asyncio.create_task(self._stop(stop, up))
        try:
            return await ask_owed(prepared, self._keys, self.count, stop)
        except ModelUnavailable as error:
            if up is not None and (up.process.down.is_set() or self._is_servers_fault()):
                raise self._down(up, f"the server is up and does not answer: {error}") from error
            raise ModelUnavailable(f"{error}{await self._served(up)}") from error
        finally:
            stopping.cancel()
            await asyncio.wait({stopping})

    def _down(self, up: Up, what: str) -> ServerDown:
        return ServerDown(f"{what}{up.process.exit}. {self._log.told()}")

    def _is_servers_fault(self) -> bool:
        """Whether the probe met with a failure that another start may mend."""
        with suppress(OSError, StoreError):
            probed = read_json(self._leg.evaluation.accounts_folder / "probe_results.json", _Probes)
            return any(
                result.error is not None and result.error.kind in OF_SERVERS for result in probed.models
            )
        return False

    async def _served(self, up: Up | None) -> str:
        """A sentence on the models that the server names, where it does."""
        tested = self._evaluation.tested
        url = up.url if up is not None else tested.base_url if tested is not None else None
        names = await served_names(url, self._leg.key_of(os.environ)) if url else ""
        return f" It serves: {names}." if names else ""

    async def _stop(self, stop: asyncio.Event, up: Up | None) -> None:
        """Set ``stop`` as soon as the leg is interrupted or its server is down."""
        events = [self._interrupt] if up is None else [self._interrupt, up.process.down]
        waiting = [asyncio.create_task(event.wait()) for event in events]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            stop.set()
        finally:
            for task in waiting:
                task.cancel()

    async def _interrupted_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._interrupt.wait()
        return self._interrupt.is_set()


class _Probes(msgspec.Struct):
    """What is read again of ``probe_results.json``."""

    models: list[ProbeResult]


def _is_owed(prepared: Prepared) -> bool:
    """Whether there is a prompt without a good answer, by the records that have been read."""
    return any(
        (record := task_run.answers.get(item.id)) is None or not is_good(record)
        for task_run in prepared.task_runs
        for item in task_run.items
    )


def _asked_at(prepared: Prepared, url: str) -> Prepared:
    evaluation = prepared.evaluation
    if evaluation.tested is None:
        return prepared
    tested = msgspec.structs.replace(evaluation.tested, base_url=url)
    return Prepared(msgspec.structs.replace(evaluation, tested=tested), prepared.task_runs, prepared.assets)
