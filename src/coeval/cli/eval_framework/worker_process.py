"""``python -m coeval.cli.eval_framework.worker_process [WORKER_FOLDER]``: a worker of a sweep, started by an
engine. Without a folder it runs one worker after another: each line of standard input is a folder in JSON,
which it repeats on standard output when that worker ends.

Its standard input is a lifeline: a pipe that the starting process holds open. When that ends, or at
SIGTERM or SIGINT, the worker sends no more requests, ends its server and exits; a second signal does so at
once. It prints nothing: see ``progress.json``, ``result.json`` and ``worker.log``. Exit code 0: read
``result.json``.
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
from coeval.cli.loop import run_async, run_interruptible
from coeval.core.errors import Draining, StoreError, UsageError
from coeval.core.foreign import decode
from coeval.core.options import Frontend
from coeval.engine.session import await_unless_interrupted, write_log
from coeval.models.keys import Keys
from coeval.sweeps.server_log import LOG
from coeval.sweeps.worker_files import WORKER_LOG, Worker, WorkerResult, read_worker
from coeval.sweeps.worker_run import KeptServer, run_worker_and_write_result

LIFELINE, ANSWERS = 0, 1
log = logging.getLogger("coeval")


def main() -> None:
    run_to_exit(_run_worker_process, Frontend.SWEEP)


def _run_worker_process() -> None:
    if len(sys.argv) > 2:
        raise UsageError("coeval.cli.eval_framework.worker_process takes the folder of one worker, or none")
    keys = Keys.load(None, env=os.environ, cwd=Path.cwd(), home=Path.home())
    if len(sys.argv) == 1:
        run_async(run_interruptible(lambda interrupt: _run_workers_from_stdin(keys, interrupt), log.info))
        return
    worker = _read_worker_and_link_logs(Path(sys.argv[1]))
    with write_log(worker.folder / WORKER_LOG, "INFO"):
        run_async(run_interruptible(lambda interrupt: _run_one_worker(worker, keys, interrupt), log.info))


def _read_worker_and_link_logs(folder: Path) -> Worker:
    try:
        worker = read_worker(folder)
    except FileNotFoundError as error:
        raise UsageError(f"{folder} holds no worker.json; workers are started by `coeval sweep`") from error
    _link_logs_into_user_folder(worker)
    return worker


async def _run_one_worker(worker: Worker, keys: Keys, interrupt: asyncio.Event) -> WorkerResult:
    with watch_lifeline(interrupt, asyncio.Queue()):
        return await run_worker_and_write_result(worker, keys, interrupt)


async def _run_workers_from_stdin(keys: Keys, interrupt: asyncio.Event) -> None:
    """Run the workers of a slot until the input ends; their server may stay up in between."""
    folders: asyncio.Queue[bytes] = asyncio.Queue()
    with watch_lifeline(interrupt, folders), suppress(Draining):
        async with aclosing(KeptServer()) as kept:
            while not interrupt.is_set():
                line = await await_unless_interrupted(folders.get(), interrupt, "there are no more workers")
                worker = _read_worker_and_link_logs(Path(decode(line, str)))
                with write_log(worker.folder / WORKER_LOG, "INFO"):
                    await run_worker_and_write_result(worker, keys, interrupt, kept)
                os.write(ANSWERS, line + b"\n")


@contextmanager
def watch_lifeline(interrupt: asyncio.Event, lines: asyncio.Queue[bytes]) -> Iterator[None]:
    """Queue the lines of standard input, if it is a pipe or a socket, and set ``interrupt`` when it ends."""
    mode = 0
    with suppress(OSError):  # it is closed
        mode = os.fstat(LIFELINE).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        yield
        return
    loop = asyncio.get_running_loop()
    unread = bytearray()

    def read_lines() -> None:
        """Read what standard input has, and queue its complete lines."""
        try:
            data = os.read(LIFELINE, 1 << 12)
        except BlockingIOError:
            return
        except OSError:  # it is a socket, and was reset
            data = b""
        if not data:
            log.info("whoever started this process is gone, or has ended it")
            loop.remove_reader(LIFELINE)
            interrupt.set()
        unread.extend(data)
        while b"\n" in unread:
            line, _, after = bytes(unread).partition(b"\n")
            unread[:] = after
            lines.put_nowait(line)

    loop.add_reader(LIFELINE, read_lines)
    try:
        yield
    finally:
        loop.remove_reader(LIFELINE)


def _link_logs_into_user_folder(worker: Worker) -> None:
    """Link both logs into the folder that the user named for logs."""
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
