"""A worker's process that asks nobody: it does what ``SERVED_AS`` says, and tells of itself as a worker
does."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from coeval.sweeps.worker_files import WorkerResult, read_worker, write_result


def wait_for_the_end_of_input(end: threading.Event) -> None:
    sys.stdin.read()
    end.set()


def main() -> None:
    folder = Path(sys.argv[1])
    end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: end.set())
    threading.Thread(target=wait_for_the_end_of_input, args=[end], daemon=True).start()
    worker = read_worker(folder)
    (folder / "gpus").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    (folder / "key").write_text(os.environ.get("MODEL_KEY", ""))
    (folder / "pid").write_text(str(os.getpid()))
    match worker.name:
        case "done":
            write_result(worker, WorkerResult(end="done"))
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case "wait":
            end.wait()
            write_result(worker, WorkerResult(end="interrupted"))
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            (folder / "deaf").touch()
            threading.Event().wait()


main()
