"""One start of a server below its guard, until it is up and until it has ended; its ``server.json``, and
servers that a killed sweep has left."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path

import msgspec
from yarl import URL

from coeval.core.errors import ServerDown, Undecodable, UsageError
from coeval.core.foreign import decode
from coeval.core.plain import escape_line
from coeval.core.text import join_names
from coeval.models.transport.body import WireError
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.pool import RequestRoute, Wire
from coeval.store.jsonl import read_json_if_whole, running_process_start_time, write_json_atomic
from coeval.sweeps.guard import (
    LOOK_S,
    MARK,
    MODULE,
    Launch,
    end_group,
    find_marked_processes,
    is_marked,
    list_group_members,
    list_processes,
    read_boot_id,
    signal_group,
)
from coeval.sweeps.server_log import LOG, MOST_BYTES
from coeval.sweeps.worker_files import WORKER_LOG

# --- Server record: ``server.json``

RECORD = "server.json"


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A server, before it is started and while it runs: its process ``group`` (0 until it is known), when the
    leader ``started``, the ``output`` pipe that it writes to, the ``mark`` in its environment, and the
    ``worker`` that started it. Numbers mean what they say on ``host`` since ``boot`` alone."""

    mark: str
    port: int
    group: int = 0
    started: str = ""
    output: str = ""
    worker: int = 0
    worker_started: str = ""
    host: str = ""
    boot: str = ""

    def write(self, folder: Path) -> None:
        write_json_atomic(folder / RECORD, self)

    @property
    def is_of_this_host(self) -> bool:
        return self.host == socket.gethostname()

    @property
    def is_of_this_boot(self) -> bool:
        """Check whether its numbers mean anything on this machine now."""
        return self.is_of_this_host and self.boot == read_boot_id()

    @property
    def is_worker_alive(self) -> bool:
        return (
            self.is_of_this_boot
            and self.worker > 0
            and running_process_start_time(self.worker) == self.worker_started
        )

    def list_living_pids(self) -> list[int]:
        """List its living processes that can be told from others: the group, if it is still the server's, and
        whatever else bears its mark."""
        if not self.is_of_this_boot:
            return []
        group = list_group_members(self.group) if self.group else []
        leads = bool(self.started) and running_process_start_time(self.group) == self.started
        if not leads and not any(is_marked(pid, self.mark, self.output) for pid in group):
            group = []
        return sorted({*group, *find_marked_processes(self.mark, self.output)})

    def end(self, grace_s: float) -> Iterator[float]:
        """End what remains of it, as `end_group` does."""
        return end_group(self.group, self.list_living_pids, grace_s)


def read_server_record(folder: Path) -> ServerRecord | None:
    """Read the record in a worker's folder; None if absent or damaged."""
    return read_json_if_whole(folder / RECORD, ServerRecord)


# --- Server start below a guard

# How long a server may take to end by itself, before its group is killed.
GRACE_S = 10.0
# A guard that takes longer than this to end its server is killed with it.
_GUARD_S = 60.0


class ServerProcess:
    """A server that was started. ``down`` is set as soon as it has ended or is being ended, ``gone`` once
    nothing of it is left; then ``code`` is its exit code, if known."""

    def __init__(self, folder: Path, record: ServerRecord, guard: Process) -> None:
        self.record = record
        self.down = asyncio.Event()
        self.gone = asyncio.Event()
        self.code: int | None = None
        self._folder = folder
        self._guard = guard
        self._reported: asyncio.Task[None] | None = None

    @classmethod
    async def launch(
        cls,
        folder: Path,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        port: int,
        inherited: Mapping[str, str],
    ) -> ServerProcess:
        """Start a server whose log and record lie in ``folder``; its ``environment`` goes over ``inherited``,
        which its guard has too. Raises ServerDown: there is no such command."""
        worker = os.getpid()
        record = ServerRecord(
            mark=secrets.token_hex(16),
            port=port,
            worker=worker,
            worker_started=running_process_start_time(worker) or "",
            host=socket.gethostname(),
            boot=read_boot_id(),
        )
        record.write(folder)  # before there is anything to find
        launch = Launch(
            command=command,
            environment={"PYTHONUNBUFFERED": "1", **environment, MARK: record.mark},
            log=str(folder / LOG),
            most_bytes=MOST_BYTES,
            grace_s=GRACE_S,
        )
        with (folder / WORKER_LOG).open("ab") as worker_log:
            guard = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", MODULE),
                stdin=PIPE,
                stdout=PIPE,
                stderr=worker_log,
                env=inherited,
                start_new_session=True,
            )
        process = cls(folder, record, guard)
        async with AsyncExitStack() as undoing:
            undoing.push_async_callback(guard.communicate)
            undoing.callback(process.kill)  # undone first
            await process._start_server(launch)
            undoing.pop_all()
        return process

    async def _start_server(self, launch: Launch) -> None:
        """Order the guard to start the server, and record what it started. Raises ServerDown: it cannot."""
        if self._guard.stdin is not None:
            with suppress(ConnectionError):  # it is gone: its silence says so
                self._guard.stdin.write(msgspec.json.encode(launch) + b"\n")
        kind, _, rest = (await self._read_guard_line()).partition(" ")
        if kind != "started":
            why = (
                f"{launch.command[0]}: {escape_line(rest)}"
                if kind == "refused"
                else "the guard of the server was ended"
            )
            raise ServerDown(
                f"the server cannot be started: {why}; correct --server-command, or install what it names",
                again=kind != "refused",
            )
        pid, _, output = rest.partition(" ")
        self.record = msgspec.structs.replace(
            self.record, group=int(pid), started=running_process_start_time(int(pid)) or "", output=output
        )
        self.record.write(self._folder)
        self._reported = asyncio.create_task(self._follow_guard_and_end_rest())

    async def _read_guard_line(self) -> str:
        stdout = self._guard.stdout
        return "" if stdout is None else (await stdout.readline()).decode(errors="replace").strip()

    async def _follow_guard_and_end_rest(self) -> None:
        """Wait for the server's end; end it if the guard ended before it."""
        await self._read_guard_line()
        self.down.set()
        line = await self._read_guard_line()
        if line.startswith("ended "):
            self.code = int(line.partition(" ")[2])
        await self._guard.communicate()  # to the end of its output: only then are its pipes closed
        for seconds in self.record.end(GRACE_S):  # what the guard has left: nothing, unless it was killed
            await asyncio.sleep(seconds)
        with suppress(OSError):
            (self._folder / RECORD).unlink(missing_ok=True)
        self.gone.set()

    @property
    def exit_note(self) -> str:
        """Describe how it ended, for a message; empty if unknown."""
        if self.code is None:
            return ""
        if self.code >= 0:
            return f" (exit code {self.code})"
        hint = "; a machine whose memory is full does that" if self.code == -signal.SIGKILL else ""
        return f" (ended by {signal.Signals(-self.code).name}{hint})"

    async def end(self) -> None:
        """End the server with its group, and wait for that; cancelled, kill it."""
        if self._reported is None:
            return
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        try:
            async with asyncio.timeout(_GUARD_S):
                await self.gone.wait()
        except TimeoutError:
            self.kill()
            await self.gone.wait()
        except asyncio.CancelledError:
            self.kill()
            raise

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._guard.kill()
        signal_group(self.record.group, self.record.list_living_pids(), signal.SIGKILL)
        with suppress(OSError):
            (self._folder / RECORD).unlink(missing_ok=True)


# How long a worker whose sweep is gone may take to end by itself.
WINDING_DOWN_S = 60.0


def end_leftover_workers_and_servers(workers: Path) -> list[str]:
    """End the servers of all workers below a folder in which nobody else works; return a sentence on each. A
    worker that still lives may end its server first; one that does not end is killed. Servers of other
    machines are left to these."""
    until = time.monotonic() + WINDING_DOWN_S
    folders = sorted(path.parent for path in workers.glob(f"*/{RECORD}"))
    reported = (end_leftover_worker_and_server(folder, until - time.monotonic()) for folder in folders)
    return [sentence for sentence in reported if sentence is not None]


def end_leftover_worker_and_server(folder: Path, worker_patience_s: float = WINDING_DOWN_S) -> str | None:
    """End the server of one worker's folder, as `end_leftover_workers_and_servers` does."""
    record = read_server_record(folder)
    if record is None or not record.is_of_this_host:
        return None
    until = time.monotonic() + worker_patience_s
    while record.is_worker_alive and record.worker != os.getpid() and time.monotonic() < until:
        time.sleep(LOOK_S)
    if record.is_worker_alive and record.worker != os.getpid():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(record.worker, signal.SIGKILL)
    left = record.list_living_pids()  # nothing, where the machine has been started anew since
    for seconds in record.end(GRACE_S):
        time.sleep(seconds)
    with suppress(OSError):
        (folder / RECORD).unlink(missing_ok=True)
    if not left:
        return None
    of_it = "1 process" if len(left) == 1 else f"{len(left)} processes"
    return f"ended a server that an earlier sweep had left ({folder.name}, {of_it})"


# --- Free ports and listeners: a server is up when it is ours that answers

# Above the ports of common services (8000, 8080, 11434), below those that systems give to clients.
_LOWEST, _TRIES = 18_000, 200
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"


def find_free_port(host: str) -> int:
    """Find a port on which nobody listens, below those that the system gives to outgoing connections: minutes
    may pass until the server takes it. Raises UsageError: there is none."""
    highest = _lowest_outgoing_port() - 1
    for port in random.sample(range(_LOWEST, highest), _TRIES):
        if is_port_free(host, port):
            return port
    raise UsageError(
        f"no free port was found on {host} between {_LOWEST} and {highest}; end what listens there"
    )


def _lowest_outgoing_port() -> int:
    try:
        lowest = int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest = 32_768
    return lowest if lowest > _LOWEST + 2 * _TRIES else 65_535


def is_port_free(host: str, port: int) -> bool:
    if any(_listening_sockets(port)):
        return False
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError:
            return False
    return True


def find_own_and_foreign_listener(port: int, own_pids: Collection[int]) -> tuple[bool, int | None]:
    """Return whether these processes take connections on a port, and the id of another that does (0:
    unknown). Servers of one user may share a port (``SO_REUSEPORT``), and answer for each other."""
    if not any(table.exists() for table in _TABLES):  # then a server is taken at its word
        return True, None
    sockets = set(_listening_sockets(port))
    own = sockets & _list_process_sockets(own_pids)
    others = sockets - own
    if not others:
        return bool(own), None
    owner = next((pid for pid in list_processes() if others.intersection(_list_process_sockets([pid]))), 0)
    return bool(own), owner


def _listening_sockets(port: int) -> Iterator[str]:
    """Yield the inodes of sockets that listen on a port, at any address of this machine."""
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, *rest = line.split()
            if state == _LISTENS and int(local.rpartition(":")[2], 16) == port:
                yield rest[5]


def _list_process_sockets(pids: Collection[int]) -> set[str]:
    targets: list[str] = []
    for pid in pids:
        with suppress(OSError):  # of another user, or just gone
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    targets.append(str(descriptor.readlink()))
    return {target[8:-1] for target in targets if target.startswith("socket:[")}


# Between two looks, at first and later.
_LOOK_S = (0.1, 1.0)
# A server that loads weights answers late, if its event loop is blocked meanwhile.
_ANSWER_S = 10.0
# Servers without `/health` say so in one of these; the list of models is asked instead.
_NOT_THERE = (404, 405, 501)
# A served model may be named by its whole path; messages show where it begins.
_LONGEST_NAME = 120


async def wait_until_up(server: ServerProcess, url: str, within_s: float, key: str | None = None) -> None:
    """Wait until /health, or ``url``/models if that is absent, answers 200, and it is this server that
    listens there. Raises ServerDown: it has ended, is not up in time, or another process listens on its
    port."""
    began, look_s = time.monotonic(), _LOOK_S[0]
    async with aclosing(Wire()) as wire:
        while not server.down.is_set():
            if time.monotonic() - began > within_s:
                raise ServerDown(
                    f"the server was not up after {within_s:.0f} s; give it more time (--start-timeout), "
                    "or see why it hangs",
                    again=False,
                )
            listens = await asyncio.to_thread(_refuse_stranger_and_check_listening, server)
            if listens and await _is_healthy(wire, url, key):
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(look_s):
                    await server.down.wait()
            look_s = min(look_s * 1.5, _LOOK_S[1])
    raise ServerDown("the server ended before it was up")


def _refuse_stranger_and_check_listening(server: ServerProcess) -> bool:
    """Check whether the server takes connections on its port; raise ServerDown if another process does."""
    port = server.record.port
    listens, stranger = find_own_and_foreign_listener(port, server.record.list_living_pids())
    if stranger:
        if server.down.is_set() or stranger in server.record.list_living_pids():  # has just ended, or begun
            return False
        raise ServerDown(
            f"process {stranger} listens on port {port}, which is the server's, and is not of the server's "
            "process group: no request was sent there. End it, or let the sweep choose the ports"
        )
    # It was free when the server was started: what listens there now and cannot be seen into came with it.
    return listens or stranger == 0


async def _is_healthy(wire: Wire, url: str, key: str | None) -> bool:
    health = await _get(wire, f"{url.removesuffix('/v1')}/health", key)
    if health is None or health.status == 200:
        return health is not None
    if health.status not in _NOT_THERE:
        return False
    models = await _get(wire, f"{url}/models", key)
    return models is not None and models.status == 200


async def _get(wire: Wire, url: str, key: str | None) -> HttpReply | None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        return await wire.send(RequestRoute.make("GET", URL(url), headers), None, _ANSWER_S)
    except (WireError, OSError):
        return None


async def fetch_served_names(url: str, key: str | None = None) -> list[str]:
    """Fetch the models that a server lists; none if it lists none."""
    async with aclosing(Wire()) as wire:
        reply = await _get(wire, f"{url}/models", key)
    try:
        listing = decode(reply.body) if reply is not None and reply.status == 200 else None
    except Undecodable:
        listing = None
    data = listing.get("data") if isinstance(listing, dict) else None
    rows = data if isinstance(data, list) else []
    return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]


def format_names(names: Iterable[str]) -> str:
    return join_names([escape_line(name)[:_LONGEST_NAME] for name in names])
