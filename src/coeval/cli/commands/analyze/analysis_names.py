"""What `coeval analyze` can show, and as what."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from coeval.analysis.measures.measured import Analysis


class AnalysisName(StrEnum):
    ALL = "all"
    STUDENTS = "students"
    TEACHERS = "teachers"
    JUDGES = "judges"
    AGREEMENT = "agreement"
    ROBUST = "robust"
    LABELS = "labels"
    CALIBRATION = "calibration"
    COVERAGE = "coverage"
    ITEMS = "items"
    EXPORT_BENCHMARK = "export-benchmark"
    STUDENT_REPORT = "student-report"
    TEACHER_REPORT = "teacher-report"
    JUDGE_REPORT = "judge-report"
    COVERAGE_REPORT = "coverage-report"
    COMPLETE_REPORT = "complete-report"


_REPORTS: dict[str, Analysis] = {
    "student-report": "students",
    "teacher-report": "teachers",
    "judge-report": "judges",
    "coverage-report": "coverage",
    "complete-report": "all",
}


class ReportPlaces(NamedTuple):
    """Folders of reports and of pictures, and whether a PDF has its appendix."""

    out: Path | None
    figures: Path | None = None
    appendix: bool = False


def analysis_of(name: AnalysisName) -> Analysis:
    """The analysis whose numbers a report shows, or the one of that name."""
    return _REPORTS.get(name.value, cast("Analysis", name.value))


SECTIONS: dict[Analysis, str] = {
    "all": "",
    "students": "leads",
    "robust": "leads",
    "labels": "leads",
    "calibration": "leads",
    "judges": "judges",
    "agreement": "judges",
    "teachers": "benchmark",
    "coverage": "benchmark",
    "items": "benchmark",
}
"""Analysis → the section of the page that shows it."""


OF_OUTPUTS = (
    AnalysisName.ALL,
    AnalysisName.JUDGES,
    AnalysisName.AGREEMENT,
    AnalysisName.JUDGE_REPORT,
    AnalysisName.COMPLETE_REPORT,
)
"""What can be said of a folder of eval-framework."""


class ReportFormat(StrEnum):
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    HTML = "html"
    EXCEL = "excel"
    PDF = "pdf"


def usual_format(name: AnalysisName) -> ReportFormat | None:
    """What is written where nobody says; None: a table in the terminal."""
    if name is AnalysisName.COMPLETE_REPORT:
        return ReportFormat.EXCEL
    return ReportFormat.HTML if name.value in _REPORTS else None
