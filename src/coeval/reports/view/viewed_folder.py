"""A folder as it is shown: what was read of it last, and what is to be read again as it grows."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, TypeAlias

import msgspec

from coeval.analysis.load import is_readable, record_files, writer_of
from coeval.analysis.readers.reader import Reader
from coeval.analysis.training.sample_figures import mean_over_tasks
from coeval.core.errors import CoevalError, StoreError, UsageError
from coeval.core.plain import escape_line
from coeval.core.shown_names import ShownNames
from coeval.pipeline.plan.run_reading import open_folder_reader
from coeval.reports.experiment.run_choices import RunChoices
from coeval.reports.folder_report import open_folder_report
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.result_tables import read_results
from coeval.reports.site.page import PageChoice, PageFrame
from coeval.store.human_labels import LABELS_FILE, HumanLabel, add_labels, find_marks, read_labels
from coeval.store.jsonl import store_error
from coeval.store.output_folder import list_sweep_steps
from coeval.store.rundir import RunDir

# --- Summary of a folder
#
# A folder in one line of the list: its size, who is best, how fast it grows.


class Best(msgspec.Struct, frozen=True):
    """Who is best, under the whole and the short name; ``what``: what the figure is, where it is no score;
    ``tasks``: of a benchmark's checkpoint, over how many it is."""

    name: str
    short: str
    score: float
    low: float | None = None
    high: float | None = None
    what: str = ""
    tasks: int = 0


class FolderSummary(msgspec.Struct, frozen=True):
    """How many students and items a folder has, and who is best; ``leads`` are the sentences of its scores,
    ``short`` names by whole ones."""

    students: int
    items: int
    best: Best | None
    leads: tuple[str, ...]
    short: dict[str, str]


def read_summary(folder: Path) -> FolderSummary:
    """Read a folder for its line alone, and let go of it; raises as `open_folder_reader`."""
    with open_folder_reader(folder) as (reader, notes):
        return summary_of(reader, read_results(reader, notes).as_dict())


def summary_of(reader: Reader, found: Mapping[str, Any]) -> FolderSummary:
    """The line of what is read already; ``found`` are its results as plain data."""
    [(items,)] = reader.rows("SELECT count(*) FROM items")
    overall = [one for one in found["students"] if one["task"] is None]
    names = list(
        dict.fromkeys(
            [one["student"] for one in (*overall, *found["labels"])]
            + [one["model"] for one in (*found["metrics"], *found["costs"])]
        )
    )
    shown = ShownNames.of(names, None if reader.planned is None else reader.planned.labels)
    students = {one["student"] for one in (*overall, *found["labels"])} or {
        one["model"] for one in found["metrics"]
    }
    leads = tuple(shown.text(text) for text in found["leads"])
    return FolderSummary(len(students), items, _best(found, overall, shown), leads, shown.key)


def _best(found: Mapping[str, Any], overall: Sequence[Mapping[str, Any]], shown: ShownNames) -> Best | None:
    # The best stands first, whoever does only some of the tasks or is removed last.
    first = next((one for one in overall if one["score"] is not None), None)
    if first is not None:
        return Best(
            first["student"], shown.text(first["student"]), first["score"], first["low"], first["high"]
        )
    for part, figure, what in (("pairs", "strength", "wins in 100"), ("labels", "accuracy", "labels right")):
        first = next((one for one in found[part] if one[figure] is not None), None)
        if first is not None:
            name, figures = first["student"], (first[figure], first["low"], first["high"])
            return Best(name, shown.text(name), *figures, what)
    # The first metric of each task is its headline.
    heads: dict[tuple[str, str], Mapping[str, Any]] = {}
    for one in found["metrics"]:
        if one["value"] is not None and one["unit"]:
            heads.setdefault((one["model"], one["task"]), one)
    if not heads:
        return None
    name = next(iter(heads))[0]
    own = [one for (model, _), one in heads.items() if model == name]
    mean = mean_over_tasks((one["value"], one["unit"]) for one in own)
    what = f"{own[0]['task']} {own[0]['metric']}" if len(own) == 1 else f"mean of {len(own)} tasks"
    return Best(name, shown.text(name), mean, what=what, tasks=len(own))


class GrowthRate:
    """How many records a minute are made, and how long the rest takes at that pace."""

    # A look every two seconds: rates over the last two minutes follow a change of pace, and do not jump.
    _LOOKS = 60
    # Seconds: over less, a rate is that of one burst.
    _SOONEST = 5.0

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=self._LOOKS)
        self._left = 0

    def see(self, status: Any) -> None:
        """Take over how much is done and missing, from the status of a folder as plain data."""
        phases = status.get("phases", {}).values() if isinstance(status, dict) else ()
        done = sum(phase["good"] + phase["failed"] for phase in phases)
        self._left = sum(phase.get("owed") or 0 for phase in phases)
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()  # it was begun again
        self._seen.append((time.monotonic(), done))

    def told(self) -> dict[str, float] | None:
        """Records a minute and seconds left; None where it is too early to say, or nothing moves."""
        if len(self._seen) < 2:
            return None
        (began, first), (_, last) = self._seen[0], self._seen[-1]
        seconds = time.monotonic() - began
        if seconds < self._SOONEST or last <= first:
            return None
        each = (last - first) / seconds
        return {"per_minute": 60 * each, "seconds_left": self._left / each}


# --- Viewed folder

StatusReader: TypeAlias = Callable[[Path], Any]
"""What a folder holds and lacks, what it spent, who is at work: plain records. May raise a `CoevalError`."""

Stamp: TypeAlias = tuple[tuple[str, int, int], ...]

# Where a folder's page asks for items, from where it lies.
_API = "api/"
# A run's files change all the time; a person reads for seconds.
_SOONEST_S = 2.0
# Of the time, at most so much is spent on reading a folder again: a large one is read less often.
_READING_SHARE = 0.1


class _Read:
    """What was read of a folder at one time; it is closed when its last user leaves it."""

    def __init__(self, folder: Path) -> None:
        self.users = 0
        with ExitStack() as stack:
            reader, notes = stack.enter_context(open_folder_reader(folder, is_look=True))
            self.browser = ItemBrowser(reader)
            self.results = read_results(reader, notes).as_dict()
            self.summary = summary_of(reader, self.results)
            self.close = stack.pop_all().close


class _Due:
    """Something that takes a while, done again when it is time to."""

    def __init__(self) -> None:
        self._stamp: object = None
        self._next = 0.0

    def run(self, stamp: object, action: Callable[[], None]) -> bool:
        """Do it unless it was done for this stamp, or a moment ago; whether it was done."""
        began = time.monotonic()
        if stamp == self._stamp or began < self._next:
            return False
        try:
            action()
        finally:
            self._stamp = stamp
            ended = time.monotonic()
            self._next = ended + max(_SOONEST_S, (ended - began) / _READING_SHARE)
        return True


class ViewedFolder:
    """One run, or one output folder of ``eval-framework``. `look` is called by one thread again and again;
    the other methods answer any thread, with what was read last."""

    def __init__(self, path: Path, status: StatusReader, sweep: Path | None = None) -> None:
        self.path, self.sweep = path, sweep
        self.name = escape_line(path.resolve().name)
        self.is_run = RunDir(path).is_run()
        self.needed = self.report_needed = False
        self._status = status
        self._lock = Lock()
        self._read: _Read | None = None
        self._generation = 0
        self._changed: str | None = None
        self._reported: dict[str, Any] = {"status": None, "error": None}
        self.report: bytes | None = None
        """The page of its report as it was written last; None: not yet."""
        self.choices: RunChoices | None = None
        """The scores behind that page, from which any choice is computed."""
        self._summary: FolderSummary | None = None
        self._pace = GrowthRate()
        self._asking, self._reading, self._writing, self._summarising = _Due(), _Due(), _Due(), _Due()

    def look(self) -> None:
        """Read again what has changed, if it is time to: status, records, report. What cannot be read is told
        in `state`."""
        self.look_at_status()
        self.look_at_records()
        self.renew_report()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (CoevalError, OSError) as error:
            with self._lock:
                self._reported = {**self._reported, "error": escape_line(str(error))}

    def look_at_status(self) -> None:
        """The first part of `look`, which takes little of any folder."""
        with self._telling():
            if not self.path.is_dir():
                raise StoreError(f"{self.path} is gone; what is shown was read before")
            self._asking.run((writer_of(self.path), self._stamp(records_alone=False)), self._take_status)

    def look_at_records(self) -> None:
        """The second part of `look`; nothing of a folder that nobody has opened."""
        with self._telling():
            if self.needed and self.path.is_dir():
                self._reading.run(self._stamp(records_alone=True), self._take_records)

    def renew_report(self) -> bool:
        """The last part of `look`, which measures the folder; whether there was anything to do."""
        wanted = self._generation and (self.report_needed or writer_of(self.path) is None)
        return bool(wanted) and self._writing.run(self._generation, self._write_report)

    def summarise(self) -> None:
        """Read a folder that nobody has opened for its line in the list, if it has changed."""
        if not self.needed:
            with self._telling():
                self._summarising.run(self._stamp(records_alone=True), self._take_summary)

    def _told(self, **more: object) -> dict[str, Any]:
        return {
            "name": self.name,
            "path": escape_line(str(self.path)),
            "kind": "run" if self.is_run else "eval-framework",
            "generation": self._generation,
            **self._reported,
            **more,
        }

    def line(self) -> dict[str, Any]:
        """What the list of folders says, for JSON: less than `state`, since it is asked for all the time."""
        with self._lock:
            found = self._found
            sweep = None if self.sweep is None else escape_line(self.sweep.name)
            summary = None if found is None else msgspec.structs.replace(found, leads=())
            return self._told(sweep=sweep, changed=self._changed, summary=summary)

    def state(self) -> dict[str, Any]:
        """What there is to tell, for JSON: ``generation`` counts how often records were read; 0: not yet."""
        with self._lock:
            read = self._read
            return self._told(
                pace=self._pace.told(),
                headline=() if read is None else read.summary.leads,
                short={} if read is None else read.summary.short,
                results=None if read is None else read.results,
                facets=None if read is None else read.browser.facets,
            )

    @property
    def _found(self) -> FolderSummary | None:
        return self._summary if self._read is None else self._read.summary

    @property
    def best(self) -> str | None:
        """Who is best; None where nobody has a score, or it has not been read."""
        with self._lock:
            found = self._found
        return None if found is None or found.best is None else found.best.name

    @contextmanager
    def browser(self) -> Iterator[ItemBrowser | None]:
        """The items as they were read last; they stay while this is entered. None: not yet."""
        with self._lock:
            read = self._read
            if read is not None:
                read.users += 1
        try:
            yield None if read is None else read.browser
        finally:
            if read is not None:
                with self._lock:
                    read.users -= 1
                    left = read is not self._read and not read.users
                if left:
                    read.close()

    def marks(self) -> dict[tuple[str, str], HumanLabel]:
        """By task and item; raises as `read_labels`."""
        return find_marks(read_labels(self.path))

    def mark(self, mark: HumanLabel) -> HumanLabel:
        """Keep a mark; raises as `add_labels`."""
        [kept] = add_labels(self.path, [mark])
        with self.browser() as browser:
            if browser is not None:
                browser.mark(self.marks())
        return kept

    def close(self) -> None:
        """Let go of what was read."""
        self._replace(None)

    def _take_status(self) -> None:
        try:
            reported = {"status": msgspec.to_builtins(self._status(self.path))}
            self._pace.see(reported["status"])
        except CoevalError as error:
            reported = {"status": None, "status_error": escape_line(str(error))}
        with self._lock:
            self._reported = {"error": self._reported["error"], **reported}

    def _take_summary(self) -> None:
        found = read_summary(self.path)
        with self._lock:
            self._summary = found

    def _take_records(self) -> None:
        read = _Read(self.path)
        read.browser.mark(self.marks())
        self._replace(read)
        with self.browser() as browser:
            if browser is not None:
                browser.prepare()

    def _write_report(self) -> None:
        """Measure a run, which takes longer than to read it, and take over what that says of its items."""
        with self._telling():
            with open_folder_report(self.path) as found:
                choices = found.choices
                single = [] if choices is None else [PageChoice(*pair) for pair in choices.single]
                self.report = PageFrame(found.report, choices=single, served_at=_API).with_data(())
                self.choices = choices
            with self.browser() as browser:
                if browser is not None:
                    found.add_measures(browser)

    def _replace(self, read: _Read | None) -> None:
        with self._lock:
            before, self._read = self._read, read
            self._generation += 1
            self._reported = {**self._reported, "error": None}
            left = before is not None and not before.users
        if before is not None and left:
            before.close()

    def _stamp(self, *, records_alone: bool) -> Stamp:
        """What tells whether anything has changed: names, sizes and times of files, those of records alone,
        or those in which the folder says how it stands too."""
        run = RunDir(self.path)
        reported = [] if records_alone else [run.meta, run.usage, run.errors, run.pending_batches]
        files = (*record_files(self.path), self.path / LABELS_FILE, *reported)
        stamp = tuple(_stamp_of(file) for file in files)
        if latest := max(at for _, _, at in stamp):
            self._changed = datetime.fromtimestamp(latest / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return stamp


def _stamp_of(file: Path) -> tuple[str, int, int]:
    try:
        found = file.stat()
    except OSError:  # it is not there, or no more: that is told when it is read
        return str(file), -1, 0
    return str(file), found.st_size, found.st_mtime_ns


# --- Discovery of folders

log = logging.getLogger("coeval")

# How late a change is seen at most, beyond the time of reading.
_EVERY_S = 0.5
# Of one round, for the lines of folders that nobody has opened: a folder that somebody waits for comes next.
_LINES_S = 2.0
# A look that takes longer ends with the process.
_PATIENCE_S = 1.0
# So many folders are read before somebody asks for them, as comparing them wants.
_READ_AT_ONCE = 8


class ViewedPlaces:
    """Folders by number, which stays theirs; a thread of its own looks at them again and again.

    Raises UsageError: a path is no folder, or holds nothing that can be shown; StoreError: a folder cannot be
    looked into.
    """

    def __init__(self, paths: Sequence[Path], status: StatusReader) -> None:
        self.folders: list[ViewedFolder] = []
        self._status = status
        self._parents: dict[Path, Path | None] = {}  # with the sweep that each is
        self._known: set[Path] = set()
        self._stopped = Event()
        self._thread = Thread(target=self._watch, name="coeval view", daemon=True)
        for path in paths:
            if not path.is_dir():
                what = "is a file; name a folder" if path.exists() else "is not there"
                raise UsageError(
                    escape_line(f"{path} {what}: a run, an output of eval-framework, or one with these")
                )
            if is_readable(path):
                self._add(path)
            else:
                self._parents[path] = path if list_sweep_steps(path) else None
        self._find()
        if not self.folders:
            named = ", ".join(map(str, paths))
            raise UsageError(
                escape_line(
                    f"{named}: nothing to show: no run, no output of eval-framework, and no folder with such"
                )
            )
        for folder in self.folders if len(self.folders) <= _READ_AT_ONCE else ():
            folder.needed = True

    def watch(self) -> None:
        """Begin to look at the folders, until `stop`."""
        self._thread.start()

    def stop(self) -> bool:
        """Let go of the folders. False: something large is just being read, which nobody needs any more, and
        which ends with the process."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)
        if self._thread.is_alive():
            return False
        for folder in self.folders:
            folder.close()
        return True

    def _watch(self) -> None:
        while not self._stopped.is_set():
            self._find()
            for folder in self._until_stopped():
                folder.look_at_status()
            for folder in self._until_stopped():
                folder.look_at_records()
            end = time.monotonic() + _LINES_S
            for folder in self._until_stopped():
                if time.monotonic() < end:
                    folder.summarise()
            # One at a time, since it takes seconds: what has changed meanwhile comes before the next.
            for folder in sorted(self.folders, key=lambda each: not each.report_needed):
                if self._stopped.is_set() or folder.renew_report():
                    break
            self._stopped.wait(_EVERY_S)

    def _until_stopped(self) -> Iterator[ViewedFolder]:
        return takewhile(lambda _: not self._stopped.is_set(), self.folders)

    def _find(self) -> None:
        parents = [*self._parents.items()]
        for parent, sweep in parents:
            try:
                within = [path for path in sorted(parent.iterdir(), key=_by_step) if path.is_dir()]
                found = [path for path in within if is_readable(path)]
                if sweep is None:
                    self._parents |= {path: path for path in within if list_sweep_steps(path)}
            except OSError as error:
                if not self.folders:
                    raise store_error("read", parent, error) from error
                continue  # it was there before, and may be again
            for path in found:
                self._add(path, sweep)
        if len(self._parents) > len(parents):
            self._find()

    def _add(self, path: Path, sweep: Path | None = None) -> None:
        whole = path.resolve()
        if whole not in self._known:
            self._known.add(whole)
            self.folders.append(ViewedFolder(path, self._status, sweep))


def _by_step(path: Path) -> tuple[str, int, str]:
    """By name, steps by their number."""
    name, _, number = path.name.rpartition("_")
    return (name, int(number), "") if number.isdecimal() else (path.name, 0, "")
