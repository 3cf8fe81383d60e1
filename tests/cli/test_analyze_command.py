"""``coeval analyze``: the measures of a run, in every shape, without asking anybody."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli.invoked import Command
from cli.written_output import output, verdicts
from pipeline.experiments import Lab, listen, model, quiz, task

import coeval as api
from coeval.cli.commands.analysis_names import AnalysisName


@pytest.fixture
def lab(here: Path) -> Lab:
    made = Lab(here, [model("ann"), model("ben", skill=0.3)], [task(total=6)])
    assert made.run().exit_code == 0
    return made


def test_nobody_is_asked_and_the_run_is_only_read(
    lab: Lab, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = listen(monkeypatch)
    before = {path: path.read_bytes() for path in lab.path.rglob("*") if path.is_file()}
    ended = coeval("analyze", "--run", lab.path)
    assert (ended.code, ended.err, asked.requests) == (0, "", [])
    assert {path: path.read_bytes() for path in lab.path.rglob("*") if path.is_file()} == before
    assert "ann" in ended.out
    assert "ben" in ended.out


def test_an_analysis_shows_its_own_part(lab: Lab, coeval: Command) -> None:
    whole = json.loads(coeval("analyze", "--run", lab.path, "--format", "json").out)
    for name, parts in (
        ("students", {"students", "ranking", "without_own"}),
        ("agreement", {"agreement", "panel"}),
    ):
        found = json.loads(coeval("analyze", name, "--run", lab.path, "--format", "json").out)
        assert found == {part: whole[part] for part in ("simulated", "units", *parts)}
    ended = coeval("analyze", "frobnicate", "--run", lab.path)
    assert (ended.code, ended.out) == (1, "")
    assert "students" in ended.err


def test_csv_has_a_line_for_each_number(lab: Lab, coeval: Command) -> None:
    found = api.open_run(lab.path).measures()
    lines = list(csv.DictReader(io.StringIO(coeval("analyze", "--run", lab.path, "--format", "csv").out)))
    [line] = [
        line
        for line in lines
        if (line["part"], line["name"], line["measure"]) == ("students", "ann", "overall")
    ]
    ann = found["students"]["ann"]
    assert float(line["value"]) == ann["overall"]
    assert [float(line["low"]), float(line["high"])] == ann["ci95"]["overall"]
    assert (int(line["n"]), int(line["missing"])) == (ann["n"]["overall"], ann["missing"]["overall"])


def test_every_table_can_be_read_elsewhere(here: Path, coeval: Command) -> None:
    """CSV by pandas, each number once and named; Markdown by a renderer, rows as wide as their headings."""
    pandas, markdown = pytest.importorskip("pandas"), pytest.importorskip("markdown")
    lab = Lab(here, [model(name) for name in ("ann", "ben_x", "cleo")], [task(total=4), quiz(total=4)])
    assert lab.run().exit_code == 0
    scored = output(here / "outputs", "base_1", verdicts([1, 0] * 5))
    names = ("all", "students", "teachers", "judges", "agreement", "robust", "labels", "coverage", "items")
    for name, folder in (*((name, lab.path) for name in names), ("all", scored)):
        table = pandas.read_csv(
            io.StringIO(coeval("analyze", name, "--run", folder, "--format", "csv").out),
            keep_default_na=False,
        )
        first = table.iloc[0]
        assert (first["part"], first["measure"]) == ("run", "units")
        assert not table.duplicated(["part", "name", "measure", "of"]).any()
        assert not table.duplicated(["part", "measure", "of"])[table["name"] == ""].any()
        assert pandas.to_numeric(table["value"], errors="coerce")[table["value"] != ""].notna().all()
        shown = coeval("analyze", name, "--run", folder, "--format", "markdown").out
        assert f"Scores that count (units): {float(first['value']):.0f}." in shown
        page = ElementTree.fromstring(f"<x>{markdown.markdown(shown, extensions=['tables'])}</x>")  # noqa: S314  ours
        assert len(page.findall("table")) == shown.count("| measure |") + shown.count("| expected |")
        for rendered in page.findall("table"):
            widths = {len(row) for row in rendered.iter("tr")}
            assert len(widths) == 1
            assert all("".join(row[0].itertext()) for row in rendered.iter("tr")) or name in ("all", "robust")
        assert not [text for text in page.itertext() if text.startswith("|")], "no row outside of a table"


def test_a_report_stands_beside_the_measures(lab: Lab, here: Path, coeval: Command) -> None:
    ended = coeval("analyze", "students", "--run", lab.path, "--out", "new/report", "--format", "markdown")
    assert (ended.code, ended.out) == (0, "")
    assert sorted(path.name for path in (here / "new/report").iterdir()) == ["measures.json", "students.md"]
    assert "| ann | overall |" in (here / "new/report/students.md").read_text()
    found = json.loads((here / "new/report/measures.json").read_text())
    assert found == api.open_run(lab.path).measures(), "all of them, whatever is shown"
    (here / "file").write_text("mine")
    refused = coeval("analyze", "--run", lab.path, "--out", "file")
    assert refused.code == 1
    assert "folder" in refused.err
    assert (here / "file").read_text() == "mine"


def test_a_run_with_gaps_says_so_and_ends_with_3_unless_that_is_fine(lab: Lab, coeval: Command) -> None:
    file = next((lab.path / "phase5_evaluations").glob("*.jsonl"))
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    ended = coeval("analyze", "--run", lab.path)
    assert ended.code == 3
    assert "--continue" in ended.err
    missing = sum(
        each["missing"]["overall"] for each in api.open_run(lab.path).measures()["students"].values()
    )
    assert missing == len(json.loads(lines[-1])["scores"])
    assert coeval("analyze", "--run", lab.path, "--partial-ok").code == 0


def test_labels_and_names_that_the_configuration_has_lost_are_in_no_measure(
    here: Path, coeval: Command
) -> None:
    lab = Lab(here, [model("ann"), model("ben", skill=0.3)], [task(total=4), quiz()])
    assert lab.run().exit_code == 0
    found = api.open_run(lab.path).measures()
    assert "quiz" not in found["students"]["ann"]["by_task"]
    assert found["students"]["ann"]["missing"]["overall"] == 0
    Lab(here, [model("ann")], [task(total=4), quiz()]).run(continue_run=True)
    again = api.open_run(lab.path).measures()
    assert again["students"].keys() == {"ann"}
    assert coeval("analyze", "--run", lab.path).code == 0


@pytest.mark.parametrize(
    "how",
    [
        *([name] for name in AnalysisName if not name.endswith(("report", "benchmark"))),
        *([name, "--out", "out"] for name in AnalysisName if name.endswith("report")),
        ["all", "--figures", "figures"],
    ],
    ids=" ".join,
)
def test_a_run_whose_tasks_are_all_removed_has_nothing_to_measure(
    here: Path, coeval: Command, how: list[str]
) -> None:
    """The configuration in the folder is of other tasks than the records, as one that was put there is."""
    lab = Lab(here, [model("ann"), model("ben", "student", "judge")], [task(total=2), quiz(total=2)])
    assert lab.run().exit_code == 0
    config = lab.path / "config.yaml"
    text = config.read_text().replace("name: story", "name: other").replace("name: quiz", "name: another")
    config.write_text(text)
    ended = coeval("analyze", *how, "--run", lab.path)
    assert ended.code == 3, ended.err
    assert "internal error" not in ended.err
    assert "of what is planned, this is not there: 4 items" in " ".join(ended.err.split())
