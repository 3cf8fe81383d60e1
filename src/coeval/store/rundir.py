"""Run folder: its paths, lock, meta file and configuration snapshots."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from io import StringIO
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from coeval.core.errors import StoreError, UsageError
from coeval.core.options import CONTINUE, OVERWRITE
from coeval.core.records import Usage
from coeval.core.redaction import REDACTED, Redactor
from coeval.core.regular_files import irregular_file_kind
from coeval.core.shown_url import HIDDEN, hide_url_secrets, is_credential_name, mask_url
from coeval.store.jsonl import (
    read_json,
    read_json_if_whole,
    running_process_start_time,
    store_error,
    write_bytes_atomic,
    write_json_atomic,
)


class ErrorLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failed work item or a torn line; ``phase`` is the task's label in a benchmark."""

    at: str
    phase: str
    id: str
    model: str
    kind: str
    message: str
    attempts: int = 0
    torn: str | None = None


# --- Folder lock and its holder
#
# Two things are locked, and each makes good what the other lacks: the file ``.lock``, since not every file
# system locks folders, and the folder itself, which nobody deletes by mistake. Who holds them stands in
# ``.lock.holder.json`` with the time at which that process started; as long as it lives, nobody else writes.


class Holder(msgspec.Struct, frozen=True):
    """Holder of a run's lock. ``started`` is the process's start, ``since`` that of the run."""

    pid: int
    host: str
    since: str
    started: str = ""


def find_living_holder(file: Path) -> Holder | None:
    """Return the process of this machine that holds a lock and is alive, not a later one of its number."""
    who = read_json_if_whole(file, Holder)
    if who is None or who.host != socket.gethostname():
        return None
    begun = running_process_start_time(who.pid)
    return who if begun is not None and begun == who.started else None


@contextmanager
def hold_lock(folder: Path, file: Path, who: Path, since: str) -> Iterator[None]:
    """Hold the lock ``file`` of a folder, and name the holder in ``who``. Raises BlockingIOError: another
    process holds it, or did when its file was deleted; OSError: the folder cannot be written."""
    with ExitStack() as stack:
        stack.callback(os.close, _open_locked_file(file))
        stack.enter_context(_lock_folder(folder))
        if find_living_holder(who) is not None:
            raise BlockingIOError
        write_json_atomic(
            who,
            Holder(os.getpid(), socket.gethostname(), since, running_process_start_time(os.getpid()) or ""),
        )
        try:
            yield
        finally:
            who.unlink(missing_ok=True)


def _open_locked_file(file: Path) -> int:
    """Open and lock the lock file, and check that it is still the folder's: a former holder may have deleted
    it, and then a lock on it would keep nobody out."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), file.lstat()):
                    return descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # network file systems lock files only
        yield
    finally:
        os.close(descriptor)


# --- Refusing links out of a run's folder


def refuse_foreign(folder: Path, below: Iterable[str]) -> None:
    """Check that a folder and those ``below`` it hold regular files only; a missing folder passes. Raises
    StoreError: something is a pipe, a socket or a device, or a link to somewhere else; it is named."""
    try:
        root = folder.resolve()
        for subfolder in (folder, *(folder / name for name in below)):
            for entry in _entries(subfolder):
                _require_file_or_inside_link(entry, root)
    except OSError as error:
        raise store_error("read", folder, error) from error


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return


def _require_file_or_inside_link(entry: os.DirEntry[str], root: Path) -> None:
    if entry.is_symlink():
        target = Path(os.path.realpath(entry.path))  # `resolve` has no word for links in a circle
        if not target.is_relative_to(root):
            raise StoreError(
                f"{entry.path} is a link to {target}, outside of its run, and is neither read nor written; "
                "put a copy in its place"
            )
    elif not entry.is_file() and not entry.is_dir():
        kind = irregular_file_kind(entry.stat(follow_symlinks=False).st_mode)
        raise StoreError(f"{entry.path} is {kind}, not a file; take it away")


# --- Stored configuration

# Entries of a model that name it openly.
_NAMES = frozenset({"name", "model", "base_model"})


def hide_credentials(value: Any) -> Any:
    """Copy plain data with ``***`` in place of every entry named like a credential. Keys in addresses and
    known access keys are removed too."""
    return _hide_in_value(
        value, Redactor(_find_texts_named(value, {"access_key"}), names=_find_texts_named(value, _NAMES))
    )


def _find_texts_named(value: Any, names: Container[str]) -> Iterator[str]:
    """Yield the texts of entries with one of ``names``, at any depth."""
    match value:
        case dict():
            for key, item in value.items():
                if key in names and isinstance(item, str):
                    yield item
                else:
                    yield from _find_texts_named(item, names)
        case list() | tuple():
            for item in value:
                yield from _find_texts_named(item, names)


def _hide_in_value(value: Any, redactor: Redactor) -> Any:
    match value:
        case dict():
            return {key: _hide_in_entry(key, item, redactor) for key, item in value.items()}
        case list() | tuple():
            return [_hide_in_value(item, redactor) for item in value]
        case str():
            return hide_url_secrets(redactor.redact_answer(value))
        case _:
            return value


def _hide_in_entry(key: Any, item: Any, redactor: Redactor) -> Any:
    if isinstance(key, str) and is_credential_name(key) and item is not None:
        return HIDDEN
    if key == "base_url" and isinstance(item, str):
        return mask_url(redactor.redact_answer(item).replace(REDACTED, HIDDEN))
    return _hide_in_value(item, redactor)


FOLDERS: dict[str, str] = {
    "attribute_mapping": "phase1_attributes",
    "rubric_mapping": "phase2_rubric",
    "data_generation": "phase3_datapoints",
    "response_collection": "phase4_responses",
    "evaluation": "phase5_evaluations",
}
"""Phase → its folder, in the pipeline's order."""

PAIRS = "pairs"
"""The files of phase 5 that hold comparisons of two answers: beside its phases, a kind of `RunDir.files`."""
_PAIRS_END = ".pairs.jsonl"
RECORD_FILES = ("data_generation", "response_collection", "evaluation", PAIRS)
"""The kinds of record files of phases 3–5, each after those that it follows from."""


def phase_of_kind(kind: str) -> str:
    return "evaluation" if kind == PAIRS else kind


def utc_now() -> str:
    """Return the time as in records: UTC, ``YYYY-MM-DDTHH:MM:SSZ``."""
    return _format_second(int(time.time()))


@lru_cache(maxsize=2)  # thousands of records share a second
def _format_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Meta(msgspec.Struct, kw_only=True, omit_defaults=False):
    """``meta.json``: information about a run, never used to decide what is missing or counts. ``inherited``
    is the usage, by model, of records taken over from another run, which were paid for there. None where
    nothing was taken over, or by a version that did not record it."""

    experiment_id: str
    status: str
    created_at: str
    updated_at: str
    phases_completed: list[str] = []
    phases_in_progress: list[str] = []
    resume_from: str | None = None
    simulated: bool = False
    coeval_version: str = ""
    inherited: dict[str, Usage] | None = None


SLASH = "~"
"""What stands for a slash of a model's name in the names of its files; no name holds it."""


class _FolderEntry:
    """A file or folder of a run, by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: RunDir, _: type[RunDir]) -> Path:
        return run.path / self._name


class RunDir:
    """Paths of one run. Names come from a validated configuration (V-04), so they stay inside.

    ``pending_batches``: the unfinished batch jobs, whose requests and results lie in ``batches`` until they
    are recorded. ``sources``: the origins of supplied items (`coeval.tables.harvest`). ``looks``: at results
    while the run grew. ``repaired``: the lines that `coeval repair` sets aside, a subfolder each time.
    ``replacing``: the journal of a move to ``replaced/`` while it lasts.
    """

    meta = _FolderEntry("meta.json")
    config = _FolderEntry("config.yaml")
    errors = _FolderEntry("run_errors.jsonl")
    usage = _FolderEntry("usage.json")
    pending_batches = _FolderEntry("pending_batches.json")
    batches = _FolderEntry("batches")
    recipes = _FolderEntry("recipes.json")
    sources = _FolderEntry("sources.json")
    inherited = _FolderEntry("inherited.json")
    looks = _FolderEntry("looks.jsonl")
    repaired = _FolderEntry("repaired")
    replacing = _FolderEntry(".replacing.json")
    probe_results = _FolderEntry("probe_results.json")
    cost_estimate = _FolderEntry("cost_estimate.json")
    log = _FolderEntry("run.log")
    _holder = _FolderEntry(".lock.holder.json")

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def at_absolute_path(self) -> RunDir:
        """Return the run by its absolute path, which stays valid if the user's code changes directory."""
        return RunDir(self.path.absolute())

    def folder(self, phase: str) -> Path:
        return self.path / FOLDERS[phase_of_kind(phase)]

    def target_attrs(self, task: str) -> Path:
        return self.folder("attribute_mapping") / f"{task}_target_attrs.json"

    def nuanced_attrs(self, task: str) -> Path:
        return self.folder("attribute_mapping") / f"{task}_nuanced_attrs.json"

    def rubric(self, task: str) -> Path:
        return self.folder("rubric_mapping") / f"{task}.rubric.json"

    def datapoints(self, task: str, teacher: str) -> Path:
        return self.folder("data_generation") / _file_name(task, teacher, "datapoints.jsonl")

    def responses(self, task: str, student: str) -> Path:
        return self.folder("response_collection") / _file_name(task, student, "responses.jsonl")

    def evaluations(self, task: str, teacher: str, judge: str) -> Path:
        return self.folder("evaluation") / _file_name(task, teacher, judge, "evaluations.jsonl")

    def pairs(self, task: str, teacher: str, judge: str) -> Path:
        return self.folder(PAIRS) / _file_name(task, teacher, judge, _PAIRS_END[1:])

    def files(self, phase: str) -> list[Path]:
        """List the JSONL files of a phase 3–5, or of one of the `RECORD_FILES`, by name."""
        paths = sorted(self.folder(phase).glob("*.jsonl"))
        if phase_of_kind(phase) != "evaluation":
            return paths
        return [path for path in paths if path.name.endswith(_PAIRS_END) == (phase == PAIRS)]

    def holds(self, phase: str) -> bool:
        """Check whether the phase has any artifact."""
        folder = self.folder(phase)
        return folder.is_dir() and any(folder.iterdir())

    def is_run(self) -> bool:
        """Check for ``meta.json`` or artifacts; a folder without either is a start that failed."""
        return self.meta.exists() or self.replacing.exists() or any(self.holds(phase) for phase in FOLDERS)

    def read_meta(self) -> Meta:
        """Read ``meta.json``; raises FileNotFoundError: there is none; StoreError: it is damaged."""
        return read_json(self.meta, Meta)

    def write_meta(self, meta: Meta) -> None:
        meta.updated_at = utc_now()
        write_json_atomic(self.meta, meta)

    def write_config_and_keep_older(self, data: Mapping[str, Any]) -> None:
        """Write the configuration as read, without credentials; keep an older, different one."""
        safe_data = {**data, "models": hide_credentials(data["models"])} if "models" in data else data
        text = dump_yaml(safe_data).encode()
        if self.config.exists():
            old = self.config.read_bytes()
            if old == text:
                return
            written = datetime.fromtimestamp(self.config.stat().st_mtime, UTC)
            stamp = written.strftime("%Y%m%dT%H%M%S.%fZ")  # two may be written within a second
            write_bytes_atomic(self.path / f"config.{stamp}.yaml", old)
        write_bytes_atomic(self.config, text)

    def describe_half_replaced(self) -> str:
        """Describe an unfinished move to ``replaced/`` in a sentence; "" if there is none."""
        if not self.replacing.exists():
            return ""
        writer = self.writer_pid()
        try:
            moved = read_json(self.replacing, dict[str, Any]).get("move", ())
        except FileNotFoundError:  # the move has ended meanwhile
            return ""
        where = f"what was in {self.path} to {self.path / 'replaced'}"
        if writer is not None:
            return f"process {writer} is moving {where}: look again in a moment"
        way = (
            f"start it again with {OVERWRITE}"
            if self.meta.name in moved
            else f"resume it ({CONTINUE}), or repair it (coeval repair --run {quote(str(self.path))})"
        )
        return (
            f"a command was cut short while it moved {where}, so that no run is whole here: {way}, which "
            "moves the rest first"
        )

    def refuse_foreign_or_half_replaced(self) -> None:
        """Check that the run can be read; call before reading. Raises UsageError: part of it has moved to
        ``replaced/``, and part of it has not; StoreError: as `refuse_foreign`."""
        self.refuse_foreign()
        if problem := self.describe_half_replaced():
            raise UsageError(problem)

    def refuse_foreign(self) -> None:
        """Check that the run can be written; call before writing. Raises StoreError: something in the folder
        is a link out of it, or a pipe or the like in the place of a file."""
        refuse_foreign(self.path, FOLDERS.values())

    def writer_pid(self) -> int | None:
        """Return the process on this machine that works on the run, if any."""
        who = find_living_holder(self._holder)
        return who.pid if who is not None else None

    def status(self, meta: Meta) -> str:
        """Return the status of ``meta.json``; "stopped" where it says "running" and no process is at work."""
        return "stopped" if meta.status == "running" and self.writer_pid() is None else meta.status

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Hold the run's lock as its only writer. On exit the lock file of a run that never started is
        removed, with folders that stayed empty. Raises UsageError: another process is; the message names it;
        StoreError: the folder cannot be written."""
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        file = self.path / ".lock"
        with ExitStack() as stack:
            stack.callback(_remove_empty_folders, made)
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self.refuse_foreign()
                stack.enter_context(hold_lock(self.path, file, self._holder, utc_now()))
            except BlockingIOError:
                by = self._describe_holder()
                raise UsageError(f"{self.path} is in use by {by}; wait for it or stop it") from None
            except OSError as error:
                raise store_error("lock", Path(error.filename or self.path), error) from error
            try:
                yield
            finally:
                if not self.meta.exists():
                    with suppress(OSError):  # the folder may have been taken away meanwhile
                        file.unlink()

    def _describe_holder(self) -> str:
        who = read_json_if_whole(self._holder, Holder)
        return f"process {who.pid} on {who.host} since {who.since}" if who is not None else "another process"


def _file_name(*parts: str) -> str:
    return in_file_name(".".join(parts))


def in_file_name(name: str) -> str:
    """Write names as a file's can hold them."""
    return name.replace("/", SLASH)


def _remove_empty_folders(folders: Sequence[Path]) -> None:
    with suppress(OSError):  # one that is not empty stays, and so do those above it
        for folder in folders:
            folder.rmdir()


def dump_yaml(data: Any) -> str:
    """Dump plain data as YAML, keys in their order."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 4096
    yaml.allow_unicode = True
    stream = StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()


# --- Moving files to ``replaced/<UTC time>/``
#
# What is to be done is on disk before anything moves. A kill at any moment leaves all of it in place, or
# `finish_move_to_replaced` moves the rest at the next start.


class _Step(msgspec.Struct, frozen=True):
    """What goes where, by paths within the run folder."""

    to: str
    move: list[str]
    copy: list[str]


def move_to_replaced(folder: RunDir, move: Sequence[Path], copy: Sequence[Path] = ()) -> Path:
    """Move files and folders of a run to ``replaced/``, copy others beside them, and return the new place.
    The caller is the folder's only writer. Nothing is deleted; what is not there is passed over."""

    def relative_names(paths: Sequence[Path]) -> list[str]:
        return [str(path.relative_to(folder.path)) for path in paths]

    to = f"replaced/{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}"
    write_json_atomic(folder.replacing, _Step(to, relative_names(move), relative_names(copy)))
    _move_pending(folder)
    return folder.path / to


def finish_move_to_replaced(folder: RunDir) -> None:
    """Finish an interrupted move, if any; raises UsageError: another process is at it; StoreError."""
    if folder.replacing.exists():
        with folder.hold_lock():
            _move_pending(folder)


def _move_pending(folder: RunDir) -> None:
    """Carry out the move that the run's journal holds."""
    try:
        step = read_json(folder.replacing, _Step)
    except FileNotFoundError:
        return  # another process has finished it meanwhile
    target = folder.path / step.to
    try:
        for name in step.copy:
            if (folder.path / name).exists() and not (target / name).exists():
                write_bytes_atomic(target / name, (folder.path / name).read_bytes())
        for name in step.move:
            if (folder.path / name).exists():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (folder.path / name).rename(target / name)
        folder.replacing.unlink()
    except OSError as error:
        raise store_error("move away", folder.path, error) from error
