"""The one process that judges and scores for a sweep, as the sweep sees it: fed order by order, begun again
where it dies.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.core.errors import Undecodable
from coeval.store.jsonl import store_error
from coeval.sweeps.judging_run import (
    Concluded,
    ConcludeOrder,
    ConcludeProgress,
    read_message,
    written,
)

_MODULE = "coeval.cli.eval_framework.judging_process"
# Bytes: a task's whole summary is one line of the conversation.
_LONGEST_LINE = 1 << 24
_DIED = "the judging process ended before it had concluded this; see {log}"


class JudgingProcess:
    """Has tasks of checkpoints judged and scored.

    ``command`` starts it, with its log in ``log``, when the first order comes, in a session of its own; it
    ends with the pipe to its standard input. What was under way when it died goes one by one then.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._command = command
        self._log = log
        self._environment = environment
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[Concluded]] = {}
        self._progress: dict[str, ConcludeProgress] = {}
        self._suspects: set[str] = set()
        self._starting, self._turn = asyncio.Lock(), asyncio.Lock()
        self._closing = False

    async def conclude(self, name: str, evaluation: EvalSpec) -> Concluded:
        """Wait for an order's end, whatever that is."""
        if not self._suspects:
            return await self._ordered(name, evaluation)
        async with self._turn:  # one of them may have been its death, and is not to take others along
            return await self._ordered(name, evaluation)

    async def _ordered(self, name: str, evaluation: EvalSpec) -> Concluded:
        process = await self._started()
        if process is None:
            return Concluded(name=name, interrupted=True)
        waiting: asyncio.Future[Concluded] = asyncio.get_running_loop().create_future()
        self._waiting[name] = waiting
        with suppress(ConnectionError):  # it died: its reader says so
            if process.stdin is not None:
                process.stdin.write(written(ConcludeOrder(name=name, evaluation=evaluation)))
                await process.stdin.drain()
        try:
            return await waiting
        finally:
            self._waiting.pop(name, None)
            self._progress.pop(name, None)

    async def _started(self) -> Process | None:
        """None once it is being closed."""
        async with self._starting:
            if self._closing:
                return None
            if self._process is not None and self._reading is not None and not self._reading.done():
                return self._process
            with open_log(self._log) as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=log,
                    env=self._environment,
                    limit=_LONGEST_LINE,
                    start_new_session=True,
                )
            self._reading = asyncio.create_task(self._read(self._process))
            return self._process

    async def _read(self, process: Process) -> None:
        while process.stdout is not None and (line := await process.stdout.readline()):
            try:
                message = read_message(line)
            except Undecodable:
                continue
            if isinstance(message, ConcludeProgress):
                self._progress[message.name] = message
                continue
            waiting = self._waiting.get(message.name)
            self._suspects.discard(message.name)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        await process.wait()
        for name, waiting in self._waiting.items():
            if not waiting.done():
                self._suspects.add(name)
                problem = _DIED.format(log=self._log)
                waiting.set_result(Concluded(name=name, problem=problem, interrupted=self._closing))

    def progress(self) -> Mapping[str, ConcludeProgress]:
        """How far the orders under way are, by name."""
        return self._progress

    async def aclose(self) -> None:
        """Have the orders that are under way end soon, and wait for that; cancelled, end them at once."""
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


def open_log(path: Path) -> BinaryIO:
    """Raises StoreError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")
    except OSError as error:
        raise store_error("write", path, error) from error


def judging_command(log: Path, keys: Path | None) -> tuple[str, ...]:
    """What runs the judging process, as this interpreter; ``keys`` is the user's file of credentials."""
    return (sys.executable, "-m", _MODULE, str(log), *(() if keys is None else (str(keys),)))
