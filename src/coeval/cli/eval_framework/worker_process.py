"""``python -m coeval.cli.eval_framework.worker_process WORKER_FOLDER``: a worker of a sweep, started by an
engine.

Its standard input is a lifeline: a pipe that whoever started it holds open. When that ends, or at SIGTERM or
SIGINT, the worker stops asking, ends its server and exits; a second signal does so at once. It says nothing:
``progress.json`` and ``result.json`` do, and ``worker.log``. Exit code 0: read ``result.json``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from coeval.cli.ending import run_to_exit
from coeval.cli.loop import interruptible, run_async
from coeval.core.errors import StoreError, UsageError
from coeval.core.options import Face
from coeval.engine.session import logged
from coeval.models.keys import Keys
from coeval.sweeps.server_log import LOG
from coeval.sweeps.worker_files import WORKER_LOG, Worker, WorkerResult, read_worker
from coeval.sweeps.worker_run import run_worker

LIFELINE = 0
log = logging.getLogger("coeval")


def main() -> None:
    run_to_exit(_worker, Face.SWEEP)


def _worker() -> None:
    if len(sys.argv) != 2:
        raise UsageError("coeval.cli.eval_framework.worker_process takes the folder of one worker")
    folder = Path(sys.argv[1])
    try:
        worker = read_worker(folder)
    except FileNotFoundError as error:
        raise UsageError(f"{folder} holds no worker.json; workers are started by `coeval sweep`") from error
    keys = Keys.load(None, env=os.environ, cwd=Path.cwd(), home=Path.home())
    _link_logs(worker)
    with logged(folder / WORKER_LOG, "INFO"):
        run_async(interruptible(lambda interrupt: _until_cut(worker, keys, interrupt), log.info))


async def _until_cut(worker: Worker, keys: Keys, interrupt: asyncio.Event) -> WorkerResult:
    with _lifeline(interrupt):
        return await run_worker(worker, keys, interrupt)


@contextmanager
def _lifeline(interrupt: asyncio.Event) -> Iterator[None]:
    """Meanwhile, set ``interrupt`` when standard input ends, if it is a pipe or a socket."""
    mode = 0
    with suppress(OSError):  # it is closed
        mode = os.fstat(LIFELINE).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        yield
        return
    loop = asyncio.get_running_loop()

    def look() -> None:
        try:
            there = os.read(LIFELINE, 1 << 12)
        except BlockingIOError:
            return
        except OSError:  # it is a socket, and was reset
            there = b""
        if not there:
            log.info("whoever started this worker is gone, or has ended it")
            loop.remove_reader(LIFELINE)
            interrupt.set()

    loop.add_reader(LIFELINE, look)
    try:
        yield
    finally:
        loop.remove_reader(LIFELINE)


def _link_logs(worker: Worker) -> None:
    """Let both logs be found in the folder that the user named for them."""
    if worker.logs is None:
        return
    for name in (LOG, WORKER_LOG):
        link = worker.logs / f"{worker.name}.{name}"
        try:
            worker.logs.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to((worker.folder / name).resolve())
        except OSError as error:
            raise StoreError(f"cannot link {link}: {error.strerror}; name another folder for logs") from error


if __name__ == "__main__":
    main()
