"""``run.log``: the package's log while a run lasts."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from coeval.core.plain import PlainFormatter
from coeval.core.plain_file import open_file
from coeval.store.jsonl import store_error

__all__ = ["logged"]


class _RunLog(logging.FileHandler):
    """A log that ends where the disk does: what matters is in the records, whose errors say so."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # opening the file is not guarded by the base class
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  the base class's name
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        with suppress(OSError):  # what could not be written is tried once more
            super().close()


@contextmanager
def logged(path: Path, level: str) -> Iterator[None]:
    """Meanwhile, write the package's log of this level and above to the file, which is made with its first
    line.

    Raises
    ------
    StoreError
        what stands there is no file; a pipe would keep us waiting.
    """
    _refuse_other_things(path)
    handler = _RunLog(path, encoding="utf-8", delay=True)
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(message)s"))
    handler.setLevel(level)
    package = logging.getLogger("coeval")
    before = package.level
    package.addHandler(handler)
    package.setLevel(min(handler.level, before or handler.level))
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(before)
        handler.close()


def _refuse_other_things(path: Path) -> None:
    try:
        open_file(path).close()
    except FileNotFoundError:
        return
    except OSError as error:
        raise store_error("write", path, error) from error
