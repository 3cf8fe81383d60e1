"""The commands as processes of their own, and a small experiment for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from cli.invoked import Ended
from cli.warm_process import WarmProcess

EXPERIMENT = """\
models: [{name: m, interface: simulated, roles: [teacher, student, judge]}]
tasks:
  - {name: t, description: d, target_attributes: {a: [x, y]}, sampling: {total: 2}, rubric: {good: It is.}}
experiment: {id: e, storage_folder: runs}
"""

NOTHING: Mapping[str, str] = MappingProxyType({})


def command(
    folder: Path,
    *words: str | Path,
    program: str = "coeval",
    environment: Mapping[str, str] = NOTHING,
    before: Callable[[], None] | None = None,
) -> Ended:
    """What comes of a command within 100 seconds; no end of it is a traceback. ``before`` runs in the new
    process."""
    around = {"COLUMNS": "200", **environment}
    if before is None:
        process = WarmProcess(*words, module=program, cwd=folder, env=around)
        written = process.communicate()
        ended = Ended(process.wait(), *written)
    else:
        started = subprocess.run(
            [sys.executable, "-m", program, *map(str, words)],
            cwd=folder, capture_output=True, text=True, timeout=100, check=False,
            env={**os.environ, **around}, preexec_fn=before,
        )  # fmt: skip
        ended = Ended(started.returncode, started.stdout, started.stderr)
    assert "Traceback" not in ended.err, ended.err
    assert "internal error" not in ended.err, ended.err
    assert "never awaited" not in ended.err, ended.err
    return ended


def eval_framework(folder: Path, *words: str | Path, environment: Mapping[str, str] = NOTHING) -> Ended:
    return command(folder, *words, program="coeval.cli.eval_framework", environment=environment)
