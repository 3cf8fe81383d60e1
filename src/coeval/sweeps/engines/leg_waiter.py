"""A leg's process beside whatever a cluster started: the part of an engine that runs on the cluster.

It loads nothing but the standard library, and is called by name, so a cluster's machines need this package
and no code of the sweep's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

__all__ = ["PASSED_ON", "passed_on", "wait_for_leg"]

PASSED_ON = (
    "COEVAL_CACHE",
    "COEVAL_KEYS_FILE",
    "EVAL_THROTTLE_STATE_PATH",
    "HF_HOME",
    "MIN_INTERVAL_S",
    "NLTK_DATA",
)
"""Of the sweep's environment, beside the tested model's key: a cluster starts its processes with another."""
_LOOK_S = 0.2
"""A call that blocks would not hear that it is cancelled."""


def passed_on(environment: Mapping[str, str], key_variable: str = "") -> dict[str, str]:
    """What of the sweep's environment its legs are given."""
    names = (*PASSED_ON, key_variable)
    return {name: environment[name] for name in names if name and name in environment}


def wait_for_leg(command: Sequence[str], log: str, folder: str, environment: Mapping[str, str]) -> int:
    """Run a leg's command in ``folder`` with this ``environment`` over the cluster's; its exit code.

    The leg's standard input is held open: should this process be killed, the leg ends its server and itself.
    Whoever interrupts this process (as Ray does to cancel a task, and Slurm a job) has the leg end before it.
    """
    with Path(log).open("ab") as said:
        process = subprocess.Popen(  # noqa: S603  our own command
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
            cwd=folder,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    _interrupted_by_term()
    try:
        while process.poll() is None:
            time.sleep(_LOOK_S)
        return process.returncode
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _interrupted_by_term() -> None:
    """Slurm sends SIGTERM, which would end this process without a word."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)
