"""Folders as `coeval view` shows them: what was read last, and what to read again as they grow."""

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

from coeval.analysis.readers.reader import Reader
from coeval.analysis.training.aggregate import mean_headline_share
from coeval.core.errors import CoevalError, StoreError, UsageError
from coeval.core.figures import share_of_scale
from coeval.core.plain import escape_line
from coeval.core.shown_names import ShownNames
from coeval.pipeline.plan.run_reading import open_folder_reader
from coeval.reports.experiment.run_choices import RunChoices
from coeval.reports.folder_report import open_folder_report
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.result_tables import read_results
from coeval.reports.site.page import PageChoice, PageFrame
from coeval.store.human_labels import LABELS_FILE, HumanLabel, add_labels, find_standing_marks, read_labels
from coeval.store.jsonl import store_error
from coeval.store.output_folder import (
    find_writer_pid,
    is_readable,
    list_possible_source_files,
    list_sweep_steps,
)
from coeval.store.rundir import RunDir

# --- Summary of a folder
#
# A folder in one line of the list: its size, who is best, how fast it grows.


class Best(msgspec.Struct, frozen=True):
    """The best student or model, with its whole and short name; ``what``: what the figure is, if no score;
    ``tasks``: over how many tasks a benchmark's mean is."""

    name: str
    short: str
    score: float
    low: float | None = None
    high: float | None = None
    what: str = ""
    tasks: int = 0


class FolderSummary(msgspec.Struct, frozen=True):
    """A folder's line in the list: numbers of students and items, and who is best; ``leads`` are sentences on
    its scores, ``short`` names by whole ones."""

    students: int
    items: int
    best: Best | None
    leads: tuple[str, ...]
    short: dict[str, str]


def read_summary(folder: Path) -> FolderSummary:
    """Open a folder, summarise it, and close it; raises as `open_folder_reader`."""
    with open_folder_reader(folder) as (reader, notes):
        return summarise_folder(reader, read_results(reader, notes).as_dict())


def summarise_folder(reader: Reader, results: Mapping[str, Any]) -> FolderSummary:
    """Summarise an open folder from its results as plain data."""
    [(items,)] = reader.rows("SELECT count(*) FROM items")
    overall = [row for row in results["students"] if row["task"] is None]
    students = [row["student"] for row in (*overall, *results["labels"])]
    models = [row["model"] for row in results["metrics"]]
    names = list(dict.fromkeys((*students, *models, *(row["model"] for row in results["costs"]))))
    shown_names = ShownNames.of(names, None if reader.planned is None else reader.planned.labels)
    leads = tuple(shown_names.text(text) for text in results["leads"])
    best = _find_best_by_any_measure(results, overall, shown_names)
    return FolderSummary(len(set(students or models)), items, best, leads, shown_names.key)


def _find_best_by_any_measure(
    results: Mapping[str, Any], overall: Sequence[Mapping[str, Any]], shown_names: ShownNames
) -> Best | None:
    """Find who is best: by score, else by comparisons, labels or a benchmark's headline metrics."""
    # The best stands first, whoever does only some of the tasks or is removed last.
    first = next((row for row in overall if row["score"] is not None), None)
    if first is not None:
        name = first["student"]
        return Best(name, shown_names.text(name), first["score"], first["low"], first["high"])
    for part, figure, what in (("pairs", "strength", "wins in 100"), ("labels", "accuracy", "labels right")):
        first = next((row for row in results[part] if row[figure] is not None), None)
        if first is not None:
            name, figures = first["student"], (first[figure], first["low"], first["high"])
            return Best(name, shown_names.text(name), *figures, what)
    # The first metric of each task is its headline.
    heads: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in results["metrics"]:
        if row["value"] is not None and row["unit"]:
            heads.setdefault((row["model"], row["task"]), row)
    if not heads:
        return None
    name = next(iter(heads))[0]
    of_model = [row for (model, _), row in heads.items() if model == name]
    mean = mean_headline_share((row["value"], row["unit"]) for row in of_model)
    what = f"mean of {len(of_model)} tasks"
    if len(of_model) == 1:
        what = f"{of_model[0]['task']} {of_model[0]['metric']}"
    return Best(name, shown_names.text(name), mean, what=what, tasks=len(of_model))


def _put_on_scale(metric: Mapping[str, Any]) -> dict[str, Any]:
    """Return a metric's row with its value and interval from 0 to 1 of its scale, as scores are."""
    ends = {name: metric[name] for name in ("value", "low", "high")}
    scaled = {name: end if end is None else share_of_scale(end, metric["unit"]) for name, end in ends.items()}
    return {**metric, **scaled}


class GrowthRate:
    """Rate at which records are made, and the time that the missing ones take at that rate."""

    # A look every two seconds: rates over the last two minutes follow a change of pace, and do not jump.
    _LOOKS = 60
    # Seconds: over less, a rate is that of one burst.
    _SOONEST = 5.0

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque(maxlen=self._LOOKS)
        self._owed = 0

    def add_status(self, status: Any) -> None:
        """Add the counts of finished and missing records from a folder's status, as plain data."""
        phases = status.get("phases", {}).values() if isinstance(status, dict) else ()
        done = sum(phase["good"] + phase["failed"] for phase in phases)
        self._owed = sum(phase.get("owed") or 0 for phase in phases)
        if self._counts and done < self._counts[-1][1]:
            self._counts.clear()  # it was begun again
        self._counts.append((time.monotonic(), done))

    def estimate_pace_and_time_left(self) -> dict[str, float] | None:
        """Return records per minute and seconds left, or None if it is too early to say, or nothing moves."""
        if len(self._counts) < 2:
            return None
        (began, first), (_, last) = self._counts[0], self._counts[-1]
        seconds = time.monotonic() - began
        if seconds < self._SOONEST or last <= first:
            return None
        per_second = (last - first) / seconds
        return {"per_minute": 60 * per_second, "seconds_left": self._owed / per_second}


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


class _OpenedFolder:
    """A folder as read at one time; it is closed when its last user leaves it."""

    def __init__(self, folder: Path) -> None:
        self.users = 0
        with ExitStack() as stack:
            reader, notes = stack.enter_context(open_folder_reader(folder, is_look=True))
            self.browser = ItemBrowser(reader)
            self.results = read_results(reader, notes).as_dict()
            self.summary = summarise_folder(reader, self.results)
            self.results["metrics"] = [_put_on_scale(row) for row in self.results["metrics"]]
            self.close = stack.pop_all().close


class _Throttle:
    """Repeats an action only if something has changed, and not too often."""

    def __init__(self) -> None:
        self._files_stamp: object = None
        self._next = 0.0

    def run_if_due(self, stamp: object, action: Callable[[], None]) -> bool:
        """Run the action unless it ran for this stamp, or a moment ago; return whether it ran."""
        began = time.monotonic()
        if stamp == self._files_stamp or began < self._next:
            return False
        try:
            action()
        finally:
            self._files_stamp = stamp
            ended = time.monotonic()
            self._next = ended + max(_SOONEST_S, (ended - began) / _READING_SHARE)
        return True


class ViewedFolder:
    """One run, or one output folder of ``eval-framework``. One thread calls the methods that read what has
    changed; the others answer any thread, with what was read last, and `page_state` with the errors."""

    def __init__(self, path: Path, status: StatusReader, sweep: Path | None = None) -> None:
        self.path, self.sweep = path, sweep
        self.name = escape_line(path.resolve().name)
        self.is_run = RunDir(path).is_run()
        self.needed = self.report_needed = False
        self._status = status
        self._lock = Lock()
        self._read: _OpenedFolder | None = None
        self._generation = 0
        self._changed: str | None = None
        self._last_status: dict[str, Any] = {"status": None, "error": None}
        self.report: bytes | None = None
        """The page of its report as it was written last; None: not yet."""
        self.choices: RunChoices | None = None
        """The scores behind that page, from which any choice is computed."""
        self._summary: FolderSummary | None = None
        self._pace = GrowthRate()
        self._status_throttle, self._records_throttle = _Throttle(), _Throttle()
        self._report_throttle, self._summary_throttle = _Throttle(), _Throttle()

    @contextmanager
    def _catch_and_show_error(self) -> Iterator[None]:
        try:
            yield
        except (CoevalError, OSError) as error:
            with self._lock:
                self._last_status = {**self._last_status, "error": escape_line(str(error))}

    def read_changed_status(self) -> None:
        """Read the status again, which is cheap for any folder."""
        with self._catch_and_show_error():
            if not self.path.is_dir():
                raise StoreError(f"{self.path} is gone; this was read earlier")
            self._status_throttle.run_if_due(
                (find_writer_pid(self.path), self._stamp_and_note_latest_change(with_status=True)),
                self._read_status,
            )

    def read_changed_records_if_needed(self) -> None:
        """Read the records again, if somebody has opened the folder."""
        with self._catch_and_show_error():
            if self.needed and self.path.is_dir():
                self._records_throttle.run_if_due(self._stamp_and_note_latest_change(), self._read_records)

    def refresh_page_if_due(self) -> bool:
        """Measure the folder and write its report again; return whether that was necessary."""
        is_wanted = self._generation and (self.report_needed or find_writer_pid(self.path) is None)
        return bool(is_wanted) and self._report_throttle.run_if_due(
            self._generation, self._refresh_page_and_measures
        )

    def read_changed_summary_if_unopened(self) -> None:
        """Read the summary of a folder that nobody has opened, if it has changed."""
        if not self.needed:
            with self._catch_and_show_error():
                self._summary_throttle.run_if_due(self._stamp_and_note_latest_change(), self._read_summary)

    def _describe(self, **more: object) -> dict[str, Any]:
        return {
            "name": self.name,
            "path": escape_line(str(self.path)),
            "kind": "run" if self.is_run else "eval-framework",
            "generation": self._generation,
            **self._last_status,
            **more,
        }

    def list_entry(self) -> dict[str, Any]:
        """Return the folder's line in the list, for JSON: less than `page_state`, for speed."""
        with self._lock:
            current = self._current_summary
            sweep = None if self.sweep is None else escape_line(self.sweep.name)
            summary = None if current is None else msgspec.structs.replace(current, leads=())
            return self._describe(sweep=sweep, changed=self._changed, summary=summary)

    def page_state(self) -> dict[str, Any]:
        """Return all that the folder's page shows, for JSON; ``generation`` counts the readings of records so
        far."""
        with self._lock:
            read = self._read
            return self._describe(
                pace=self._pace.estimate_pace_and_time_left(),
                headline=() if read is None else read.summary.leads,
                short={} if read is None else read.summary.short,
                results=None if read is None else read.results,
                facets=None if read is None else read.browser.facets,
            )

    @property
    def _current_summary(self) -> FolderSummary | None:
        return self._summary if self._read is None else self._read.summary

    @property
    def best_name(self) -> str | None:
        """Return who is best, or None if nobody has a score or nothing was read yet."""
        with self._lock:
            current = self._current_summary
        return None if current is None or current.best is None else current.best.name

    @contextmanager
    def hold_browser(self) -> Iterator[ItemBrowser | None]:
        """Yield the items as read last, kept open meanwhile; None: not read yet."""
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
                    unused = read is not self._read and not read.users
                if unused:
                    read.close()

    def read_marks(self) -> dict[tuple[str, str], HumanLabel]:
        """Read the marks by task and item; raises as `read_labels`."""
        return find_standing_marks(read_labels(self.path))

    def record_flag_and_note(self, mark: HumanLabel) -> HumanLabel:
        """Record a mark; raises as `add_labels`."""
        [kept] = add_labels(self.path, [mark])
        with self.hold_browser() as browser:
            if browser is not None:
                browser.replace_marked_items(self.read_marks())
        return kept

    def close(self) -> None:
        self._replace_opened_folder(None)

    def _read_status(self) -> None:
        try:
            new_status = {"status": msgspec.to_builtins(self._status(self.path))}
            self._pace.add_status(new_status["status"])
        except CoevalError as error:
            new_status = {"status": None, "status_error": escape_line(str(error))}
        with self._lock:
            self._last_status = {"error": self._last_status["error"], **new_status}

    def _read_summary(self) -> None:
        summary = read_summary(self.path)
        with self._lock:
            self._summary = summary

    def _read_records(self) -> None:
        read = _OpenedFolder(self.path)
        read.browser.replace_marked_items(self.read_marks())
        self._replace_opened_folder(read)
        with self.hold_browser() as browser:
            if browser is not None:
                browser.index_lines()

    def _refresh_page_and_measures(self) -> None:
        """Measure a run, which takes longer than to read it, write its page, and give the browser the items'
        measures."""
        with self._catch_and_show_error():
            with open_folder_report(self.path) as report:
                choices = report.choices
                single = [] if choices is None else [PageChoice(*pair) for pair in choices.single]
                self.report = PageFrame(report.report, choices=single, served_at=_API).with_data(())
                self.choices = choices
            with self.hold_browser() as browser:
                if browser is not None:
                    report.give_measures_to(browser)

    def _replace_opened_folder(self, read: _OpenedFolder | None) -> None:
        with self._lock:
            before, self._read = self._read, read
            self._generation += 1
            self._last_status = {**self._last_status, "error": None}
            unused = before is not None and not before.users
        if before is not None and unused:
            before.close()

    def _stamp_and_note_latest_change(self, *, with_status: bool = False) -> Stamp:
        """Return names, sizes and times of files, of records alone or of the status too, and note the latest
        change."""
        run = RunDir(self.path)
        status_files = [run.meta, run.usage, run.errors, run.pending_batches] if with_status else []
        files = (*list_possible_source_files(self.path), self.path / LABELS_FILE, *status_files)
        stamp = tuple(_file_stamp(file) for file in files)
        if latest := max(at for _, _, at in stamp):
            self._changed = datetime.fromtimestamp(latest / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return stamp


def _file_stamp(file: Path) -> tuple[str, int, int]:
    try:
        stat = file.stat()
    except OSError:  # it is not there, or no more: that is told when it is read
        return str(file), -1, 0
    return str(file), stat.st_size, stat.st_mtime_ns


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
    """The viewed folders, whose numbers do not change; a thread of its own reads them again.

    Raises UsageError: a path is no folder, or holds nothing that can be shown; StoreError: a folder cannot
    be read.
    """

    def __init__(self, paths: Sequence[Path], status: StatusReader) -> None:
        """Find the folders at or below ``paths``, and read them at once if they are few."""
        self.folders: list[ViewedFolder] = []
        self._status = status
        self._parents: dict[Path, Path | None] = {}  # with the sweep that each is
        self._resolved_paths: set[Path] = set()
        self._stopped = Event()
        self._thread = Thread(target=self._read_changes_until_stopped, name="coeval view", daemon=True)
        for path in paths:
            if not path.is_dir():
                problem = "is a file; name a folder" if path.exists() else "is not there"
                wanted = "a run, an output of eval-framework, or a folder with these"
                raise UsageError(escape_line(f"{path} {problem}: {wanted}"))
            if is_readable(path):
                self._add_folder_unless_known(path)
            else:
                self._parents[path] = path if list_sweep_steps(path) else None
        self._add_new_folders()
        if not self.folders:
            problem = "nothing to show: no run, no output of eval-framework, no folder with these"
            raise UsageError(escape_line(f"{', '.join(map(str, paths))}: {problem}"))
        for folder in self.folders if len(self.folders) <= _READ_AT_ONCE else ():
            folder.needed = True

    def start_watching(self) -> None:
        """Start to read the folders, until `stop_and_close`."""
        self._thread.start()

    def stop_and_close(self) -> bool:
        """Stop and close the folders. False: a large one is still being read, which ends with the process."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)
        if self._thread.is_alive():
            return False
        for folder in self.folders:
            folder.close()
        return True

    def _read_changes_until_stopped(self) -> None:
        """Read statuses, records, summaries and reports in turn, until stopped."""
        while not self._stopped.is_set():
            self._add_new_folders()
            for folder in self._folders_until_stopped():
                folder.read_changed_status()
            for folder in self._folders_until_stopped():
                folder.read_changed_records_if_needed()
            end = time.monotonic() + _LINES_S
            for folder in self._folders_until_stopped():
                if time.monotonic() < end:
                    folder.read_changed_summary_if_unopened()
            # One at a time, since it takes seconds: what has changed meanwhile comes before the next.
            for folder in sorted(self.folders, key=lambda folder: not folder.report_needed):
                if self._stopped.is_set() or folder.refresh_page_if_due():
                    break
            self._stopped.wait(_EVERY_S)

    def _folders_until_stopped(self) -> Iterator[ViewedFolder]:
        return takewhile(lambda _: not self._stopped.is_set(), self.folders)

    def _add_new_folders(self) -> None:
        """Add new folders below the parents; a sweep among them becomes a parent itself."""
        parents = [*self._parents.items()]
        for parent, sweep in parents:
            try:
                within = [path for path in sorted(parent.iterdir(), key=_step_key) if path.is_dir()]
                readable = [path for path in within if is_readable(path)]
                if sweep is None:
                    self._parents |= {path: path for path in within if list_sweep_steps(path)}
            except OSError as error:
                if not self.folders:
                    raise store_error("read", parent, error) from error
                continue  # it was there before, and may be again
            for path in readable:
                self._add_folder_unless_known(path, sweep)
        if len(self._parents) > len(parents):
            self._add_new_folders()

    def _add_folder_unless_known(self, path: Path, sweep: Path | None = None) -> None:
        whole = path.resolve()
        if whole not in self._resolved_paths:
            self._resolved_paths.add(whole)
            self.folders.append(ViewedFolder(path, self._status, sweep))


def _step_key(path: Path) -> tuple[str, int, str]:
    """Return a sort key: by name, and steps by their number."""
    name, _, number = path.name.rpartition("_")
    return (name, int(number), "") if number.isdecimal() else (path.name, 0, "")
