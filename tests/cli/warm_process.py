"""The commands as processes of their own, forked from one that has loaded what they load.

Most of what a small command takes is the interpreter's start and loading modules. A `WarmProcess` has its own
id, environment, folder and streams, takes signals, and ends as ``python -m`` does. What is about the start
itself (a locale, a limit, a closed stream, Ctrl-C while modules load) starts one with `subprocess`.

As a script, this module is the process that forks.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from select import select
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
LOADED_LAST = ("coeval.reports.result_tables", "coeval.cli.eval_framework.eval_report")
"""They load duckdb, which complains at the end of a process whose garbage is not collected."""
EVAL_FRAMEWORK = "coeval.cli.eval_framework"
LONGEST_REQUEST = 1 << 17
LONG_S = 120.0
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
        env: Mapping[str, str | None] = MappingProxyType({}),
        err_to_out: bool = False,
        streams: Sequence[int] = (),
    ) -> None:
        """``env``: variables beside those of this process, or None in place of one of them. ``streams``:
        descriptors to write to, its errors to and, if there is a third, to read from."""
        self.returncode: int | None = None
        self._out, self._err = os.memfd_create("out"), os.memfd_create("err")
        self._waiting = Lock()
        self._reported, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reported.settimeout(LONG_S)
        requested = {
            "words": [module, *map(str, words)],
            "cwd": str(cwd or Path.cwd()),
            "env": {name: value for name, value in {**os.environ, **env}.items() if value is not None},
        }
        streams = streams or (self._out, self._out if err_to_out else self._err)
        with there:
            socket.send_fds(_warm(), [json.dumps(requested).encode()], [there.fileno(), *streams])
        self.pid = int(self._reported.recv(20))

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """Its exit code, once it has ended; a negative one is the signal that ended it."""
        if self.returncode is None and self._waiting.acquire(blocking=False):
            if select([self._reported], [], [], 0)[0]:
                self._hear()
            self._waiting.release()
        return self.returncode

    def wait(self, within_s: float = LONG_S) -> int:
        """Fails with a `TimeoutError` where it takes longer."""
        with self._waiting:
            if self.returncode is None:
                self._reported.settimeout(within_s)
            return self._hear()

    def _hear(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._reported.recv(20))
            self._reported.close()
        return self.returncode

    def continue_if_started(self) -> Output:
        """What it has written."""
        return Output(*(_content(stream) for stream in (self._out, self._err)))

    def communicate(self, within_s: float = LONG_S) -> Output:
        """`wait`, and then what it wrote; once."""
        self.wait(within_s)
        written = self.continue_if_started()
        os.close(self._out)
        os.close(self._err)
        return written

    async def ended(self) -> int:
        """`wait`, beside a host in the same loop."""
        return await asyncio.to_thread(self.wait)

    async def output(self) -> Output:
        """`communicate`, beside a host in the same loop."""
        return await asyncio.to_thread(self.communicate)


def _content(stream: int) -> str:
    return os.pread(stream, os.fstat(stream).st_size, 0).decode()


def _warm() -> socket.socket:
    """Where the process that forks is asked: one for all tests of this process, and ends with it."""
    with _STARTING:
        return _started()


@cache
def _started() -> socket.socket:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        process = subprocess.Popen(
            [sys.executable, __file__, str(there.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[there.fileno()],
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )

    def end() -> None:
        here.close()
        process.wait()

    atexit.register(end)
    return here


class _Requested(NamedTuple):
    words: list[str]
    cwd: str
    env: dict[str, str]


def _next_command(requests: socket.socket) -> _Requested:
    """Returns in the process of each command that is asked for; here it ends when nobody is left to ask."""
    while True:
        data, received, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, 4)
        if not received:
            raise SystemExit
        reported, *streams = received
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            forked = os.fork()  # numpy's threads are at rest, and it looks after them
        if not forked:
            break
        for descriptor in (reported, *streams):
            os.close(descriptor)
        with suppress(ChildProcessError):  # none is left
            while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):
                pass
    command = os.fork()
    if command:
        os.write(reported, b"%d" % command)
        os.write(reported, b"%d" % os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]))
        os._exit(0)
    for target, stream in zip((1, 2, 0), streams, strict=False):
        os.dup2(stream, target)
    for descriptor in (reported, *streams, requests.detach()):
        os.close(descriptor)
    return _Requested(**json.loads(data))


def _repair_standard_streams() -> None:
    """As an interpreter that starts does; the old ones remember what they were."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  they end with the process
    sys.stdout = open(1, "w", buffering=1 if os.isatty(1) else -1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def load() -> None:
    """Load what commands load."""
    for module in LOADED:
        import_module(module)
    gc.freeze()  # a command that ends looks through what it made, not through what was loaded
    for module in LOADED_LAST:
        import_module(module)


def _serve(requests: socket.socket) -> dict[str, Any]:
    """Run a command in each process that comes back from `_next_command`."""
    sys.path.pop(0)
    load()
    requested = _next_command(requests)
    os.chdir(requested.cwd)
    os.environ.clear()
    os.environ.update(requested.env)
    sys.path.insert(0, requested.cwd)
    sys.argv = ["-m", *requested.words[1:]]
    _repair_standard_streams()
    return runpy.run_module(requested.words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
