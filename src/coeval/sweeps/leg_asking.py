"""Asking the model of a leg: what is owed, at a server that may go away meanwhile."""

from __future__ import annotations

import asyncio
import os
from typing import NamedTuple

import msgspec

from coeval.benchmarks.run.runner import EndOfAsking, Prepared, ask_owed
from coeval.core.errors import ModelUnavailable, ServerDown
from coeval.core.good import is_good
from coeval.engine.probing import Probing
from coeval.models.keys import Keys
from coeval.sweeps.leg import Leg, LegEnd
from coeval.sweeps.leg_count import LegCount
from coeval.sweeps.leg_server import Up
from coeval.sweeps.servers.health import served_names, shown_names
from coeval.sweeps.servers.server_command import ServerCommand
from coeval.sweeps.servers.server_log import ServerLog

__all__ = ["Came", "LegAsking", "is_owed"]

OF_SERVERS = frozenset({"connection", "timeout", "server"})
"""Failures that a server is to blame for, and another start may mend."""
ROUNDS = 3
"""How often one server is asked for what it has dropped."""


class Came(NamedTuple):
    """How a leg ended, and why it is not done."""

    end: LegEnd
    problem: str = ""


class LegAsking:
    """Asks for a leg, until it is interrupted."""

    def __init__(
        self, leg: Leg, keys: Keys, count: LegCount, server_log: ServerLog, interrupt: asyncio.Event
    ) -> None:
        self._leg = leg
        self._keys = keys
        self._count = count
        self._log = server_log
        self._interrupt = interrupt

    async def ask(self, prepared: Prepared, up: Up | None = None) -> Came:
        """Ask for what is owed, and again for what the server has dropped, as long as that brings answers.
        ``up`` is the leg's own server, None where the user runs one.

        Raises
        ------
        ServerDown
            the leg's own server has ended, or is no good: another start may mend it.
        CoevalError
            it cannot be asked.
        """
        if up is not None:
            prepared = _asked_at(prepared, up.url)
        if (another := await self._another(prepared)) is not None:
            return Came("failed", another)
        for _ in range(ROUNDS):
            ended = await self._ask_once(prepared, up)
            if not is_owed(prepared):
                return Came("done")
            if self._interrupt.is_set():
                return Came("interrupted")
            if up is not None and up.process.down.is_set():
                await up.process.gone.wait()
                raise self._down(up, "the server ended while it was asked")
            if ended.stopped:
                return Came("failed", f"{'; '.join(ended.stopped.values())}{await self._served(prepared)}")
            made, failed = self._count.asked_last()
            dropped = not OF_SERVERS.isdisjoint(failed)
            if dropped and not made:
                return self._no_good(prepared, up)
            if not dropped:
                break
        if _is_without_answers(prepared):
            why = f"none of its requests was answered: {_reason(prepared)}{await self._served(prepared)}"
            return Came("failed", why)
        return Came("done")

    async def _ask_once(self, prepared: Prepared, up: Up | None) -> EndOfAsking:
        stop = asyncio.Event()
        stopping = asyncio.create_task(self._stop(stop, up))
        try:
            return await ask_owed(prepared, self._keys, self._count, stop)
        except ModelUnavailable as error:
            raise ModelUnavailable(f"{error}{await self._served(prepared)}") from error
        finally:
            stopping.cancel()
            await asyncio.wait({stopping})

    async def _stop(self, stop: asyncio.Event, up: Up | None) -> None:
        """Set ``stop`` as soon as the leg is interrupted or its server is down."""
        events = [self._interrupt] if up is None else [self._interrupt, up.process.down]
        waiting = [asyncio.create_task(event.wait()) for event in events]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            stop.set()
        finally:
            for task in waiting:
                task.cancel()

    def _no_good(self, prepared: Prepared, up: Up | None) -> Came:
        what = f"the server gives nothing but failures: {_reason(prepared)}"
        if up is not None:
            raise self._down(up, what)
        return Came("server_failed", what)

    def _down(self, up: Up, what: str) -> ServerDown:
        return ServerDown(f"{what}{up.process.exit}. {self._log.told()}")

    async def _served(self, prepared: Prepared) -> str:
        """A sentence on the models that the server names, where it does."""
        tested = prepared.evaluation.tested
        if tested is None or not tested.base_url:
            return ""
        names = shown_names(await served_names(tested.base_url, self._leg.key_of(os.environ)))
        way = "; --served-name says how it calls the checkpoint" if self._leg.server is None else ""
        return f" It serves: {names}{way}." if names else ""

    async def _another(self, prepared: Prepared) -> str | None:
        """What is wrong where the server lists its models, and the tested one is not among them: many answer
        whatever they are called, and their answers would be recorded as the checkpoint's."""
        tested, server = prepared.evaluation.tested, self._leg.server
        if self._leg.vouched or tested is None or not tested.base_url:
            return None
        if server is not None and ServerCommand(server.template).loads_at_will:
            return None
        names = await served_names(tested.base_url, self._leg.key_of(os.environ))
        if not names or {tested.model, f"{tested.model}:latest"}.intersection(names):
            return None
        told = "" if server is None else "have --server-command serve it as {name}, or "
        return (
            f"the server lists {shown_names(names)}, and not {shown_names([tested.model])}: nothing was "
            f"asked, since it may be another model. If it is this checkpoint, {told}say how it is called: "
            "--served-name"
        )


def is_owed(prepared: Prepared) -> bool:
    """Whether there is a prompt without a good answer, by the records that have been read."""
    return any(
        (record := task_run.answers.get(item.id)) is None or not is_good(record)
        for task_run in prepared.task_runs
        for item in task_run.items
    )


def _is_without_answers(prepared: Prepared) -> bool:
    return not any(is_good(answer) for run in prepared.task_runs for answer in run.answers.values())


def _reason(prepared: Prepared) -> str:
    """The last failure, in its own words."""
    failed = (run.answers.values() for run in prepared.task_runs)
    messages = [answer.error.message for answers in failed for answer in answers if answer.error is not None]
    return messages[-1] if messages else "no reason was given"


def _asked_at(prepared: Prepared, url: str) -> Prepared:
    """The same of a server that is up: it needs no probe, and asking says what is wrong with it."""
    evaluation = prepared.evaluation
    if evaluation.tested is None:
        return prepared
    tested = msgspec.structs.replace(evaluation.tested, base_url=url)
    changed = msgspec.structs.replace(evaluation, tested=tested, probing=Probing("disable"))
    return Prepared(changed, prepared.task_runs, prepared.assets)
