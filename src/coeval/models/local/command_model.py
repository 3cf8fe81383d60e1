"""Programs as models: a process for each call, which reads the prompt on standard input, or processes that
are kept and are given requests as JSON lines.

No shell is involved. A program runs in a process group of its own, which is killed when its time is over,
when it writes too much, and when the run ends, by whatever death.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from coeval.core.errors import ServerFault, Undecodable, Unreadable, UsageError
from coeval.core.foreign import decode, decode_utf8
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Request
from coeval.core.shown_url import strip_credentials
from coeval.models.local.callables import parse_own_answer, request_parts
from coeval.models.local.command_guard import CommandGuard
from coeval.models.local.function_model import OwnCode
from coeval.models.pacing.admission import Admission

T = TypeVar("T")

# Bytes kept of what a program writes to standard error: the end of a traceback.
_COMPLAINT = 2_000
# Seconds between two looks at whether a program has ended whose pipes are still open.
_LOOK_S = 0.05
# Seconds for which one that has ended is listened to: what it wrote is in the pipe, which a process that it
# left behind may hold open for as long as it likes.
_GRACE_S = 0.5
# Characters of JSON that one byte of an answer may take, as \u001f, and what stands beside the text.
_ESCAPED, _BESIDE = 6, 1 << 16
_ENCODER = msgspec.json.Encoder()


def find_program(spec: ModelSpec) -> str:
    """Return the path of a model's program; raises UsageError where there is none."""
    program = str(spec.options["argv"][0])
    program_path = shutil.which(os.path.expanduser(program))  # noqa: PTH111  Path's raises for an unknown name
    if program_path is None:
        where = "not an executable file" if os.sep in program else "not on the PATH"
        raise UsageError(f"model {spec.name}: its program {program} is {where}; correct argv")
    return program_path


class CommandModel(OwnCode):
    """A program of the user's, by ``argv``; ``protocol`` is ``stdin`` or ``jsonl``. Credentials of
    the environment are kept from it, but those that ``env`` names."""

    def __init__(self, spec: ModelSpec, admission: Admission, guard: CommandGuard) -> None:
        """Find the program; raises UsageError if there is none."""
        super().__init__(spec, admission)
        self._argv = (find_program(spec), *map(str, spec.options["argv"][1:]))
        self._place = str(spec.options["argv"][0])
        self._guard = guard
        self._keeps = spec.options.get("protocol") == "jsonl"
        self._home = Path.cwd()  # a function of the user's may change it later
        self._env = strip_credentials(os.environ, spec.options.get("env", ()))
        # A program that is kept may hold a model: one, unless the file says more.
        usual = 1 if self._keeps else os.cpu_count() or 1
        self._room = asyncio.Semaphore(spec.max_concurrency or usual)
        self._idle: list[_Program] = []
        self._numbers = itertools.count(1)

    async def aclose(self) -> None:
        """End the programs that are kept."""
        while self._idle:
            await self._idle.pop().kill_and_wait()

    async def _answer(self, request: Request) -> Completion:
        async with self._room:
            return await self._call_within_budget(request, self._run_program)

    async def _run_program(self, request: Request) -> Completion:
        began = time.perf_counter()
        program = self._idle.pop() if self._idle else await self._start_program()
        whole = False
        try:
            completion = await self._await_in_time(self._exchange_line_or_whole_prompt(program, request))
            whole = self._keeps
        finally:  # what was broken off may still answer, and would answer the next request
            if whole:
                self._idle.append(program)
            else:
                await program.kill_and_wait()
        return msgspec.structs.replace(completion, latency_s=time.perf_counter() - began)

    async def _await_in_time(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._spec.timeout_s):
                return await work
        except TimeoutError:
            raise self._make_timeout(self._place) from None

    async def _start_program(self) -> _Program:
        """Start the program in its own process group, with pipes."""
        most = self._spec.max_answer_bytes
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=self._env,
                cwd=self._home,
                start_new_session=True,
                limit=most * _ESCAPED + _BESIDE,
            )
        except OSError as error:
            raise self._map_exception(error, self._place) from error
        return _Program(process, self._guard)

    async def _exchange_line_or_whole_prompt(self, program: _Program, request: Request) -> Completion:
        if self._keeps:
            return await self._exchange_line(program, request)
        prompt = request_parts(request, with_earlier=True)["prompt"]
        output, cut = await program.exchange_all(
            prompt.encode("utf-8", "replace"), self._spec.max_answer_bytes
        )
        if not cut and program.code:
            raise ServerFault(
                self._describe_failure(program, f"ended with exit code {program.code}"), retry_advised=False
            )
        text = self._decode_whole_or_cut(program, output[: -1 if output.endswith(b"\n") else None], cut=cut)
        answer = parse_own_answer(text, self._place)
        return msgspec.structs.replace(answer, truncated=answer.truncated or cut)

    async def _exchange_line(self, program: _Program, request: Request) -> Completion:
        """Send a request as a line and read its answer, which must repeat its id, lest answers be swapped."""
        number = next(self._numbers)
        request_line = {"id": number, **request_parts(request)}
        try:
            line = await program.exchange_line(_ENCODER.encode(request_line) + b"\n")
        except ValueError:  # how a stream says that a line is longer than its limit
            raise Unreadable(
                self._describe_failure(program, "wrote a line that is too long"), retry_advised=False
            ) from None
        if not line.endswith(b"\n"):
            ended = f"ended with exit code {program.code} in the middle of a request"
            raise ServerFault(self._describe_failure(program, ended))
        try:
            reply = decode(line)
        except Undecodable as error:
            raise Unreadable(
                self._describe_failure(program, f"wrote a line that is not JSON ({error})")
            ) from error
        echoed = reply.get("id") if isinstance(reply, Mapping) else None
        if echoed != number:
            what = (
                "without the `id` of its request"
                if echoed is None
                else f"for request {echoed!r}, not {number}"
            )
            raise Unreadable(self._describe_failure(program, f"wrote a line {what}"))
        if reply.get("error"):
            raise ServerFault(
                self._redactor.redact_message(f"{self._place} answered with an error: {reply['error']}"),
                retry_advised=False,
            )
        return parse_own_answer(reply, self._place)

    def _decode_whole_or_cut(self, program: _Program, output: bytes, *, cut: bool) -> str:
        try:
            return output.decode(errors="ignore") if cut else decode_utf8(output)
        except Undecodable as error:
            raise Unreadable(
                self._describe_failure(program, f"wrote what is not text: {error}"), retry_advised=False
            ) from error

    def _describe_failure(self, program: _Program, what: str) -> str:
        """Describe what a program did, with the end of its standard error."""
        complaint = program.complaint.decode(errors="replace").strip()
        return self._redactor.redact_message(
            f"{self._place} {what}" + (f": {complaint}" if complaint else "")
        )


class _Program:
    """A process of a program, in a group of its own."""

    def __init__(self, process: Process, guard: CommandGuard) -> None:
        self._process = process
        self._guard = guard
        self.complaint = b""
        guard.watch_group(process.pid)
        self._listening = asyncio.create_task(self._collect_stderr())

    @property
    def code(self) -> int | None:
        return self._process.returncode

    async def exchange_all(self, data: bytes, most_bytes: int) -> tuple[bytes, bool]:
        """Send all input; return the output, and whether it was cut at ``most_bytes``."""
        output = bytearray()
        feeding = asyncio.create_task(self._feed(data, last=True))
        reading = asyncio.create_task(self._read(output, most_bytes))
        try:
            await self._await_pipe_end(reading)
            if len(output) <= most_bytes:
                await self._await_exit_and_stderr()
            return bytes(output[:most_bytes]), len(output) > most_bytes
        finally:
            feeding.cancel()
            reading.cancel()

    async def _read(self, output: bytearray, most_bytes: int) -> None:
        while len(output) <= most_bytes and (data := await self._out.read(1 << 16)):
            output += data

    async def _await_pipe_end(self, pipe: asyncio.Task[None]) -> None:
        """Wait for the end of a pipe; once the program has ended, for a moment only."""
        while not pipe.done() and self.code is None:
            await asyncio.wait((pipe,), timeout=_LOOK_S)
        if not pipe.done():
            await asyncio.wait((pipe,), timeout=_GRACE_S)
        if pipe.done():
            pipe.result()

    async def _await_exit_and_stderr(self) -> None:
        await self._await_pipe_end(self._listening)
        if self.code is None:
            await self._process.wait()

    async def exchange_line(self, line_sent: bytes) -> bytes:
        """Send a line; return the next one that it writes, without a newline if it ended."""
        await self._feed(line_sent, last=False)
        line = await self._out.readline()
        if not line.endswith(b"\n"):
            await self._await_exit_and_stderr()
        return line

    async def kill_and_wait(self) -> None:
        self._guard.kill_and_forget_group(self._process.pid)
        self._listening.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self._process.wait()
        # Its pipes too, which a process that left its group may hold open; asyncio names no other way.
        self._process._transport.close()  # type: ignore[attr-defined]

    @property
    def _out(self) -> asyncio.StreamReader:
        return _require_stream(self._process.stdout)

    async def _feed(self, data: bytes, *, last: bool) -> None:
        """Write to its standard input; what it does not read is lost, as a program may answer without."""
        stdin = _require_stream(self._process.stdin)
        try:
            stdin.write(data)
            await stdin.drain()
            if last:
                stdin.close()
        except (BrokenPipeError, ConnectionResetError):
            return

    async def _collect_stderr(self) -> None:
        while data := await _require_stream(self._process.stderr).read(1 << 16):
            self.complaint = (self.complaint + data)[-_COMPLAINT:]


def _require_stream(stream: T | None) -> T:
    if stream is None:
        raise ValueError("the process was started without this pipe")
    return stream
