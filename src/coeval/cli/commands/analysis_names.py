"""What `coeval analyze` can show, and as what."""

from __future__ import annotations

from enum import StrEnum


class AnalysisName(StrEnum):
    ALL = "all"
    STUDENTS = "students"
    TEACHERS = "teachers"
    JUDGES = "judges"
    AGREEMENT = "agreement"
    ROBUST = "robust"
    LABELS = "labels"
    COVERAGE = "coverage"
    ITEMS = "items"
    EXPORT_BENCHMARK = "export-benchmark"
    STUDENT_REPORT = "student-report"
    TEACHER_REPORT = "teacher-report"
    JUDGE_REPORT = "judge-report"
    COVERAGE_REPORT = "coverage-report"
    COMPLETE_REPORT = "complete-report"


PARTS = {
    "student-report": "students",
    "teacher-report": "teachers",
    "judge-report": "judges",
    "coverage-report": "coverage",
    "complete-report": "all",
}
"""A report → the analysis whose numbers it shows."""

SECTIONS = {
    "all": "",
    "students": "leads",
    "robust": "leads",
    "labels": "leads",
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
    return ReportFormat.HTML if name.value in PARTS else None
