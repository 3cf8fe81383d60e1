"""``server.json``: which processes belong to a leg's server, so that whoever comes after can end them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from coeval.core.errors import StoreError
from coeval.store.jsonl import read_json, write_json_atomic
from coeval.store.process import started
from coeval.sweeps.servers.process_group import boot_id, end_group, is_marked, kill_group, marked, members

__all__ = ["RECORD", "ServerRecord", "read_record"]

RECORD = "server.json"


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
        return sorted({*group, *marked(self.mark, self.output)})

    def end(self, grace_s: float) -> Iterator[float]:
        """End what is left of it, as `end_group` does."""
        return end_group(self.group, self.processes, grace_s)

    def kill(self) -> None:
        """Kill what is left of it, and wait for nothing."""
        kill_group(self.group, self.processes)


def read_record(folder: Path) -> ServerRecord | None:
    """The record of a leg's folder; None where there is none, or a damaged one."""
    with suppress(OSError, StoreError):
        return read_json(folder / RECORD, ServerRecord)
    return None
