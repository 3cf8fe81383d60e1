"""One start of a server: below a guard, in a process group of its own, with its record on disk."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from coeval.core.errors import ServerDown
from coeval.core.plain import plain
from coeval.store.process import started
from coeval.sweeps.leg_files import LEG_LOG
from coeval.sweeps.servers.guard import MODULE, Launch
from coeval.sweeps.servers.process_group import MARK
from coeval.sweeps.servers.server_log import LOG, MOST_BYTES
from coeval.sweeps.servers.server_record import RECORD, ServerRecord

__all__ = ["GRACE_S", "ServerProcess"]

GRACE_S = 10.0
"""How long a server may take to end by itself, before its group is killed."""
_GUARD_S = 60.0
"""A guard that takes longer than this to end its server is killed with it."""


class ServerProcess:
    """A server that was started.

    ``down`` is set as soon as it has ended or is being ended, ``gone`` once nothing of it is left; then
    ``code`` is its exit code, where somebody could tell.
    """

    def __init__(self, folder: Path, record: ServerRecord, guard: Process) -> None:
        self.record = record
        self.down = asyncio.Event()
        self.gone = asyncio.Event()
        self.code: int | None = None
        self._folder = folder
        self._guard = guard
        self._told: asyncio.Task[None] | None = None

    @classmethod
    async def begin(
        cls,
        folder: Path,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        port: int,
        inherited: Mapping[str, str],
    ) -> ServerProcess:
        """Start a server whose log and record lie in ``folder``; its ``environment`` goes over ``inherited``,
        which its guard has too.

        Raises
        ------
        ServerDown
            there is no such command.
        """
        record = ServerRecord.of_now(secrets.token_hex(16), port)
        record.write(folder)  # before there is anything to find
        launch = Launch(
            command=command,
            environment={"PYTHONUNBUFFERED": "1", **environment, MARK: record.mark},
            log=str(folder / LOG),
            most_bytes=MOST_BYTES,
            grace_s=GRACE_S,
        )
        with (folder / LEG_LOG).open("ab") as said:
            guard = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", MODULE),
                stdin=PIPE,
                stdout=PIPE,
                stderr=said,
                env=inherited,
                start_new_session=True,
            )
        process = cls(folder, record, guard)
        with ExitStack() as undoing:
            undoing.callback(process.kill)
            await process._launch(launch)
            undoing.pop_all()
        return process

    async def _launch(self, launch: Launch) -> None:
        with suppress(ConnectionError):  # it is gone: its silence says so
            self._write(msgspec.json.encode(launch) + b"\n")
        kind, _, rest = (await self._said()).partition(" ")
        if kind != "started":
            why = (
                f"{launch.command[0]}: {plain(rest)}"
                if kind == "refused"
                else "the guard of the server was ended"
            )
            raise ServerDown(
                f"the server cannot be started: {why}; correct --server-command, or install what it names",
                again=kind != "refused",
            )
        pid, _, output = rest.partition(" ")
        self.record = msgspec.structs.replace(
            self.record, group=int(pid), started=started(int(pid)) or "", output=output
        )
        self.record.write(self._folder)
        self._told = asyncio.create_task(self._listen())

    def _write(self, data: bytes) -> None:
        if self._guard.stdin is not None:
            self._guard.stdin.write(data)

    async def _said(self) -> str:
        stdout = self._guard.stdout
        return "" if stdout is None else (await stdout.readline()).decode(errors="replace").strip()

    async def _listen(self) -> None:
        """Wait for the server's end; where the guard ended before it, end it."""
        await self._said()
        self.down.set()
        said = await self._said()
        if said.startswith("ended "):
            self.code = int(said.partition(" ")[2])
        await self._guard.wait()
        for seconds in self.record.end(GRACE_S):  # what the guard has left: nothing, unless it was killed
            await asyncio.sleep(seconds)
        with suppress(OSError):
            (self._folder / RECORD).unlink(missing_ok=True)
        self.gone.set()

    @property
    def exit(self) -> str:
        """How it ended, for a message; empty where that is not known."""
        if self.code is None:
            return ""
        if self.code >= 0:
            return f" (exit code {self.code})"
        hint = "; a machine whose memory is full does that" if self.code == -signal.SIGKILL else ""
        return f" (ended by {signal.Signals(-self.code).name}{hint})"

    def pids(self) -> list[int]:
        return self.record.processes()

    async def end(self) -> None:
        """End the server with its group, and wait for that; where that is cancelled, it is killed."""
        if self._told is None:
            return
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        try:
            async with asyncio.timeout(_GUARD_S):
                await self.gone.wait()
        except TimeoutError:
            self.kill()
            await self.gone.wait()
        except asyncio.CancelledError:
            self.kill()
            raise

    def kill(self) -> None:
        """End it at once, and wait for nothing."""
        with suppress(ProcessLookupError):
            self._guard.kill()
        self.record.kill()
        with suppress(OSError):
            (self._folder / RECORD).unlink(missing_ok=True)
