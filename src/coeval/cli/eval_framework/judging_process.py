"""``python -m coeval.cli.eval_framework.judging_process LOG [KEYS]``: judges and scores for a sweep.

Orders come on standard input, a line each, and what becomes of them goes to standard output (see
`judging_run`). When its input ends, or at SIGTERM or SIGINT, it asks no more, scores what is whole and
exits; a second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from coeval.cli.ending import run_to_exit
from coeval.cli.eval_framework.worker_process import lifeline
from coeval.cli.loop import interruptible, run_async
from coeval.core.errors import Draining, UsageError
from coeval.core.options import Frontend
from coeval.engine.session import await_unless_interrupted, write_log
from coeval.models.keys import Keys
from coeval.models.pacing.throttle import DEFAULT_INTERVAL_S, Throttle, read_throttle
from coeval.sweeps.judging_run import ConcludeOrder, JudgingMessage, conclude_orders, encode_line, read_order


def main() -> None:
    run_to_exit(_judge, Frontend.SWEEP)


def _judge() -> None:
    if len(sys.argv) not in (2, 3):
        raise UsageError("coeval.cli.eval_framework.judging_process takes its log and a file of keys")
    file = Path(sys.argv[2]) if len(sys.argv) == 3 else None
    keys = Keys.load(file, env=os.environ, cwd=Path.cwd(), home=Path.home())
    throttle = read_throttle(os.environ, default_s=DEFAULT_INTERVAL_S)
    with write_log(Path(sys.argv[1]), "INFO"):
        run_async(interruptible(lambda interrupt: _conclude(keys, interrupt, throttle), lambda _: None))


async def _conclude(keys: Keys, interrupt: asyncio.Event, throttle: Throttle | None) -> None:
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    with lifeline(interrupt, lines):
        await conclude_orders(_orders(lines, interrupt), _tell, keys, interrupt, throttle)


async def _orders(lines: asyncio.Queue[bytes], interrupt: asyncio.Event) -> AsyncIterator[ConcludeOrder]:
    """Until nobody gives any more: whoever started this is gone, or wants it to end."""
    with suppress(Draining):
        while True:
            line = await await_unless_interrupted(lines.get(), interrupt, "there are no more orders")
            yield read_order(line)


def _tell(message: JudgingMessage) -> None:
    """Where nobody listens any more, standard input has ended too."""
    try:
        os.write(1, encode_line(message))
    except BrokenPipeError:
        return


if __name__ == "__main__":
    main()
