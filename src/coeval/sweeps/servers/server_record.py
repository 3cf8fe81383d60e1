"""``server.json``: which processes belong to a leg's server, so that whoever comes after can end them."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from coeval.core.errors import StoreError
from coeval.store.jsonl import read_json, write_json_atomic
from coeval.store.process import started
from coeval.sweeps.servers.process_group import boot_id, escaped, is_marked, members, signal_group

__all__ = ["RECORD", "ServerRecord", "end_at_once", "end_processes", "read_record"]

RECORD = "server.json"
_LOOK_S = 0.1


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A server, before it is started and while it runs.

    ``group`` is its process group (0 until it is known) and ``started`` when the leader did, ``output`` the
    pipe that it writes to, ``mark`` what stands in its environment. ``leg`` and ``leg_started`` are the
    process that started it. Numbers mean what they say on ``host`` since ``boot`` alone.
    """

    mark: str
    port: int
    group: int = 0
    started: str = ""
    output: str = ""
    leg: int = 0
    leg_started: str = ""
    host: str = ""
    boot: str = ""

    @classmethod
    def of_now(cls, mark: str, port: int) -> ServerRecord:
        """Of a server that this process is about to start."""
        me = os.getpid()
        return cls(
            mark=mark,
            port=port,
            leg=me,
            leg_started=started(me) or "",
            host=socket.gethostname(),
            boot=boot_id(),
        )

    def write(self, folder: Path) -> None:
        write_json_atomic(folder / RECORD, self)

    @property
    def is_of_this_host(self) -> bool:
        return self.host == socket.gethostname()

    @property
    def is_of_here(self) -> bool:
        """Whether its numbers mean something on this machine now."""
        return self.is_of_this_host and self.boot == boot_id()

    @property
    def leg_lives(self) -> bool:
        return self.is_of_here and self.leg > 0 and started(self.leg) == self.leg_started

    def processes(self) -> list[int]:
        """Those of its living processes that can be told from others: the group, if it is still the server's,
        and whatever else bears its mark."""
        if not self.is_of_here:
            return []
        group = members(self.group) if self.group else []
        leads = bool(self.started) and started(self.group) == self.started
        if not leads and not any(is_marked(pid, self.mark, self.output) for pid in group):
            group = []
        return sorted({*group, *escaped(self.mark, self.output)} - {os.getpid()})


def read_record(folder: Path) -> ServerRecord | None:
    """The record of a leg's folder; None where there is none, or a damaged one."""
    with suppress(OSError, StoreError):
        return read_json(folder / RECORD, ServerRecord)
    return None


def end_processes(record: ServerRecord, grace_s: float, patience_s: float = 30.0) -> Iterator[float]:
    """End what is left of a server: TERM, and KILL after ``grace_s``. Yields the seconds to wait before it is
    taken further, so that whoever ends it waits in his own way; ends when nothing is left, or ``patience_s``
    after the KILL."""
    for number, within_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, patience_s)):
        until = time.monotonic() + within_s
        left = record.processes()
        _signal(record, left, number)
        while left and time.monotonic() < until:
            yield _LOOK_S
            left = record.processes()
            if number == signal.SIGKILL:
                _signal(record, left, number)  # what was born meanwhile


def end_at_once(record: ServerRecord) -> None:
    """Kill what is left of a server, and wait for nothing."""
    _signal(record, record.processes(), signal.SIGKILL)


def _signal(record: ServerRecord, pids: list[int], number: signal.Signals) -> None:
    group = set(members(record.group)) if record.group else set[int]()
    if group.intersection(pids):
        signal_group(record.group, number)
    for pid in pids:
        if pid not in group:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
