"""One pace for the requests of all processes: at most one each ``MIN_INTERVAL_S``, kept by a shared file.

The file holds the first free moment. A process takes it for one request and writes the next one, so no two
processes have the same moment, and each waits for those before it. The file is locked just to read and write
a number, and nobody waits for the lock. A wrong time in it is bounded: it stops no process for long.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import gettempdir

from coeval.core.errors import UsageError
from coeval.core.model import is_private_address
from coeval.core.regular_files import irregular_file_kind

if sys.platform != "win32":
    import fcntl


# Bytes: a longer file is not one of ours.
_LONGEST = 64


def replace_shared_time(path: Path, change: Callable[[float], float]) -> None:
    """Replace the time in a file by ``change`` of it, while no other process does. Times are seconds since
    1970. An unreadable time counts as long past, and is repaired. Calls ``change`` once, and waits for
    nothing. Raises BlockingIOError: another process has locked the file; OSError: it cannot be made or
    written, is a link or no file, belongs to another user, or holds more than a time."""
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, "files are not shared so on Windows", str(path))
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        status = os.fstat(descriptor)
        if (why := _explain_unusable(status)) is not None:
            raise OSError(errno.EINVAL, why, str(path))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # closing, or the process's end, gives it back
        text = os.pread(descriptor, _LONGEST + 1, 0)
        if len(text) > _LONGEST:
            raise OSError(errno.EINVAL, "it is not a throttle file", str(path))
        line = b"%.6f\n" % change(_parse_time_or_long_past(text))
        os.pwrite(descriptor, line, 0)
        if len(text) > len(line):
            os.ftruncate(descriptor, len(line))
    finally:
        os.close(descriptor)


def _explain_unusable(status: os.stat_result) -> str | None:
    """Return why a file is not one of ours, or None; somebody may have replaced it."""
    if (kind := irregular_file_kind(status.st_mode)) is not None:
        return f"it is {kind}, not a file"
    if status.st_uid != os.geteuid():
        return "it is another user's"
    if status.st_nlink > 1:
        return "it has another name, too"
    return None


def _parse_time_or_long_past(text: bytes) -> float:
    with suppress(ValueError):
        if math.isfinite(time_s := float(text)):
            return time_s
    return -math.inf


_log = logging.getLogger(__name__)

# 200 requests a second: far above what hosts grant one key, below what a small one drowns in.
DEFAULT_INTERVAL_S = 0.005
# How late a moment may be used: so many seconds' worth of requests may go at once.
BURST_S = 0.1
# An hour between requests: beyond, it is a mistyped number.
LONGEST_INTERVAL_S = 3_600.0
INTERVAL, STATE_PATH = "MIN_INTERVAL_S", "EVAL_THROTTLE_STATE_PATH"

# A time further ahead is not ours: no process takes so many moments at once, or waits so long at a fast pace.
_MOST_TURNS, _MOST_AHEAD_S = 100, 2.0
# We hold the lock for microseconds; something else holds it for so long.
_LOCK_PATIENCE_S = 2.0
# A million requests a second is no throttle; zero would divide.
_SHORTEST_INTERVAL_S = 1e-6
# Drawn from a range, so that processes that found the lock taken do not meet again.
_AGAIN_S = (0.001, 0.003)


class Throttle:
    """The pace of this process among all that share the file ``path``. ``interval_s``, above 0, is the least
    time between two requests, on average; ``everywhere`` includes servers on this machine and in private
    networks. ``clock`` is monotonic; ``wall`` is in seconds since 1970, which processes share. ``rng``
    spreads the retries of processes that find the file locked."""

    def __init__(
        self,
        interval_s: float,
        path: Path,
        *,
        everywhere: bool = True,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self._interval_s = interval_s
        self._path = path
        self._everywhere = everywhere
        self.clock = clock
        self._wall = wall
        self._rng = rng or random.Random()
        self._credit_s = max(0.0, BURST_S - interval_s)  # of unused moments
        self._own_next = -math.inf
        self.retry_at = -math.inf
        self._locked_from = math.inf
        self._alone = False
        self.problem: str | None = None
        """A sentence on why the pace is not shared with other processes, or None."""
        self._reported = False

    def open_turn(self, url: str) -> Turn | None:
        """Return the turn of an endpoint's requests, or None if its requests are not throttled."""
        return Turn(self) if self._everywhere or not is_private_address(url) else None

    def pop_unreported_problem(self) -> str | None:
        """Return the `problem` on the first call only: a process may have several sessions."""
        if self._reported or self.problem is None:
            return None
        self._reported = True
        return self.problem

    def take_send_time_unless_locked(self, now: float) -> float | None:
        """Take the first free moment, in seconds of ``clock``; None while the file is locked."""
        if now < self.retry_at:
            return None
        moment = max(now - self._credit_s, self._own_next)  # if the file cannot be used

        def take_moment_and_return_next(free_from: float) -> float:
            nonlocal moment
            # A time that no process of ours can have written counts as long past.
            most_s = max(_MOST_AHEAD_S, _MOST_TURNS * self._interval_s)
            if (ahead_s := free_from - wall) <= most_s:
                moment = max(now + ahead_s, moment)
            return wall + (moment - now) + self._interval_s

        wall = self._wall()
        try:
            replace_shared_time(self._path, take_moment_and_return_next)
        except BlockingIOError:
            self._locked_from = min(self._locked_from, now)
            if not self._alone and now - self._locked_from < _LOCK_PATIENCE_S:
                self.retry_at = now + self._rng.uniform(*_AGAIN_S)
                return None
            self._stop_sharing("another process keeps it locked")
        except OSError as error:
            self._stop_sharing(error.strerror or "it cannot be used")
        else:
            if self._own_next == -math.inf:
                _log.info("at most one request each %g s of all that use %s", self._interval_s, self._path)
            self._locked_from, self._alone = math.inf, False
        self._own_next = moment + self._interval_s
        return moment

    def _stop_sharing(self, why: str) -> None:
        self._alone = True
        self.problem = self.problem or (
            f"requests are kept {self._interval_s:g} s apart in this process only, not across processes: "
            f"{self._path} cannot be shared ({why}). Name your own file in {STATE_PATH}, or set "
            f"{INTERVAL}=0 for no throttle."
        )


class Turn:
    """One endpoint's next moment to send a request, among those of all endpoints and processes."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self._at: float | None = None

    def wait_s(self) -> float:
        """Return the seconds until a request may be sent; zero or less: now."""
        throttle, at = self._throttle, self._at
        now = throttle.clock()
        if at is None or now - at > BURST_S:
            at = self._at = throttle.take_send_time_unless_locked(now)
            if at is None:
                return throttle.retry_at - now
        return at - now

    def use_send_time(self) -> None:
        """Use up the moment for a request that is sent."""
        self._at = None


def read_throttle(environment: Mapping[str, str], *, default_s: float | None = None) -> Throttle | None:
    """Read the throttle that the environment sets, or None. ``default_s`` is the interval without
    ``MIN_INTERVAL_S``, and excludes servers on this machine and in private networks. Raises UsageError: a
    variable has an invalid value."""
    text = environment.get(INTERVAL, "").strip()
    interval_s = _parse_interval(text) if text else default_s
    if not interval_s:
        return None
    path = _parse_state_path_or_default(environment.get(STATE_PATH, "").strip())
    return _throttle(max(interval_s, _SHORTEST_INTERVAL_S), path.absolute(), everywhere=bool(text))


def _parse_interval(text: str) -> float:
    try:
        interval_s = float(text)
    except ValueError:
        interval_s = math.nan
    if not 0 <= interval_s <= LONGEST_INTERVAL_S:
        raise UsageError(
            f"{INTERVAL} in the environment is not a number of seconds from 0 to {LONGEST_INTERVAL_S:,.0f}; "
            f"correct it (0.01 is at most 100 requests a second, 0 no throttle) or unset it"
        )
    return interval_s


def _parse_state_path_or_default(path_text: str) -> Path:
    try:
        return Path(path_text or f"{gettempdir()}/eval_framework_global_throttle.state").expanduser()
    except FileNotFoundError:  # no folder can be written: reported when the file is first used
        return Path("/tmp/eval_framework_global_throttle.state")  # noqa: S108
    except RuntimeError:
        raise UsageError(
            f"{STATE_PATH} in the environment names an unknown user's folder; correct it"
        ) from None


# All callers in this process share one pace.
_throttle = cache(Throttle)
