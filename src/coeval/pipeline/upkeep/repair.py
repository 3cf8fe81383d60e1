"""`coeval repair`: what of a run's files is no valid record is set aside, and so owed again.

Invalid lines move, byte for byte, to ``repaired/<UTC time>/`` in the run folder; the other lines of
their files stay as they are. What is not on disk is owed: the next ``--continue`` makes it again. An
earlier valid record of the same id counts again. Failed records are valid, and owed already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from coeval.core.errors import ConfigError, Misshapen, StoreError, Undecodable, UsageError
from coeval.core.foreign import decode, decode_utf8, make_decoder
from coeval.core.records import (
    LEVELS,
    Datapoint,
    Evaluation,
    Kept,
    Preference,
    Response,
    evaluation_id,
    is_good,
    item_prefix,
    preference_id,
    proposal_id,
    response_id,
)
from coeval.pipeline.config.draft import OWN_ITEMS, ItemSource, locate_item_files
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.schema import PHASES, Config, Phase
from coeval.pipeline.phases.blueprint import PROPOSALS, Proposal
from coeval.pipeline.phases.item_file import read_item
from coeval.pipeline.phases.supplied import ShortSupply, stored_supply
from coeval.pipeline.plan.recorded import Recorded
from coeval.pipeline.upkeep.gaps import Gaps, find_gaps
from coeval.store.jsonl import (
    Appender,
    read_json,
    read_torn_tail,
    read_whole_lines,
    set_lines_aside,
    store_error,
)
from coeval.store.legacy import is_legacy
from coeval.store.rundir import RECORD_FILES, ErrorLine, RunDir, finish_replacing, phase_of_file_kind, utc_now

# --- Valid lines, and the names of flaws
#
# A line is examined by itself and in the order of the phases: an answer to an item that is not there is no
# record of this run. Whether a record still fits the configuration is not asked here: that is what
# ``--continue`` tells (see `recorded`).

Reason: TypeAlias = Literal[
    "torn", "unreadable", "fields", "item", "id", "value", "level", "factor", "origin"
]
REASONS: dict[Reason, str] = {
    "torn": "the last line was cut off",
    "unreadable": "no JSON",
    "fields": "fields that are missing or of another type",
    "item": "a hand-written item that cannot be used",
    "id": "an id that does not name what the record is about",
    "value": "a good record without a value",
    "level": "a score that is none of High, Medium, Low",
    "factor": "a score for a factor that the rubric does not have",
    "origin": "made from a record that is not there",
}


class Flaw(NamedTuple):
    """Why a line is no valid record."""

    reason: Reason
    detail: str


class _LevelScores(msgspec.Struct):
    scores: dict[str, str]


_KIND: dict[Phase, type[Kept]] = {
    "attribute_mapping": Proposal,
    "rubric_mapping": Proposal,
    "data_generation": Datapoint,
    "response_collection": Response,
    "evaluation": Evaluation,
}


class Examiner:
    """Examines lines, those of an earlier phase first. ``rubrics`` holds each task's factors, if known;
    ``given`` are (task, student) whose answers come from the user's tables; ``gone`` begin the ids of items
    out of a table whose file is not there: answers to them will count again."""

    gone: tuple[str, ...] = ()

    def __init__(
        self, rubrics: Mapping[str, Collection[str]], given: Collection[tuple[str, str]] = ()
    ) -> None:
        self._rubrics, self._given = rubrics, frozenset(given)
        self._items: set[str] = set()
        self._replaced: set[str] = set()
        self._responses: set[str] = set()
        self._read = {phase: make_decoder(kind) for phase, kind in _KIND.items()}
        self._read_pair = make_decoder(Preference)

    def examine(self, phase: Phase, line: bytes, source: ItemSource | None = None) -> Kept | Flaw:
        """The record that a whole line holds, or what is wrong with it.

        A benchmark's items (those of ``source``) are read as they were written by hand.
        """
        if source is not None:
            found = read_item(line, source.task.name, source.teacher)
            return Flaw("item", found) if isinstance(found, str) else self._flaw(found.item) or found.item
        try:
            decode_utf8(line)
            pairs = phase == "evaluation" and b'"first_model_id"' in line and b'"response_id"' not in line
            record = self._read_pair(line) if pairs else self._read[phase](line)
        except Misshapen as error:
            return _misfit(line, str(error))
        except Undecodable as error:
            return Flaw("unreadable", str(error))
        return self._flaw(record) or record

    def know_replaced(self, line: bytes, source: ItemSource) -> None:
        """Take note of an item of one's own that gave way to others: answers to it are records of this run
        that no longer count, and none of them is damaged."""
        found = read_item(line, source.task.name, source.teacher)
        if not isinstance(found, str):
            self._replaced.add(found.item.id)

    def _flaw(self, record: Kept) -> Flaw | None:
        match record:
            case Proposal():
                whose = proposal_id(record.task_id, record.teacher_model_id, record.kind)
                return _named(record, whose) or _valued(record)
            case Datapoint():
                return self._of_item(record)
            case Response():
                return self._of_response(record)
            case Evaluation():
                return self._of_evaluation(record)
            case Preference():
                return self._of_preference(record)
            case _:
                raise TypeError(f"no file of a run keeps a {type(record).__name__}")

    def _of_item(self, item: Datapoint) -> Flaw | None:
        start = item_prefix(item.task_id, item.teacher_model_id)
        if not item.id.startswith(start) or item.id == start:
            return Flaw("id", f"{item.id!r} should begin with {start!r} and go on")
        if flaw := _valued(item):
            return flaw
        self._items.add(item.id)
        return None

    def _of_response(self, response: Response) -> Flaw | None:
        if flaw := _named(
            response, response_id(response.datapoint_id, response.student_model_id, response.sample)
        ):
            return flaw
        if flaw := _valued(response):
            return flaw
        known = response.datapoint_id in self._items or response.datapoint_id in self._replaced
        if not known and not response.datapoint_id.startswith(self.gone):
            return Flaw("origin", f"there is no datapoint {response.datapoint_id}")
        self._responses.add(response.id)
        return None

    def _of_preference(self, pair: Preference) -> Flaw | None:
        names = (pair.first_model_id, pair.second_model_id)
        whose = preference_id(pair.datapoint_id, *names, pair.judge_model_id)
        if flaw := _named(pair, whose) or _valued(pair):
            return flaw
        missing = (self._missing_answer(pair.task_id, pair.datapoint_id, name) for name in names)
        return next(filter(None, missing), None)

    def _of_evaluation(self, evaluation: Evaluation) -> Flaw | None:
        response = response_id(evaluation.datapoint_id, evaluation.student_model_id, evaluation.sample)
        if evaluation.response_id != response:
            return Flaw("id", f"response_id is {evaluation.response_id!r}; it should be {response!r}")
        if flaw := _named(evaluation, evaluation_id(response, evaluation.judge_model_id)):
            return flaw
        if flaw := _valued(evaluation):
            return flaw
        factors = self._rubrics.get(evaluation.task_id)
        unknown = (
            []
            if factors is None
            else [f for f in (*evaluation.scores, *(evaluation.values or ())) if f not in factors]
        )
        if unknown:
            return Flaw("factor", f"the rubric has no factor {', '.join(unknown)}")
        return self._missing_answer(
            evaluation.task_id, evaluation.datapoint_id, evaluation.student_model_id, evaluation.sample
        )

    def _missing_answer(self, task: str, item: str, student: str, sample: int = 0) -> Flaw | None:
        """An answer that is not there; none where the user's table no longer gives it: judgments of it count
        nowhere, and none of them is damaged."""
        response = response_id(item, student, sample)
        known = item in self._items or item in self._replaced
        if response in self._responses or (known and (task, student) in self._given):
            return None
        return Flaw("origin", f"there is no response {response}")


def _misfit(line: bytes, message: str) -> Flaw:
    """What is wrong with JSON that is no record: a level that is none, or its fields."""
    try:
        scores = decode(line, _LevelScores).scores
    except Undecodable:
        return Flaw("fields", message)
    wrong = [f"{factor}: {level!r}" for factor, level in scores.items() if level not in LEVELS]
    return Flaw("level", ", ".join(wrong)) if wrong else Flaw("fields", message)


def _named(record: Kept, expected: str) -> Flaw | None:
    return None if record.id == expected else Flaw("id", f"it is {record.id!r}; it should be {expected!r}")


def _valued(record: Kept) -> Flaw | None:
    if record.status == "ok" and not is_good(record):
        return Flaw("value", f"{record.id} has status ok and holds no value")
    return None


class DamagedLine(NamedTuple):
    """A line as it is shown to people; ``number`` counts lines from 1, blank ones left out."""

    path: Path
    number: int
    text: bytes
    flaw: Flaw


@dataclass(slots=True)
class FileState:
    """One file of a phase: its lines, those that are no valid records by their offset, and its gaps.

    ``planned`` and ``there`` count records of the plan; None where there is no plan to count by.
    A document has no lines; ``damaged`` says why it cannot be used.
    """

    phase: Phase
    path: Path
    lines: int = 0
    failed: int = 0
    flaws: dict[int, Flaw] = field(default_factory=dict)
    is_document: bool = False
    damaged: str | None = None
    planned: int | None = None
    there: int | None = None

    @property
    def invalid(self) -> int:
        return len(self.flaws) + (self.damaged is not None)

    @property
    def owed(self) -> int:
        return (self.planned or 0) - (self.there or 0)


@dataclass(slots=True)
class RepairReport:
    """What a run's files hold. ``aside`` is where invalid lines went; ``no_plan`` why gaps are unknown."""

    files: list[FileState] = field(default_factory=list)
    invalid: list[DamagedLine] = field(default_factory=list)
    aside: Path | None = None
    no_plan: str | None = None
    unsettled: list[str] = field(default_factory=list)
    short: list[ShortSupply] = field(default_factory=list)

    @property
    def flaws(self) -> dict[Path, dict[int, Flaw]]:
        """The lines that are no valid records, by file and offset."""
        return {file.path: file.flaws for file in self.files if file.flaws}

    def owed(self, phase: Phase) -> int | None:
        """Records of a phase that are owed; None where that is not known before phases 1–2 are finished, or
        there is no plan."""
        if self.no_plan or self.unsettled:
            return None
        return sum(file.owed for file in self.files if file.phase == phase)

    @property
    def reasons(self) -> Counter[tuple[Phase, Reason]]:
        """How many lines of a phase are invalid for which reason; a damaged document counts as one."""
        found: Counter[tuple[Phase, Reason]] = Counter()
        for file in self.files:
            found.update((file.phase, flaw.reason) for flaw in file.flaws.values())
            found[file.phase, "unreadable"] += file.damaged is not None
        return +found


class RepairOptions(NamedTuple):
    """What a repair is asked for: the phases it may change, and how many lines it shows of each flaw."""

    phases: tuple[Phase, ...] = PHASES
    dry_run: bool = False
    examples: int = 0


def repair(folder: RunDir, needed: RepairOptions) -> RepairReport:
    """Examine a run's files, set aside what is invalid, and count what is owed then.

    Raises UsageError: this is no run, one of an older layout, or another process is at work on it;
    StoreError: a file cannot be read or written.
    """
    folder.refuse_foreign()
    if not needed.dry_run:
        finish_replacing(folder)
    if not folder.is_run():
        raise UsageError(f"{folder.path} is not a run folder: it holds no meta.json and no artifacts")
    made = any(folder.holds(phase) for phase in PHASES if phase != "data_generation")
    if not folder.meta.exists() and not folder.config.exists() and not made:
        raise UsageError(
            f"{folder.path} holds only items, which a start reads as they were written by hand; see what is "
            "wrong with them by coeval run --config FILE --dry-run"
        )
    if is_legacy(folder.path):
        raise UsageError(
            f"{folder.path} has an older layout, which is read and never changed; start another id with "
            f"experiment.resume_from: {folder.path}, which converts it and leaves out what is no record"
        )
    with nullcontext() if needed.dry_run else folder.hold_lock():
        report = inspect_run(folder, needed)
        if not needed.dry_run and any(file.invalid for file in report.files):
            report.aside = _set_aside(folder, report)
        return report


def inspect_run(folder: RunDir, needed: RepairOptions) -> RepairReport:
    """What a run's files hold, examined line by line, and what is owed; reads, and changes nothing.

    Raises StoreError: a file cannot be read.
    """
    config = load_run_config(folder)
    if isinstance(config, str):
        report = examine(folder, needed, config)
        report.no_plan = config
        return report
    report = examine(folder, needed, config)
    supplied = stored_supply(config, folder).rewritten
    recorded = Recorded().read(folder, without=report.flaws, supplied=supplied)
    count_gaps(folder, config, report, recorded, needed.phases)
    return report


def load_run_config(folder: RunDir) -> Config | str:
    """The run's own configuration; a string says why it cannot be used."""
    try:
        return load_config(folder.config)
    except ConfigError as error:
        return f"the run's config.yaml is not usable: {error.problems[0]}"


# --- Examination


def examine(folder: RunDir, needed: RepairOptions, config: Config | str) -> RepairReport:
    """The state of the files of the wanted phases. Those before them are read too: records refer to them.

    ``config`` as `load_run_config` has it: it names the user's items, and who answered them.
    """
    report, sources, given = RepairReport(), dict[Path, ItemSource](), list[tuple[str, str]]()
    if not isinstance(config, str):
        sources = locate_item_files(config, folder)
        given = [
            (task.name, student) for task in config.tasks for student in config.students_with_answers(task)
        ]
    examiner = Examiner(dict(rubrics(folder)), given)
    for path, source in sources.items():
        if source.teacher == OWN_ITEMS and not path.exists():
            examiner.gone += (item_prefix(source.task.name, source.teacher),)
        for old in folder.path.glob(f"replaced/*/{path.relative_to(folder.path)}"):
            for _, text in read_whole_lines(old):
                examiner.know_replaced(text, source)
    for phase in PHASES[: max(map(PHASES.index, needed.phases)) + 1]:
        shown = phase in needed.phases
        for path in _record_files(folder, phase):
            reported = report if shown else RepairReport()
            examine_line = partial(examiner.examine, phase, source=sources.get(path))
            state = _examine_file(FileState(phase, path), examine_line, reported, needed)
            if shown:
                report.files.append(state)
        if shown:
            report.files += _documents(folder, phase)
    return report


def _record_files(folder: RunDir, phase: Phase) -> list[Path]:
    if phase in PHASES[2:]:
        return [
            path for kind in RECORD_FILES if phase_of_file_kind(kind) == phase for path in folder.files(kind)
        ]
    proposals = folder.folder(phase) / PROPOSALS
    return [proposals] if proposals.exists() else []


def _examine_file(
    state: FileState,
    examine_line: Callable[[bytes], Kept | Flaw],
    report: RepairReport,
    needed: RepairOptions,
) -> FileState:
    path, shown = state.path, Counter[str]()
    for offset, text in read_whole_lines(path):
        state.lines += 1
        found = examine_line(text)
        if isinstance(found, Kept):
            state.failed += not is_good(found)
            continue
        state.flaws[offset] = found
        shown[found.reason] += 1
        if shown[found.reason] <= needed.examples:
            report.invalid.append(DamagedLine(path, state.lines, text, found))
    if torn := read_torn_tail(path):
        state.lines += 1
        flaw = Flaw("torn", f"{len(torn)} bytes")
        state.flaws[path.stat().st_size - len(torn)] = flaw
        if needed.examples:
            report.invalid.append(DamagedLine(path, state.lines, torn, flaw))
    return state


def rubrics(folder: RunDir) -> Iterator[tuple[str, frozenset[str]]]:
    """Each task's factors, by the rubric of phase 2."""
    for path in folder.folder("rubric_mapping").glob("*.rubric.json"):
        with suppress(StoreError):  # reported as a document
            yield path.name.removesuffix(".rubric.json"), frozenset(read_json(path, dict[str, str]))


def _documents(folder: RunDir, phase: Phase) -> Iterator[FileState]:
    """The JSON artifacts of phases 1–2: names with their values, or with a criterion."""
    if phase not in PHASES[:2]:
        return
    kind: type = dict[str, str] if phase == "rubric_mapping" else dict[str, list[str]]
    for path in sorted(folder.folder(phase).glob("[!.]*.json")):
        state = FileState(phase, path, is_document=True)
        try:
            read_json(path, kind)
        except StoreError as error:
            state.damaged = str(error)
        yield state


# --- Mending


def _set_aside(folder: RunDir, report: RepairReport) -> Path:
    """Move invalid lines and documents to a folder of this repair; say so in ``run_errors.jsonl``."""
    aside = folder.repaired / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    touched = [file for file in report.files if file.invalid]
    with suppress(FileNotFoundError, StoreError):  # meta.json is information only
        meta = folder.read_meta()
        meta.phases_completed = [p for p in meta.phases_completed if p not in {f.phase for f in touched}]
        meta.status = "incomplete"
        folder.write_meta(meta)
    if read_torn_tail(folder.errors):
        set_lines_aside(folder.errors, (), aside / folder.errors.name)
    errors = Appender(folder.errors)
    try:
        for file in touched:
            errors.append(_set_aside_line(file, folder, aside))  # first: a kill leaves no move untold
            _move_away(file, aside / file.path.relative_to(folder.path))
    finally:
        errors.close()
    return aside


def _move_away(file: FileState, target: Path) -> None:
    """Move a file's invalid lines, or a damaged document as a whole."""
    if file.damaged is None:
        set_lines_aside(file.path, file.flaws, target)
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        file.path.rename(target)
    except OSError as error:
        raise store_error("move away", file.path, error) from error


def _set_aside_line(file: FileState, folder: RunDir, aside: Path) -> ErrorLine:
    reasons = Counter(flaw.reason for flaw in file.flaws.values())
    why = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common()) or file.damaged
    path, place = (each.relative_to(folder.path) for each in (file.path, aside))
    message = f"{path}: set aside in {place} ({why})"
    return ErrorLine(at=utc_now(), phase=file.phase, id="", model="", kind="set_aside", message=message)


# --- Gaps


def count_gaps(
    folder: RunDir,
    config: Config,
    report: RepairReport,
    recorded: Recorded,
    phases: Collection[Phase] = PHASES,
) -> Gaps:
    """Add to the report what is owed by the plan of the run's own configuration."""
    damaged = {file.path for file in report.files if file.damaged is not None}
    gaps = find_gaps(folder, config, recorded, damaged)
    report.unsettled, report.short = gaps.unsettled, gaps.short
    states = {file.path: file for file in report.files}
    for path, gap in gaps.files.items():
        if gap.phase not in phases:
            continue
        if path not in states:
            states[path] = FileState(gap.phase, path)
            report.files.append(states[path])
        states[path].planned, states[path].there = gap.planned, gap.there
    report.files.sort(key=lambda file: (PHASES.index(file.phase), file.path))
    return gaps


# --- A look at a run: its records as ``--continue`` finds them
#
# Only where something does not fit is every line examined: a sound run of a million is shown in seconds.


class QuickInspection(NamedTuple):
    """``report``: what the files hold and lack; None of a run that has not been started, or is of the older
    layout."""

    recorded: Recorded
    report: RepairReport | None
    gaps: Gaps | None = None


class MissingRecords(NamedTuple):
    """What a run lacks, and that in words; ``gaps`` None: it cannot be counted, ``sentences`` say why.
    ``notes``: what else is to be known of the records that are there."""

    gaps: Gaps | None
    sentences: tuple[str, ...]
    notes: tuple[str, ...] = ()


def find_missing_records(folder: RunDir) -> MissingRecords:
    """What a run lacks by its own configuration, as ``coeval status`` counts it; ``gaps`` are None where that
    is not there or cannot be used, for runs of the older layout, and where the folder is no run."""
    if not folder.is_run() or isinstance(config := load_run_config(folder), str):
        return MissingRecords(None, ())
    try:
        gaps = inspect_quickly(folder, config).gaps
    except (ConfigError, StoreError) as error:
        return MissingRecords(None, (f"what is missing cannot be counted: {error}",))
    if gaps is None:
        return MissingRecords(None, ())
    return MissingRecords(gaps, tuple(gaps.sentences()), (gaps.mixed,) if gaps.mixed else ())


def inspect_quickly(folder: RunDir, config: Config | str) -> QuickInspection:
    """Reads a run, and changes nothing; ``config`` as `load_run_config` has it.

    Raises StoreError: a file cannot be read.
    """
    supplied = {} if isinstance(config, str) else stored_supply(config, folder).rewritten
    recorded = Recorded().read(folder, supplied=supplied)
    if not (folder.meta.exists() or folder.config.exists()) or is_legacy(folder.path):
        return QuickInspection(recorded, None)
    if _doubtful(folder, recorded):
        report = examine(folder, RepairOptions(), config)
        recorded = Recorded().read(folder, without=report.flaws, supplied=supplied)
    else:
        report = examine(folder, RepairOptions(PHASES[:2]), config)
    if isinstance(config, str):
        report.no_plan = config
        return QuickInspection(recorded, report)
    return QuickInspection(recorded, report, count_gaps(folder, config, report, recorded))


def _doubtful(folder: RunDir, recorded: Recorded) -> bool:
    """Whether lines have to be examined one by one.

    Of a run at work they are not where each by itself is a record: it has written others since those that
    they follow from were read.
    """
    if recorded.damaged:
        return True
    if folder.writer() is not None:
        return False
    factors = dict(rubrics(folder))
    unknown = any(task in factors and factor not in factors[task] for task, factor in recorded.scored)
    files = (path for kind in RECORD_FILES for path in folder.files(kind))
    return recorded.doubtful or unknown or any(map(read_torn_tail, files))
