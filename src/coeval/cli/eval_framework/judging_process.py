"""``python -m coeval.cli.eval_framework.judging_process LOG [KEYS]``: judges and scores for a sweep.

Orders arrive on standard input, a line each; outcomes go to standard output (see `judging_run`). When its
input ends, or at SIGTERM or SIGINT, it sends no more requests, scores what is complete and exits; a second
signal ends it at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from coeval.cli.ending import run_to_exit
from coeval.cli.eval_framework.worker_process import watch_lifeline
from coeval.cli.loop import run_async, run_interruptible
from coeval.core.errors import Draining, UsageError
from coeval.core.options import Frontend
from coeval.engine.session import await_unless_interrupted, write_log
from coeval.models.keys import Keys
from coeval.models.pacing.throttle import DEFAULT_INTERVAL_S, Throttle, read_throttle
from coeval.sweeps.judging_run import ConcludeOrder, JudgingMessage, conclude_orders, encode_line, read_order


def main() -> None:
    run_to_exit(_run_judging_process, Frontend.SWEEP)


def _run_judging_process() -> None:
    if len(sys.argv) not in (2, 3):
        raise UsageError("coeval.cli.eval_framework.judging_process takes its log and a file of keys")
    key_file = Path(sys.argv[2]) if len(sys.argv) == 3 else None
    keys = Keys.load(key_file, env=os.environ, cwd=Path.cwd(), home=Path.home())
    throttle = read_throttle(os.environ, default_s=DEFAULT_INTERVAL_S)
    with write_log(Path(sys.argv[1]), "INFO"):
        run_async(
            run_interruptible(lambda interrupt: _judge_orders(keys, interrupt, throttle), lambda _: None)
        )


async def _judge_orders(keys: Keys, interrupt: asyncio.Event, throttle: Throttle | None) -> None:
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    with watch_lifeline(interrupt, lines):
        await conclude_orders(_read_orders(lines, interrupt), _write_message, keys, interrupt, throttle)


async def _read_orders(lines: asyncio.Queue[bytes], interrupt: asyncio.Event) -> AsyncIterator[ConcludeOrder]:
    """Yield orders until the input ends (the starting process is gone) or ``interrupt`` is set."""
    with suppress(Draining):
        while True:
            line = await await_unless_interrupted(lines.get(), interrupt, "there are no more orders")
            yield read_order(line)


def _write_message(message: JudgingMessage) -> None:
    """Write a message to the starting process; if that is gone, standard input has ended too."""
    try:
        os.write(1, encode_line(message))
    except BrokenPipeError:
        return


if __name__ == "__main__":
    main()
