"""Running checks: at once, in workers with limits, or as programs in a sandbox.

A worker (``check_worker``) is started for the first answer that needs it, and again after it ended. A program
runs under bubblewrap, where it sees files but changes none, and reaches no network.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from coeval.core.errors import CheckFailed, Undecodable, describe_error
from coeval.core.foreign import make_decoder
from coeval.core.shown_url import strip_credentials
from coeval.judging.checks.rubric_check import (
    LARGEST_FILE,
    LONGEST_REASON,
    CheckedAnswer,
    CheckScore,
    CodeCheck,
    CommandCheck,
    RubricCheck,
    WorkerReply,
    check_as_options,
    time_limit_s,
)

# Workers of a check: functions compute, so more than there are processors gain nothing; beyond eight, the
# memory of their libraries weighs more.
_MOST_WORKERS = min(8, os.cpu_count() or 1)
# Seconds until a worker has loaded the user's file: PyTorch on a slow disk takes half of it.
_LONGEST_LOAD_S = 120.0
# Seconds for a guard to end what a worker left.
_LONGEST_END_S = 10.0
# Address space of our own slow checks.
_OWN_MEMORY_MB = 4096
# Bytes of each folder of a sandbox that can be written to; they are memory.
_SANDBOX_DISK = 256 << 20
_WRITABLE = ("/tmp", "/dev/shm")  # noqa: S108  the sandbox's own
# Programs of a NixOS lie there, below /run.
_NIXOS = "/run/current-system"
# Seconds for bubblewrap to run ``true``.
_LONGEST_TRIAL_S = 20.0

_read_reply = make_decoder(WorkerReply)


class CheckRunner:
    """Runs the checks of one run, in the working directory ``home``; ends its workers with `aclose`."""

    def __init__(self, *, sandboxed: bool = True, home: Path | None = None) -> None:
        self._sandboxed = sandboxed
        self._home = home or Path.cwd()
        self._pools: dict[int, _WorkerPool] = {}
        self._programs = asyncio.Semaphore(_MOST_WORKERS)

    async def score(self, check: RubricCheck, answer: CheckedAnswer) -> CheckScore:
        """Score one answer, here, in a worker or in a sandbox; raises CheckFailed."""
        if check.runs == "here":
            return check.score(answer)
        if isinstance(check, CommandCheck):
            async with self._programs:
                sandbox = _sandbox_command(self._home) if self._sandboxed else []
                return await _run_program(check, answer, sandbox, self._home)
        pool = self._pools.get(id(check))
        if pool is None:
            pool = self._pools[id(check)] = _WorkerPool(check, self._home)
        return await pool.score(answer)

    async def aclose(self) -> None:
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))


# --- Workers


class _WorkerLost(Exception):
    """A worker ended, or has to be: it took too long, or wrote something other than a reply."""


class _WorkerPool:
    """The workers of one check. ``broken``: why its file cannot be loaded; that is tried once."""

    def __init__(self, check: RubricCheck, home: Path) -> None:
        self._check = check
        self._home = home
        self._idle: list[_WorkerProcess] = []
        self._room = asyncio.Semaphore(_MOST_WORKERS)
        self._broken = ""

    async def score(self, answer: CheckedAnswer) -> CheckScore:
        async with self._room:
            worker = self._idle.pop() if self._idle else None
            try:
                if worker is None:
                    worker = await self._start_worker()
                reply = await worker.exchange_or_end(answer, time_limit_s(self._check))
            except _WorkerLost as lost:
                raise CheckFailed(str(lost)) from lost
            self._idle.append(worker)
        if reply.value is None:
            raise CheckFailed(reply.reason)
        return CheckScore(reply.value, reply.reason)

    async def _start_worker(self) -> _WorkerProcess:
        """Start a worker that has loaded the check's file; raises CheckFailed, for good if that fails."""
        if self._broken:
            raise CheckFailed(self._broken)
        memory_mb, passed = _OWN_MEMORY_MB, tuple[str, ...]()
        if isinstance(self._check, CodeCheck):
            memory_mb, passed = self._check.memory_mb, self._check.env
        environment = strip_credentials(os.environ, passed) | dict.fromkeys(_ONE_THREAD, "1")
        worker = await _WorkerProcess.start(memory_mb, environment, self._home)
        try:
            reply = await worker.exchange_or_end(check_as_options(self._check), _LONGEST_LOAD_S)
        except _WorkerLost as lost:
            self._broken = f"its file cannot be loaded: {lost}"
            raise CheckFailed(self._broken) from lost
        if reply.value is None:
            await worker.end()
            self._broken = f"its file cannot be loaded: {reply.reason}"
            raise CheckFailed(self._broken)
        return worker

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().end()


class _WorkerProcess:
    """A guard with its worker, and the three pipes to them: lifeline, requests, replies."""

    def __init__(self, process: asyncio.subprocess.Process, lifeline: int) -> None:
        self._process = process
        self._lifeline = lifeline
        self._number = -1

    @classmethod
    async def start(cls, memory_mb: int, environment: dict[str, str], home: Path) -> _WorkerProcess:
        """Start a guard and its worker; raises CheckFailed if the system refuses."""
        theirs, ours = os.pipe()
        module = "coeval.judging.checks.check_worker"
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", module, str(theirs), str(memory_mb)),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                pass_fds=(theirs,), start_new_session=True, env=environment, cwd=home,
            )  # fmt: skip
        except OSError as error:
            os.close(ours)
            raise CheckFailed(f"no worker could be started: {describe_error(error)}") from error
        finally:
            os.close(theirs)
        return cls(process, ours)

    async def exchange_or_end(self, line: object, limit_s: float) -> WorkerReply:
        """Send a line and wait for the reply to it; a worker that fails in this is ended."""
        self._number += 1
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise AssertionError("unreachable: both are pipes")
        try:
            async with asyncio.timeout(limit_s):
                stdin.write(msgspec.json.encode(line) + b"\n")
                await stdin.drain()
                reply = _read_reply(await stdout.readline())
            if reply.number == self._number:
                return reply
            problem = "the function wrote among the replies"
        except TimeoutError:
            problem = f"took more than {limit_s:g} s"
        except (Undecodable, OSError, ValueError):
            problem = ""
        except BaseException:
            await self.end()
            raise
        raise _WorkerLost(await self._end_and_explain(problem))

    async def _end_and_explain(self, problem: str) -> str:
        """End the worker; return the known problem, or how the worker ended."""
        code = await self.end()
        if problem:
            return problem
        signalled = code - 128 if code > 128 else -code
        if signalled <= 0:
            return f"made its worker exit with code {code}"
        limit = ", its limit on processor time" if signalled == signal.SIGXCPU else ""
        return f"its worker was killed by signal {signalled}{limit}"

    async def end(self) -> int:
        """End worker and guard with all that they started; return the exit code."""
        os.close(self._lifeline)
        try:
            async with asyncio.timeout(_LONGEST_END_S):
                code = await self._process.wait()
        except TimeoutError:
            code = -signal.SIGKILL
        if code < 0:  # the guard was killed, and can end nobody any more
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        # Its pipes too, which a process of the function's may hold open; asyncio names no other way.
        self._process._transport.close()  # type: ignore[attr-defined]
        return code


# Libraries that start a thread for each processor reserve more address space than a worker has.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


# --- Programs


async def _run_program(
    check: CommandCheck, answer: CheckedAnswer, sandbox: list[str], home: Path
) -> CheckScore:
    """Run a check's program in the sandbox, with the answer on its standard input, and read its score."""
    # Files in place of pipes: the limit on their size bounds what a program writes, and none has to be read
    # while it runs.
    with tempfile.TemporaryFile() as answer_file, tempfile.TemporaryFile() as output:
        answer_file.write(msgspec.json.encode(answer))
        answer_file.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(
                *sandbox, *_limiting_shell_prefix(check), *check.argv, stdin=answer_file, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True, env=_bare_environment(check.env), cwd=home,
            )  # fmt: skip
        except OSError as error:
            raise CheckFailed(f"cannot be started: {describe_error(error)}") from error
        try:
            async with asyncio.timeout(check.timeout_s):
                code = await process.wait()
        except TimeoutError as error:
            raise CheckFailed(f"took more than {check.timeout_s:g} s") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        output.seek(max(0, output.seek(0, os.SEEK_END) - _OUTPUT_READ))
        printed = output.read()
        if sandbox and printed.startswith(b"bwrap: "):
            raise CheckFailed(printed.decode(errors="replace").strip()[:LONGEST_REASON])
        return check.read_score_from_output(code, printed)


# Bytes of a program's output that are looked at, from its end.
_OUTPUT_READ = 64 << 10


def _limiting_shell_prefix(check: CommandCheck) -> list[str]:
    """Return the shell command that limits the program: kibibytes, blocks of 512 bytes, seconds."""
    limits = {"v": check.memory_mb << 10, "f": LARGEST_FILE >> 9, "t": int(check.timeout_s) + 2, "c": 0}
    script = "".join(f"ulimit -{limit} {value}; " for limit, value in limits.items())
    return ["/bin/sh", "-c", f'{script}exec "$@"', "sh"]


def _bare_environment(passed: Iterable[str]) -> dict[str, str]:
    """Build a program's environment: only what is ``passed``, and a writable home."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", *passed) if name in os.environ}
    return {**kept, "HOME": "/tmp", "TMPDIR": "/tmp"}  # noqa: S108  the sandbox's own


def _sandbox_command(home: Path) -> list[str]:
    """Return the words of bubblewrap: files are read-only, /tmp and the folders of services' sockets are
    empty, no network, no other process."""
    mounts: dict[str, tuple[str, ...]] = {_NIXOS: ("--ro-bind-try", _NIXOS)}
    for folder in map(os.path.realpath, ("/run", os.environ.get("XDG_RUNTIME_DIR", ""), *_WRITABLE)):
        if folder != "/" and Path(folder).is_dir():
            mounts[folder] = ("--size", str(_SANDBOX_DISK), "--tmpfs")
    if home != Path("/"):
        mounts[str(home)] = ("--ro-bind", str(home))
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/"]
    words += ["--dev", "/dev", "--proc", "/proc"]
    for folder in sorted(mounts):  # what is mounted later covers what is below it
        words += [*mounts[folder], folder]
    return [*words, "--remount-ro", "/dev", "--chdir", str(home)]


def find_sandbox_problem() -> str | None:
    """Return why programs cannot run in a sandbox here; None if they can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (apt-get install bubblewrap)"
    try:
        trial = [*_sandbox_command(Path.cwd()), "true"]
        subprocess.run(trial, check=True, capture_output=True, timeout=_LONGEST_TRIAL_S)  # noqa: S603  ours
    except subprocess.CalledProcessError as error:
        return f"bubblewrap does not work here: {error.stderr.decode(errors='replace').strip()[:300]}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work here: {describe_error(error)}"
    return None
