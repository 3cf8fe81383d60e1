"""Verdicts of a gate: on a terminal, in Markdown, and as the JUnit XML that build servers read."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rich.console import Console

from coeval.analysis.comparison.noninferiority import GatedCandidate, GatedTask, GateReport
from coeval.analysis.run_results import SIMULATED
from coeval.cli.streams import say, warn
from coeval.cli.views.table_view import print_and_drop_incomparable, print_full_names, show_table
from coeval.core.plain import escape_line
from coeval.core.shown_names import ShownNames
from coeval.reports.content import ReportTable, make_columns
from coeval.reports.writers.markup import as_markdown, escape_markdown

_STYLES = {"GO": "bold green", "INCONCLUSIVE": "bold yellow", "NO-GO": "bold red"}
_COLUMNS = (
    *make_columns("task", "verdict", "tier"),
    *make_columns("difference", "at least", "allowed", kind="points"),
    *make_columns("n", kind="count"),
    *make_columns("other judges"),
)


def _explain_columns(report: GateReport) -> str:
    return (
        "Points: candidate − base over n items; at least: its lower bound "
        f"({100 * report.level:.4g}% confidence), items without a score count as lost; allowed: the loss "
        "that the policy allows; other judges: same verdict with judges as a sample."
    )


def print_gate(report: GateReport, console: Console) -> None:
    """Print each candidate's verdict and tasks, sentences on tasks that are not GO, and doubts."""
    names = ShownNames.of(side for gated in report.candidates for side in (gated.base, gated.candidate))
    report = names.shorten_in(report)
    if report.simulated:
        say(console, SIMULATED, "bold yellow")
    for gated in report.candidates:
        say(console, gated.sentence, _STYLES[gated.verdict])
        show_table(console, _task_table(gated, f"{gated.candidate} − {gated.base}"))
        for text in _not_go_sentences(gated):
            say(console, text)
    say(console, _explain_columns(report), "dim")
    for text in (*report.doubts, *print_and_drop_incomparable(report.notes, console)):
        warn(console, text)
    print_full_names(console, names)


def gate_markdown(report: GateReport) -> str:
    """Write the verdicts for a pull request or a step's summary."""
    parts = [f"**{escape_markdown(SIMULATED)}**"] if report.simulated else []
    for candidate in report.candidates:
        parts += [f"### {escape_markdown(candidate.sentence)}", as_markdown(_task_table(candidate))]
        if items := list(_not_go_sentences(candidate)):
            parts.append("\n".join(f"- {escape_markdown(open_sentence)}" for open_sentence in items))
    items = [f"- **Doubt:** {escape_markdown(doubt)}" for doubt in report.doubts]
    items += [f"- {escape_markdown(note)}" for note in report.notes]
    parts += ["\n".join(items)] if items else []
    return "\n\n".join([*parts, _explain_columns(report)]) + "\n"


def junit_xml(report: GateReport) -> bytes:
    """Write a suite for each candidate and a case for each task: NO-GO fails, INCONCLUSIVE is an error, and
    what does not decide is skipped."""
    root = Element("testsuites", name="coeval gate")
    for gated in report.candidates:
        kinds = [_junit_element_name(task) for task in gated.tasks]
        counts = {
            "tests": len(kinds),
            "failures": kinds.count("failure"),
            "errors": kinds.count("error"),
            "skipped": kinds.count("skipped"),
        }
        name = escape_line(f"{gated.candidate} against {gated.base}")
        suite = SubElement(root, "testsuite", {"name": name} | {key: str(n) for key, n in counts.items()})
        for task, kind in zip(gated.tasks, kinds, strict=True):
            case = SubElement(suite, "testcase", classname=name, name=escape_line(task.place))
            if kind:
                kept = {} if kind == "skipped" else {"type": task.verdict}
                SubElement(case, kind, {"message": escape_line(task.sentence)} | kept)
            else:
                SubElement(case, "system-out").text = escape_line(task.sentence)
    indent(root)
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _junit_element_name(task: GatedTask) -> str:
    if task.verdict == "GO":
        return ""
    if task.blocks_go:
        return "failure" if task.verdict == "NO-GO" else "error"
    return "skipped"


def _not_go_sentences(candidate: GatedCandidate) -> Iterator[str]:
    for task in candidate.tasks:
        if task.verdict != "GO":
            yield f"{task.place}: {task.sentence}"


def _task_table(candidate: GatedCandidate, title: str = "") -> ReportTable:
    rows = []
    for task in candidate.tasks:
        figures = (task.difference, task.lower, task.max_drop, task.n)
        rows.append((task.place, task.verdict, task.tier, *figures, task.other_judges or None))
    return ReportTable("gate", title, _COLUMNS, tuple(rows))
