"""The commands as processes of their own, forked from one that has loaded what they load.

Most of what a small command takes is the interpreter's start and loading modules. A `WarmProcess` has its own
id, environment, folder and streams, takes signals, and ends as ``python -m`` does. What is about the start
itself (a terminal, a locale, a limit, Ctrl-C while modules load) starts an interpreter with `subprocess`.

As a script, this module is the process that forks.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

SOURCE = Path(__file__).parents[2] / "src"
LOADED = (
    "genai_prices",
    "scipy.stats",
    "uvloop",
    "coeval.cli.main",
    "coeval.cli.eval_framework.command",
    "coeval.models.batch.batch_http",
    "coeval.pipeline.plan.estimate",
    "coeval.pipeline.run",
    "coeval.pipeline.upkeep.repair",
)
LOADED_LAST = ("coeval.analysis.scores", "coeval.cli.eval_framework.eval_report")
"""They load duckdb, which complains at the end of a process whose garbage is not collected."""
EVAL_FRAMEWORK = "coeval.cli.eval_framework"
LONGEST_REQUEST = 1 << 17
SOON_S = 120.0
_STARTING = Lock()


class Output(NamedTuple):
    out: str
    err: str


class WarmProcess:
    """``python -m MODULE WORDS``. What it writes is kept until `communicate` asks for it."""

    def __init__(
        self,
        *words: object,
        module: str = "coeval",
        cwd: str | Path | None = None,
        env: Mapping[str, str] = MappingProxyType({}),
        err_to_out: bool = False,
    ) -> None:
        """``env``: variables beside those of this process."""
        self.returncode: int | None = None
        self._out, self._err = (os.fdopen(os.memfd_create(name), "rb") for name in ("out", "err"))
        self._waiting = Lock()
        here, there = socket.socketpair()
        here.settimeout(SOON_S)
        asked = {
            "words": [module, *map(str, words)],
            "cwd": str(cwd or Path.cwd()),
            "env": {**os.environ, **env},
        }
        streams = [self._out.fileno(), (self._out if err_to_out else self._err).fileno()]
        with there:
            socket.send_fds(_warm(), [json.dumps(asked).encode()], [there.fileno(), *streams])
        self._told = here.makefile("rb")
        here.close()
        self.pid = int(self._told.readline())

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code; a negative one is the signal that ended it."""
        with self._waiting:
            if self.returncode is None:
                self.returncode = int(self._told.readline())
                self._told.close()
        return self.returncode

    def communicate(self) -> Output:
        """Wait for its end; once."""
        self.wait()
        texts = []
        for stream in (self._out, self._err):
            with stream:
                stream.seek(0)
                texts.append(stream.read().decode())
        return Output(*texts)

    async def ended(self) -> int:
        """`wait`, beside a host in the same loop."""
        return await asyncio.to_thread(self.wait)

    async def output(self) -> Output:
        """`communicate`, beside a host in the same loop."""
        return await asyncio.to_thread(self.communicate)


def _warm() -> socket.socket:
    """Where the process that forks is asked: one for all tests of this process, and ends with it."""
    with _STARTING:
        return _started(os.getpid())


@cache
def _started(_: int) -> socket.socket:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        subprocess.Popen(
            [sys.executable, __file__, str(there.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[there.fileno()],
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
    return here


class _Asked(NamedTuple):
    words: list[str]
    cwd: str
    env: dict[str, str]


def _next_command(requests: socket.socket) -> _Asked:
    """Returns in the process of each command that is asked for; here it ends when nobody is left to ask."""
    while True:
        data, received, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, 3)
        if not received:
            raise SystemExit
        told, *streams = received
        if not os.fork():
            break
        for descriptor in (told, *streams):
            os.close(descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = os.fork()
    if command:
        os.write(told, b"%d\n" % command)
        os.write(told, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]))
        os._exit(0)
    for target, stream in enumerate(streams, start=1):
        os.dup2(stream, target)
    for descriptor in (told, *streams, requests.detach()):
        os.close(descriptor)
    return _Asked(**json.loads(data))


def _serve(requests: socket.socket) -> dict[str, Any]:
    """Run a command in each process that comes back from `_next_command`."""
    sys.path.pop(0)
    for module in LOADED:
        import_module(module)
    gc.freeze()  # a command that ends looks through what it made, not through what was loaded
    for module in LOADED_LAST:
        import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    asked = _next_command(requests)
    os.chdir(asked.cwd)
    os.environ.clear()
    os.environ.update(asked.env)
    sys.path.insert(0, asked.cwd)
    sys.argv = ["-m", *asked.words[1:]]
    return runpy.run_module(asked.words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
