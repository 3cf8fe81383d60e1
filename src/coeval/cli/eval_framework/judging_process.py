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
from pathlib import Path

from coeval.cli.ending import run_to_exit
from coeval.cli.loop import interruptible, run_async
from coeval.core.errors import UsageError
from coeval.core.options import Face
from coeval.engine.session import logged
from coeval.models.keys import Keys
from coeval.models.pacing.throttle import DEFAULT_INTERVAL_S, Throttle, throttle_of
from coeval.sweeps.judging_run import ConcludeOrder, JudgingMessage, conclude_orders, read_order, written

# An order names a task's folder and settings; this bounds what a stranger may write into the pipe.
_LONGEST_LINE = 1 << 24


def main() -> None:
    run_to_exit(_judge, Face.SWEEP)


def _judge() -> None:
    if len(sys.argv) not in (2, 3):
        raise UsageError("coeval.cli.eval_framework.judging_process takes its log and a file of keys")
    file = Path(sys.argv[2]) if len(sys.argv) == 3 else None
    keys = Keys.load(file, env=os.environ, cwd=Path.cwd(), home=Path.home())
    throttle = throttle_of(os.environ, default_s=DEFAULT_INTERVAL_S)
    with logged(Path(sys.argv[1]), "INFO"):
        run_async(interruptible(lambda interrupt: _conclude(keys, interrupt, throttle), lambda _: None))


async def _conclude(keys: Keys, interrupt: asyncio.Event, throttle: Throttle | None) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    ended = asyncio.create_task(interrupt.wait())
    try:
        await conclude_orders(_orders(reader, ended, interrupt), _tell, keys, interrupt, throttle)
    finally:
        ended.cancel()


async def _orders(
    reader: asyncio.StreamReader, ended: asyncio.Task[bool], interrupt: asyncio.Event
) -> AsyncIterator[ConcludeOrder]:
    """Until nobody gives any more: whoever started this is gone, or wants it to end."""
    while not ended.done():
        reading = asyncio.create_task(reader.readline())
        await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            reading.cancel()
            return
        if not (line := reading.result()):
            interrupt.set()
            return
        yield read_order(line)


def _tell(message: JudgingMessage) -> None:
    """Where nobody listens any more, standard input has ended too."""
    try:
        os.write(1, written(message))
    except BrokenPipeError:
        return


if __name__ == "__main__":
    main()
