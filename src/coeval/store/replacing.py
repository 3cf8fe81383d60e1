"""Moving what stands in a run folder to ``replaced/<UTC time>/``, as one step.

What is to be done is on disk before anything moves. A kill at any moment leaves all of it in place, or
`finish_replacing` moves the rest at the next start.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from coeval.store.jsonl import read_json, store_error, write_bytes_atomic, write_json_atomic
from coeval.store.rundir import RunDir


class _Step(msgspec.Struct, frozen=True):
    """What goes where, by paths within the run folder."""

    to: str
    move: list[str]
    copy: list[str]


def move_to_replaced(folder: RunDir, move: Sequence[Path], copy: Sequence[Path] = ()) -> Path:
    """Move files and folders of a run, and copy other files beside them; where they are then.

    The caller is the folder's only writer. Nothing is deleted; what is not there is passed over.
    """

    def within(paths: Sequence[Path]) -> list[str]:
        return [str(path.relative_to(folder.path)) for path in paths]

    to = f"replaced/{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}"
    write_json_atomic(folder.replacing, _Step(to, within(move), within(copy)))
    _carry_out(folder)
    return folder.path / to


def finish_replacing(folder: RunDir) -> None:
    """Do the rest of a move that was cut short, if there was one.

    Raises
    ------
    UsageError
        another process is at it.
    StoreError
        the folder cannot be written.
    """
    if folder.replacing.exists():
        with folder.locked():
            _carry_out(folder)


def _carry_out(folder: RunDir) -> None:
    try:
        step = read_json(folder.replacing, _Step)
    except FileNotFoundError:
        return  # another process has finished it meanwhile
    target = folder.path / step.to
    try:
        for name in step.copy:
            if (folder.path / name).exists() and not (target / name).exists():
                write_bytes_atomic(target / name, (folder.path / name).read_bytes())
        for name in step.move:
            if (folder.path / name).exists():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (folder.path / name).rename(target / name)
        folder.replacing.unlink()
    except OSError as error:
        raise store_error("move away", folder.path, error) from error
