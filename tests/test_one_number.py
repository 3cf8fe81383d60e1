"""One number, one place: every face of a result folder prints the same figures and the same verdicts.

Twelve kinds of folders (`twelve_folders`), each shown by every face that a user has (`faces`): a figure that
carries the same name is equal to the digits printed, a verdict is the same word, and what a sentence of the
page says stands in one of its tables.
"""

from __future__ import annotations

import csv
import io
import json
import pickle
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import duckdb
import msgspec
import openpyxl
import pytest
from cli.terminal import on_terminal
from faces import (
    Face,
    Figures,
    FolderNames,
    Key,
    Printed,
    Shown,
    cell_figures,
    contradictions,
    figures_of,
    of_html,
    of_latex,
    of_markdown,
    of_records,
    of_report,
    of_terminal,
    of_workbook,
)
from reports.view_process import viewing
from twelve_folders import FOLDERS, STEPS
from worker_folder import worker_folder

from coeval.api import open_run
from coeval.cli.main import main
from coeval.reports.folder_report import open_folder_report
from coeval.reports.site.page import make_page
from coeval.reports.view.viewed_folder import ViewedFolder
from tools.docs.materials import write_prices

RUNS = tuple(name for name in FOLDERS if name not in ("two_sweeps", "benchmark"))

pytestmark = pytest.mark.process


def called(*words: object) -> str:
    """What a command prints, called in this process; its standard output is a pipe."""
    out, argv = io.StringIO(), ["coeval", *map(str, words)]
    with (
        patch.object(sys, "argv", argv),
        redirect_stdout(out),
        redirect_stderr(io.StringIO()),
        pytest.raises(SystemExit),
    ):
        main()
    return out.getvalue()


class Folders(NamedTuple):
    """Where the folders are: below ``work``, by name."""

    work: Path
    paths: dict[str, list[Path]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """All twelve; workers of pytest-xdist share them."""
    with worker_folder(tmp_path_factory, "twelve") as work:
        if not (kept := work / "made.pickle").exists():
            work.mkdir()
            with chdir(work):
                write_prices(work)
                made = Folders(work, {name: make(work) for name, make in FOLDERS.items()})
            kept.write_bytes(pickle.dumps(made))
        made = pickle.loads(kept.read_bytes())  # noqa: S301  our own, of this session
        assert isinstance(made, Folders)
        return made


# --- The faces of a run


def faces_of_run(folder: Path, out: Path) -> Iterator[Face]:
    for command in ("results", "analyze", "compare"):
        yield of_terminal(command, called(command, folder))
    for command in ("results", "compare"):
        yield of_markdown(f"{command} --markdown", called(command, folder, "--markdown"))
    yield of_latex("results --latex", called("results", folder, "--latex"))
    yield of_terminal("status", called("status", folder))
    yield from _of_view(folder)
    called("analyze", "all", "--run", folder, "--format", "excel", "--out", out)
    yield of_workbook("workbook", openpyxl.load_workbook(out / "report.xlsx"))
    with open_folder_report(folder) as found:
        yield of_report("page", found.report)
    yield of_html("notebook", open_run(folder)._repr_html_())
    yield from _of_files(folder, out)


SCORE = {"student": "student", "task": "task", "score": "score", "score, from": "low", "score, to": "high"}
RECORDED = {"mean of recorded": "mean_recorded"}
SHARES = [
    f"{name}{end}"
    for name in ("score", "mean of recorded", "accuracy", "strength")
    for end in ("", ", from", ", to")
]
LABEL = {"student": "student", "task": "task", "accuracy": "accuracy", "accuracy, from": "low"}
LABEL |= {"accuracy, to": "high"}
COUNTS = {"n": "n", "failed": "failed"}


def _of_files(folder: Path, out: Path) -> Iterator[Face]:
    results = json.loads(called("results", folder, "--json"))
    yield of_records("results --json", results["students"], {**SCORE, **COUNTS, **RECORDED}, SHARES)
    yield of_records("results --json", results["labels"], LABEL, SHARES)
    yield of_records("results --json", results["pairs"], STRENGTH, SHARES)
    table = open_run(folder).results().frame("students").replace({float("nan"): None})
    yield of_records("Run.results()", table.to_dict("records"), {**SCORE, **COUNTS, **RECORDED}, SHARES)
    called("export", folder, "--to", "csv", "--out", out / "csv")
    with (out / "csv" / "figures.csv").open() as file:
        exported = [{name: _number(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    called("export", folder, "--to", "parquet", "--out", out / "parquet")
    yield from _of_export("export csv", exported)
    relation = duckdb.read_parquet(str(out / "parquet" / "figures.parquet"))
    stored = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    yield from _of_export("export parquet", stored)
    measures = json.loads(called("analyze", "all", "--run", folder, "--format", "json"))
    yield of_records(
        "measures.json", _measured(measures), {**SCORE, **RECORDED, "n": "n", "missing": "missing"}, SHARES
    )
    ranges = measures.get("ranking", {}).get("ranges", {})
    ranks = [
        {"student": name, "rank": "–".join(map(str, dict.fromkeys(ends)))} for name, ends in ranges.items()
    ]
    yield of_records("measures.json", ranks, {"student": "student", "rank": "rank"})
    compared = json.loads(called("compare", folder, "--json") or "{}").get("comparisons", [])
    yield of_records("compare --json", map(_compared, compared), PAIR, PAIR_SHARES)


def _of_view(folder: Path) -> Iterator[Face]:
    """What ``coeval view`` serves of a folder: its line in the list; its page, with the lines above it."""
    viewed = ViewedFolder(folder, lambda _: None)
    viewed.needed = viewed.report_needed = True
    viewed.read_changed_records_if_needed()
    viewed.refresh_page_if_due()
    best, page = viewed.list_entry()["summary"].best, of_html("view, page", (viewed.report or b"").decode())
    name = {"wins in 100": "strength", "labels right": "accuracy"}.get(best.what, "score")
    fields = {"student": "name", name: "score", f"{name}, from": "low", f"{name}, to": "high"}
    yield of_records("view, list", [msgspec.structs.asdict(best)], fields, SHARES)
    yield page._replace(sentences=[*page.sentences, *viewed.page_state()["headline"]])
    viewed.close()


STRENGTH = {"student": "student", "task": "task", "strength": "strength"}
STRENGTH |= {"strength, from": "low", "strength, to": "high"}
PAIR = {"task": "task", "student": "b", "less": "a", "p (holm)": "p_adjusted", "n": "n"}
PAIR |= {"least": "minimum_detectable"}
PAIR |= {"difference": "difference", "difference, from": "low", "difference, to": "high"}
PAIR_SHARES = ("difference", "difference, from", "difference, to", "least")


def _compared(record: dict[str, Any]) -> dict[str, Any]:
    """Of a record of ``compare --json``: the interval that belongs to its adjusted p."""
    low, high = record.get("ci95_adjusted") or record["ci95"]
    part = record["metric"] if record["metric"] != "score" else None
    task = " · ".join(filter(None, (record["task"], part)))
    return {**record, "low": low, "high": high, "task": task or None}


def _of_export(name: str, rows: Sequence[dict[str, Any]]) -> Iterator[Face]:
    """``figures`` of an export: a row for each model, task and metric."""
    for metric, columns in (("score", SCORE), ("accuracy", LABEL), ("strength", STRENGTH)):
        names = {"strength": "pairwise strength"}.get(metric, rf"{metric}\b.*")
        records = [
            {**row, metric: row["value"], "student": row["model"], "task": row["task"] or None}
            for row in rows
            if re.fullmatch(names, str(row["metric"]))
        ]
        yield of_records(name, records, {**columns, **(COUNTS if metric == "score" else {})}, SHARES)


def _measured(measures: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Scores of ``measures.json``, overall and by task."""
    for student, one in measures["students"].items():
        n, missing, ends = one["n"], one["missing"], one["ci95"]
        low, high = ends["score"] or (None, None)
        fields = {"student": student, "low": low, "high": high, "mean_recorded": one["mean_recorded"]}
        yield {**fields, "score": one["score"], "n": n["score"], "missing": missing["score"]}
        for task, score in one["score_by_task"].items():
            low, high = ends["score_by_task"][task] or (None, None)
            fields = {"student": student, "task": task, "score": score, "low": low, "high": high}
            recorded = one["mean_recorded_by_task"][task]
            yield {**fields, "n": n["score_by_task"][task], "mean_recorded": recorded}


def _number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell or None


def names_of(folder: Path) -> FolderNames:
    results = json.loads(called("results", folder, "--json"))
    students, labels = results["students"], results["labels"]
    models = [one["student"] for one in (*students, *labels, *results["pairs"])]
    models += [one["model"] for one in results["costs"]]
    scored = {one["task"]: one["score"] is not None for one in students if one["task"]}
    tasks = dict.fromkeys([*scored, *(one["task"] for one in labels)])
    labelled = frozenset(task for task in tasks if not scored.get(task))
    return FolderNames(tuple(dict.fromkeys(models)), tuple(tasks), labelled)


# --- Runs: every figure, in every face

TOPICS = {
    "score": r"(score|mean recorded)\b.*", "accuracy": r"accuracy\b.*", "strength": r"strength\b.*",
    "rank": "rank",
    "counts": "n|n of pair|failed|missing", "difference": r"(difference|gap)\b.*", "p": "p|p over judges",
    "least": "least",
    "verdict": "verdict", "cost": "cost|price",
}  # fmt: skip
LEAST = {
    "balanced": ("score", "rank", "counts", "difference", "p", "least", "verdict", "cost"),
    "labels_alone": ("accuracy", "counts", "difference", "p", "least", "verdict", "cost"),
    "pairwise": ("strength", "rank", "counts", "cost"),
    "one_student": ("score", "counts", "cost"),
    "mixed": ("score", "accuracy", "rank", "counts", "difference", "p", "least", "verdict", "cost"),
}
"""Topics that the folders have, the others as the first."""
_PAGES = {"page", "view, page"}
_REPORTS = {"results --markdown", "results --latex", "workbook", "notebook", *_PAGES}
_FILES = {"results --json", "Run.results()", "export csv", "export parquet", "measures.json"}
_COMPARED = {"compare", "compare --json", "compare --markdown"}
SHOWN_BY = {
    "score": {"results", "analyze", *_REPORTS, "view, list", *_FILES},
    "accuracy": {"results", "analyze", *_REPORTS, "export csv"},
    "rank": {"analyze", *_PAGES, "workbook", "measures.json"},
    "difference": {*_COMPARED, *_PAGES, "workbook", "results, sentence", "analyze, sentence"},
    "p": {*_COMPARED, *_PAGES, "workbook"},
    "least": {*_COMPARED, *_PAGES, "workbook"},
    "verdict": {f"{face}, sentence" for face in ("results", "analyze", "compare", *_PAGES, "notebook")},
    "cost": {"results", "status", *_PAGES, "workbook", "notebook"},
}
"""The faces in which a run with scores and labels has to show a topic: a reader that finds nothing fails."""
CASES = [(name, topic) for name in RUNS for topic in LEAST.get(name, LEAST["balanced"])]

SOON = ("missing_judges", "mixed", "labels_alone")
"""Runs of which all faces are read in ``make test``; of the others in ``make test-system``."""


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [] if name in SOON else [pytest.mark.system]


def _runs() -> list[Any]:
    return [pytest.param(name, marks=_marks(name), id=name) for name in RUNS]


_FIGURES: dict[Path, Figures] = {}


@pytest.fixture
def figures(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Figures]:
    """All figures of a run's faces; read once by each worker."""

    def read(name: str) -> Figures:
        [folder] = folders.paths[name]
        if folder not in _FIGURES:
            with chdir(folders.work):
                faces = faces_of_run(folder, tmp_path_factory.mktemp(name))
                _FIGURES[folder] = _figures(faces, names_of(folder))
        return _FIGURES[folder]

    return read


@pytest.mark.parametrize(
    ("name", "topic"), [pytest.param(*case, marks=_marks(case[0]), id="-".join(case)) for case in CASES]
)
def test_a_figure_is_the_same_in_every_face(figures: Callable[[str], Figures], name: str, topic: str) -> None:
    of_topic = {key: shown for key, shown in figures(name).items() if re.fullmatch(TOPICS[topic], key[0])}
    faces = {one.face for shown in of_topic.values() for one in shown}
    expected = SHOWN_BY.get(topic, set()) if name == "mixed" else set()
    assert len(faces) > 1
    assert faces >= expected, f"{expected - faces} show no {topic}"
    assert not (found := contradictions(of_topic)), "\n".join(found)


@pytest.mark.parametrize("name", _runs())
def test_a_terminal_of_80_columns_shows_the_figures_of_a_wide_one(folders: Folders, name: str) -> None:
    [folder] = folders.paths[name]
    for command in ("results", "analyze", "compare"):
        with chdir(folders.work):
            wide = _decimals(called(command, folder))
        words = [sys.executable, "-m", "coeval", command, folder]
        seen = on_terminal(words, 80, cwd=folders.work, rows=400, out_piped=False)
        narrow = _decimals(" ".join(seen.screen))
        assert narrow >= wide, (command, sorted(wide - narrow))


def _decimals(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.-])\d+\.\d+(?![\w.-])", text))


@pytest.mark.parametrize("name", _runs())
def test_a_figure_of_a_sentence_of_the_page_stands_in_one_of_its_tables(folders: Folders, name: str) -> None:
    """Of the report's data; the page that is written of it has its sentences."""
    with chdir(folders.work), open_folder_report(folders.paths[name][0]) as found:
        page = of_html("page", make_page(found.report).decode())
        viewed = [*_of_view(folders.paths[name][0])][-1]
    assert not _absent(of_report("page", found.report), found.report.shown_names.key)
    assert not _absent(viewed, found.report.shown_names.key.values())
    shown = {found.report.shown_names.text(sentence.text) for sentence in found.report.lead}
    for face in (page, viewed):
        assert {" ".join(sentence.split()) for sentence in face.sentences} >= shown


@pytest.mark.parametrize("name", _runs())
@pytest.mark.parametrize("command", ["results", "analyze"])
def test_a_figure_of_who_leads_stands_in_a_table_below(folders: Folders, name: str, command: str) -> None:
    [folder] = folders.paths[name]
    with chdir(folders.work), open_folder_report(folder) as found:
        face = of_terminal(command, called(command, folder))
    leads = [
        said
        for said in face.sentences
        if re.search(r"points ahead of|the gap is|allowing for other judges", said)
    ]
    assert not _absent(face._replace(sentences=leads), found.report.shown_names.key.values())


def _absent(face: Face, models: Iterable[str]) -> set[str]:
    """The decimals in sentences that are in no cell."""
    cells = " ".join(str(cell) for table in face.tables for row in table.rows for cell in row)
    said = " ".join(face.sentences)
    for model in sorted(models, key=len, reverse=True):
        said = said.replace(model, "")
    return _decimals(said) - _decimals(cells)


# --- Two sides: of two runs, and before a gate


@pytest.mark.parametrize("name", _runs())
def test_a_gate_prints_the_differences_of_compare(folders: Folders, tmp_path: Path, name: str) -> None:
    [folder] = folders.paths[name]
    (policy := tmp_path / "gate.yaml").write_text("max_drop: 5")
    with chdir(folders.work):
        names = names_of(folder)
        if len(pair := names.models[:2]) < 2 or name in {"one_student", "pairwise"}:
            pytest.skip("a student alone is held against nobody, pairwise judging has no scores")
        words = folder, "--students", ",".join(pair)
        gated = (*words, "--policy", policy)
        faces = [
            of_terminal("gate", called("gate", *gated)),
            of_records("gate --json", _gated(called("gate", *gated, "--json")), PAIR, PAIR_SHARES),
            *_compared_faces(words, tmp_path),
        ]
        markdown = of_markdown("gate --markdown", called("gate", *gated, "--markdown"))
    titled = [table._replace(title=faces[0].tables[0].title) for table in markdown.tables]
    found = _figures([*faces, markdown._replace(tables=titled)], names)
    printed = {one.face for key, shown in found.items() if key[0] == "difference" for one in shown}
    assert printed >= {"gate", "gate --json", "gate --markdown", "compare", "compare --json"}
    assert not (differing := contradictions(found)), "\n".join(differing)


def test_two_runs_compared_have_the_same_figures_in_every_face(folders: Folders, tmp_path: Path) -> None:
    runs = [*folders.paths["balanced"], *folders.paths["missing_judges"]]
    with chdir(folders.work):
        compared = json.loads(called("compare", *runs, "--json"))
        faces = [*_compared_faces(runs, tmp_path)]
    tasks = dict.fromkeys(one["task"] for one in compared["comparisons"] if one["task"])
    names = FolderNames((*compared["sides"],), (*tasks,))
    found = _figures(faces, names)
    for name in ("difference", "difference low", "p", "least", "n of pair"):
        printed = {one.face for key, shown in found.items() if key[0] == name for one in shown}
        assert printed == {*_COMPARED, "page", "workbook"}, name
    assert not (differing := contradictions(found)), "\n".join(differing)
    assert not [face.name for face in faces if face.name != "workbook" and _absent(face, names.short)]


def test_a_figure_of_a_sentence_on_sweeps_stands_in_a_table_beside_it(
    folders: Folders, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    with chdir(folders.work):
        terminal = of_terminal("compare", called("compare", *folders.paths["two_sweeps"], "--html", page))
    for face in (terminal, of_html("page", page.read_text())):
        said = " ".join(face.sentences)
        assert "the largest gap" in said
        assert not _absent(face, ())


def _gated(text: str) -> Iterator[dict[str, Any]]:
    """The tasks of a gate's candidate, as rows of ``compare --json``."""
    [candidate] = json.loads(text)["candidates"]
    for one in candidate["tasks"]:
        task = None if one["place"] == "overall" else one["place"]
        yield {**one, "a": candidate["base"], "b": candidate["candidate"], "task": task}


def _compared_faces(words: Sequence[object], out: Path) -> Iterator[Face]:
    yield of_terminal("compare", called("compare", *words))
    yield of_markdown("compare --markdown", called("compare", *words, "--markdown"))
    page, book = out / "page.html", out / "book.xlsx"
    compared = json.loads(called("compare", *words, "--json", "--html", page, "--excel", book))
    yield of_records("compare --json", map(_compared, compared["comparisons"]), PAIR, PAIR_SHARES)
    yield of_html("page", page.read_text())
    yield of_workbook("workbook", openpyxl.load_workbook(book))


def _figures(faces: Iterable[Face], names: FolderNames) -> Figures:
    found: Figures = defaultdict(list)
    for face in faces:
        for key, shown in figures_of(face, names).items():
            found[key] += shown
    return found


# --- Sweeps and benchmarks


def _collect(shown: Iterator[tuple[str, Key, Any]]) -> Figures:
    """Figures by key, from what each face holds: a number of a file in points, or a printed cell."""
    found: Figures = defaultdict(list)
    for face, key, cell in shown:
        for part, figure in cell_figures("", cell):
            found[*key, part.strip()].append(Shown(face, figure))
    return found


def _checkpoints(sweeps: Sequence[Path], out: Path) -> Iterator[tuple[str, Key, Any]]:
    """The score of each checkpoint, overall and by task: (run, step, task)."""
    page = out / "page.html"
    compared = json.loads(called("compare", *sweeps, "--json", "--html", page))
    for one in compared["overall"]:
        key = (one["run"], str(one["step"]), "overall")
        yield "compare --json", key, 100 * one["mean"]
    for choice in compared["choices"]:
        key = (choice["best"]["run"], str(choice["best"]["step"]), choice["task"] or "overall")
        yield "compare --json, best", key, 100 * choice["mean"]
    for table in of_html("page", page.read_text()).tables:
        heads = [head.lower() for head in table.head]
        for row in table.rows if {"run", "step", "task"} <= {*heads} else ():
            cells = dict(zip(heads, row, strict=True))
            yield "page", (cells["run"], cells["step"], cells["task"]), cells["mean"].partition(" [")[0]
    for table in of_terminal("compare", called("compare", *sweeps)).tables:
        if found := re.fullmatch(r"(\S+), a: (\S+), b: (\S+)", table.title):
            for step, a, b, *_ in table.rows:
                yield "compare", (found[2], step, found[1]), a
                yield "compare", (found[3], step, found[1]), b
    for sweep in sweeps:
        [markdown] = of_markdown("results", called("results", sweep, "--markdown")).tables
        for step, *scores in markdown.rows:
            for task, score in zip(markdown.head[1:], scores, strict=True):
                yield "results --markdown", (sweep.name, step, task), score.partition(" [")[0]


def test_a_checkpoint_has_one_score(folders: Folders, tmp_path: Path) -> None:
    with chdir(folders.work):
        found = _collect(_checkpoints(folders.paths["two_sweeps"], tmp_path))
    assert len(found) == 2 * len(STEPS) * 3
    assert {len({one.face for one in shown}) for shown in found.values()} >= {3, 4}
    assert not (differing := contradictions(found)), "\n".join(differing)


def test_the_list_of_view_has_the_scores_of_checkpoints(folders: Folders, tmp_path: Path) -> None:
    sweeps = folders.paths["two_sweeps"]
    with chdir(folders.work):
        tables = {**_collect(_checkpoints(sweeps, tmp_path))}
    with viewing(*sweeps, folder=folders.work) as server:
        listed = server.wait_for("/api/folders", _summarised)
    assert len(listed) == 2 * len(STEPS)
    for one in listed:
        run, _, step = one["name"].partition("/step_")
        score = Shown("view", Printed(100 * one["summary"]["best"]["score"]))
        tables[run, step, "overall", ""].append(score)
    assert not (differing := contradictions(tables)), "\n".join(differing)


def _summarised(folders: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    return folders if all(one["summary"] for one in folders) else None


def _metrics(folder: Path, out: Path) -> Iterator[tuple[str, Key, Any]]:
    """The metrics of a benchmark's output: (task, metric) and the ends of their intervals."""
    results = json.loads(called("results", folder, "--json"))["metrics"]
    frame = open_run(folder).results().frame("metrics").to_dict("records")
    called("export", folder, "--to", "csv", "--out", out / "csv")
    with (out / "csv" / "figures.csv").open() as file:
        exported = [{name: _number(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    for name, records in (("results --json", results), ("Run.results()", frame), ("export", exported)):
        for one in records:
            for end in ("value", "low", "high"):
                yield name, (one["task"], one["metric"], end), 100 * one[end]
            yield name, (one["task"], one["metric"], "n"), one["n"]
    called("analyze", "all", "--run", folder, "--format", "excel", "--out", out)
    tables = of_workbook("workbook", openpyxl.load_workbook(out / "report.xlsx")).tables
    table = next(each for each in tables if "Metric" in each.head)
    for row in table.rows:
        cells = dict(zip(table.head, row, strict=True))
        for name, end in (("Points", "value"), ("Points, from", "low"), ("Points, to", "high"), ("n", "n")):
            yield "workbook", (cells["Task"], cells["Metric"], end), cells[name]
    with open_folder_report(folder) as found:
        page = of_report("page", found.report)
    for face in (page, of_html("notebook", open_run(folder)._repr_html_())):
        for table in face.tables:
            heads = [head.lower() for head in table.head]
            for row in table.rows if {"task", "metric", "n"} <= {*heads} else ():
                cells = dict(zip(heads, row, strict=True))
                key = cells["task"], cells["metric"]
                yield face.name, (*key, "n"), cells["n"]
                yield face.name, (*key, "value"), (cells.get("points") or cells["value"]).partition(" ")[0]
    names = [(one["task"], one["metric"]) for one in results]
    for command in ("results", "analyze"):
        task = ""
        for line in called(command, folder).splitlines():
            words = line.split()
            task = next((each for each, _ in names if words and each in (words[0], words[-1])), task)
            if words and (task, words[0]) in names:
                yield command, (task, words[0], "value"), words[1]
                yield command, (task, words[0], "low"), words[2].strip("[,")
                yield command, (task, words[0], "high"), words[3].strip("],")


def test_a_metric_is_the_same_in_every_face(folders: Folders, tmp_path: Path) -> None:
    for folder in folders.paths["benchmark"]:
        with chdir(folders.work):
            found = _collect(_metrics(folder, tmp_path / folder.name))
        assert len(found) == 5 * 4
        assert min(len(shown) for shown in found.values()) >= 4
        assert not (differing := contradictions(found)), "\n".join(differing)


def test_compared_outputs_have_the_values_of_their_metrics(folders: Folders, tmp_path: Path) -> None:
    outputs = folders.paths["benchmark"]

    def shown() -> Iterator[tuple[str, Key, Any]]:
        values = {}
        for folder in outputs:
            for one in reversed(json.loads(called("results", folder, "--json"))["metrics"]):
                values[one["model"], one["task"]] = 100 * one["value"]
        for key, value in values.items():
            yield "results --json", key, value
        compared = json.loads(called("compare", *outputs, "--json", "--html", tmp_path / "page.html"))
        names = FolderNames(tuple(dict.fromkeys(model for model, _ in values)), ())
        for one in compared["comparisons"]:
            if (key := (one["b"], one["task"])) in values and one["family"] == "task":
                yield "compare --json", key, 100 * one["mean_b"]
        faces = [
            of_terminal("compare", called("compare", *outputs)),
            of_markdown("compare --markdown", called("compare", *outputs, "--markdown")),
        ]
        for face in faces:
            for table in face.tables:
                for row in table.rows:
                    for head, cell in zip(table.head, row, strict=True):
                        if (model := names.whole(head)) and (model, row[0]) in values:
                            yield face.name, (model, row[0]), cell

    with chdir(folders.work):
        found = _collect(shown())
    assert len(found) == 4
    assert all(len(each) >= 3 for each in found.values())
    assert not (differing := contradictions(found)), "\n".join(differing)
