"""Commands that are killed at a chosen moment: a process with everything loaded forks one for each of them.

A moment is the n-th time that a command is about to change something below a folder: to open a file for
writing, to rename, remove or make one, to write a line or to sync. Of a line that would be written, the first
half is. As a script, this module is the process that forks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cli.warm_process import load

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
TESTS = Path(__file__).parents[1]


class Ended(NamedTuple):
    """A negative ``code`` is the signal that ended it; ``moments``: how often it changed something."""

    code: int
    moments: int
    said: str


class Forks:
    """Runs commands, each in a process forked from a warm one."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, program: str, *words: object, below: Path, at: int = 0, by: int = signal.SIGKILL) -> Ended:
        """``program``: ``coeval`` or ``eval-framework``; ``at`` 0: it is not disturbed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        needed = {
            "program": program,
            "words": [*map(str, words)],
            "below": str(below),
            "at": at,
            "by": int(by),
        }
        self._process.stdin.write(json.dumps(needed) + "\n")
        self._process.stdin.flush()
        return Ended(*json.loads(self._process.stdout.readline()))


@contextmanager
def forks(**environment: str) -> Iterator[Forks]:
    path = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    try:
        yield Forks(process)
    finally:
        process.communicate(timeout=60)


class _Counting:
    """Counts changes below a folder, and sends itself a signal at one of them."""

    def __init__(self, below: str, at: int, by: int) -> None:
        self.count = 0
        self._below = below
        self._at = at
        self._by = by
        self._write, self._sync = os.write, os.fsync
        sys.addaudithook(self._heard)
        setattr(os, "write", self._written)  # noqa: B010  neither is told to hooks
        setattr(os, "fsync", self._synced)  # noqa: B010

    def _heard(self, event: str, details: tuple[Any, ...]) -> None:
        if event == "open":
            changes = isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR)
        else:
            changes = event in CHANGES
        if changes and str(details[0]).startswith(self._below):
            self._note()

    def _note(self, before: Callable[[], object] = lambda: None) -> None:
        self.count += 1
        if self.count == self._at:
            before()
            os.kill(os.getpid(), self._by)

    def _written(self, file: int, data: Any, /) -> int:
        if self._is_below(file):
            self._note(lambda: self._write(file, bytes(data)[: len(data) // 2]) if self._by == 9 else None)
        return self._write(file, data)

    def _synced(self, file: int, /) -> None:
        if self._is_below(file):
            self._note()
        self._sync(file)

    def _is_below(self, file: int) -> bool:
        return str(Path(f"/proc/self/fd/{file}").readlink()).startswith(self._below)


def _carry_out(needed: dict[str, Any], report: int) -> None:
    from coeval.cli.eval_framework.command import main as eval_framework
    from coeval.cli.main import main as coeval

    sys.argv = [needed["program"], *needed["words"]]
    counting = _Counting(needed["below"], needed["at"], needed["by"])
    try:
        (coeval if needed["program"] == "coeval" else eval_framework)()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        os.pwrite(report, str(counting.count).encode(), 0)
        os._exit(end.code if isinstance(end.code, int) else 1)


def _serve() -> None:
    """Load what commands load, then fork for each line that asks for one."""
    import coeval.benchmarks.assets.cache
    import coeval.benchmarks.assets.library
    from fakes.asset_shelf import MANIFEST
    from fakes.package_index import download_from

    load()
    if "COEVAL_TEST_SHELF" in os.environ:  # its small assets in place of the published ones
        vars(coeval.benchmarks.assets.library)["read_manifest"] = lambda: MANIFEST
        vars(coeval.benchmarks.assets.cache)["download_wheel"] = download_from(os.environ["HF_ENDPOINT"])
    for line in sys.stdin:
        needed = json.loads(line)
        report = os.memfd_create("moments")
        output = os.memfd_create("output")
        child = os.fork()
        if not child:
            os.dup2(output, 1)
            os.dup2(output, 2)
            _carry_out(needed, report)
            os._exit(70)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        count = int(os.pread(report, 20, 0) or b"0")
        said = os.pread(output, 1 << 20, 0).decode(errors="replace")
        os.close(report)
        os.close(output)
        print(json.dumps([code, count, said]), flush=True)


if __name__ == "__main__":
    _serve()
