"""Limits of this process: report one that is too low before the work fails on it.

Libraries that get no address space end the process, by a signal, where they should raise an error.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from coeval.core.errors import UsageError

if sys.platform != "win32":
    import resource

# Bytes of address space that numpy, scipy and duckdb take when they are loaded, …
_LIBRARIES = 512 << 20
# … a database in memory with its threads, …
_DATABASE = 640 << 20
# … and the buffers that numpy keeps for each processor.
_PER_PROCESSOR = 64 << 20

# A run holds about twenty open before it has asked anybody.
_FEWEST_FILES = 32


def address_space_left() -> int | None:
    """Return the bytes that may still be mapped (`ulimit -v`); None without a limit."""
    if sys.platform == "win32":
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return limit
    return limit - pages * os.sysconf("SC_PAGE_SIZE")


def require_address_space_for_results() -> None:
    """Raise UsageError if the address space is too small to read results."""
    left = address_space_left()
    if left is None:
        return
    needed = _DATABASE
    if "duckdb" not in sys.modules:
        needed += _LIBRARIES + _PER_PROCESSOR * (os.cpu_count() or 1)
    if left < needed:
        raise UsageError(
            f"{left >> 20} MiB of address space are left to this process, and reading results needs about "
            f"{needed >> 20} MiB; raise its limit (ulimit -v)"
        )


def increase_open_file_limit() -> None:
    """Raise the limit on open files to what a run needs; UsageError where the hard limit is lower."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _FEWEST_FILES:
        return
    if hard != resource.RLIM_INFINITY and hard < _FEWEST_FILES:
        raise UsageError(
            f"this process may open {hard} files, and a run needs at least {_FEWEST_FILES}; raise its "
            "limit (ulimit -n)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FEWEST_FILES, hard))
