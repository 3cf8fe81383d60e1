"""One pace for the requests of all processes: at most one each ``MIN_INTERVAL_S``, as a file has it.

The file holds the first moment that is still free. A process takes it for one request, and writes the next
one; so no two processes have the same moment, and each has its turn after those who came before. The file is
locked for as long as it takes to read and write a number, and never waited for. It is believed within bounds:
a wrong time in it keeps no process from sending for long.
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
from coeval.core.model import is_own_address
from coeval.core.regular_files import file_kind

# --- A time shared by processes in a file

if sys.platform != "win32":
    import fcntl


# Bytes: a file that holds more is somebody's, and none of ours.
_LONGEST = 64


def change_time(path: Path, change: Callable[[float], float]) -> None:
    """Replace the time in a file by what ``change`` makes of it, while no other process does.

    Times are seconds since 1970. A file that holds none that can be read is taken to hold one long ago, and
    is mended. ``change`` is called once. Nothing is waited for.

    Raises BlockingIOError: another process has the file just now; OSError: it cannot be used: it cannot be
    made or written, is no file, a link, another user's, or holds more than a time.
    """
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, "files are not shared so on Windows", str(path))
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        status = os.fstat(descriptor)
        if (why := _unfit(status)) is not None:
            raise OSError(errno.EINVAL, why, str(path))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # closing, or the process's end, gives it back
        text = os.pread(descriptor, _LONGEST + 1, 0)
        if len(text) > _LONGEST:
            raise OSError(errno.EINVAL, "it holds something else", str(path))
        line = b"%.6f\n" % change(_time(text))
        os.pwrite(descriptor, line, 0)
        if len(text) > len(line):
            os.ftruncate(descriptor, len(line))
    finally:
        os.close(descriptor)


def _unfit(status: os.stat_result) -> str | None:
    """Why a file is not one of ours; somebody may have put it in the place of ours."""
    if (kind := file_kind(status.st_mode)) is not None:
        return f"it is {kind}, not a file"
    if status.st_uid != os.geteuid():
        return "it is another user's"
    if status.st_nlink > 1:
        return "it has another name, too"
    return None


def _time(text: bytes) -> float:
    with suppress(ValueError):
        if math.isfinite(found := float(text)):
            return found
    return -math.inf


_log = logging.getLogger(__name__)

# 200 requests a second: far above what hosts grant one key, below what a small one drowns in.
DEFAULT_INTERVAL_S = 0.005
# A moment may be used so much later: so many seconds' worth may go at once.
BURST_S = 0.1
# An hour between requests: beyond, it is a mistyped number.
LONGEST_INTERVAL_S = 3_600.0
INTERVAL, STATE_PATH = "MIN_INTERVAL_S", "EVAL_THROTTLE_STATE_PATH"

# A time further ahead is none of ours: nobody waits for so many turns at once, or for so long at a fast pace.
_MOST_TURNS, _MOST_AHEAD_S = 100, 2.0
# Holders need microseconds; a lock so long is held by something else.
_LOCK_PATIENCE_S = 2.0
# A million requests a second is no throttle; zero would divide.
_SHORTEST_INTERVAL_S = 1e-6
# Drawn from a range, so that processes that found the lock taken do not meet again.
_AGAIN_S = (0.001, 0.003)


class Throttle:
    """The pace of this process among all that use the same file.

    Parameters
    ----------
    interval_s:
        least seconds between two requests, on average; above 0.
    path:
        the file.
    everywhere:
        whether servers on this machine and in private networks are meant as well.
    clock, wall:
        seconds: monotonic; and since 1970, by which processes know each other's moments.
    rng:
        spreads the tries of processes that found the file locked.
    """

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
        self._credit_s = max(0.0, BURST_S - interval_s)  # of moments that nobody took
        self._own_next = -math.inf
        self.retry_at = -math.inf
        self._locked_from = math.inf
        self._alone = False
        self.problem: str | None = None
        """Why the pace is this process's own, in a sentence; None where it is shared."""
        self._reported = False

    def turn_at(self, url: str) -> Turn | None:
        """The turn of those who ask there; None where requests are not throttled."""
        return Turn(self) if self._everywhere or not is_own_address(url) else None

    def untold_problem(self) -> str | None:
        """The `problem`, once: a process may have several sessions."""
        if self._reported or self.problem is None:
            return None
        self._reported = True
        return self.problem

    def moment(self, now: float) -> float | None:
        """Take the first free moment; None where the file is locked until ``retry_at``. All are seconds of
        ``clock``."""
        if now < self.retry_at:
            return None
        moment = max(now - self._credit_s, self._own_next)  # where the file cannot be had

        def change(free_from: float) -> float:
            nonlocal moment
            # What none of us can have written is long past.
            most_s = max(_MOST_AHEAD_S, _MOST_TURNS * self._interval_s)
            if (ahead_s := free_from - wall) <= most_s:
                moment = max(now + ahead_s, moment)
            return wall + (moment - now) + self._interval_s

        wall = self._wall()
        try:
            change_time(self._path, change)
        except BlockingIOError:
            self._locked_from = min(self._locked_from, now)
            if not self._alone and now - self._locked_from < _LOCK_PATIENCE_S:
                self.retry_at = now + self._rng.uniform(*_AGAIN_S)
                return None
            self._go_alone("another process keeps it locked")
        except OSError as error:
            self._go_alone(error.strerror or "it cannot be used")
        else:
            if self._own_next == -math.inf:
                _log.info("at most one request each %g s of all that use %s", self._interval_s, self._path)
            self._locked_from, self._alone = math.inf, False
        self._own_next = moment + self._interval_s
        return moment

    def _go_alone(self, why: str) -> None:
        self._alone = True
        self.problem = self.problem or (
            f"requests are kept {self._interval_s:g} s apart in this process alone, not with others: "
            f"{self._path} cannot be shared ({why}). Name a file of your own in {STATE_PATH}, or set "
            f"{INTERVAL}=0 for no throttle."
        )


class Turn:
    """The turn of one endpoint among all that this process asks: each waits for a moment of its own."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self._at: float | None = None

    def wait_s(self) -> float:
        """Seconds until a request may be sent; zero or less: now."""
        throttle, at = self._throttle, self._at
        now = throttle.clock()
        if at is None or now - at > BURST_S:
            at = self._at = throttle.moment(now)
            if at is None:
                return throttle.retry_at - now
        return at - now

    def take(self) -> None:
        """A request is sent."""
        self._at = None


def throttle_of(environment: Mapping[str, str], *, default_s: float | None = None) -> Throttle | None:
    """The throttle that the environment asks for; None: there is none.

    ``default_s`` is the interval where ``MIN_INTERVAL_S`` is not set, and spares servers on this machine and
    in private networks.

    Raises UsageError: a variable holds what it cannot.
    """
    text = environment.get(INTERVAL, "").strip()
    interval_s = _interval(text) if text else default_s
    if not interval_s:
        return None
    path = _state_path(environment.get(STATE_PATH, "").strip())
    return _throttle(max(interval_s, _SHORTEST_INTERVAL_S), path.absolute(), everywhere=bool(text))


def _interval(text: str) -> float:
    try:
        interval_s = float(text)
    except ValueError:
        interval_s = math.nan
    if not 0 <= interval_s <= LONGEST_INTERVAL_S:
        raise UsageError(
            f"{INTERVAL} in the environment is no number of seconds from 0 to {LONGEST_INTERVAL_S:,.0f}; "
            f"correct it (0.01 is at most 100 requests a second, 0 no throttle) or unset it"
        )
    return interval_s


def _state_path(named: str) -> Path:
    try:
        return Path(named or f"{gettempdir()}/eval_framework_global_throttle.state").expanduser()
    except FileNotFoundError:  # no folder can be written: that is said when it is to be shared
        return Path("/tmp/eval_framework_global_throttle.state")  # noqa: S108
    except RuntimeError:
        raise UsageError(
            f"{STATE_PATH} in the environment names an unknown user's folder; correct it"
        ) from None


# One pace of this process, whoever asks for it.
_throttle = cache(Throttle)
