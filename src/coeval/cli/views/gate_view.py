"""Verdicts of a gate: on a terminal, in Markdown, and as the JUnit XML that build servers read."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rich.console import Console

from coeval.analysis.comparison.noninferiority import GatedCandidate, GatedTask, GateReport
from coeval.analysis.run_results import SIMULATED
from coeval.cli.streams import say, warn
from coeval.cli.views.table_view import say_names, show_table, without_incomparable
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


def legend(found: GateReport) -> str:
    """What the columns say."""
    return (
        "In points: candidate − base over n items; at least: its lower bound "
        f"({100 * found.level:.4g}% sure), items without a score counted as lost; allowed: the loss that the "
        "policy allows; other judges: whether they would say the same."
    )


def print_gate(found: GateReport, console: Console) -> None:
    """The verdict on each candidate, its tasks in a table, in sentences what is not GO, and doubts."""
    names = ShownNames.of(side for one in found.candidates for side in (one.base, one.candidate))
    found = names.shorten_in(found)
    if found.simulated:
        say(console, SIMULATED, "bold yellow")
    for one in found.candidates:
        say(console, one.sentence, _STYLES[one.verdict])
        show_table(console, _table(one, f"{one.candidate} − {one.base}"))
        for said in _open(one):
            say(console, said)
    say(console, legend(found), "dim")
    for said in (*found.doubts, *without_incomparable(found.notes, console)):
        warn(console, said)
    say_names(console, names)


def markdown(found: GateReport) -> str:
    """For a pull request or the summary of a step: the same."""
    parts = [f"**{escape_markdown(SIMULATED)}**"] if found.simulated else []
    for one in found.candidates:
        parts += [f"### {escape_markdown(one.sentence)}", as_markdown(_table(one))]
        if said := list(_open(one)):
            parts.append("\n".join(f"- {escape_markdown(each)}" for each in said))
    said = [f"- **Doubt:** {escape_markdown(doubt)}" for doubt in found.doubts]
    said += [f"- {escape_markdown(note)}" for note in found.notes]
    parts += ["\n".join(said)] if said else []
    return "\n\n".join([*parts, legend(found)]) + "\n"


def junit_xml(found: GateReport) -> bytes:
    """A suite for each candidate, a case for each task: NO-GO is a failure, INCONCLUSIVE an error, and what
    does not decide is skipped."""
    root = Element("testsuites", name="coeval gate")
    for one in found.candidates:
        cases = [(task, _outcome(task)) for task in one.tasks]
        counts = {
            "tests": len(cases),
            "failures": sum(kind == "failure" for _, kind in cases),
            "errors": sum(kind == "error" for _, kind in cases),
            "skipped": sum(kind == "skipped" for _, kind in cases),
        }
        name = escape_line(f"{one.candidate} against {one.base}")
        suite = SubElement(root, "testsuite", {"name": name} | {key: str(n) for key, n in counts.items()})
        for task, kind in cases:
            case = SubElement(suite, "testcase", classname=name, name=escape_line(task.place))
            if kind:
                kept = {} if kind == "skipped" else {"type": task.verdict}
                SubElement(case, kind, {"message": escape_line(task.sentence)} | kept)
            else:
                SubElement(case, "system-out").text = escape_line(task.sentence)
    indent(root)
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _outcome(task: GatedTask) -> str:
    if task.verdict == "GO":
        return ""
    if task.blocks_go:
        return "failure" if task.verdict == "NO-GO" else "error"
    return "skipped"


def _open(one: GatedCandidate) -> Iterator[str]:
    for task in one.tasks:
        if task.verdict != "GO":
            yield f"{task.place}: {task.sentence}"


def _table(one: GatedCandidate, title: str = "") -> ReportTable:
    rows = [
        (
            task.place,
            task.verdict,
            task.tier,
            task.difference,
            task.lower,
            task.max_drop,
            task.n,
            task.other_judges or None,
        )
        for task in one.tasks
    ]
    return ReportTable("gate", title, _COLUMNS, tuple(rows))
