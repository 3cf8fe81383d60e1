"""Choices of scores: what a page shows of one is what Python measures; scripts compute nothing."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
import pytest
from pipeline.experiments import Lab, model, task
from playwright.sync_api import Browser, Page
from reports.browser import opened, until
from reports.view_process import ViewServer, viewing
from written_run import Run

import coeval
from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.measures.ranking import rank_students
from coeval.analysis.measures.score_choice import make_score_choice, select_chosen_scores
from coeval.analysis.measures.score_grid import ScoreGrid, read_score_grid
from coeval.analysis.measures.student_measures import measure_students
from coeval.core.errors import UsageError
from coeval.core.figures import FORMATS, format_figure
from coeval.pipeline.plan.run_reading import open_run_reader
from coeval.reports.content import Report, ReportTable, format_rows
from coeval.reports.experiment.run_choices import RunChoices
from coeval.reports.folder_report import open_folder_report
from coeval.reports.site.page import encode_choice_json
from coeval.reports.site.report_file import write_report_and_measures
from coeval.store.rundir import RunDir

DEFAULT: dict[str, Any] = {"second": {"rubric": {"style": "It reads well.", "depth": "It goes deep."}}}
# Checks and weights in one task, checks alone in another, and scales of their own.
MIXED: dict[str, Any] = {
    "story": {
        "rubric": {
            "tone": "It is kind.",
            "depth": {"criterion": "It goes deep.", "scale": "1-5"},
            "words": {"check": "length", "most": 60, "unit": "words"},
            "like": {"check": "similarity"},
        },
        "weights": {"depth": 2, "like": 0.5},
    },
    "second": {"rubric": {"style": "It reads well.", "plot": {"criterion": "It has one.", "scale": "0-10"}}},
    "third": {"rubric": {"words": {"check": "length", "most": 60, "unit": "words"}}},
}


def run_of(folder: Path, own: dict[str, Any]) -> Lab:
    """Students near the end of the scale, in the middle and alike, with gaps; two judge themselves."""
    models = [
        model("ann", skill=0.97),
        model("ben", skill=0.95, failure_rate=0.2),
        model("cem", "student", skill=0.4),
        model("dot", "student", skill=0.38),
        model("eve", "judge", noise=0.3),
    ]
    tasks = [
        task(name, total=total, **own.get(name, {}))
        for name, total in (("story", 9), ("second", 5), ("third", 2))
    ]
    made = Lab(folder, models, tasks, {"generation_retries": 0, "probe_on_fail": "warn"})
    made.run()
    return made


@pytest.fixture(scope="module", params=[DEFAULT, MIXED], ids=["judged", "mixed"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    made = run_of(tmp_path_factory.mktemp("choices"), request.param)
    write_report_and_measures(made.path, made.path)
    return made


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return run_of(tmp_path_factory.mktemp("judged"), DEFAULT)


def choices_of(folder: Path) -> RunChoices:
    with open_folder_report(folder) as found:
        assert found.choices is not None
        return found.choices


@pytest.fixture(scope="module")
def choices(lab: Lab) -> RunChoices:
    return choices_of(lab.path)


@pytest.fixture(scope="module")
def page(browser: Browser, lab: Lab) -> Iterator[Page]:
    seen = opened(browser, lab.path / "report.html")
    yield seen.page
    seen.leave()


# --- A choice is measured as a run of its scores alone


def students_of(grid: ScoreGrid) -> Any:
    """All that is measured of students, but for names of which nothing is."""
    ranks, scores = rank_students(grid)
    gaps = [*ranks.differences.items()]
    return there(msgspec.to_builtins([measure_students(grid, scores), ranks.order, ranks.ranges, gaps]))


def there(value: Any) -> Any:
    if not isinstance(value, dict):
        return [there(part) for part in value] if isinstance(value, list | tuple) else value
    return {name: found for name, part in value.items() if (found := there(part)) not in ({}, 0)}


@pytest.mark.parametrize(
    ("query", "left_out"),
    [
        ("task=story&task=second", ["*/third.*"]),
        ("judge=ann&judge=eve", ["*/*.ben.evaluations.jsonl"]),
        ("teacher=ben", ["*/*.ann.datapoints.jsonl"]),
        ("task=story&judge=eve", ["*/second.*", "*/third.*", "*/*.ann.eval*", "*/*.ben.eval*"]),
    ],
)
def test_a_choice_is_measured_as_a_run_that_has_no_other_scores(
    judged: Lab, tmp_path: Path, query: str, left_out: list[str]
) -> None:
    shutil.copytree(judged.path, tmp_path / "part")
    for path in (tmp_path / "part").glob("config.yaml"):
        path.unlink()  # what is on record counts, whatever was planned
    shutil.copytree(tmp_path / "part", tmp_path / "whole")
    for pattern in left_out:
        for path in (tmp_path / "part").glob(pattern):
            path.unlink()
    with open_run_reader(RunDir(tmp_path / "whole")) as (reader, _):
        whole = read_score_grid(reader)
    with open_run_reader(RunDir(tmp_path / "part")) as (reader, _):
        part = read_score_grid(reader)
    chosen = select_chosen_scores(whole, make_score_choice(whole, parse_qsl(query)))
    assert students_of(chosen) == students_of(part)


def test_values_of_an_attribute_are_a_union_and_attributes_a_cut(choices: RunChoices) -> None:
    grid = choices.evidence.measured.grid
    ids = {value: {grid.items.ids[at] for at in items} for value, items in grid.items.attributes.items()}
    glad, sad, short = ids["mood=glad"], ids["mood=sad"], ids["length=short"]
    for query, needed in (
        ("attribute=mood=glad&attribute=mood=sad", glad | sad),
        ("attribute=mood=glad&attribute=length=short", glad & short),
    ):
        choice = make_score_choice(grid, [("attribute", part.partition("=")[2]) for part in query.split("&")])
        assert set(select_chosen_scores(grid, choice).items.ids) == needed


def test_a_choice_of_a_variant_has_its_students_alone(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for n in range(1, 5):
        for student, level in (("ann@brief", "High"), ("ann@plain", "Low"), ("ben@brief", "Medium")):
            run.judged(n, student, "j1", {"plot": level})
    found = choices_of(run.folder)
    assert {("variant", "brief"), ("variant", "plain")} <= set(found.single)
    of_brief = found.report_choice([("variant", "brief")])
    assert [row[0] for row in of_brief.table("students").rows] == ["ann@brief", "ben@brief"]
    [rows] = [table.rows for table in tables_of(of_brief) if table.name == "differences"]
    assert [row[:2] for row in rows] == [("ann@brief", "ben@brief")]


@pytest.mark.parametrize(
    "pairs",
    [
        [("student", "ann")],
        [("task", "story"), ("task", "nowhere")],
        [("task", "story' OR 1=1 --")],
        [("__proto__", "x")],
        [("attribute", "mood")],
        [("", "")],
    ],
)
def test_what_no_score_has_cannot_be_chosen(choices: RunChoices, pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(UsageError):
        choices.report_choice(pairs)


def test_single_choices_are_names_of_which_there_are_several_and_few_values(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for n in range(1, 15):
        attributes = {"id": str(n), "mood": ("glad", "sad")[n % 2], "all": "one"}
        run.datapoint(n, sampled_target_attributes=attributes)
        for student in ("ann", "ben"):
            run.response(n, student)
            run.evaluation(n, student, "j1", {"plot": "High", "style": "Low"})
    assert choices_of(run.folder).single == [
        ("factor", "plot"), ("factor", "style"), ("attribute", "mood=glad"), ("attribute", "mood=sad"),
    ]  # fmt: skip


def test_costs_and_times_are_those_of_the_chosen_answers(tmp_path: Path) -> None:
    """Half of one student's answers have no price, and the other has a price in one task alone."""
    models = [model("tea", "teacher", "judge"), model("ann", "student"), model("ben", "student", skill=0.4)]
    made = Lab(tmp_path, models, [task(total=6), task("saga", total=5)])
    made.run()
    spent: dict[tuple[str, str], list[tuple[float | None, float]]] = {}
    for path in sorted((made.path / "phase4_responses").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for nth, line in enumerate(lines):
            student, of_task = line["student_model_id"], line["task_id"]
            known = nth % 2 == 0 if student == "ann" else of_task == "saga"
            figures = (0.001 * (nth + 1) if known else None, 1.0 + nth)
            line["usage"], line["latency_s"] = {**line["usage"], "cost_usd": figures[0]}, figures[1]
            spent.setdefault((student, of_task), []).append(figures)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = choices_of(made.path)
    for names in (["story"], ["saga"], ["saga", "story"]):
        front = found.report_choice([("task", name) for name in names]).front
        assert front is not None
        for row in front.to_flat_dicts():
            each = [one for name in names for one in spent[row["student"], name]]
            usd = [1000 * one for one, _ in each if one is not None]
            assert row["usd"] == (pytest.approx(mean(usd)) if usd else None)
            assert row["seconds"] == median(seconds for _, seconds in each)


# --- The page shows what Python says


def tables_of(report: Report) -> list[ReportTable]:
    return [table for section in report.sections for table in section.tables if table.rows]


def shown_in(page: Page) -> dict[str, Any]:
    """The sentences, the forest and the first rows of tables, as people read them."""
    shown: dict[str, Any] = page.evaluate(
        """() => ({
            said: [...document.querySelectorAll("#lead > .said")].map((one) => one.textContent.trim()),
            forest: [...document.querySelectorAll("#lead .forest tbody tr")].map((line) =>
                [...line.querySelectorAll(":scope > :not(.plot)")].map((cell) => cell.textContent.trim())),
            tables: Object.fromEntries([...document.querySelectorAll("table[data-table]")].map((table) =>
                [table.dataset.table, [...table.tBodies[0].rows].map((line) =>
                    [...line.cells].map((cell) => cell.title || cell.textContent))])),
        })"""
    )
    return shown


def differs(shown: dict[str, Any], report: Report) -> list[str]:
    """Where the page shows something else than Python says."""
    wrong = []
    if shown["said"] != [report.shown_names.text(said.text) for said in report.lead]:
        wrong.append(f"{shown['said']}: {report.lead} expected")
    front = [] if report.front is None else format_rows(report.front.columns, report.front.rows)
    if shown["forest"] != [[report.shown_names.text(text) for text in texts] for texts in front]:
        wrong.append(f"{shown['forest']}: {front} expected")
    for table in tables_of(report):
        if table.name not in shown["tables"]:
            continue  # the whole run has no such table: one judge alone, or one teacher
        needed = format_rows(table.columns, table.chosen_rows)[:60]
        lines = shown["tables"][table.name]
        wrong += [
            f"{table.name} {line}: {texts} expected"
            for line, texts in zip(lines, needed, strict=True)
            if line != texts
        ]
    return wrong


def choose(page: Page, query: str) -> None:
    page.locator("#choices").select_option(query)
    until(page, "query => location.hash.includes(query)", query)


def until_shown(page: Page, report: Report) -> None:
    """Wait until the page says what is chosen, and hold it to Python's figures."""
    status = "text => document.getElementById('filter-status').textContent === text"
    until(page, status, report.facts[0])
    assert differs(shown_in(page), report) == []


@pytest.mark.system
def test_a_chosen_slice_shows_exactly_the_figures_of_python(
    page: Page, choices: RunChoices, lab: Lab
) -> None:
    page.goto((lab.path / "report.html").as_uri())
    whole = shown_in(page)
    compared = 0
    for pair in choices.single:
        choose(page, urlencode([pair]))
        found = choices.report_choice([pair])
        until_shown(page, found)
        compared += sum(len(table.rows) for table in tables_of(found))
    assert compared > 300
    assert page.locator("#judges > .of-whole-run").is_visible()
    page.locator("#choices").select_option("")
    until(page, "!document.body.classList.contains('filtered')")
    assert shown_in(page) == whole


def test_rows_of_a_page_are_rounded_only_as_far_as_nobody_reads(choices: RunChoices) -> None:
    found = choices.report_choice([("task", "story")])
    data = json.loads(encode_choice_json(found, choices.evidence.students))
    for table in tables_of(found):
        for cells, texts, row in zip(
            data["tables"][table.name]["rows"],
            format_rows(table.columns, table.rows),
            table.rows,
            strict=True,
        ):
            shown = [
                Measured(cell[0], cell[1], cell[2], cell[3], None) if isinstance(cell, list) else cell
                for cell in cells
            ]
            assert format_rows(table.columns, [shown]) == [texts], row


@pytest.mark.system
def test_a_choice_stands_in_the_address_and_in_a_chip(page: Page, lab: Lab) -> None:
    address = (lab.path / "report.html").as_uri()
    rows = page.locator('table[data-table="students"] tbody tr')
    page.goto("about:blank")
    page.goto(f"{address}#leads?task=story&by=by+task")
    page.locator("#filter-status:not(:empty)").wait_for()
    chip = page.locator("#chips button")
    assert (chip.inner_text(), page.locator("#choices").input_value()) == ("task story ×", "task=story")
    link = rows.first.locator("a").get_attribute("href") or ""
    assert {"task=story"} <= set(link.split("?")[1].split("&"))
    choose(page, "judge=ann")
    assert "task=story" not in page.evaluate("location.hash"), "it takes the place of another"
    page.reload()
    page.locator("#chips button", has_text="judge ann").wait_for()
    page.go_back()
    page.locator("#chips button", has_text="task story").wait_for()
    chip.click()
    until(page, "!document.body.classList.contains('filtered')")
    assert "task=story" not in page.evaluate("location.hash")
    assert "run coeval view" in page.locator("#filters").inner_text(), "the way to combinations"
    page.goto(f"{address}#leads?task=story&judge=ann")
    page.locator("#filter-status", has_text="For combinations, run coeval view.").wait_for()
    assert not page.evaluate("document.body.classList.contains('filtered')")


@pytest.mark.system
def test_pictures_follow_a_choice(page: Page, lab: Lab, choices: RunChoices) -> None:
    page.goto("about:blank")
    page.goto(f"{(lab.path / 'report.html').as_uri()}#leads?judge=ann")
    forest = page.locator("#forest")
    forest.locator("svg").wait_for()
    forest.get_by_role("button", name="without own", exact=True).press("Enter")
    until(page, "location.hash.includes('scores=without+own')")
    assert "judge=ann" in page.evaluate("location.hash")
    labels = "document.querySelectorAll('#forest svg .role-axis-label text')"
    shown = f"[...{labels}].map((one) => one.textContent)"
    has_ann = (
        "" if choices.evidence.measured.grid.checked is not None else "!"
    )  # checks score whom nobody else judges
    until(page, f"{shown}.includes('ben') && {has_ann}{shown}.includes('ann')")
    choose(page, "judge=eve")
    until(page, f"{shown}.includes('ann')")  # eve is no student: nothing is left out
    page.locator("#choices").select_option("")
    until(page, "!document.body.classList.contains('filtered')")


@pytest.mark.system
def test_a_choice_is_handed_on_to_items_and_back(page: Page, lab: Lab) -> None:
    page.goto("about:blank")
    page.goto(f"{(lab.path / 'report.html').as_uri()}#where?task=story&by=by+task")
    page.locator("#filter-status:not(:empty)").wait_for()
    chips = page.locator(".items .chips button")
    page.locator("nav ul a", has_text="Items").click()
    until(page, "location.hash.startsWith('#items?task=story')")
    chips.first.wait_for()
    assert [text.removesuffix(" ×") for text in chips.all_inner_texts()] == ["task story"]
    choose(page, "task=second")
    page.locator(".items .chips button", has_text="task second").wait_for()
    page.locator("table.rows a").first.click()
    page.locator(".items .walk h3").wait_for()
    page.reload()
    page.locator(".items .walk h3").wait_for()
    page.locator("#filter-status:not(:empty)").wait_for()
    state = page.evaluate("new URLSearchParams(location.hash.slice(7)).get('report')")
    assert dict(parse_qsl(state)) == {"task": "second", "by": "by task"}
    page.locator("nav ul a", has_text="Where?").click()
    until(page, "location.hash.startsWith('#where?')")
    assert dict(parse_qsl(page.evaluate("location.hash.slice(7)"))) == dict(parse_qsl(state))
    page.go_back()
    page.locator(".items .walk h3").wait_for()
    page.go_back()
    page.locator("table.rows").wait_for()
    page.locator(".items details.menus summary").click()
    said = page.locator("#filter-status").inner_text()
    page.locator(".items .chips button", has_text="task second").click()
    page.locator(".items select[data-key=teacher]").select_option("ben")
    assert page.locator("#filter-status").inner_text() == said, "a choice of items is not the page's"
    page.get_by_role("link", name="Figures of this choice").click()
    until(page, "location.hash.startsWith('#leads?teacher=ben')")
    page.locator("#chips button", has_text="teacher ben").wait_for()


@pytest.mark.system
def test_numbers_are_rounded_as_python_rounds_them(page: Page) -> None:
    numbers = [n / 16 for n in range(-40, 41)] + [random.Random(3).uniform(-2, 2) for _ in range(200)]
    numbers += [0.285, 2.675, 1.005, 0.0004, -0.0004]
    for digits in (1, 2, 3):
        shown = page.evaluate(
            "given => given[0].map((n) => coevalPage.fixed(n, given[1]))", [numbers, digits]
        )
        texts = [f"{number:.{digits}f}" for number in numbers]
        assert shown == [t.replace("-", "−") if float(t) else t.removeprefix("-") for t in texts]
    numbers += [*(10.0**n for n in range(-6, 7)), 23591.2378, 1234.5, 38, 0]
    for kind in FORMATS:
        shown = page.evaluate("given => given[0].map((n) => coevalPage.figure(n, given[1]))", [numbers, kind])
        assert shown == [format_figure(number, kind) for number in numbers], "as on the terminal"


# --- `coeval view` answers any combination


@pytest.fixture(scope="module")
def server(lab: Lab) -> Iterator[ViewServer]:
    with viewing(lab.path, folder=lab.folder) as found:
        found.ready()
        found.wait_for_text("/f/0/report", 'id="choices"')
        yield found


@pytest.mark.system
def test_view_shows_the_figures_of_a_combination(
    browser: Browser, server: ViewServer, choices: RunChoices
) -> None:
    pairs = [("task", "story"), ("judge", "ann"), ("judge", "eve")]
    answered = server.ask(f"/f/0/api/figures?{urlencode(pairs)}")
    needed = choices.report_choice(pairs)
    assert answered.value == json.loads(encode_choice_json(needed, choices.evidence.students))
    seen = opened(browser, server.address, f"f/0/report?token={server.token}")
    page = seen.page
    assert "data-choice" not in page.content(), "the server computes what is chosen"
    for pair in pairs:
        choose(page, urlencode([pair]))
    chips = page.locator("#chips button")
    until(page, "document.querySelectorAll('#chips button').length === 3")
    until_shown(page, needed)
    page.reload()
    until_shown(page, needed)
    chips.first.click()
    two = choices.report_choice(pairs[1:])
    until_shown(page, two)
    seen.leave()


@pytest.mark.system
@pytest.mark.parametrize(
    "query",
    [
        "student=ann",
        "task=nowhere",
        "task=..%2F..%2Fetc%2Fpasswd",
        "judge=%3Cscript%3E",
        "attribute=%00",
        "=",
        "&".join(["task=story"] * 1_000)[:7_000],
    ],
)
def test_view_refuses_what_cannot_be_chosen(server: ViewServer, query: str) -> None:
    said = server.ask(f"/f/0/api/figures?{query}")
    assert said.status == 400
    assert said.headers["Content-Type"].startswith("application/json")
    assert server.ask(f"/f/0/api/figures?{query}", headers={"Authorization": ""}).status == 403
    assert server.ask("/f/0/api/figures?task=story").status == 200


# --- Scripts compute no statistics


def test_no_script_computes_an_interval_a_p_value_or_a_rank() -> None:
    """What statistics take: roots, logarithms, distributions, draws, sorted ranks."""
    folder = Path(coeval.__file__).parent
    scripts = {path.relative_to(folder): path.read_text(encoding="utf-8") for path in folder.rglob("*.js")}
    assert scripts
    words = r"Math\.(?:sqrt|hypot|log|log10|exp|pow|random|tanh|cbrt)\b|\*\* ?0\.5"
    words += r"|(?i:quantile|variance|covariance|wilson|student_?t|\bholm|bonferroni|erf\b|gamma\()"
    found = {
        f"{path}: {match.group()}" for path, text in scripts.items() for match in re.finditer(words, text)
    }
    assert found == set()
