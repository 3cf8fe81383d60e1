"""``coeval`` as a process of its own, beside a fake host in the test's loop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from cli.eval_process import surroundings
from cli.invoked import Ended
from cli.warm_process import WarmProcess

__all__ = ["called"]


async def called(folder: Path, *words: object, env: Mapping[str, str] = MappingProxyType({})) -> Ended:
    """What came of ``coeval WORDS`` in a folder; ``env`` are variables beside those of `surroundings`."""

    process = WarmProcess(*words, cwd=folder, env={**surroundings(folder), **env})
    written = await process.output()
    return Ended(process.wait(), *written)
