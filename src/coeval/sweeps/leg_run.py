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

import msgspec

from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.benchmarks.run.runner import Prepared, held, prepare
from coeval.core.errors import CoevalError, Draining, ServerDown, StoreError, UsageError
from coeval.core.plain import plain_lines
from coeval.models.keys import Keys
from coeval.sweeps.leg import Leg, LegResult
from coeval.sweeps.leg_asking import Came, LegAsking, is_owed
from coeval.sweeps.leg_count import LegCount
from coeval.sweeps.leg_files import write_progress, write_result
from coeval.sweeps.leg_server import LegServer
from coeval.sweeps.servers.leftovers import end_leftover
from coeval.sweeps.servers.server_log import ServerLog

__all__ = ["run_leg"]

log = logging.getLogger("coeval")

PROGRESS_S = 1.0
LONGEST_WAIT_S = 120.0
HELD_BY_OTHERS_S = 60.0
"""How long a task's folder may be held by an earlier leg that is being interrupted."""
_LOOK_S = 0.5


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
            came = Came("failed", str(error))
        finally:
            count = run.count
            result = LegResult(
                end=came.end,
                tasks=count.answered(),
                problem=run.shown(came.problem),
                input_tokens=count.input_tokens,
                output_tokens=count.output_tokens,
                seconds=time.monotonic() - began,
                starts=count.starts,
            )
            write_result(leg, result)
    log.info("%s: %s %s", leg.name, result.end, result.problem)
    return result


class _LegRun:
    """A leg under way."""

    def __init__(self, leg: Leg, keys: Keys, interrupt: asyncio.Event) -> None:
        self.count = LegCount()
        self._leg = leg
        self._interrupt = interrupt
        key = leg.key_of(os.environ)
        self._log = ServerLog(leg.folder, os.environ, [key] if key else [])
        self._asking = LegAsking(leg, keys, self.count, self._log, interrupt)

    def shown(self, text: str) -> str:
        """What others may have said, for whoever shows it."""
        return plain_lines(self._log.redacted(text))

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """Meanwhile, keep ``progress.json`` up to date."""
        ended = asyncio.Event()
        telling = asyncio.create_task(self._tell(ended))
        try:
            yield
        finally:
            ended.set()
            await asyncio.wait({telling})  # not cancelled: its thread would write on beside us
            self.count.state = "ended"
            write_progress(self._leg.folder, self.count.progress())

    async def _tell(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            progress = self.count.progress()
            try:
                await asyncio.to_thread(write_progress, self._leg.folder, progress)
            except StoreError as error:  # answers matter more; where the disk is full, they will say so
                log.warning("%s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(PROGRESS_S):
                    await ended.wait()

    async def carry_out(self) -> Came:
        """
        Raises
        ------
        CoevalError
            it cannot be done; a ServerDown where that is the server's fault.
        """
        folder, server = self._leg.folder, self._leg.server
        await asyncio.to_thread(end_leftover, folder)
        prepared = await asyncio.to_thread(prepare, self._evaluation, self.count)
        async with self._held(prepared):
            for task_run in prepared.task_runs:
                task_run.read_answers()
            self.count.read(prepared.task_runs)
            if not is_owed(prepared):
                return Came("done")
            if server is None:
                return await self._asking.ask(prepared)
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
                    return await self._asking.ask(prepared, up)
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

    async def _interrupted_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._interrupt.wait()
        return self._interrupt.is_set()
