"""`coeval repair`: set invalid records of a run aside, so that they are owed again.

Invalid lines move, byte for byte, to ``repaired/<UTC time>/`` in the run folder; other lines stay as they
are. The next ``--continue`` makes missing records again. An earlier valid record of the same id counts
again. Failed records are valid, and owed already.
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

from coeval.core import records
from coeval.core.errors import ConfigError, Misshapen, StoreError, Undecodable, UsageError
from coeval.core.foreign import decode, decode_utf8, make_decoder
from coeval.pipeline.config.draft import OWN_ITEMS, ItemSource, locate_item_files
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.schema import PHASES, Config, Phase
from coeval.pipeline.phases.blueprint import PROPOSALS, Proposal
from coeval.pipeline.phases.item_file import parse_item_line_or_problem
from coeval.pipeline.phases.supplied import read_stored_supply
from coeval.pipeline.plan.recorded import RunIndex
from coeval.pipeline.upkeep.gaps import FileGap, Gaps, find_gaps
from coeval.store.jsonl import (
    Appender,
    read_json,
    read_torn_tail,
    read_whole_lines,
    set_lines_and_tail_aside,
    store_error,
)
from coeval.store.legacy import is_legacy
from coeval.store.rundir import (
    RECORD_FILES,
    ErrorLine,
    RunDir,
    finish_move_to_replaced,
    phase_of_kind,
    utc_now,
)

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
    "fields": "missing fields, or fields of another type",
    "item": "an unusable hand-written item",
    "id": "an id that does not name what the record is about",
    "value": "a good record without a value",
    "level": "a score other than High, Medium, Low",
    "factor": "a score for a factor that the rubric lacks",
    "origin": "made from a missing record",
}


class Flaw(NamedTuple):
    """Why a line is no valid record."""

    reason: Reason
    detail: str


class _LevelScores(msgspec.Struct):
    scores: dict[str, str]


_KIND: dict[Phase, type[records.Kept]] = {
    "attribute_mapping": Proposal,
    "rubric_mapping": Proposal,
    "data_generation": records.Datapoint,
    "response_collection": records.Response,
    "evaluation": records.Evaluation,
}


class Examiner:
    """Examines lines, phase by phase in order. ``rubrics`` are each task's factors, if known; ``answered``
    are (task, student) with existing answers; ``gone`` are prefixes of ids of items whose file is missing,
    and will be copied again: answers to them stay valid."""

    gone: tuple[str, ...] = ()

    def __init__(
        self, rubrics: Mapping[str, Collection[str]], answered: Collection[tuple[str, str]] = ()
    ) -> None:
        self._rubrics, self._answered = rubrics, frozenset(answered)
        self._items: set[str] = set()
        self._replaced: set[str] = set()
        self._responses: set[str] = set()
        self._read = {phase: make_decoder(kind) for phase, kind in _KIND.items()}
        self._read_pair = make_decoder(records.Preference)

    def examine_line(
        self, phase: Phase, line: bytes, source: ItemSource | None = None
    ) -> records.Kept | Flaw:
        """Return a line's record, or what is wrong with it; a ``source``'s items are read as hand-written."""
        if source is not None:
            parsed = parse_item_line_or_problem(line, source.task.name, source.teacher)
            if isinstance(parsed, str):
                return Flaw("item", parsed)
            return self._find_flaw_or_note_valid(parsed.item) or parsed.item
        try:
            decode_utf8(line)
            pairs = phase == "evaluation" and b'"first_model_id"' in line and b'"response_id"' not in line
            record = self._read_pair(line) if pairs else self._read[phase](line)
        except Misshapen as error:
            return _classify_misfit(line, str(error))
        except Undecodable as error:
            return Flaw("unreadable", str(error))
        return self._find_flaw_or_note_valid(record) or record

    def accept_answers_to_replaced_item(self, line: bytes, source: ItemSource) -> None:
        """Note a supplied item that others replaced: answers to it do not count any more, but are valid."""
        parsed = parse_item_line_or_problem(line, source.task.name, source.teacher)
        if not isinstance(parsed, str):
            self._replaced.add(parsed.item.id)

    def _find_flaw_or_note_valid(self, record: records.Kept) -> Flaw | None:
        """Check id, value and origin of a record; a valid item or answer is noted, for others to refer to."""
        if flaw := _find_id_flaw(record):
            return flaw
        if record.status == "ok" and not records.is_good(record):
            return Flaw("value", f"{record.id} has status ok and holds no value")
        match record:
            case records.Datapoint():
                self._items.add(record.id)
            case records.Response(datapoint_id=item):
                exists = item in self._items or item in self._replaced
                if not exists and not item.startswith(self.gone):
                    return Flaw("origin", f"there is no datapoint {item}")
                self._responses.add(record.id)
            case records.Evaluation(task_id=task, datapoint_id=item):
                factors, scored = self._rubrics.get(task), (*record.scores, *(record.values or ()))
                if factors is not None and (unknown := [f for f in scored if f not in factors]):
                    return Flaw("factor", f"the rubric has no factor {', '.join(unknown)}")
                return self._find_missing_answer_flaw(task, item, record.student_model_id, record.sample)
            case records.Preference(task_id=task, datapoint_id=item):
                names = (record.first_model_id, record.second_model_id)
                missing = (self._find_missing_answer_flaw(task, item, name) for name in names)
                return next(filter(None, missing), None)
        return None

    def _find_missing_answer_flaw(self, task: str, item: str, student: str, sample: int = 0) -> Flaw | None:
        """Return a flaw if an answer is missing, unless a table dropped it: judgments of it stay valid."""
        response = records.response_id(item, student, sample)
        item_exists = item in self._items or item in self._replaced
        if response in self._responses or (item_exists and (task, student) in self._answered):
            return None
        return Flaw("origin", f"there is no response {response}")


def _classify_misfit(line: bytes, message: str) -> Flaw:
    """Return what is wrong with JSON that is not a record: an unknown level, or its fields."""
    try:
        scores = decode(line, _LevelScores).scores
    except Undecodable:
        return Flaw("fields", message)
    wrong = [f"{factor}: {level!r}" for factor, level in scores.items() if level not in records.LEVELS]
    return Flaw("level", ", ".join(wrong)) if wrong else Flaw("fields", message)


def _find_id_flaw(record: records.Kept) -> Flaw | None:
    """Check that the id of a record names what it is about."""
    match record:
        case Proposal(task_id=task):
            expected = records.proposal_id(task, record.teacher_model_id, record.kind)
        case records.Datapoint(task_id=task):
            start = records.item_prefix(task, record.teacher_model_id)
            if record.id.startswith(start) and record.id != start:
                return None
            return Flaw("id", f"{record.id!r} should begin with {start!r} and go on")
        case records.Response(datapoint_id=item):
            expected = records.response_id(item, record.student_model_id, record.sample)
        case records.Preference(datapoint_id=item):
            names = (record.first_model_id, record.second_model_id, record.judge_model_id)
            expected = records.preference_id(item, *names)
        case records.Evaluation(datapoint_id=item):
            response = records.response_id(item, record.student_model_id, record.sample)
            if record.response_id != response:
                return Flaw("id", f"response_id is {record.response_id!r}; it should be {response!r}")
            expected = records.evaluation_id(response, record.judge_model_id)
        case _:
            raise TypeError(f"no file of a run keeps a {type(record).__name__}")
    return None if record.id == expected else Flaw("id", f"it is {record.id!r}; it should be {expected!r}")


class DamagedLine(NamedTuple):
    """An invalid line as shown to users; ``number`` counts lines from 1, without blank ones."""

    path: Path
    number: int
    text: bytes
    flaw: Flaw


@dataclass(slots=True)
class FileState:
    """One file of a phase: its lines, its invalid ones by offset, and its gap, None without a plan. A
    document has no lines; ``damaged`` says why it cannot be used."""

    phase: Phase
    path: Path
    lines: int = 0
    failed: int = 0
    flaws: dict[int, Flaw] = field(default_factory=dict)
    is_document: bool = False
    damaged: str | None = None
    gap: FileGap | None = None

    @property
    def invalid(self) -> int:
        return len(self.flaws) + (self.damaged is not None)

    @property
    def owed(self) -> int:
        return 0 if self.gap is None else self.gap.missing


@dataclass(slots=True)
class RepairReport:
    """What a run's files hold. Invalid lines moved to ``aside``; ``no_plan``: why there are no ``gaps``."""

    files: list[FileState] = field(default_factory=list)
    invalid: list[DamagedLine] = field(default_factory=list)
    aside: Path | None = None
    no_plan: str | None = None
    gaps: Gaps = field(default_factory=Gaps)

    @property
    def flaws(self) -> dict[Path, dict[int, Flaw]]:
        """Return the invalid lines, by file and offset."""
        return {file.path: file.flaws for file in self.files if file.flaws}

    def count_owed(self, phase: Phase) -> int | None:
        """Count the owed records of a phase; None without a plan, or before phases 1–2 are finished."""
        if self.no_plan or self.gaps.unsettled:
            return None
        return sum(file.owed for file in self.files if file.phase == phase)

    @property
    def reasons(self) -> Counter[tuple[Phase, Reason]]:
        """Count invalid lines by phase and reason; a damaged document counts as one."""
        counts: Counter[tuple[Phase, Reason]] = Counter()
        for file in self.files:
            counts.update((file.phase, flaw.reason) for flaw in file.flaws.values())
            counts[file.phase, "unreadable"] += file.damaged is not None
        return +counts


class RepairOptions(NamedTuple):
    """The phases that a repair may change, and how many lines of each flaw it shows."""

    phases: tuple[Phase, ...] = PHASES
    dry_run: bool = False
    examples: int = 0


def repair_run(folder: RunDir, options: RepairOptions) -> RepairReport:
    """Set invalid records of a run aside, and count what is then owed. Raises UsageError: this is no run, has
    an older layout, or is in use; StoreError: a file cannot be read or written."""
    folder.refuse_foreign()
    if not options.dry_run:
        finish_move_to_replaced(folder)
    if not folder.is_run():
        raise UsageError(f"{folder.path} is not a run folder: it holds no meta.json and no artifacts")
    made = any(folder.holds(phase) for phase in PHASES if phase != "data_generation")
    if not folder.meta.exists() and not folder.config.exists() and not made:
        raise UsageError(
            f"{folder.path} holds only items, which a start reads as hand-written; to see what is "
            "wrong with them: coeval run --config FILE --dry-run"
        )
    if is_legacy(folder.path):
        raise UsageError(
            f"{folder.path} has an older layout, which is read but never changed; start another id with "
            f"experiment.resume_from: {folder.path}, which converts it and leaves out what is not a record"
        )
    with nullcontext() if options.dry_run else folder.hold_lock():
        report = inspect_run(folder, options)
        if not options.dry_run and any(file.invalid for file in report.files):
            report.aside = _move_invalid_and_mark_incomplete(folder, report)
        return report


def inspect_run(folder: RunDir, options: RepairOptions) -> RepairReport:
    """Examine a run's files line by line, and count what is owed. Raises StoreError: one is unreadable."""
    config = load_run_config(folder)
    report = examine_files(folder, options, config)
    if not isinstance(config, str):
        supplied = read_stored_supply(config, folder).unwritten_lines
        recorded = RunIndex().read(folder, without=report.flaws, supplied=supplied)
        add_gaps_to_report(folder, config, report, recorded, options.phases)
    return report


def load_run_config(folder: RunDir) -> Config | str:
    """Load the run's own configuration; a string says why it cannot be used."""
    try:
        return load_config(folder.config)
    except ConfigError as error:
        return f"the run's config.yaml is not usable: {error.problems[0]}"


# --- Examination


def examine_files(folder: RunDir, options: RepairOptions, config: Config | str) -> RepairReport:
    """Examine the files of the requested phases, and read those of earlier phases, to which records refer.
    ``config``, as from `load_run_config`, names supplied items and students with existing answers."""
    report, sources, answered = RepairReport(), dict[Path, ItemSource](), list[tuple[str, str]]()
    if isinstance(config, str):
        report.no_plan = config
    else:
        sources = locate_item_files(config, folder)
        answered = [
            (task.name, name) for task in config.tasks for name in config.students_with_existing_answers(task)
        ]
    examiner = Examiner(dict(read_rubric_factors_by_task(folder)), answered)
    for path, source in sources.items():
        if source.teacher == OWN_ITEMS and not path.exists():
            examiner.gone += (records.item_prefix(source.task.name, source.teacher),)
        for old in folder.path.glob(f"replaced/*/{path.relative_to(folder.path)}"):
            for _, text in read_whole_lines(old):
                examiner.accept_answers_to_replaced_item(text, source)
    for phase in PHASES[: max(map(PHASES.index, options.phases)) + 1]:
        is_requested = phase in options.phases
        for path in _list_record_files(folder, phase):
            reported = report if is_requested else RepairReport()
            examine_line = partial(examiner.examine_line, phase, source=sources.get(path))
            state = _examine_file(FileState(phase, path), examine_line, reported, options)
            if is_requested:
                report.files.append(state)
        if is_requested:
            report.files += _examine_documents(folder, phase)
    return report


def _list_record_files(folder: RunDir, phase: Phase) -> list[Path]:
    if phase in PHASES[2:]:
        kinds = (kind for kind in RECORD_FILES if phase_of_kind(kind) == phase)
        return [path for kind in kinds for path in folder.files(kind)]
    proposals = folder.folder(phase) / PROPOSALS
    return [proposals] if proposals.exists() else []


def _examine_file(
    state: FileState,
    examine_line: Callable[[bytes], records.Kept | Flaw],
    report: RepairReport,
    options: RepairOptions,
) -> FileState:
    """Examine each line of a file, and keep examples of flaws for the report."""
    path, counts = state.path, Counter[str]()
    for offset, text in read_whole_lines(path):
        state.lines += 1
        result = examine_line(text)
        if isinstance(result, records.Kept):
            state.failed += not records.is_good(result)
            continue
        state.flaws[offset] = result
        counts[result.reason] += 1
        if counts[result.reason] <= options.examples:
            report.invalid.append(DamagedLine(path, state.lines, text, result))
    if torn := read_torn_tail(path):
        state.lines += 1
        flaw = Flaw("torn", f"{len(torn)} bytes")
        state.flaws[path.stat().st_size - len(torn)] = flaw
        if options.examples:
            report.invalid.append(DamagedLine(path, state.lines, torn, flaw))
    return state


def read_rubric_factors_by_task(folder: RunDir) -> Iterator[tuple[str, frozenset[str]]]:
    for path in folder.folder("rubric_mapping").glob("*.rubric.json"):
        with suppress(StoreError):  # reported as a document
            yield path.name.removesuffix(".rubric.json"), frozenset(read_json(path, dict[str, str]))


def _examine_documents(folder: RunDir, phase: Phase) -> Iterator[FileState]:
    """Examine the JSON artifacts of phases 1–2: attribute → values, or factor → criterion."""
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


def _move_invalid_and_mark_incomplete(folder: RunDir, report: RepairReport) -> Path:
    """Move invalid lines and documents to a folder of this repair, and log it in ``run_errors.jsonl``."""
    aside = folder.repaired / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    touched = [file for file in report.files if file.invalid]
    with suppress(FileNotFoundError, StoreError):  # meta.json is information only
        meta = folder.read_meta()
        meta.phases_completed = [p for p in meta.phases_completed if p not in {f.phase for f in touched}]
        meta.status = "incomplete"
        folder.write_meta(meta)
    if read_torn_tail(folder.errors):
        set_lines_and_tail_aside(folder.errors, (), aside / folder.errors.name)
    errors = Appender(folder.errors)
    try:
        for file in touched:
            # Logged first, so that a kill leaves no unlogged move.
            errors.append(_make_error_line(file, folder, aside))
            _move_invalid_lines_or_document(file, aside / file.path.relative_to(folder.path))
    finally:
        errors.close()
    return aside


def _move_invalid_lines_or_document(file: FileState, target: Path) -> None:
    if file.damaged is None:
        set_lines_and_tail_aside(file.path, file.flaws, target)
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        file.path.rename(target)
    except OSError as error:
        raise store_error("move away", file.path, error) from error


def _make_error_line(file: FileState, folder: RunDir, aside: Path) -> ErrorLine:
    reasons = Counter(flaw.reason for flaw in file.flaws.values())
    why = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common()) or file.damaged
    path, target = (full_path.relative_to(folder.path) for full_path in (file.path, aside))
    message = f"{path}: set aside in {target} ({why})"
    return ErrorLine(at=utc_now(), phase=file.phase, id="", model="", kind="set_aside", message=message)


# --- Gaps


def add_gaps_to_report(
    folder: RunDir,
    config: Config,
    report: RepairReport,
    recorded: RunIndex,
    phases: Collection[Phase] = PHASES,
) -> None:
    """Add to the report what is owed by the run's own configuration."""
    damaged = {file.path for file in report.files if file.damaged is not None}
    report.gaps = find_gaps(folder, config, recorded, damaged)
    states = {file.path: file for file in report.files}
    for path, gap in report.gaps.files.items():
        if gap.phase in phases:
            states.setdefault(path, FileState(gap.phase, path)).gap = gap
    report.files = sorted(states.values(), key=lambda file: (PHASES.index(file.phase), file.path))


# --- A look at a run: its records as ``--continue`` finds them
#
# Only where something does not fit is every line examined: a sound run of a million is shown in seconds.


class QuickInspection(NamedTuple):
    """A run's records, and a report on them if it has started and is not of the older layout."""

    recorded: RunIndex
    report: RepairReport | None


class MissingRecords(NamedTuple):
    """The gaps of a run, and sentences on them; if they cannot be counted, ``gaps`` is None and ``sentences``
    say why. ``notes`` are on records that exist."""

    gaps: Gaps | None
    sentences: tuple[str, ...]
    notes: tuple[str, ...] = ()


def find_missing_records(folder: RunDir) -> MissingRecords:
    """Find what a run lacks by its own configuration, as ``coeval status`` counts it; ``gaps`` is None
    without a usable configuration, for the older layout, and if the folder is not a run."""
    if not folder.is_run() or isinstance(config := load_run_config(folder), str):
        return MissingRecords(None, ())
    try:
        report = inspect_if_doubtful(folder, config).report
    except (ConfigError, StoreError) as error:
        return MissingRecords(None, (f"what is missing cannot be counted: {error}",))
    if report is None:
        return MissingRecords(None, ())
    return MissingRecords(
        report.gaps, tuple(report.gaps.describe()), tuple(filter(None, [report.gaps.mixed]))
    )


def inspect_if_doubtful(folder: RunDir, config: Config | str) -> QuickInspection:
    """Inspect a run, line by line only if something does not fit; ``config``: from `load_run_config`."""
    supplied = {} if isinstance(config, str) else read_stored_supply(config, folder).unwritten_lines
    recorded = RunIndex().read(folder, supplied=supplied)
    if not (folder.meta.exists() or folder.config.exists()) or is_legacy(folder.path):
        return QuickInspection(recorded, None)
    if _needs_examination(folder, recorded):
        report = examine_files(folder, RepairOptions(), config)
        recorded = RunIndex().read(folder, without=report.flaws, supplied=supplied)
    else:
        report = examine_files(folder, RepairOptions(PHASES[:2]), config)
    if not isinstance(config, str):
        add_gaps_to_report(folder, config, report, recorded)
    return QuickInspection(recorded, report)


def _needs_examination(folder: RunDir, recorded: RunIndex) -> bool:
    """Check whether every line has to be examined; while a run writes, not for sources read too early."""
    if recorded.damaged:
        return True
    if folder.writer_pid() is not None:
        return False
    factors = dict(read_rubric_factors_by_task(folder))
    unknown = any(task in factors and factor not in factors[task] for task, factor in recorded.scored_factors)
    files = (path for kind in RECORD_FILES for path in folder.files(kind))
    return recorded.may_be_invalid or unknown or any(map(read_torn_tail, files))
