"""`coeval label` with sheets: written, filled in, read back; what a hostile sheet holds is told by row."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, task
from written_run import Run, append

from coeval.api import open_run

HOSTILE = '=HYPERLINK("http://evil.example")'


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two students, twelve items; the first answer looks like a formula."""
    folder = tmp_path / "run"
    written = Run(folder)
    for n in range(1, 13):
        written.datapoint(n, prompt=f"{n * 7919 % 101} and {n * 104729 % 97}")
        for place, student in enumerate(("ann", "bob")):
            written.response(n, student, response=HOSTILE if n == 1 else f"answer {n} {place}")
            for judge in ("j1", "j2"):
                written.evaluation(n, student, judge, {"plot": ("High", "Medium", "Low")[(n + place) % 3]})
    rubric = folder / "phase2_rubric" / "haiku.rubric.json"
    rubric.parent.mkdir()
    rubric.write_text(json.dumps({"plot": "Something happens."}))
    return folder


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: list[dict[str, str]], delimiter: str = ",") -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.process
def test_a_sheet_is_blind_and_comes_back(run: Path, tmp_path: Path, coeval: Command) -> None:
    sheet = tmp_path / "labels.csv"
    assert coeval("label", run, "--n", "24", "--by", "anna", "--sheet", sheet).code == 0
    rows = rows_of(sheet)
    assert len(rows) == 24
    text = sheet.read_text(encoding="utf-8-sig")
    assert not {name for name in ("ann,", "bob", "j1", "j2", "haiku__") if name in text}
    assert "Something happens." in text
    assert {row["answer"] for row in rows} >= {f"'{HOSTILE}"}
    assert {row["levels"] for row in rows} == {"Low, Medium, High"}
    for row in rows[:20]:
        row["level"] = "medium"
    write_rows(sheet, rows, ";")
    said = coeval("label", run, "--by", "anna", "--read", sheet)
    assert (said.code, "kept 20 labels of anna; 4 rows without a level; 20 of 24" in said.err) == (0, True)
    records = [json.loads(line) for line in (run / "labels.jsonl").read_text().splitlines()]
    given = [record for record in records if "level" in record]
    assert len(given) == 20
    assert {record["judge_model_id"] for record in given} == {"human:anna"}
    assert {(record["level"], record["value"]) for record in given} == {("Medium", 0.5)}
    assert {record["drawn"]["probability"] for record in given} == {1.0}
    again = tmp_path / "again.csv"
    assert coeval("label", run, "--by", "anna", "--sheet", again).code == 0
    assert [row["level"] for row in rows_of(again)] == ["Medium"] * 20 + [""] * 4, "the same draw goes on"
    shown = coeval("analyze", "calibration", "--run", run)
    assert "20 of 24 drawn labels are entered" in shown.out
    assert "human scale" in shown.out
    both = coeval("results", run).out
    assert "human scale" in both
    people = json.loads(coeval("results", run, "--json").out)["people"]
    assert [(one["scale"], one["labels"]) for one in people] == [("plot", 10)] * 2
    assert coeval("results", run, "--csv").out.count("human scale,") == 2
    assert "Students by judges and by people" in open_run(run).results()._repr_html_()
    measures = json.loads(coeval("analyze", "calibration", "--run", run, "--format", "json").out)
    assert measures["people"]["scales"]["plot"]["students"]["ann"]["labels"] == 10


def test_the_reference_of_an_item_is_shown_beside_its_answers(tmp_path: Path, coeval: Command) -> None:
    written = Run(tmp_path / "run")
    for n in (1, 2):
        written.datapoint(n, reference_response=f"right {n}" if n == 1 else "")
        written.response(n, "ann", response=f"answer {n}")
        written.evaluation(n, "ann", "j1", {"plot": "High"})
    sheet = tmp_path / "labels.csv"
    assert coeval("label", tmp_path / "run", "--sheet", sheet).code == 0
    rows = rows_of(sheet)
    assert {row["answer"]: row["reference"] for row in rows} == {"answer 1": "right 1", "answer 2": ""}
    write_rows(sheet, [dict(row, level="Low") for row in rows])
    assert "kept 2 labels" in coeval("label", tmp_path / "run", "--read", sheet).err
    written.datapoint(1, reference_response="another")
    coeval("label", tmp_path / "run", "--sheet", tmp_path / "again.csv")
    assert [row["level"] for row in rows_of(tmp_path / "again.csv")] == ["Low"], (
        "a label is of what was shown"
    )


def test_a_formula_and_an_unknown_level_are_told_by_row(run: Path, tmp_path: Path, coeval: Command) -> None:
    sheet = tmp_path / "labels.csv"
    assert coeval("label", run, "--n", "10", "--sheet", sheet).code == 0
    levels = [*["High"] * 7, "=1+1", "Superb", ""]
    write_rows(sheet, [dict(row, level=level) for row, level in zip(rows_of(sheet), levels, strict=True)])
    said = coeval("label", run, "--read", sheet)
    assert said.code == 1
    assert "row 9: the level is a formula; write the level itself" in said.err
    assert "row 10: 'Superb' is not a level of plot; write one of Low, Medium, High" in said.err
    assert "kept 7 labels of me; 1 row without a level; 7 of 10 are labelled" in said.err


@pytest.mark.process
def test_a_sheet_with_levels_that_are_not_recorded_is_never_written_over(
    run: Path, tmp_path: Path, coeval: Command
) -> None:
    sheet = tmp_path / "labels.csv"
    words = ("label", run, "--n", "6", "--by", "anna", "--sheet", sheet)
    assert coeval(*words).code == 0
    assert coeval(*words).code == 0, "nothing is lost while it is empty"
    write_rows(sheet, [dict(row, level="low") for row in rows_of(sheet)])
    filled, drawn = sheet.read_bytes(), (run / "labels.jsonl").read_bytes()
    said = coeval("label", run, "--n", "24", "--by", "anna", "--sheet", sheet)
    assert said.code == 1
    assert "holds 6 levels that are not recorded; read it first with --read, or name another" in said.err
    assert (sheet.read_bytes(), (run / "labels.jsonl").read_bytes()) == (filled, drawn)
    assert coeval("label", run, "--by", "anna", "--read", sheet).code == 0
    assert coeval(*words).code == 0
    assert {row["level"] for row in rows_of(sheet)} == {"Low"}
    sheet.write_text("my,own\n1,2\n")
    assert "exists and is not a sheet of labels; name another file" in coeval(*words).err
    assert sheet.read_text() == "my,own\n1,2\n"


def test_a_sheet_that_cannot_be_written_draws_nothing(run: Path, tmp_path: Path, coeval: Command) -> None:
    assert coeval("label", run, "--sheet", tmp_path / "q.pdf").code == 1
    assert "there is no folder" in coeval("label", run, "--sheet", tmp_path / "gone" / "q.csv").err
    assert not (run / "labels.jsonl").exists()


def test_a_smaller_n_asks_for_the_first_of_the_draw(run: Path, tmp_path: Path, coeval: Command) -> None:
    large, small = tmp_path / "large.csv", tmp_path / "small.csv"
    coeval("label", run, "--n", "20", "--sheet", large)
    assert coeval("label", run, "--n", "6", "--sheet", small).code == 0
    assert [row["id"] for row in rows_of(small)] == [row["id"] for row in rows_of(large)[:6]]


@pytest.mark.process
def test_a_level_that_was_cleared_stays_and_that_is_said(run: Path, tmp_path: Path, coeval: Command) -> None:
    sheet = tmp_path / "labels.csv"
    coeval("label", run, "--n", "6", "--sheet", sheet)
    write_rows(sheet, [dict(row, level="Low") for row in rows_of(sheet)])
    coeval("label", run, "--read", sheet)
    rows = rows_of(sheet)
    rows[0]["level"] = rows[1]["level"] = ""
    write_rows(sheet, rows)
    said = coeval("label", run, "--read", sheet).err
    assert "2 rows without a level; 6 of 6 are labelled" in said
    assert "of the rows without a level, 2 keep the one they had" in said


def test_an_id_beside_other_texts_gives_no_label(run: Path, tmp_path: Path, coeval: Command) -> None:
    sheet = tmp_path / "labels.csv"
    coeval("label", run, "--n", "6", "--sheet", sheet)
    rows = [dict(row, level="High") for row in rows_of(sheet)]
    rows[0]["id"], rows[1]["id"] = rows[1]["id"], rows[0]["id"]
    rows[2]["answer"] = f" {rows[2]['answer']}\r\n"
    write_rows(sheet, rows)
    said = coeval("label", run, "--read", sheet)
    assert said.code == 1
    assert "kept 4 labels" in said.err
    assert f"row 2: its answer is not the one of id {rows[0]['id']}; keep each id beside" in said.err


@pytest.mark.process
def test_unknown_and_doubled_rows_are_told(run: Path, tmp_path: Path, coeval: Command) -> None:
    sheet = tmp_path / "labels.csv"
    coeval("label", run, "--n", "6", "--sheet", sheet)
    rows = rows_of(sheet)
    rows[0]["level"] = "High"
    twice = [*rows, dict(rows[0], level="Low"), dict(rows[1], id="haiku__t.1__00001__ann", level="Low")]
    write_rows(sheet, twice)
    said = coeval("label", run, "--read", sheet)
    assert said.code == 1
    assert f"row 8: id {rows[0]['id']} has a row above; the first one counts" in said.err
    assert "row 9: id 'haiku__t.1__00001__ann' is not a label requested from me" in said.err
    labels = [json.loads(line) for line in (run / "labels.jsonl").read_text().splitlines()]
    assert [label["level"] for label in labels if "level" in label] == ["High"]
    nobody = coeval("label", run, "--by", "ben", "--n", "1", "--read", sheet)
    assert "is not a label requested from ben" in nobody.err, "a sheet of somebody else's draw"
    assert coeval("label", run, "--by", "ben", "--n", "6", "--sheet", tmp_path / "ben.csv").code == 0
    other = coeval("label", run, "--by", "ben", "--read", sheet)
    assert "is not a label requested from ben" in other.err, "the same answers, asked of somebody else"
    assert "kept 0 labels of ben" in other.err


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("no.csv", b"prompt,answer\na,b\n", "lacks the columns id and level"),
        (
            "no.csv",
            b"id,level\n\xff\xfe,High\n",
            "save it as CSV UTF-8",
        ),
        ("no.xlsx", b"PK\x03\x04more", "is a workbook; save its worksheet of labels as CSV UTF-8"),
        ("gone.csv", None, "there is no such file"),
    ],
)
def test_what_is_no_sheet_is_refused(
    name: str, data: bytes | None, said: str, run: Path, tmp_path: Path, coeval: Command
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    unasked = coeval("label", run, "--read", tmp_path / name)
    assert "nothing was drawn for me; --by names who the sheet was for" in unasked.err
    assert not (run / "labels.jsonl").exists()
    coeval("label", run, "--n", "6", "--sheet", tmp_path / "mine.csv")
    found = coeval("label", run, "--read", tmp_path / name)
    assert found.code == 1
    assert said in found.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--factor", "rhyme"], "--factor rhyme: judges score plot"),
        (["--by", "an/na"], "--by 'an/na': write a name of letters"),
        (["--by", "cem", "--among", "anna,ben"], "--by cem is not among anna, ben"),
        (["--item", "haiku"], "--item haiku: no judge scored an answer to this item"),
        (["--item", "haiku", "--n", "3"], "--item picks answers by hand; leave out --n"),
        (["--sheet", "x.txt"], "x.txt: name a sheet of labels with .csv, which Excel opens"),
        (["--sheet", "x.csv", "--read", "y.csv"], "--sheet and --read exclude each other"),
    ],
)
def test_wrong_requests_say_what_is_right(words: list[str], said: str, run: Path, coeval: Command) -> None:
    found = coeval("label", run, *words)
    assert found.code == 1
    assert said in found.err


@pytest.mark.process
def test_a_run_of_custom_scales_asks_for_its_levels(tmp_path: Path, coeval: Command) -> None:
    folder = tmp_path / "run"
    written = Run(folder)
    for n in range(1, 9):
        written.datapoint(n, prompt=f"{n * 7919 % 101} and {n * 104729 % 97}")
        for student in ("ann", "bob"):
            written.response(n, student, response=f"{student[0]} {n}")
            written.evaluation(n, student, "j1", {}, values={"length": (n % 5) / 4})
    sheet = tmp_path / "labels.csv"
    assert coeval("label", folder, "--sheet", sheet).code == 0
    rows = rows_of(sheet)
    assert {row["levels"] for row in rows} == {"0, 0.25, 0.5, 0.75, 1"}
    for row in rows:
        row["level"] = "0.75"
    write_rows(sheet, rows)
    assert coeval("label", folder, "--read", sheet).code == 0
    assert "all judges" in coeval("analyze", "calibration", folder).out


@pytest.mark.process
def test_a_number_that_a_spreadsheet_shows_with_decimals_is_its_level(
    tmp_path: Path, coeval: Command
) -> None:
    models = [model("tea", "teacher"), model("ann", "student"), model("joe", "judge")]
    lab = Lab(tmp_path, models, [task(total=2, scale=[1, 2, 3, 4, 5])])
    assert lab.run().exit_code == 0
    sheet = tmp_path / "labels.csv"
    words = ("label", lab.path, "--sheet", sheet)
    assert coeval(*words).code == 0
    shown = ["5.0", "5,00", "1.5", "4"]
    write_rows(sheet, [dict(row, level=level) for row, level in zip(rows_of(sheet), shown, strict=True)])
    said = coeval("label", lab.path, "--read", sheet)
    assert "'1.5' is not a level of" in said.err
    assert coeval(*words).code == 1, "one level is not recorded"
    write_rows(sheet, [dict(row, level=row["level"].replace("1.5", "")) for row in rows_of(sheet)])
    assert coeval(*words).code == 0, "5.0 is on record as 5"
    assert [row["level"] for row in rows_of(sheet)] == ["5", "5", "", "4"]


def test_the_scale_beside_a_criterion_is_in_words(tmp_path: Path, coeval: Command) -> None:
    models = [model("tea", "teacher"), model("ann", "student"), model("joe", "judge")]
    lab = Lab(tmp_path, models, [task(total=2, scale=["fail", "pass"])])
    assert lab.run().exit_code == 0
    assert coeval("label", lab.path, "--sheet", tmp_path / "labels.csv").code == 0
    endings = {row["criterion"].partition(" (")[2] for row in rows_of(tmp_path / "labels.csv")}
    assert endings == {"fail 0, pass 1)"}


def test_nothing_to_label_is_said(tmp_path: Path, coeval: Command) -> None:
    written = Run(tmp_path / "run")
    written.datapoint(1)
    written.response(1, "ann")
    append(tmp_path / "run" / "labels.jsonl", "torn")
    found = coeval("label", tmp_path / "run", "--sheet", tmp_path / "x.csv")
    assert found.code == 1
    assert "no judge scores a factor of this run" in found.err
    shown = coeval("analyze", "calibration", tmp_path / "run")
    assert "Nobody has labelled an answer of this run yet" in shown.out


@pytest.mark.process
def test_items_picked_by_hand_enter_no_estimate(run: Path, tmp_path: Path, coeval: Command) -> None:
    sheet, item = tmp_path / "labels.csv", "haiku__t.1__00002"
    assert coeval("label", run, "--item", item, "--sheet", sheet).code == 0
    assert not (run / "labels.jsonl").exists()
    rows = rows_of(sheet)
    assert len(rows) == 2
    write_rows(sheet, [dict(row, level="Low") for row in rows])
    assert "2 of 2 are labelled" in coeval("label", run, "--item", item, "--read", sheet).err
    records = [json.loads(line) for line in (run / "labels.jsonl").read_text().splitlines()]
    assert [(record["level"], record.get("drawn")) for record in records] == [("Low", None)] * 2
    shown = coeval("analyze", "calibration", run).out
    assert "labels picked by hand enter no estimate" in shown
    coeval("label", run, "--n", "24", "--sheet", sheet)
    assert sum(row["level"] == "Low" for row in rows_of(sheet)) == 2, "drawn by chance later, the level stays"
    assert "2 of 24 drawn labels are entered" in coeval("analyze", "calibration", run).out


@pytest.mark.process
def test_a_scale_of_all_factors_takes_labels_in_all_tasks(run: Path, tmp_path: Path, coeval: Command) -> None:
    other = Run(run, "ode")
    for n in range(1, 7):
        other.datapoint(n, prompt=f"{n * 7919 % 101} or {n * 104729 % 97}")
        for student in ("ann", "bob"):
            other.response(n, student, response=f"ode {n}")
            other.evaluation(n, student, "j1", {"plot": "High", "form": ("High", "Low")[n % 2]})
    sheet = tmp_path / "labels.csv"
    assert coeval("label", run, "--factor", "plot", "--n", "36", "--sheet", sheet).code == 0
    rows = [row for row in rows_of(sheet) if " or " not in row["prompt"]]
    write_rows(sheet, [dict(row, level="Low") for row in rows])
    coeval("label", run, "--read", sheet)
    found = json.loads(coeval("analyze", "calibration", run, "--format", "json").out)["people"]["scales"]
    assert {name: (one["tasks"], one["unlabelled"]) for name, one in found.items()} == {
        "plot": (["haiku"], ["ode"])
    }
    said = coeval("analyze", "calibration", run).out
    assert "These figures are over haiku; no labels yet: ode." in said
