"""``coeval analyze``: the measures of a run, in every shape, without asking anybody."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli.invoked import Command
from cli.terminal import on_terminal
from cli.written_output import output, verdicts
from pipeline.experiments import Lab, listen, model, quiz, task
from rich.cells import cell_len
from written_run import Run

import coeval as api
from coeval.cli.commands.analyze_command import NAMES as ANALYSES
from coeval.core.figures import format_points


@pytest.fixture
def lab(here: Path) -> Lab:
    made = Lab(here, [model("ann"), model("ben", skill=0.3)], [task(total=6)])
    assert made.run().exit_code == 0
    return made


@pytest.mark.process
def test_nobody_is_asked_and_the_run_is_only_read(
    lab: Lab, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = listen(monkeypatch)
    before = {path: path.read_bytes() for path in lab.path.rglob("*") if path.is_file()}
    ended = coeval("analyze", "--run", lab.path)
    assert (ended.code, ended.err, requested.requests) == (0, "", [])
    assert {path: path.read_bytes() for path in lab.path.rglob("*") if path.is_file()} == before
    assert "ann" in ended.out
    assert "ben" in ended.out


@pytest.mark.process
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


@pytest.mark.process
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


@pytest.mark.system
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
        assert len(page.findall("table")) == len(re.findall(r"^\| -", shown, re.MULTILINE))
        for rendered in page.findall("table"):
            widths = {len(row) for row in rendered.iter("tr")}
            assert len(widths) == 1
        assert not [text for text in page.itertext() if text.startswith("|")], "no row outside of a table"


@pytest.mark.process
@pytest.mark.parametrize("shown", ["html", "excel"])
def test_the_robust_set_is_on_no_page(lab: Lab, here: Path, coeval: Command, shown: str) -> None:
    ended = coeval("analyze", "robust", "--run", lab.path, "--out", "report", "--format", shown)
    assert (ended.code, ended.out) == (1, "")
    assert "use --format json, csv or markdown" in " ".join(ended.err.split())
    assert not (here / "report").exists()


@pytest.mark.process
def test_a_report_stands_beside_the_measures(lab: Lab, here: Path, coeval: Command) -> None:
    ended = coeval("analyze", "students", "--run", lab.path, "--out", "new/report", "--format", "markdown")
    assert (ended.code, ended.out) == (0, "")
    assert sorted(path.name for path in (here / "new/report").iterdir()) == ["measures.json", "students.md"]
    assert "\n| ann | " in (here / "new/report/students.md").read_text()
    found = json.loads((here / "new/report/measures.json").read_text())
    assert found == api.open_run(lab.path).measures(), "all of them, whatever is shown"
    (here / "file").write_text("mine")
    refused = coeval("analyze", "--run", lab.path, "--out", "file")
    assert refused.code == 1
    assert "folder" in refused.err
    assert (here / "file").read_text() == "mine"


@pytest.mark.process
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


@pytest.mark.process
@pytest.mark.parametrize(
    "how",
    [
        *([name] for name in ANALYSES if not name.endswith(("report", "benchmark"))),
        *([name, "--out", "out"] for name in ANALYSES if name.endswith("report")),
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
    assert "missing from the plan: 4 items" in " ".join(ended.err.split())


# ``coeval analyze`` and ``coeval compare`` of runs with next to nothing in them, and with hostile names.

NAMES = ("all", "students", "teachers", "judges", "agreement", "robust", "labels", "coverage", "items")
HOSTILE = '=cmd()|\x1b[31mred\u202eevil\n"x" <b>`*'


def with_scores(items: int, students: tuple[str, ...], judges: tuple[str, ...]) -> Callable[[Run], None]:
    def write(run: Run) -> None:
        for n in range(1, items + 1):
            for place, student in enumerate(students):
                for judge in judges:
                    run.judged(n, student, judge, {"plot": "High" if (n + place) % 3 else "Low"})

    return write


def nothing(run: Run) -> None:
    (run.folder / "phase3_datapoints").mkdir(parents=True)
    (run.folder / "phase3_datapoints" / "a.b.datapoints.jsonl").write_text("")


def items_alone(run: Run) -> None:
    for n in range(1, 5):
        run.datapoint(n)


def answers_alone(run: Run) -> None:
    items_alone(run)
    for n in range(1, 5):
        run.response(n, "ann")
        run.response(n, "ben")


def all_failed(run: Run) -> None:
    items_alone(run)
    for n in range(1, 5):
        run.response(n, "ann")
        run.evaluation(n, "ann", "j", {}, status="failed")
        run.response(n, "ben", status="failed", response=None)


def labels_alone(run: Run) -> None:
    for n in range(1, 13):
        expected = ("red", HOSTILE)[n % 2]
        run.datapoint(n, sampled_target_attributes={"kind": expected})
        for student, predicted in (("ann", expected), ("ben", expected if n % 3 else None)):
            label = {"expected": expected, "predicted": predicted, "match": predicted == expected}
            run.response(n, student)
            run.evaluation(n, student, "exact_match", {}, label_scores={"kind": label})


NOBODY = "No student has a score yet."
RUNS: dict[str, tuple[Callable[[Run], None], str, str]] = {
    "nothing": (nothing, NOBODY, "holds no answers yet"),
    "items alone": (items_alone, NOBODY, "holds no answers yet"),
    "answers alone": (answers_alone, NOBODY, "no item has a score on both sides"),
    "all failed": (all_failed, NOBODY, "no item has a score on both sides"),
    "one of all": (
        with_scores(1, ("ann",), ("j",)),
        "ann scores 100.0, the only student",
        "name a second folder",
    ),
    "one student": (with_scores(8, ("ann",), ("j", "k")), "the only student", "name a second folder"),
    "one judge": (with_scores(8, ("ann", "ben"), ("j",)), "Only one judge was used", ""),
    "one item": (
        with_scores(1, ("ann", "ben"), ("j", "k")),
        "ann (100.0) and ben (100.0) are tied",
        "",
    ),
    "labels alone": (labels_alone, "ann (100.0) and ben (66.7) are tied in haiku (kind)", ""),
}


@pytest.mark.process
@pytest.mark.parametrize("name", RUNS)
def test_what_little_there_is_is_told(name: str, tmp_path: Path, coeval: Command) -> None:
    write, said, refused = RUNS[name]
    write(Run(tmp_path / "run"))
    shown = coeval("analyze", "--run", tmp_path / "run")
    assert (shown.code, shown.err) == (0, "")
    assert said in shown.out
    assert not re.search(r"^\S+( +–)+ +\d+$", shown.out, re.MULTILINE) or "labels" in name, "no empty tables"
    assert ("[low, high]" in shown.out) == (name != "nothing"), "no legend of nothing"
    parsed = json.loads(coeval("analyze", "--run", tmp_path / "run", "--format", "json").out)
    assert (parsed["units"] > 0) == name.startswith("one")
    compared = coeval("compare", tmp_path / "run")
    assert (compared.code, "nan" in compared.out) == (1 if refused else 0, False)
    assert refused in compared.err


@pytest.mark.process
@pytest.mark.parametrize(("students", "said"), [(("ann",), "1 score"), (("ann", "ben", "cleo"), "3 scores")])
def test_how_little_judges_have_in_common_is_told(
    students: tuple[str, ...], said: str, tmp_path: Path, coeval: Command
) -> None:
    """j scored every answer, k those to the first datapoint alone."""
    run = Run(tmp_path / "run")
    with_scores(1, students, ("j", "k"))(run)
    run.judged(2, "ann", "j", {"plot": "High"})
    found = json.loads(coeval("analyze", "--run", run.folder, "--format", "json").out)["findings"]
    expected = f"they have at most {said} in common, fewer than 30."
    assert f"Agreement between the judges cannot be measured: {expected}" in found


@pytest.mark.process
@pytest.mark.parametrize("analysis", NAMES)
def test_every_analysis_of_nothing_says_so(analysis: str, tmp_path: Path, coeval: Command) -> None:
    nothing(Run(tmp_path / "run"))
    for shape in ((), ("--format", "csv"), ("--format", "markdown"), ("--format", "json")):
        ended = coeval("analyze", analysis, "--run", tmp_path / "run", *shape)
        assert (ended.code, ended.err) == (0, "")
        assert shape or any(
            said in ended.out for said in ("yet", "No robust set", "No task of this run has labels")
        )


STUDENTS = (f"ann {HOSTILE}", "a-long-name/of-a.model:2026-01-01-preview-and-more-of-it-still", "汉字" * 12)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = Run(tmp_path_factory.mktemp("hostile") / "run", task=f"task {HOSTILE}")
    for n in range(1, 37):
        run.datapoint(n, sampled_target_attributes={f"mood {HOSTILE}": f"={HOSTILE}"})
        for place, student in enumerate(STUDENTS):
            run.response(n, student)
            for judge in (f"judge {HOSTILE}", "k" * 50):
                level = "High" if (n + place) % 3 else "Low"
                run.evaluation(n, student, judge, {HOSTILE: level, "plot": "Medium" if n % 5 else "Low"})
            label = {"expected": f"={HOSTILE}", "predicted": None, "match": False}
            run.evaluation(n, student, "exact_match", {}, label_scores={f"mood {HOSTILE}": label})
    return run.folder


@pytest.mark.process
def test_hostile_names_are_text_in_every_shape(hostile: Path, coeval: Command) -> None:
    shapes: tuple[tuple[str, ...], ...] = ((), ("--format", "csv"), ("--format", "markdown"))
    for words in (("analyze", "--run"), ("analyze", "labels", "--run"), ("compare",)):
        for shape in shapes if words[0] == "analyze" else ((), ("--markdown",)):
            ended = coeval(*words, hostile, *shape)
            assert (ended.code, ended.err) == (0, ""), words
            assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", ended.out)
            if "markdown" in "".join(shape):
                assert "<b>" not in ended.out
                assert not re.search(r"(?<!\\)`", ended.out)
            if "csv" in shape:
                cells = [cell for line in csv.reader(io.StringIO(ended.out)) for cell in line]
                assert any("red" in cell for cell in cells)
                assert not any(cell.startswith(("=", "+", "@")) for cell in cells)
    found = json.loads(coeval("analyze", "--run", hostile, "--format", "json").out)
    assert set(found["students"]) == set(STUDENTS)


@pytest.mark.process
@pytest.mark.parametrize("words", [("analyze", "--run"), ("analyze", "labels", "--run"), ("compare",)])
def test_a_narrow_terminal_is_not_overrun(words: tuple[str, ...], hostile: Path) -> None:
    seen = on_terminal([sys.executable, "-m", "coeval", *words, hostile], 80, cwd=hostile.parent, rows=400)
    assert seen.code == 0
    assert [line for line in seen.screen if cell_len(line) > 80] == []
    assert "\\x1b[31mred" in "\n".join(seen.screen)


@pytest.mark.process
def test_scores_come_first_one_line_each_under_short_names(here: Path, coeval: Command) -> None:
    whole = "Qwen/Qwen2.5-72B-Instruct-Turbo"
    lab = Lab(here, [model(whole), model("ann", skill=0.3)], [task(total=4)])
    assert lab.run().exit_code == 0
    lines = coeval("analyze", "--run", lab.path).out.splitlines()
    start = lines.index("Scores")
    assert lines[start + 1].split() == ["student", "rank", "score", "n"]
    assert [line.split()[0] for line in lines[start + 2 : start + 4]] == ["Qwen2.5-72B", "ann"]
    assert lines[start + 4] == ""
    assert lines[start + 5].startswith("- ")
    assert [line for line in lines if whole in line] == [f"Names in full: Qwen2.5-72B = {whole}."]
    assert f"Names in full: Qwen2.5-72B = {whole}." in coeval("results", lab.path).out


@pytest.mark.process
def test_markdown_has_points_and_csv_keeps_scores(lab: Lab, coeval: Command) -> None:
    document = coeval("analyze", "all", "--run", lab.path, "--format", "csv", "--partial-ok").out
    shown = coeval("analyze", "all", "--run", lab.path, "--format", "markdown", "--partial-ok").out
    rows = [row for row in csv.DictReader(io.StringIO(document)) if row["part"] == "students"]
    headline = next(row for row in rows if (row["name"], row["measure"]) == ("ann", "score"))
    assert 0 <= float(headline["value"]) <= 1
    value, low, high = (format_points(float(headline[key])) for key in ("value", "low", "high"))
    assert re.search(rf"^\| ann \| [^|]+\| {re.escape(f'{value} [{low}, {high}]')} \|", shown, re.MULTILINE)
    kappa = next(row for row in csv.DictReader(io.StringIO(document)) if row["measure"] == "kappa")
    assert f"| {float(kappa['value']):.2f} [" in shown, "no points: it is no score"
