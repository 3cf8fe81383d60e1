"""The process of a worker: ``python -m coeval.judging.checks.check_worker LIFELINE MEMORY_MB``.

Two processes in one group. The guard ends everything when the starter goes away (its end of the lifeline
closes), or when the worker ends, however it ends. The worker reads a check and then answers, a line of JSON
each, and writes a line for each. What the user's code prints goes to a bounded file, never among the replies.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

from coeval.core.errors import CheckFailed, describe_error
from coeval.core.foreign import make_decoder
from coeval.core.plain import cut_middle
from coeval.judging.checks.check_options import read_check
from coeval.judging.checks.rubric_check import (
    LARGEST_FILE,
    LONGEST_REASON,
    PASSED,
    CheckedAnswer,
    CheckScore,
    PythonCheck,
    RubricCheck,
    WorkerReply,
    time_limit_s,
)

# Characters of the output that a failure quotes, from its end.
_OUTPUT_SHOWN = 200
# Numbers of prctl(2).
_PDEATHSIG, _CHILD_SUBREAPER = 1, 36

_PROCESS_EVENTS = frozenset(
    {"os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn"}
    | {"subprocess.Popen", "os.kill", "os.killpg", "signal.pthread_kill"}
)


def main() -> NoReturn:
    """Limit this process, start the worker as its child, and guard it."""
    lifeline, memory_mb = int(sys.argv[1]), int(sys.argv[2])
    with suppress(ValueError):  # macOS refuses to limit it
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ended, wakes = os.pipe()
    for descriptor in (ended, wakes):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    control = _prctl_function()
    control(_CHILD_SUBREAPER, 1)
    worker = os.fork()
    if worker == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (lifeline, ended, wakes):
            os.close(descriptor)
        control(_PDEATHSIG, signal.SIGKILL)
        _score_requests()
    for descriptor in (0, 1):
        os.close(descriptor)
    _end_descendants_and_exit_like_worker(worker, lifeline, ended)


# --- The guard


def _prctl_function() -> Callable[[int, int], object]:
    """Return prctl(2), which other systems than Linux lack: there only the process group is ended."""
    if not sys.platform.startswith("linux"):
        return lambda _, __: None
    call = ctypes.CDLL(None).prctl
    return lambda option, value: call(option, value, 0, 0, 0)


def _end_descendants_and_exit_like_worker(worker: int, lifeline: int, ended: int) -> NoReturn:
    """Wait for the end of either side; then end all descendants, and report how the worker ended."""
    status = None
    while status is None:
        readable, _, _ = select.select([lifeline, ended], [], [])
        if lifeline in readable:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
            _, status = os.waitpid(worker, 0)
        else:
            os.read(ended, 4096)
            pid, code = os.waitpid(worker, os.WNOHANG)
            status = code if pid == worker else None
    _end_descendants()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _end_descendants() -> None:
    """End what the worker left behind, also what left its group: orphans come to the subreaper."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    with suppress(OSError):
        while left := children.read_text().split():
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            for process in left:
                with suppress(ChildProcessError):
                    os.waitpid(int(process), 0)


# --- The worker


def _score_requests() -> NoReturn:
    """Score the answers on standard input until there are no more; every way out of here ends the process."""
    replies = os.fdopen(os.dup(1), "wb")
    requests = os.fdopen(os.dup(0), "rb")
    _detach_streams()
    check = read_check(make_decoder(dict)(requests.readline()))
    if isinstance(check, PythonCheck):
        sys.addaudithook(_refuse_processes)
    read = make_decoder(CheckedAnswer)
    _write_reply(replies, _score_or_explain(0, partial(_confirm_check_loads, check)))
    for number, line in enumerate(requests, 1):
        os.ftruncate(2, 0)
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime + time_limit_s(check)) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
        _write_reply(replies, _score_or_explain(number, partial(check.score, read(line))))
    os._exit(0)


def _detach_streams() -> None:
    """Give the code an empty input, and a file without a name for all its output."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    fcntl.fcntl(2, fcntl.F_SETFL, fcntl.fcntl(2, fcntl.F_GETFL) | os.O_APPEND)


def _refuse_processes(event: str, _: object) -> None:
    if event in _PROCESS_EVENTS:
        raise PermissionError("a python check may not start or signal processes; use a command check")


def _confirm_check_loads(check: RubricCheck) -> CheckScore:
    if isinstance(check, PythonCheck):
        check.load()
    return PASSED


def _score_or_explain(number: int, score: Callable[[], CheckScore]) -> WorkerReply:
    """Score, or say why not: the user's code may raise anything."""
    try:
        scored = score()
    except CheckFailed as failure:
        return WorkerReply(number, reason=str(failure))
    except BaseException as error:  # noqa: BLE001  the item's failure, as in `engine.work`
        printed = _read_printed_tail()
        reason = f"raised {describe_error(error)}" + (f" (printed: {printed})" if printed else "")
        return WorkerReply(number, reason=cut_middle(reason, LONGEST_REASON))
    return WorkerReply(number, *scored)


def _read_printed_tail() -> str:
    """Read the end of what the code printed for this answer."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    length = os.fstat(2).st_size
    text = os.pread(2, 4 * _OUTPUT_SHOWN, max(0, length - 4 * _OUTPUT_SHOWN)).decode(errors="replace")
    return " ".join(text.split())[-_OUTPUT_SHOWN:]


def _write_reply(replies: BinaryIO, reply: WorkerReply) -> None:
    replies.write(msgspec.json.encode(reply) + b"\n")
    replies.flush()


if __name__ == "__main__":
    main()
