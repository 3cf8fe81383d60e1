"""Every measure says what it is and where it is shown, and is shown there: in files, terminal and reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import pytest
from cli.invoked import Command
from opened_evidence import run_evidence
from pipeline.experiments import Lab, model, quiz, task

from coeval.analysis.measures.measure_tree import (
    FILES,
    Entity,
    Measured,
    ModelTasks,
    Part,
    Record,
    ShownAs,
    field_declarations,
    iterate_leaves,
    part_to_json,
)
from coeval.analysis.measures.run_measures import OutputMeasures, RunMeasures
from coeval.reports.content import Report
from coeval.reports.experiment.experiment_report import experiment_report
from coeval.reports.label_session import LabelRequest, LabelSession
from coeval.store.rundir import RunDir


def records(node: Any) -> Iterator[type[Record]]:
    """All records that a type is made of."""
    if isinstance(node, type) and issubclass(node, Record):
        yield node
        for hint in get_type_hints(node).values():
            yield from records(hint)
    for part in get_args(node):
        yield from records(part)


OF_RUN = set(records(RunMeasures))
ALL = OF_RUN | set(records(OutputMeasures))


def test_every_field_declares_what_it_is_and_where_it_is_shown() -> None:
    assert len(ALL) >= 20
    for record in ALL:
        for field, reported in field_declarations(record).items():
            assert reported.meaning, (record, field)
            if isinstance(reported, ShownAs):
                assert reported.places, f"{record.__name__}.{field} is shown nowhere; FILES would say so"
                assert not (reported.elsewhere and reported.column), (record, field)


def test_a_field_that_declares_nothing_is_refused() -> None:
    class Forgotten(Record, frozen=True):
        reported: Annotated[int, ShownAs("Something", elsewhere=FILES)]
        untold: int

    with pytest.raises(TypeError, match=r"Forgotten\.untold declares neither"):
        field_declarations(Forgotten)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A run of which there is something to say by every measure: labels, checks, samples and a gap among
    them."""
    models = [model(name, skill=0.3 + 0.2 * at) for at, name in enumerate(("gpt-a", "gpt-b", "qwen-a"))]
    models[2]["samples"] = 2
    brief = task("brief", total=2, rubric={"short": {"check": "length", "most": 60, "unit": "words"}})
    duel = task("duel", total=4, judging="pairwise")
    made = Lab(tmp_path_factory.mktemp("lab"), models, [task(total=12), quiz(total=6), brief, duel])
    assert made.run().exit_code == 0
    made.lose(
        "response_collection", next(key for key in made.records("response_collection") if "story" in key)
    )
    for name in ("anna", "ben"):
        session = LabelSession(RunDir(made.path), LabelRequest(name, n=60))
        session.append_labels(
            [one.label_with_level(one.scale.levels[at % 3]) for at, one in enumerate(session.questions)]
        )
    return made


@pytest.fixture(scope="module")
def report(lab: Lab) -> Report:
    with run_evidence(RunDir(lab.path)) as evidence:
        return experiment_report(evidence)


@pytest.mark.process
def test_what_declares_a_place_in_the_report_is_there(report: Report) -> None:
    """Headings of columns and names of rows; tables and sections by name."""
    tables = [table for section in report.sections for table in section.tables]
    names = {table.name for table in tables} | {section.anchor for section in report.sections}
    headings = {column.title for table in tables for column in table.columns}
    headings |= {str(cell) for row in report.table("biases").rows for cell in row}
    unsaid = {"itself", "the first of two", "For ± 3"}  # nothing was asked twice, no pairs, few answers
    for record in OF_RUN:
        for field, reported in field_declarations(record).items():
            if isinstance(reported, ShownAs) and reported.column and reported.column not in unsaid:
                assert any(reported.column in heading for heading in headings), (record, field)
            if isinstance(reported, ShownAs) and reported.elsewhere not in {"", FILES, *unsaid}:
                assert reported.elsewhere in names, (record, field)


@pytest.mark.process
def test_what_declares_a_heading_in_the_terminal_has_one_there(lab: Lab, coeval: Command) -> None:
    shown = "".join(
        coeval("analyze", name, "--run", lab.path, "--partial-ok").out
        for name in ("all", "calibration", "items", "coverage")
    )
    unsaid = {"rar", "for ± 3"}  # where nothing is rare, of more answers
    for record in OF_RUN:
        for field, reported in field_declarations(record).items():
            if isinstance(reported, ShownAs) and reported.terminal and reported.terminal not in unsaid:
                assert reported.terminal in shown, (record, field)


class Depth(Entity, frozen=True):
    deep: Annotated[Measured, ShownAs("A figure", "Deep", "deep")]
    by_task: Annotated[dict[str, Measured], ShownAs("The same by task", elsewhere=FILES)]
    late: Annotated[Measured | None, ShownAs("Left out while it is None", elsewhere=FILES)] = None


def test_one_walk_writes_what_it_has_never_heard_of() -> None:
    half = Measured(0.5, 0.25, 0.75, 8, 1)
    found = {("a", "b"): Depth(half, {"quiz": half})}
    assert part_to_json(found) == {
        "a|b": {
            "deep": 0.5,
            "by_task": {"quiz": 0.5},
            "n": {"deep": 8, "by_task": {"quiz": 8}},
            "missing": {"deep": 1, "by_task": {"quiz": 1}},
            "ci95": {"deep": [0.25, 0.75], "by_task": {"quiz": [0.25, 0.75]}},
        }
    }
    assert [leaf[:4] for leaf in iterate_leaves("depths", found)] == [
        ("depths", "a|b", "deep", ()),
        ("depths", "a|b", "by_task", ("quiz",)),
    ]
    of_model = {"m": ModelTasks({"ifeval": {"strict": half}})}
    assert json.loads(json.dumps(part_to_json(of_model)))["m"]["n"] == {"ifeval": {"strict": 8}}
    assert [leaf[:4] for leaf in iterate_leaves("metrics", of_model)] == [
        ("metrics", "m", "ifeval", ("strict",))
    ]


@pytest.mark.process
def test_parts_are_in_the_analyses_that_they_name(lab: Lab, coeval: Command) -> None:
    parts = {
        name: reported
        for name, reported in field_declarations(RunMeasures).items()
        if isinstance(reported, Part)
    }
    for analysis in ("students", "judges", "coverage", "items"):
        found = json.loads(
            coeval("analyze", analysis, "--run", lab.path, "--format", "json", "--partial-ok").out
        )
        assert found.keys() == {name for name, reported in parts.items() if analysis in reported.analyses}


@pytest.mark.process
def test_measures_beside_a_report_are_those_of_json(lab: Lab, tmp_path: Path, coeval: Command) -> None:
    """All of them, whatever the report shows."""
    coeval("analyze", "judges", "--run", lab.path, "--format", "markdown", "--out", tmp_path, "--partial-ok")
    shown = coeval("analyze", "all", "--run", lab.path, "--format", "json", "--partial-ok").out
    assert (tmp_path / "measures.json").read_text() == shown
