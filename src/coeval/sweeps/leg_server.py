"""A leg's server, start by start: on a free port, waited for until it is up, ended whatever happens."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from coeval.core.errors import ServerDown
from coeval.engine.waiting import unless_interrupted
from coeval.sweeps.leg import Leg, Server
from coeval.sweeps.leg_count import LegCount
from coeval.sweeps.servers.health import until_up
from coeval.sweeps.servers.listening import free_port, is_free
from coeval.sweeps.servers.server_command import HOST, ServerCommand
from coeval.sweeps.servers.server_log import ServerLog
from coeval.sweeps.servers.server_process import ServerProcess

__all__ = ["LegServer", "Up"]

_QUIET_S = 1.0


class Up(NamedTuple):
    """A server that is up, and where; ``url`` ends in ``/v1``."""

    process: ServerProcess
    url: str


class LegServer:
    """The server of a leg, whose files lie in its folder."""

    def __init__(self, leg: Leg, server: Server, count: LegCount, log: ServerLog) -> None:
        self.server = server
        self._command = ServerCommand(server.template)
        self._folder = leg.folder
        self._key = leg.key_of(os.environ)
        self._count = count
        self._log = log

    @asynccontextmanager
    async def up(self, interrupt: asyncio.Event) -> AsyncIterator[Up]:
        """Start it once; it is ended when this is left, and killed where that is by cancelling.

        Raises
        ------
        Draining
            somebody interrupted it before it was up.
        ServerDown
            it does not come up; with the last lines that it wrote.
        """
        server, count = self.server, self._count
        count.starts += 1
        count.state = "starting"
        self._log.begin()
        port = await asyncio.to_thread(self._port)
        process = await ServerProcess.begin(
            self._folder,
            self._command.filled(server, port),
            self._environment(),
            port,
            self._command.inherited(os.environ, server.passed),
        )
        try:
            url = f"http://{HOST}:{port}/v1"
            await unless_interrupted(self._wait_for(process, url), interrupt, "the server was still starting")
            yield Up(process, url)
        except asyncio.CancelledError:
            process.kill()
            raise
        finally:
            count.state = "stopping"
            await process.end()

    async def _wait_for(self, process: ServerProcess, url: str) -> None:
        try:
            await until_up(process, url, self.server.start_timeout_s, self._tell, self._key)
        except ServerDown as error:
            if process.down.is_set():
                await process.gone.wait()
            raise ServerDown(f"{error}{process.exit}. {self._log.told()}", again=error.again) from error

    def _tell(self, waited_s: float) -> None:
        if waited_s >= _QUIET_S:
            self._count.say(f"waiting for the server for {waited_s:.0f} s: {self._log.last_line()}")

    def _port(self) -> int:
        server = self.server
        if not server.port:
            return free_port(HOST)
        if not is_free(HOST, server.port):
            raise ServerDown(
                f"port {server.port} of {HOST} is taken by another process; "
                "end that, or let the sweep choose the ports"
            )
        return server.port

    def _environment(self) -> dict[str, str]:
        gpus = ",".join(self.server.gpus)
        return {**({"CUDA_VISIBLE_DEVICES": gpus} if gpus else {}), **self.server.environment}
