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
    found = shutil.which(os.path.expanduser(program))  # noqa: PTH111  Path's raises for an unknown name
    if found is None:
        where = "no such file that can be run" if os.sep in program else "not on the PATH"
        raise UsageError(f"model {spec.name}: its program {program} is {where}; correct argv")
    return found


class CommandModel(OwnCode):
    """A program of the user's, by ``argv``; ``protocol`` is ``stdin`` or ``jsonl``. Credentials of
    the environment are kept from it, but those that ``env`` names."""

    def __init__(self, spec: ModelSpec, admission: Admission, guard: CommandGuard) -> None:
        """Raises UsageError: there is no such program."""
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
            await self._idle.pop().end()

    async def _answer(self, request: Request) -> Completion:
        async with self._room:
            return await self._called(request, self._asked)

    async def _asked(self, request: Request) -> Completion:
        began = time.perf_counter()
        program = self._idle.pop() if self._idle else await self._started()
        whole = False
        try:
            completion = await self._in_time(self._exchange(program, request))
            whole = self._keeps
        finally:  # what was broken off may still answer, and would answer the next request
            if whole:
                self._idle.append(program)
            else:
                await program.end()
        return msgspec.structs.replace(completion, latency_s=time.perf_counter() - began)

    async def _in_time(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._spec.timeout_s):
                return await work
        except TimeoutError:
            raise self._late(self._place) from None

    async def _started(self) -> _Program:
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
            raise self._fault(error, self._place) from error
        return _Program(process, self._guard)

    async def _exchange(self, program: _Program, request: Request) -> Completion:
        if self._keeps:
            return await self._next_line(program, request)
        prompt = request_parts(request, alone=True)["prompt"]
        said, cut = await program.whole_output(prompt.encode("utf-8", "replace"), self._spec.max_answer_bytes)
        if not cut and program.code:
            raise ServerFault(
                self._about(program, f"ended with exit code {program.code}"), retry_advised=False
            )
        text = self._text(program, said[: -1 if said.endswith(b"\n") else None], cut=cut)
        answer = parse_own_answer(text, self._place)
        return msgspec.structs.replace(answer, truncated=answer.truncated or cut)

    async def _next_line(self, program: _Program, request: Request) -> Completion:
        """One line for one request, which repeats its id: else an answer could go to another item."""
        number = next(self._numbers)
        asked = {"id": number, **request_parts(request)}
        try:
            line = await program.next_line(_ENCODER.encode(asked) + b"\n")
        except ValueError:  # how a stream says that a line is longer than its limit
            raise Unreadable(
                self._about(program, "wrote a line that is too long"), retry_advised=False
            ) from None
        if not line.endswith(b"\n"):
            ended = f"ended with exit code {program.code} in the middle of a request"
            raise ServerFault(self._about(program, ended))
        try:
            reply = decode(line)
        except Undecodable as error:
            raise Unreadable(self._about(program, f"wrote a line that is no JSON ({error})")) from error
        echoed = reply.get("id") if isinstance(reply, Mapping) else None
        if echoed != number:
            what = (
                "without the `id` of its request"
                if echoed is None
                else f"for request {echoed!r}, not {number}"
            )
            raise Unreadable(self._about(program, f"wrote a line {what}"))
        if reply.get("error"):
            raise ServerFault(
                self._redactor.redact_message(f"{self._place} answered with an error: {reply['error']}"),
                retry_advised=False,
            )
        return parse_own_answer(reply, self._place)

    def _text(self, program: _Program, said: bytes, *, cut: bool) -> str:
        try:
            return said.decode(errors="ignore") if cut else decode_utf8(said)
        except Undecodable as error:
            raise Unreadable(
                self._about(program, f"wrote what is no text: {error}"), retry_advised=False
            ) from error

    def _about(self, program: _Program, what: str) -> str:
        """With the end of what it wrote to standard error."""
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
        guard.begins(process.pid)
        self._listening = asyncio.create_task(self._listen())

    @property
    def code(self) -> int | None:
        return self._process.returncode

    async def whole_output(self, given: bytes, most: int) -> tuple[bytes, bool]:
        """Give it all of its input; its output, and whether that was cut at ``most`` bytes."""
        said = bytearray()
        feeding = asyncio.create_task(self._feed(given, last=True))
        reading = asyncio.create_task(self._read(said, most))
        try:
            await self._over(reading)
            if len(said) <= most:
                await self._ended()
            return bytes(said[:most]), len(said) > most
        finally:
            feeding.cancel()
            reading.cancel()

    async def _read(self, said: bytearray, most: int) -> None:
        while len(said) <= most and (data := await self._out.read(1 << 16)):
            said += data

    async def _over(self, pipe: asyncio.Task[None]) -> None:
        """Wait for the end of a pipe; once the program has ended, for a moment only."""
        while not pipe.done() and self.code is None:
            await asyncio.wait((pipe,), timeout=_LOOK_S)
        if not pipe.done():
            await asyncio.wait((pipe,), timeout=_GRACE_S)
        if pipe.done():
            pipe.result()

    async def _ended(self) -> None:
        """Wait until it has ended, and its complaint was heard."""
        await self._over(self._listening)
        if self.code is None:
            await self._process.wait()

    async def next_line(self, given: bytes) -> bytes:
        """Give it a line; the next one that it writes, without an end where it has ended."""
        await self._feed(given, last=False)
        line = await self._out.readline()
        if not line.endswith(b"\n"):
            await self._ended()
        return line

    async def end(self) -> None:
        """Kill its group, and wait until it is gone."""
        self._guard.ends(self._process.pid)
        self._listening.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self._process.wait()
        # Its pipes too, which a process that left its group may hold open; asyncio names no other way.
        self._process._transport.close()  # type: ignore[attr-defined]

    @property
    def _out(self) -> asyncio.StreamReader:
        return _there(self._process.stdout)

    async def _feed(self, given: bytes, *, last: bool) -> None:
        """What it does not read is lost: a program may answer without."""
        stdin = _there(self._process.stdin)
        try:
            stdin.write(given)
            await stdin.drain()
            if last:
                stdin.close()
        except (BrokenPipeError, ConnectionResetError):
            return

    async def _listen(self) -> None:
        while data := await _there(self._process.stderr).read(1 << 16):
            self.complaint = (self.complaint + data)[-_COMPLAINT:]


def _there(stream: T | None) -> T:
    """A stream that was asked for when the process was started."""
    if stream is None:
        raise ValueError("the process was started without this pipe")
    return stream
