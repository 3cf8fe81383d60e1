"""A folder that the workers of pytest-xdist share: the first one fills it, the others wait."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def worker_folder(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """Where it is, while no other worker is at it; whoever finds it missing makes it."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield shared / name
