"""A worker's work: prepare, start the server if something is owed, ask, and end the server, whatever happens.

A server that dies, or answers nothing but failures, is started again after a wait that grows. Answers are
on disk as they are made, so a worker that ends costs only those in flight.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from typing import NamedTuple

import msgspec

from coeval.benchmarks.run.runner import (
    Prepared,
    ask_owed,
    lock_folders_and_merge_shards,
    prepare_evaluation,
)
from coeval.core.errors import (
    CoevalError,
    Draining,
    ModelUnavailable,
    ServerDown,
    StoreError,
    SwapDoubted,
    UsageError,
    WindowExceeded,
)
from coeval.core.model import ModelSpec
from coeval.core.records import is_good
from coeval.engine.probing import Probing
from coeval.engine.session import await_unless_interrupted
from coeval.models.keys import Keys
from coeval.models.transport.endpoint import OUTAGE_AFTER_S
from coeval.sweeps.checkpoints import why_submitted_not_servable
from coeval.sweeps.guard import LOOK_S
from coeval.sweeps.server_command import HOST, ServerCommand
from coeval.sweeps.server_log import ServerLog
from coeval.sweeps.server_process import (
    ServerProcess,
    end_leftover_worker_and_server,
    fetch_served_names,
    find_free_port,
    format_names,
    wait_until_up,
)
from coeval.sweeps.swapping import ENVIRONMENT, KEPT_NAME, ServedAdapter, with_base_model_of_adapter
from coeval.sweeps.worker_files import Server, Worker, WorkerCount, WorkerResult, write_progress, write_result

# --- Server of a worker


class Up(NamedTuple):
    """A running server and its URL, which ends in ``/v1``. ``name`` is what it calls the checkpoint if that
    is not its own name."""

    process: ServerProcess
    url: str
    name: str = ""


class WorkerServer:
    """The server of a worker, with its files in the worker's folder."""

    def __init__(self, worker: Worker, server: Server, count: WorkerCount, log: ServerLog) -> None:
        self.server = server
        self.count = count
        self.key = worker.read_api_key(os.environ)
        self._command = ServerCommand(server.template)
        self.folder = worker.server_folder
        self._log = log

    @asynccontextmanager
    async def serve(self, interrupt: asyncio.Event) -> AsyncIterator[Up]:
        """Start it once; leaving ends it, and kills it if cancelled. Raises Draining: it was interrupted
        before it was up; ServerDown: it does not come up."""
        server, count = self.server, self.count
        self.folder.mkdir(parents=True, exist_ok=True)
        count.starts += 1
        count.state = "starting"
        self._log.begin()
        port = await asyncio.to_thread(find_free_port, HOST)
        gpus = {"CUDA_VISIBLE_DEVICES": ",".join(server.gpus)} if server.gpus else {}
        environment = {**gpus, **(ENVIRONMENT if server.serves_adapters else {})}
        process = await ServerProcess.launch(
            self.folder,
            self._command.fill_for_server(with_base_model_of_adapter(server), port),
            environment,
            port,
            self._command.strip_other_secrets(os.environ, server.passed),
        )
        try:
            url = f"http://{HOST}:{port}/v1"
            await await_unless_interrupted(
                self._wait_until_up_or_quote_log(process, url), interrupt, "the server was still starting"
            )
            yield Up(process, url)
        except asyncio.CancelledError:
            process.kill()
            raise
        finally:
            count.state = "stopping"
            await process.end()

    async def _wait_until_up_or_quote_log(self, process: ServerProcess, url: str) -> None:
        try:
            await wait_until_up(process, url, self.server.start_timeout_s, self.key)
        except ServerDown as error:
            if process.down.is_set():
                await process.gone.wait()
            why = f"{error}{process.exit_note}. {self._log.describe_failure()}"
            raise ServerDown(why, again=error.again) from error


class _HeldServer(NamedTuple):
    """A running server, and its adapter."""

    up: Up
    adapter: ServedAdapter


class _ColdStart(NamedTuple):
    """An adapter that a server loaded first, and the answers that it then gave."""

    server: Server
    answers: tuple[str, ...] | None


class KeptServer:
    """The server of a slot, which loads one adapter after another (``--swap lora``). It is sent requests only
    after a cold start, or a swap of a server whose first swap gave the answers of a cold start."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._held: _HeldServer | None = None
        self._cold: dict[str, _ColdStart] = {}
        self._trusted = True

    @asynccontextmanager
    async def serve(self, server: WorkerServer, interrupt: asyncio.Event) -> AsyncIterator[Up]:
        """Load a worker's checkpoint. The server stays when this is left, unless by an exception. Raises as
        `WorkerServer.serve`."""
        stays = False
        try:
            held = self._held
            if held is None or not await self._try_swap(held, server, interrupt):
                await self.aclose()
                held = self._held = await self._start_and_load_first(server, interrupt)
            yield held.up._replace(name=held.adapter.name)
            stays = True
        finally:
            if not stays:
                await self.aclose()

    async def aclose(self) -> None:
        """End the server; at once if cancelled."""
        stack, self._stack, self._held = self._stack, AsyncExitStack(), None
        await stack.__aexit__(*sys.exc_info())

    async def _start_and_load_first(self, server: WorkerServer, interrupt: asyncio.Event) -> _HeldServer:
        await asyncio.to_thread(end_leftover_worker_and_server, server.folder)
        up = await self._stack.enter_async_context(server.serve(interrupt))
        adapter = ServedAdapter(up.url, server.server, server.key)
        try:
            await await_unless_interrupted(adapter.load_first(), interrupt, "the server was still starting")
        except SwapDoubted as error:
            raise ServerDown(f"the server does not load it: {error}", again=False) from error
        self._remember_cold_answers_if_first(adapter)
        return _HeldServer(up, adapter)

    async def _try_swap(self, held: _HeldServer, server: WorkerServer, interrupt: asyncio.Event) -> bool:
        """Swap the running server to the checkpoint; False: start a server instead."""
        if held.up.process.down.is_set() or not self._trusted:
            return False
        server.count.state = "starting"
        try:
            swapping = self._prove_then_swap(held.adapter, server.server)
            return await await_unless_interrupted(swapping, interrupt, "it was being loaded")
        except SwapDoubted as error:
            server.count.warn(f"{error}; the server is restarted")
            return False

    async def _prove_then_swap(self, adapter: ServedAdapter, after: Server) -> bool:
        """Swap if this server is known to do so correctly; its first swap is to an adapter that an earlier
        server loaded first. Raises SwapDoubted: it may hold anything."""
        if adapter.loads and not adapter.is_proven:
            passed_over = (adapter.server.checkpoint, after.checkpoint)
            other = next((self._cold[path] for path in reversed(self._cold) if path not in passed_over), None)
            if other is None:
                return False
            if await adapter.swap(other.server) != other.answers:
                self._trusted = False
                raise SwapDoubted(f"a swap to {other.server.name} changed the answers of a cold start")
            adapter.is_proven = True
        await adapter.swap(after)
        self._remember_cold_answers_if_first(adapter)
        return True

    def _remember_cold_answers_if_first(self, adapter: ServedAdapter) -> None:
        if adapter.loads == 1:
            self._cold[adapter.server.checkpoint] = _ColdStart(adapter.server, adapter.answers)


# --- A worker under way

OF_SERVERS = frozenset({"connection", "timeout", "server"})
"""Failures that a server is to blame for, and another start may mend."""
# How often one server is asked for what it has dropped.
ROUNDS = 3

log = logging.getLogger("coeval")

# The sweep's table is drawn twice a second; progress is a small file.
PROGRESS_S = 1.0
# Between two attempts at a server: its restart takes a minute or two.
LONGEST_WAIT_S = 120.0
# How long a task's folder may be held by an earlier worker that is being interrupted.
HELD_BY_OTHERS_S = 60.0


async def run_worker_and_write_result(
    worker: Worker, keys: Keys, interrupt: asyncio.Event, kept: KeptServer | None = None
) -> WorkerResult:
    """Run a worker, and write its result into its folder. Setting ``interrupt`` ends it; cancelling kills its
    server at once. ``kept`` is the slot's server, if that may stay."""
    run = _WorkerRun(worker, keys, interrupt, kept)
    result = WorkerResult(end="interrupted", problem="it was ended at once")
    async with run.keep_writing_progress():
        try:
            result = await run.carry_out()
        except ServerDown as error:
            result = WorkerResult(end="server_failed", problem=str(error), again=error.again)
        except WindowExceeded as error:
            result = WorkerResult(end="refused", problem=str(error))
        except CoevalError as error:
            result = WorkerResult(end="failed", problem=str(error))
        finally:
            result = msgspec.structs.replace(
                result,
                tasks=run.count.count_answered_by_task(),
                problem=run.server_log.redact(result.problem),
                starts=run.count.starts,
            )
            write_result(worker, result)
    log.info("%s: %s %s", worker.name, result.end, result.problem)
    return result


class _WorkerRun:
    """A worker's requests to its server, until it is interrupted."""

    def __init__(self, worker: Worker, keys: Keys, interrupt: asyncio.Event, kept: KeptServer | None) -> None:
        self.count = WorkerCount()
        self._worker = worker
        self._keys = keys
        self._interrupt = interrupt
        self._kept = kept
        self._key = worker.read_api_key(os.environ)
        self.server_log = ServerLog(worker.server_folder, os.environ, [self._key] if self._key else [])

    @asynccontextmanager
    async def keep_writing_progress(self) -> AsyncIterator[None]:
        ended = asyncio.Event()
        telling = asyncio.create_task(self._write_progress_until(ended))
        try:
            yield
        finally:
            ended.set()
            await asyncio.wait({telling})  # not cancelled: its thread would write on beside us
            self.count.state = "ended"
            write_progress(self._worker.folder, self.count.mark_pace_and_measure_progress())

    async def _write_progress_until(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            progress = self.count.mark_pace_and_measure_progress()
            try:
                await asyncio.to_thread(write_progress, self._worker.folder, progress)
            except StoreError as error:  # answers matter more; where the disk is full, they will say so
                log.warning("%s", error)
            await _wait_for_event(ended, PROGRESS_S)

    async def carry_out(self) -> WorkerResult:
        """Request what is owed, from a server started for it or the user's. Raises CoevalError: it cannot be
        done; ServerDown if that is the server's fault."""
        worker, tested = self._worker, self._worker.evaluation.tested
        if tested is None:
            raise UsageError(f"the worker {worker.name} names no model to ask")
        # Which the worker's file does not hold.
        tested = msgspec.structs.replace(tested, access_key=self._key)
        await asyncio.to_thread(end_leftover_worker_and_server, worker.folder)
        evaluation = msgspec.structs.replace(worker.evaluation, tested=tested)
        prepared = await asyncio.to_thread(prepare_evaluation, evaluation, self.count)
        async with self._lock_folders(prepared):
            for task_run in prepared.task_runs:
                task_run.read_current_or_failed_answers()
            self.count.task_runs = prepared.task_runs
            if not has_owed_answers(prepared):
                return WorkerResult(end="done")
            if worker.server is None:
                return await self._ask_until_done(prepared, tested)
            server = WorkerServer(worker, worker.server, self.count, self.server_log)
            return await self._ask_restarting(server, prepared, tested)

    @asynccontextmanager
    async def _lock_folders(self, prepared: Prepared) -> AsyncIterator[None]:
        """Lock the tasks' folders, once an earlier worker has let them go."""
        until = time.monotonic() + HELD_BY_OTHERS_S
        with ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(lock_folders_and_merge_shards(prepared))
                    break
                except UsageError:
                    if time.monotonic() > until or await _wait_for_event(self._interrupt, LOOK_S):
                        raise
            yield

    async def _ask_restarting(
        self, server: WorkerServer, prepared: Prepared, tested: ModelSpec
    ) -> WorkerResult:
        """Send requests to a server that is restarted as often as it may be."""
        wait_s, loaded = server.server.wait_s, self._worker.loaded
        before = ""
        while True:
            came_up = False
            try:
                kept, stop = self._kept, self._interrupt
                async with server.serve(stop) if kept is None else kept.serve(server, stop) as up:
                    came_up = True
                    if loaded and (why := await asyncio.to_thread(why_submitted_not_servable, loaded)):
                        return WorkerResult(end="failed", problem=why)
                    return await self._ask_own_server(prepared, tested, up)
            except Draining:
                return WorkerResult(end="interrupted")
            except ServerDown as error:
                problem = error
            log.warning("%s", problem)
            if self._interrupt.is_set():
                return WorkerResult(end="interrupted")
            words = "" if came_up else self.server_log.lasting_error_without_numbers()
            problem.again = problem.again and (not words or words != before)
            if not problem.again or self.count.starts >= server.server.starts:
                raise problem
            before = words
            self.count.state = "restarting"
            why = self.server_log.error_line() or str(problem).partition(". ")[0]
            self.count.restarted = self.server_log.redact(why)
            if await _wait_for_event(self._interrupt, wait_s):
                return WorkerResult(end="interrupted")
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def _ask_own_server(self, prepared: Prepared, tested: ModelSpec, up: Up) -> WorkerResult:
        """Send requests to the worker's own running server: it needs no probe, since they show what is wrong
        with it. Raises as `_ask_until_done`."""
        # It is not waited for: another start mends it sooner.
        model = up.name or tested.model
        tested = msgspec.structs.replace(tested, base_url=up.url, model=model, wait_s=OUTAGE_AFTER_S)
        changed = msgspec.structs.replace(prepared.evaluation, tested=tested, probing=Probing("disable"))
        return await self._ask_until_done(Prepared(changed, prepared.task_runs, prepared.assets), tested, up)

    async def _ask_until_done(
        self, prepared: Prepared, tested: ModelSpec, up: Up | None = None
    ) -> WorkerResult:
        """Request what is owed, and again what the server has dropped, as long as that brings answers. ``up``
        is the worker's own server, None if the user runs one. Raises ServerDown: the worker's own server has
        ended, or is no good, so another start may mend it; CoevalError: it cannot be asked."""
        if another := await self._explain_other_model(tested):
            return WorkerResult(end="failed", problem=another)
        for _ in range(ROUNDS):
            stopped = await self._ask_until_stopped(prepared, tested, up)
            if not has_owed_answers(prepared):
                return WorkerResult(end="done")
            if self._interrupt.is_set():
                return WorkerResult(end="interrupted")
            if up is not None and up.process.down.is_set():
                await up.process.gone.wait()
                raise self._server_down_error(up, "the server ended during a request")
            if stopped:
                why = f"{'; '.join(stopped.values())}{await self._describe_served_models(tested)}"
                return WorkerResult(end="failed", problem=why)
            made, failed = self.count.count_good_and_failed_of_last_round()
            dropped = not OF_SERVERS.isdisjoint(failed)
            if dropped and not made:
                why = f"every request to the server failed: {_last_failure_message(prepared)}"
                if up is not None:
                    raise self._server_down_error(up, why)
                return WorkerResult(end="server_failed", problem=why)
            if not dropped:
                break
        if not any(is_good(answer) for run in prepared.task_runs for answer in run.answers.values()):
            why = f"none of its requests was answered: {_last_failure_message(prepared)}"
            why += await self._describe_served_models(tested)
            return WorkerResult(end="failed", problem=why)
        return WorkerResult(end="done")

    async def _ask_until_stopped(
        self, prepared: Prepared, tested: ModelSpec, up: Up | None
    ) -> Mapping[str, str]:
        """Request until the worker is interrupted or its server is down; return why models were given up, by
        name."""
        stop = asyncio.Event()
        events = [self._interrupt] if up is None else [self._interrupt, up.process.down]
        waiting = [asyncio.create_task(event.wait()) for event in events]
        for task in waiting:
            task.add_done_callback(lambda _: stop.set())
        try:
            return (await ask_owed(prepared, self._keys, self.count, stop)).stopped
        except ModelUnavailable as error:
            raise ModelUnavailable(f"{error}{await self._describe_served_models(tested)}") from error
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)

    def _server_down_error(self, up: Up, why: str) -> ServerDown:
        return ServerDown(f"{why}{up.process.exit_note}. {self.server_log.describe_failure()}")

    async def _fetch_names(self, tested: ModelSpec) -> list[str]:
        return await fetch_served_names(tested.base_url, self._key) if tested.base_url else []

    async def _describe_served_models(self, tested: ModelSpec) -> str:
        names = format_names(await self._fetch_names(tested))
        way = "; --served-name says how it calls the checkpoint" if self._worker.server is None else ""
        return f" It serves: {names}{way}." if names else ""

    async def _explain_other_model(self, tested: ModelSpec) -> str:
        """Explain that the server lists models, and not the tested one, whose name would stand for another's
        answers; else return ''."""
        server = self._worker.server
        if self._worker.vouched or (server is not None and ServerCommand(server.template).loads_any_model):
            return ""
        names = await self._fetch_names(tested)
        called = {tested.model, f"{tested.model}:latest"}
        if server is not None and server.serves_adapters:  # SGLang lists an adapter without its base
            called.add(tested.model.removeprefix(f"{KEPT_NAME}:"))
        if not names or called.intersection(names):
            return ""
        reported = "" if server is None else "have --server-command serve it as {name}, or "
        return (
            f"the server lists {format_names(names)}, and not {format_names([tested.model])}: no request "
            f"was sent, since it may be another model. If it is this checkpoint, {reported}say how it "
            "is called: --served-name"
        )


async def _wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def has_owed_answers(prepared: Prepared) -> bool:
    """Check whether a prompt has no good answer among the records read."""
    return any(
        (record := task_run.answers.get(item.id)) is None or not is_good(record)
        for task_run in prepared.task_runs
        for item in task_run.items
    )


def _last_failure_message(prepared: Prepared) -> str:
    failed = (run.answers.values() for run in prepared.task_runs)
    messages = [answer.error.message for answers in failed for answer in answers if answer.error is not None]
    return messages[-1] if messages else "no reason was given"
