"""A run has one writer: the lock on its folder, and who holds it.

Two things are locked, and each makes good what the other lacks: the file ``.lock``, since not every file
system locks folders, and the folder itself, which nobody deletes by mistake. Who holds them stands in
``.lock.holder.json`` with the time at which that process started; as long as it lives, nobody else writes.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from coeval.core.errors import StoreError
from coeval.store.jsonl import read_json, write_json_atomic
from coeval.store.process import started

if sys.platform != "win32":
    import fcntl

__all__ = ["Holder", "held", "holder", "living"]


class Holder(msgspec.Struct, frozen=True):
    """Who holds a run's lock. ``started`` is that process's own start, ``since`` that of the run."""

    pid: int
    host: str
    since: str
    started: str = ""


def holder(file: Path) -> Holder | None:
    """Who is said to hold a lock; it may have ended since."""
    try:
        return read_json(file, Holder)
    except (OSError, StoreError):
        return None


def living(file: Path) -> Holder | None:
    """The process on this machine that holds a lock, if it is still there, and no other of its number."""
    who = holder(file)
    if who is None or who.host != socket.gethostname():
        return None
    begun = started(who.pid)
    return who if begun is not None and begun == who.started else None


@contextmanager
def held(folder: Path, file: Path, who: Path, since: str) -> Iterator[None]:
    """Hold the lock ``file`` of a folder, and say so in ``who``.

    Raises
    ------
    BlockingIOError
        another process holds it, or did when its file was deleted.
    OSError
        the folder cannot be written.
    """
    with _locked_file(file), _locked_folder(folder):
        if living(who) is not None:
            raise BlockingIOError
        write_json_atomic(who, Holder(os.getpid(), socket.gethostname(), since, started(os.getpid()) or ""))
        try:
            yield
        finally:
            who.unlink(missing_ok=True)


if sys.platform == "win32":

    @contextmanager
    def _locked_file(file: Path) -> Iterator[None]:
        """There no file is deleted that is open."""
        try:
            with FileLock(file, timeout=0):
                yield
        except Timeout:
            raise BlockingIOError from None

    @contextmanager
    def _locked_folder(_folder: Path) -> Iterator[None]:
        yield

else:

    @contextmanager
    def _locked_file(file: Path) -> Iterator[None]:
        descriptor = _lock_of_the_folder(file)
        try:
            yield
        finally:
            os.close(descriptor)

    def _lock_of_the_folder(file: Path) -> int:
        """The open lock file once it is locked, and still the one in its folder: who held it before may have
        deleted it meanwhile, and then nobody else would come upon this lock."""
        while True:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(descriptor), file.lstat()):
                        return descriptor
            except OSError:
                os.close(descriptor)
                raise
            os.close(descriptor)

    @contextmanager
    def _locked_folder(folder: Path) -> Iterator[None]:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise
            except OSError:
                pass  # network file systems lock files only
            yield
        finally:
            os.close(descriptor)
