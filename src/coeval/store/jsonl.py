"""Crash-safe files: JSON replaced atomically, JSONL appended line by line, those of one run by its journal.

A record counts as written when its line is whole; only the newline may be missing from the last one, as
editors and scripts leave it. `Appender` writes each line with one ``write`` and cuts back what a full disk
left half-written; a line torn by a crash is cut off by `cut_torn_tail` before the file is appended to
again. Errors of the operating system become `StoreError` here and nowhere else.
"""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from io import BufferedWriter, BytesIO
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

import msgspec

from coeval.core.errors import StoreError, Undecodable
from coeval.core.foreign import decode, make_lines_decoder
from coeval.core.options import CONTINUE
from coeval.core.regular_files import open_file, read_file_bytes, require_regular_file

# --- Process identity

# Fields of ``/proc/PID/stat`` from the state, which follows the name, to the start (proc_pid_stat(5)).
_AFTER_NAME = 19


def running_process_start_time(pid: int) -> str | None:
    """Return when a process of this machine started, in the system's own units, "" if the system does not
    say; None if it has exited (zombie included)."""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in ("Z", "X") else fields[_AFTER_NAME]
    try:
        os.kill(pid, 0)  # sends nothing: asks whether there is one
    except PermissionError:
        pass  # there is, of another user
    except (OSError, OverflowError):
        return None
    try:
        reported = subprocess.run(  # noqa: S603  a number
            ["ps", "-o", "lstart=", "-p", str(pid)],  # noqa: S607  where it lies differs
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return reported.stdout.strip()


T = TypeVar("T")

# Bytes of a torn line that its note keeps: the record's id is at its beginning.
MOST_KEPT = 1 << 20

_ENCODER = msgspec.json.Encoder(enc_hook=os.fspath)
# Bytes per read: most files' last line lies in the first one.
_CHUNK = 1 << 20
_GROUP = 1 << 18  # bytes: lines are taken apart while they are still in the processor's cache
_NEWLINE = 0x0A


def store_error(action: str, path: Path, error: OSError) -> StoreError:
    """Make a StoreError of an OSError: what failed, and how to fix it."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            hint = f"the disk (or your quota on it) is full; free some space and run again with {CONTINUE}"
        case errno.EFBIG:
            hint = "the file-size limit of this process is reached (see `ulimit -f`); raise it and continue"
        case errno.EROFS | errno.EACCES | errno.EPERM:
            hint = "it cannot be written to; make it writable or choose another storage_folder"
        case _:
            hint = error.strerror or type(error).__name__
    return StoreError(f"cannot {action} {path}: {hint}")


@contextmanager
def raise_store_errors(action: str, path: Path) -> Iterator[None]:
    """Raise each OSError as the `store_error` of an action on a path."""
    try:
        yield
    except OSError as error:
        raise store_error(action, path, error) from error


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Replace a file atomically: a crash leaves the old content or the new."""
    with replace_file(Path(path)) as file:
        file.write(data)


def write_lines(path: Path, lines: Iterable[object]) -> None:
    """Replace a JSONL file atomically."""
    write_bytes_atomic(path, msgspec.json.Encoder().encode_lines(lines))


@contextmanager
def replace_file(path: Path) -> Iterator[BufferedWriter]:
    """Open a temporary file that replaces ``path`` on exit; after an error or Ctrl-C ``path`` is unchanged.
    Raises StoreError: it cannot be written, or an OSError was raised while entered."""
    temporary, made = _clear_leftovers_and_name_temporary(path), not path.parent.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise store_error("write", path, error) from error
    finally:
        with suppress(OSError):  # the folder itself may refuse; the error names it
            temporary.unlink(missing_ok=True)
            if made:
                path.parent.rmdir()  # unless the file is there now


def _clear_leftovers_and_name_temporary(path: Path) -> Path:
    """Return this process's temporary path for ``path``; remove those that killed processes left."""
    with suppress(OSError):  # whoever may not remove it may not write there, which is told then
        for left in path.parent.glob(f".{escape(path.name)}.*.tmp"):
            pid = left.name.split(".")[-2]
            if pid.isdecimal() and running_process_start_time(int(pid)) is None:
                left.unlink(missing_ok=True)
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def write_json_atomic(path: Path, value: Any) -> None:
    """Replace a file atomically by indented JSON."""
    write_bytes_atomic(path, msgspec.json.format(_ENCODER.encode(value), indent=2) + b"\n")


@overload
def read_json(path: Path) -> Any: ...
@overload
def read_json(path: Path, kind: type[T], *, missing: T | None = None) -> T: ...
def read_json(path: Path, kind: Any = Any, *, missing: Any = None) -> Any:
    """Read a JSON file as ``kind``; ``missing`` is returned where there is no such file. Raises
    FileNotFoundError: there is none, nor ``missing``; StoreError: it cannot be read as one."""
    try:
        data = read_file_bytes(Path(path))
    except FileNotFoundError:
        if missing is None:
            raise
        return missing
    except OSError as error:
        raise store_error("read", path, error) from error
    try:
        return decode(data, kind)
    except Undecodable as error:
        raise StoreError(f"{path} is damaged: {error}; move it away or restore it from a copy") from error


def read_json_if_whole(path: Path, kind: type[T]) -> T | None:
    """Read a JSON file as `read_json`; None if it is missing or cannot be read."""
    with suppress(OSError, StoreError):
        return read_json(path, kind)
    return None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_torn_tail(path: Path) -> bytes:
    """Return the torn last line of a JSONL file, else nothing; the file is not changed."""
    try:
        with open_file(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(_find_end_of_last_newline(file.fileno(), size))
            tail = file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise store_error("read", path, error) from error
    return tail if is_torn_json_line(tail) else b""


def is_torn_json_line(line: bytes) -> bool:
    """Check whether a line is cut off: it has no newline, and does not parse."""
    if line.endswith(b"\n") or not line or line.isspace():
        return False
    try:
        decode(line)
    except Undecodable:
        return True
    return False


def cut_torn_tail(path: Path) -> None:
    torn = read_torn_tail(path)
    if not torn:
        return
    try:
        with open_file(path, "r+b") as file:
            file.truncate(file.seek(0, os.SEEK_END) - len(torn))
            os.fsync(file.fileno())
    except OSError as error:
        raise store_error("repair", path, error) from error


def _find_end_of_last_newline(descriptor: int, size: int) -> int:
    end = size
    while end > 0:
        begin = max(0, end - _CHUNK)
        newline_at = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if newline_at >= 0:
            return begin + newline_at + 1
        end = begin
    return 0


class Line(NamedTuple):
    offset: int
    text: bytes


class Lines(NamedTuple):
    """Consecutive whole lines, blank ones included; ``offset`` is that of the first."""

    offset: int
    texts: list[bytes]


def read_line_groups(path: Path) -> Iterator[Lines]:
    """Yield the whole lines of a JSONL file in groups, without a torn last one."""
    offset = 0
    try:
        with open_file(path) as file:
            while data := file.read(_GROUP):
                data += file.readline()
                texts = BytesIO(data).readlines()
                if data[-1] != _NEWLINE and is_torn_json_line(texts[-1]):
                    texts.pop()
                    if texts:
                        yield Lines(offset, texts)
                    return  # what a writer has added since is the rest of that line
                yield Lines(offset, texts)
                offset += len(data)
    except FileNotFoundError:
        return
    except OSError as error:
        raise store_error("read", path, error) from error


def read_whole_lines(path: Path) -> Iterator[Line]:
    """Yield each whole line of a JSONL file with its offset, without blank lines and a torn last one."""
    for offset, texts in read_line_groups(path):
        for text in texts:
            if not text.isspace():
                yield Line(offset, text)
            offset += len(text)


def decode_records(path: Path, kind: type[T]) -> Iterator[T | Undecodable]:
    """Yield the record of each whole line of a JSONL file; of a damaged line, its error."""
    read = make_lines_decoder(kind)
    for lines in read_line_groups(path):
        yield from read([text for text in lines.texts if not text.isspace()])


def read_decodable_lines(path: Path, kind: type[T]) -> Iterator[T]:
    """Yield the whole lines of a JSONL file that decode as ``kind``; skip the others."""
    return (record for record in decode_records(path, kind) if not isinstance(record, Undecodable))


def read_line_or_block(path: Path, offset: int, block_bytes: int | None = None) -> bytes:
    """Read the line at an offset that `read_whole_lines` gave; or a ``block`` of so many bytes from there."""
    try:
        with open_file(path) as file:
            file.seek(offset)
            return file.readline() if block_bytes is None else file.read(block_bytes)
    except OSError as error:
        raise store_error("read", path, error) from error


def set_lines_and_tail_aside(path: Path, offsets: Container[int], aside: Path) -> None:
    """Move the lines at these offsets, and a torn last line, to another JSONL file; others stay byte for
    byte. Both files are whole on disk before ``path`` is replaced: a crash leaves it as it was, or mended."""
    try:
        aside.parent.mkdir(parents=True, exist_ok=True)
        with open_file(path, buffering=_CHUNK) as source, aside.open("xb") as out, replace_file(path) as kept:
            offset = 0
            for text in source:
                (out if offset in offsets or is_torn_json_line(text) else kept).write(text)
                offset += len(text)
            out.flush()
            os.fsync(out.fileno())
            _sync_folder(aside.parent)
    except OSError as error:
        raise store_error("mend", path, error) from error


class Appender:
    """A JSONL file open for appending by its only writer. Two counters, each written by one thread only:
    lines appended, and lines known to be on disk."""

    __slots__ = ("_appended", "_fd", "_size", "_synced", "_torn", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._appended = self._synced = 0
        self._torn: StoreError | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            require_regular_file(self._fd, path)
            self._size = os.fstat(self._fd).st_size
            if self._size and os.pread(self._fd, 1, self._size - 1) != b"\n":
                self._size += os.write(self._fd, b"\n")  # the last line is whole but for its end
        except OSError as error:
            raise store_error("open", path, error) from error

    def append(self, record: msgspec.Struct) -> None:
        """Append a record as a line, or cut the file back and raise StoreError."""
        if self._torn is not None:
            raise self._torn
        line = _ENCODER.encode(record) + b"\n"
        written = 0
        try:
            written = os.write(self._fd, line)
            while written < len(line):  # the disk took what it could hold: asking again says why
                written += os.write(self._fd, line[written:])
        except OSError as error:
            refusal = store_error("append to", self.path, error)
            if written:
                self._cut_back(refusal)
            raise refusal from error
        self._size += written
        self._appended += 1

    def _cut_back(self, refusal: StoreError) -> None:
        """Take a part of a line off again; where that fails too, nothing may be appended to it."""
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._torn = refusal

    @property
    def unsynced(self) -> int:
        return self._appended - self._synced

    def sync(self) -> None:
        """Write the file through to disk; callable from another thread."""
        appended = self._appended
        if appended == self._synced:
            return
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise store_error("sync", self.path, error) from error
        self._synced = appended

    def close(self) -> None:
        try:
            self.sync()
        finally:
            os.close(self._fd)


def append_lines(path: Path, records: Iterable[msgspec.Struct]) -> None:
    """Append records, after a torn last line is cut off; they are on disk when this returns."""
    cut_torn_tail(path)
    file = Appender(path)
    try:
        for record in records:
            file.append(record)
    finally:
        file.close()


# --- The journal of a run: appends records and groups fsyncs off the event loop

# Unsynced lines after which a file is synced: a power cut costs a few hundred records at most, …
SYNC_RECORDS = 256
# … or a second's worth.
SYNC_INTERVAL_S = 1.0
# Linux lets a process hold 1,024 by default; connections need some of them.
_OPEN_FILES = 256


class Journal:
    """Append records to the files of one run; the only writer of them. Use as an async context manager:
    leaving it syncs and closes every file. A last line that a crash left torn is cut off before its file is
    appended to; ``note_torn`` makes the record that keeps it, which is appended to ``notes`` first."""

    def __init__(self, notes: Path, note_torn: Callable[[Path, bytes], msgspec.Struct]) -> None:
        self._files: dict[Path, Appender] = {}
        self._latest: Appender | None = None
        self._notes = notes
        self._note_torn = note_torn
        self._due = asyncio.Event()
        self._syncing: asyncio.Task[None] | None = None
        self._busy: Appender | None = None  # being synced in a thread: not to be closed
        self._failure: StoreError | None = None
        self._closing = False

    async def __aenter__(self) -> Journal:
        self._syncing = asyncio.create_task(self._sync_in_background(), name="journal")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._due.set()
        if self._syncing is not None:
            await self._syncing
        failures = [self._failure] if self._failure else []
        for file in self._files.values():
            try:
                file.close()
            except StoreError as error:
                failures.append(error)
        self._files.clear()
        if failures:
            raise failures[0]

    def append(self, path: Path, record: msgspec.Struct) -> None:
        """Append one record as one whole line. Raises StoreError: the disk refused this line, or the sync of
        earlier ones; the file holds whole lines only."""
        if self._failure is not None:
            raise self._failure
        file = self._latest
        if file is None or file.path is not path:
            file = self._latest = self._files.pop(path, None) or self._open_after_cutting_torn_tail(path)
            self._files[path] = file  # most recently used last
        file.append(record)
        if file.unsynced >= SYNC_RECORDS:
            self._due.set()

    def _open_after_cutting_torn_tail(self, path: Path) -> Appender:
        torn = read_torn_tail(path)
        if torn and path != self._notes:
            self.append(self._notes, self._note_torn(path, torn))
        if torn:
            cut_torn_tail(path)
        if len(self._files) >= _OPEN_FILES:
            oldest = next(path for path, file in self._files.items() if file is not self._busy)
            self._files.pop(oldest).close()
        file = Appender(path)
        if torn and path == self._notes:  # it can keep its own torn line only once that is cut off
            file.append(self._note_torn(path, torn))
        return file

    async def _sync_in_background(self) -> None:
        """Sync files with many unsynced lines at once, all others every second, in a thread."""
        while not self._closing:
            try:
                await asyncio.wait_for(self._due.wait(), SYNC_INTERVAL_S)
                late = SYNC_RECORDS
            except TimeoutError:
                late = 1
            self._due.clear()
            for file in [file for file in self._files.values() if file.unsynced >= late]:
                if self._files.get(file.path) is not file:
                    continue  # closed, and so synced, meanwhile
                self._busy = file
                try:
                    await asyncio.to_thread(file.sync)
                except StoreError as error:
                    self._failure = error
                finally:
                    self._busy = None
