"""``python -m coeval.cli.eval_framework.worker_process [WORKER_FOLDER]``: a worker of a sweep, started by an
engine. Without a folder, one worker after another: each line of standard input is a folder in JSON, which is
written to standard output at the worker's end.

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
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path

from coeval.cli.ending import run_to_exit
from coeval.cli.loop import interruptible, run_async
from coeval.core.errors import Draining, StoreError, UsageError
from coeval.core.foreign import decode
from coeval.core.options import Frontend
from coeval.engine.session import await_unless_interrupted, write_log
from coeval.models.keys import Keys
from coeval.sweeps.server_log import LOG
from coeval.sweeps.worker_files import WORKER_LOG, Worker, WorkerResult, read_worker
from coeval.sweeps.worker_run import KeptServer, run_worker

LIFELINE, ANSWERS = 0, 1
log = logging.getLogger("coeval")


def main() -> None:
    run_to_exit(_worker, Frontend.SWEEP)


def _worker() -> None:
    if len(sys.argv) > 2:
        raise UsageError("coeval.cli.eval_framework.worker_process takes the folder of one worker, or none")
    keys = Keys.load(None, env=os.environ, cwd=Path.cwd(), home=Path.home())
    if len(sys.argv) == 1:
        run_async(interruptible(lambda interrupt: _one_by_one(keys, interrupt), log.info))
        return
    worker = _read(Path(sys.argv[1]))
    with write_log(worker.folder / WORKER_LOG, "INFO"):
        run_async(interruptible(lambda interrupt: _until_cut(worker, keys, interrupt), log.info))


def _read(folder: Path) -> Worker:
    try:
        worker = read_worker(folder)
    except FileNotFoundError as error:
        raise UsageError(f"{folder} holds no worker.json; workers are started by `coeval sweep`") from error
    _link_logs(worker)
    return worker


async def _until_cut(worker: Worker, keys: Keys, interrupt: asyncio.Event) -> WorkerResult:
    with lifeline(interrupt, asyncio.Queue()):
        return await run_worker(worker, keys, interrupt)


async def _one_by_one(keys: Keys, interrupt: asyncio.Event) -> None:
    """Do the workers of a slot until there are no more; their server may stay in between."""
    folders: asyncio.Queue[bytes] = asyncio.Queue()
    with lifeline(interrupt, folders), suppress(Draining):
        async with aclosing(KeptServer()) as kept:
            while not interrupt.is_set():
                line = await await_unless_interrupted(folders.get(), interrupt, "there are no more workers")
                worker = _read(Path(decode(line, str)))
                with write_log(worker.folder / WORKER_LOG, "INFO"):
                    await run_worker(worker, keys, interrupt, kept)
                os.write(ANSWERS, line + b"\n")


@contextmanager
def lifeline(interrupt: asyncio.Event, lines: asyncio.Queue[bytes]) -> Iterator[None]:
    """Meanwhile, where standard input is a pipe or a socket, pass on its lines, and set ``interrupt`` when it
    ends."""
    mode = 0
    with suppress(OSError):  # it is closed
        mode = os.fstat(LIFELINE).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        yield
        return
    loop = asyncio.get_running_loop()
    rest = bytearray()

    def look() -> None:
        try:
            there = os.read(LIFELINE, 1 << 12)
        except BlockingIOError:
            return
        except OSError:  # it is a socket, and was reset
            there = b""
        if not there:
            log.info("whoever started this process is gone, or has ended it")
            loop.remove_reader(LIFELINE)
            interrupt.set()
        rest.extend(there)
        while b"\n" in rest:
            line, _, after = bytes(rest).partition(b"\n")
            rest[:] = after
            lines.put_nowait(line)

    loop.add_reader(LIFELINE, look)
    try:
        yield
    finally:
        loop.remove_reader(LIFELINE)


def _link_logs(worker: Worker) -> None:
    """Let both logs be found in the folder that the user named for them."""
    if worker.logs is None:
        return
    for folder, name in ((worker.server_folder, LOG), (worker.folder, WORKER_LOG)):
        link = worker.logs / f"{worker.name}.{name}"
        try:
            worker.logs.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to((folder / name).resolve())
        except OSError as error:
            raise StoreError(f"cannot link {link}: {error.strerror}; name another folder for logs") from error


if __name__ == "__main__":
    main()
