"""A run on disk, for reading: its records, and the scores that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import msgspec

from coeval.analysis.readers.run_records import RECORD_KINDS, Records
from coeval.core.errors import CoevalError, StoreError, UsageError
from coeval.core.html_table import html_lines, html_table
from coeval.core.options import STUDENTS
from coeval.core.process_limits import require_address_space_for_results
from coeval.core.records import Datapoint, Evaluation, Preference, Record, Response
from coeval.pipeline.config.schema import Phase
from coeval.pipeline.config.settings_file import parse_settings, read_settings_file
from coeval.pipeline.run_session import RunSummary
from coeval.pipeline.upkeep.gaps import describe_missing_records
from coeval.pipeline.upkeep.repair import find_missing_records
from coeval.store.output_folder import list_output_tasks, require_results
from coeval.store.rundir import RunDir

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from pandas import DataFrame

    from coeval.analysis.comparison.comparison_report import ComparisonReport
    from coeval.analysis.comparison.noninferiority import GateReport
    from coeval.reports.charts.drawn_pictures import DrawnPicture
    from coeval.reports.result_tables import Results


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A run on disk, finished or not. ``summary`` is that of the call that ran it; None if only opened."""

    path: Path
    summary: RunSummary | None = None

    @property
    def exit_code(self) -> int:
        """Return 0 if complete, 3 with gaps, 130 if interrupted."""
        return self.summary.exit_code if self.summary else 0

    @overload
    def records(self, phase: Literal["data_generation"]) -> Records[Datapoint]: ...
    @overload
    def records(self, phase: Literal["response_collection"]) -> Records[Response]: ...
    @overload
    def records(self, phase: Literal["evaluation"]) -> Records[Evaluation]: ...
    @overload
    def records(self, phase: Literal["pairs"]) -> Records[Preference]: ...
    @overload
    def records(self, phase: Phase) -> Records[Record]: ...
    def records(self, phase: Phase | Literal["pairs"]) -> Records[Any]:
        """Return the records of a phase 3–5: items, answers or judgments; ``pairs``: comparisons of answers.
        Raises UsageError: the phase keeps none, or the folder is one of ``eval-framework``, without phases.
        """
        if phase not in RECORD_KINDS:
            raise UsageError(f"{phase} keeps no records; ask for one of {', '.join(RECORD_KINDS)}")
        if not RunDir(self.path).is_run() and list_output_tasks(self.path):
            raise UsageError(f'{self.path} holds results of eval-framework; ask for table("answers")')
        return Records(RunDir(self.path), phase)

    def results(self) -> Results:
        """Return student scores per task and overall with 95% intervals, and label accuracies; of an output
        folder of ``eval-framework``, the metrics of its tasks. Students and tasks that ``config.yaml`` no
        longer names are marked ``removed``, or ``left_out`` of the means; items ``beyond_total`` are in no
        mean either."""
        require_address_space_for_results()
        from coeval.pipeline.plan.run_reading import open_folder_reader
        from coeval.reports.result_tables import read_results  # numpy, scipy and duckdb: only when asked for

        with open_folder_reader(self.path, is_look=True) as (reader, notes):
            results = read_results(reader, notes)
        missing, mixed = self._describe_missing_and_mixed()
        return msgspec.structs.replace(results, missing=missing, notes=(*results.notes, *mixed))

    def measures(self) -> dict[str, Any]:
        """Compute all measures of the folder, the content of ``measures.json``: docs/measures.md."""
        require_address_space_for_results()
        from coeval.analysis.measures.compute import compute_measures
        from coeval.analysis.measures.run_measures import measures_to_json
        from coeval.pipeline.plan.run_reading import open_folder_reader

        with open_folder_reader(self.path, is_look=True) as (reader, _):
            return measures_to_json(compute_measures(reader).measures)

    def write_report(self, out: str | Path | None = None) -> Path:
        """Write ``report.html``, a page that opens without a network, and ``measures.json`` into ``out``
        (default: the run's folder); return the page's path. Raises UsageError: the folder is not a run;
        StoreError: it cannot be read, or the page not be written."""
        require_address_space_for_results()
        from coeval.reports.site.report_file import PAGE, write_report_and_measures

        folder = self.path if out is None else Path(out)
        write_report_and_measures(self.path, folder)
        return folder / PAGE

    def table(self, name: str) -> DuckDBPyRelation:
        """Return a table behind the results, as a relation of DuckDB: ``items`` (or ``datapoints``),
        ``answers`` (or ``responses``), ``judgments`` (or ``evaluations``), ``scores`` or ``labels``, with
        the columns that `coeval.analysis.load` names.

        ``.df()``, ``.pl()`` and ``.arrow()`` convert it to pandas, polars or Arrow, if installed;
        ``.filter(…)``, ``.aggregate(…)`` and ``.fetchall()`` need nothing more. Raises UsageError: there
        is no such table.
        """
        require_address_space_for_results()
        from coeval.pipeline.plan.run_reading import open_folder_reader

        with open_folder_reader(self.path) as (reader, _):
            return reader.table(name)

    def frame(self, name: str) -> DataFrame:
        """Return `table` as a frame of pandas."""
        return self.table(name).df()

    def plot(self, name: str = "") -> DrawnPicture:
        """Draw a picture of the report, by default its first: the students' scores with their intervals. A
        notebook shows it; ``.svg`` and ``.png`` are its files. Raises UsageError: there is no such
        picture."""
        require_address_space_for_results()
        from coeval.reports.charts.drawn_pictures import draw_picture
        from coeval.reports.folder_report import open_folder_report

        with open_folder_report(self.path) as source:
            return draw_picture(source.report, name)

    def _describe_missing_and_mixed(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what of the plan is missing, and which records are of another configuration: of the run that
        this call made, or as ``coeval results`` reports it."""
        if self.summary is None:
            missing = find_missing_records(RunDir(self.path))
            return missing.sentences, missing.notes
        return tuple(_describe_missing(self.summary)), (self.summary.mixed,) if self.summary.mixed else ()

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}{f', {self.summary!r}' if self.summary else ''})"

    def _repr_html_(self) -> str:
        """Show the summary, or the status of an opened run; and its scores unless they take long."""
        if self.summary is not None:
            head = html_table("Run", ("folder",), [(self.path,)]) + self.summary._repr_html_()
        else:
            status, updated = "unknown", ""
            with suppress(FileNotFoundError, StoreError):
                meta = RunDir(self.path).read_meta()
                status, updated = meta.status, meta.updated_at
            head = html_table("Run", ("folder", "status", "updated"), [(self.path, status, updated)])
        if self.summary is not None and not self.summary.shows_scores:
            return head + html_lines(["Its scores are partial: .results() shows them."])
        if self._sum_record_bytes() > _MOMENT:
            return head + html_lines(["Its scores take some time: .results() shows them."])
        try:
            return head + self.results()._repr_html_()
        except CoevalError as error:
            return head + html_lines([str(error)])

    def _sum_record_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.path.glob("**/*.jsonl"))


# Bytes of records that are read in a second or two.
_MOMENT = 32 << 20


def _describe_missing(summary: RunSummary) -> Iterator[str]:
    if not summary.begun:
        yield "the run was stopped before it began; what is here was here before"
    counts = {phase: outcome.missing for phase, outcome in summary.phases.items()}
    if counts["attribute_mapping"] or counts["rubric_mapping"]:
        yield "phases 1–2 are not finished"
    if sentence := describe_missing_records(counts):
        yield sentence


def open_run(path: str | Path) -> Run:
    """Open a run folder, or an output folder of ``eval-framework``, for reading.

    Raises UsageError: it is neither; the message says what it is, and names runs close by; StoreError: it
    holds links that lead out of it, or pipes and the like.

    >>> coeval.open_run("runs/quickstart").results().students[0].student
    'sim-large'
    """
    return Run(require_results(Path(path)))


# --- Comparing folders


def compare(*folders: Run | str | Path, students: Sequence[str] | None = None) -> ComparisonReport:
    """Compare students, or folders, on the same items, with intervals: docs/compare.md. No model is called.
    Nothing is written except, in an unfinished run, that it was looked at.

    - ``folders``: runs or output folders of ``eval-framework``, opened or as paths. The students of a
      single one are compared; of several, each with the others.
    - ``students``: of one folder, at least two of its students; of several, the student of each, or one
      for all.

    Raises UsageError: a folder holds no results, there are no two to compare, or they share no scored
    items; StoreError: a file cannot be read at all.

    >>> print(coeval.compare("runs/quickstart").sentences[0])
    sim-large leads ...
    """
    require_address_space_for_results()
    from coeval.analysis.comparison.comparisons import compare_sides
    from coeval.reports.compared_sides import open_side_groups_and_notes

    with open_side_groups_and_notes(_folder_paths(folders), students) as (groups, notes):
        return compare_sides(groups, notes)


def gate(
    base: Run | str | Path,
    *candidates: Run | str | Path,
    policy: Mapping[str, Any] | str | Path,
    students: Sequence[str] | None = None,
) -> GateReport:
    """Decide whether each candidate may replace the base: docs/gate.md. No model is called; looks at
    unfinished runs are recorded, as by `compare`. ``.verdict`` is GO only if every critical task is shown
    to lose no more than the policy allows; ``.exit_code`` is that of ``coeval gate``.

    - ``base``, ``candidates``: folders as for `compare`; of a single run, ``students`` names the base
      first.
    - ``policy``: a policy file, or a mapping with its keys: ``max_drop``, ``min_items``, ``tasks``.

    Raises UsageError: the policy is invalid, or there is no candidate; and as `compare`.

    >>> chosen = ["sim-small", "sim-large"]
    >>> coeval.gate("runs/quickstart", policy={"max_drop": 2}, students=chosen).verdict
    'GO'
    """
    require_address_space_for_results()
    from coeval.analysis.comparison.noninferiority import GatePolicy, gate_sides
    from coeval.reports.compared_sides import open_side_groups_and_notes

    if isinstance(policy, Mapping):
        values = parse_settings(policy, GatePolicy)
    else:
        values = read_settings_file(Path(policy), GatePolicy, "max_drop:")
    if "max_drop" not in values:
        raise UsageError("the policy lacks max_drop: the points of a hundred that a task may lose")
    if not candidates and not students:
        raise UsageError(f"{STUDENTS} is to name the base and its candidates, or name a second folder")
    with open_side_groups_and_notes(_folder_paths((base, *candidates)), students) as (groups, notes):
        rules = GatePolicy(**values)
        return gate_sides(groups, rules, (*rules.drop_mistaken_for_share_warnings(), *notes))


def _folder_paths(folders: Sequence[Run | str | Path]) -> list[str | Path]:
    return [folder.path if isinstance(folder, Run) else folder for folder in folders]
