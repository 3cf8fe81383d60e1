"""``coeval`` as a process of its own, beside a fake host in the test's loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from cli.eval_process import surroundings
from cli.invoked import Ended

__all__ = ["called"]


async def called(folder: Path, *words: object, env: Mapping[str, str] = MappingProxyType({})) -> Ended:
    """What came of ``coeval WORDS`` in a folder; ``env`` are variables beside those of `surroundings`."""

    def call() -> Ended:
        done = subprocess.run(
            [sys.executable, "-m", "coeval", *map(str, words)],
            cwd=folder, env={**os.environ, **surroundings(folder), **env},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout, done.stderr)

    return await asyncio.to_thread(call)
