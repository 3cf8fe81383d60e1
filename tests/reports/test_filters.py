"""Filters in the page: what the browser computes of the scores in it is what Python computes of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean, median
from typing import Any
from urllib.parse import parse_qsl, urlencode

import numpy as np
import pytest
from pipeline.experiments import Lab, model, task
from playwright.sync_api import Browser, Page
from reports.browser import opened, until

from coeval.analysis.measures.leaders import Context, partial_sentences, score_opening
from coeval.analysis.measures.measured import NOT_MEASURED, Measured
from coeval.analysis.measures.measured_run import MeasuredRun, measure_run
from coeval.analysis.measures.ranking import Ranking, ranking, without_own_measures
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.student_measures import StudentScores, student_measures
from coeval.core.figures import points
from coeval.pipeline.plan.run_reading import reading
from coeval.reports.measure_table import rank_text
from coeval.reports.site.report_file import write_report
from coeval.store.rundir import RunDir

pytestmark = pytest.mark.system


DIMENSIONS = ("task", "teacher", "judge", "factor", "attribute")
NEAR = 1e-9


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
_LENGTH = {"words": {"check": "length", "most": 60, "unit": "words"}}
CHECKED: dict[str, Any] = {
    "story": {"rubric": {**_LENGTH, "like": {"check": "similarity"}}},
    "second": {"rubric": {"like": {"check": "similarity"}}},
    "third": {"rubric": _LENGTH},
}


def run_of(folder: Path, own: dict[str, Any], judges: tuple[dict[str, Any], ...] = ()) -> Lab:
    """Students near the end of the scale, in the middle and alike, with gaps; a task of other factors; some
    items nearly repeat others; ``judges`` beside the two who are students too."""
    models = [
        model("ann", skill=0.97),
        model("ben", skill=0.95, failure_rate=0.2),
        model("cem", "student", skill=0.4),
        model("dot", "student", skill=0.38),
        *judges,
    ]
    tasks = [
        task(name, total=total, **own.get(name, {}))
        for name, total in (("story", 9), ("second", 5), ("third", 2))
    ]
    settings = {"generation_retries": 0, "probe_on_fail": "warn"}
    made = Lab(folder, models, tasks, settings)
    made.run()
    for path in sorted((made.path / "phase3_datapoints").glob("*.jsonl"))[:4]:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        good = [line for line in lines if "prompt" in line]
        for line, other in zip(good[2::3], good[1::3], strict=False):
            line["prompt"] = f"{other['prompt']} Please."
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_report(made.path, made.path)
    return made


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return run_of(tmp_path_factory.mktemp("filters"), DEFAULT)


@pytest.fixture(scope="module")
def measured(lab: Lab) -> MeasuredRun:
    return measured_of(lab)


def measured_of(lab: Lab) -> MeasuredRun:
    with reading(RunDir(lab.path)) as (reader, _):
        return measure_run(reader)


@pytest.fixture(scope="module")
def grid(measured: MeasuredRun) -> ScoreGrid:
    return measured.grid


@pytest.fixture(scope="module")
def page(browser: Browser, lab: Lab) -> Iterator[Page]:
    seen = opened(browser, lab.path / "report.html")
    yield seen.page
    seen.leave()


def chosen(grid: ScoreGrid, choice: dict[str, list[str]]) -> ScoreGrid:
    """The same scores, as if only those had ever been planned."""
    keeps = {name: set(choice.get(name, ())) for name in DIMENSIONS}
    items = np.ones(len(grid.items.ids), bool)
    for dimension, names, of in (
        ("task", grid.tasks, grid.items.task),
        ("teacher", grid.teachers, grid.items.teacher),
    ):
        if keeps[dimension]:
            items &= np.isin(of, [at for at, name in enumerate(names) if name in keeps[dimension]])
    for attribute in {value.partition("=")[0] for value in keeps["attribute"]}:
        members = np.zeros(len(items), bool)
        for value in keeps["attribute"]:
            if value.startswith(f"{attribute}="):
                members[grid.items.attributes[value]] = True
        items &= members
    found = grid.kept(items)
    if keeps["judge"]:
        found = found.judged_by([name for name in grid.judges if name in keeps["judge"]])
    if keeps["factor"]:
        rows = np.isin(found.factor, [at for at, name in enumerate(grid.factors) if name in keeps["factor"]])
        designs = tuple(design._replace(factors=design.factors & keeps["factor"]) for design in found.designs)
        found = found.of_rows(rows)._replace(designs=designs)
    return found


def unlike_measure(row: dict[str, Any], name: str, one: Measured) -> list[str]:
    bounds = None if one.low is None or one.high is None else [one.low, one.high]
    return unlike(row, name, one.value, bounds)


def unlike(row: dict[str, Any], name: str, value: float | None, ci95: list[float] | None) -> list[str]:
    """What of a measure in a row of the page is not what is expected."""
    expected = {name: value, f"{name}_low": ci95 and ci95[0], f"{name}_high": ci95 and ci95[1]}
    return [
        f"{row} {key}: {needed} expected"
        for key, needed in expected.items()
        if (row[key] is None) != (needed is None) or (needed is not None and abs(row[key] - needed) > NEAR)
    ]


def standing(rows: list[dict[str, Any]], students: Mapping[str, StudentScores], ranks: Ranking) -> list[str]:
    """Where the rows of one choice of scores differ from Python's students and ranks."""
    wrong: list[str] = []
    overall = [row for row in rows if row["task"] is None]
    if [row["student"] for row in overall if row["score"] is not None] != list(ranks.order):
        wrong.append(f"{overall}: {ranks.order} expected")
    for row in overall:
        one = students[row["student"]].score
        wrong += unlike_measure(row, "score", one)
        if row["ranks"] != rank_text(ranks.ranges.get(row["student"])):
            wrong.append(f"{row} ranks {ranks.ranges}")
    by_task = [row for row in rows if row["task"] is not None]
    requested = sorted({task for found in students.values() for task in found.score_by_task})
    if sorted({row["task"] for row in by_task}) != requested:
        wrong.append(f"tasks {requested}")
    for row in by_task:
        one = students[row["student"]].score_by_task[row["task"]]
        wrong += unlike_measure(row, "score", one)
    return wrong


def of_standings(rows: list[dict[str, Any]], grid: ScoreGrid) -> list[str]:
    """The same of every choice of scores."""
    (ranks, scores), others = ranking(grid), without_own_measures(grid)
    expected: dict[str, tuple[Mapping[str, StudentScores], Ranking]] = {
        "all scores": (scores, ranks),
        "without own": (others.students, others.ranking),
    }
    if not others.judges:  # nobody who scored itself is chosen: nothing is left out
        expected["without own"] = expected["all scores"]
    elif not others.applicable:
        del expected["without own"]
    wrong = [f"{row}: no such scores" for row in rows if row["scores"] not in expected]
    return wrong + [
        f"{name}: {each}"
        for name, of in expected.items()
        for each in standing([row for row in rows if row["scores"] == name], *of)
    ]


def sentences(grid: ScoreGrid) -> list[str]:
    """The opening of a page of these scores."""
    (ranks, scores), others = ranking(grid), without_own_measures(grid).ranking.order
    many = grid.looks is not None and grid.looks.many
    return score_opening(student_measures(grid, scores), ranks, Context(others, at_any_look=many))


def compared(found: dict[str, Any], grid: ScoreGrid) -> list[str]:
    """Where the page and Python differ."""
    ranks, scores = ranking(grid)
    students = student_measures(grid, scores)
    wrong: list[str] = []
    if found["sentences"] != (said := sentences(grid)):
        wrong.append(f"{found['sentences']}: {said} expected")
    if found["notes"] != list(partial_sentences(ranks)):
        wrong.append(f"{found['notes']}: {list(partial_sentences(ranks))} expected")
    tables = found["tables"]
    if [row["student"] for row in tables["students"] if row["score"] is not None] != list(ranks.order):
        wrong.append(f"order {ranks.order}")
    for row in tables["students"]:
        student = students[row["student"]]
        for column, one in (("score", student.score), ("over_judges", student.over_judges or NOT_MEASURED)):
            wrong += unlike_measure(row, column, one)
        low, high = ranks.ranges.get(row["student"], (None, None))
        if row["ranks"] != (None if low is None else f"{low}" if low == high else f"{low}–{high}"):
            wrong.append(f"{row} ranks {low} {high}")
        least, most = student.bounds or (None, None)
        needed = [None, None] if least == most else [least, most]
        if [row["least"], row["most"]] != [end if end is None else pytest.approx(end) for end in needed]:
            wrong.append(f"{row} bounds: {needed} expected")
        if row["missing"] != student.score.missing:
            wrong.append(f"{row} missing {student.score.missing}")
    if len(tables["differences"]) != len(ranks.differences):
        wrong.append(f"{len(ranks.differences)} differences")
    for row in tables["differences"]:
        first, second = sorted((row["better"], row["other"]))
        gap = ranks.differences[first, second]
        sign = 1 if row["better"] == second else -1
        gap = gap if sign == 1 else gap.turned
        wrong += unlike(row, "difference", gap.difference, list(gap.ci95_adjusted))
        wide = gap.ci95_over_judges_adjusted
        over = NOT_MEASURED if wide is None else Measured(gap.difference, *wide, gap.n, 0)
        wrong += unlike_measure(row, "over_judges", over)
        for name, p in (
            ("p", gap.p_adjusted),
            ("could_be_seen", gap.minimum_detectable),
            ("p_over_judges", gap.p_over_judges_adjusted),
            ("agreeing", gap.agreeing),
        ):
            if (row[name] is None) != (p is None) or abs((row[name] or 0) - (p or 0)) > NEAR:
                wrong.append(f"{row} {name}: {p} expected")
    for table, measure in (
        ("values", "by_attr_value"),
        ("by-judge", "by_judge"),
        ("by-teacher", "by_teacher"),
    ):
        for row in tables[table]:
            one = getattr(students[row["student"]], measure)[row["part"]]
            wrong += unlike_measure(row, "score", one)
    for row in tables["levels"]:
        if row["count"] != students[row["name"]].levels[row["level"]]:
            wrong.append(f"{row}: {students[row['name']].levels} expected")
    checks = {
        (name, check)
        for name, design in zip(grid.tasks, grid.designs, strict=True)
        for check in design.checks
    }
    if {row["part"] for row in tables["checks"]} - {" · ".join(check) for check in checks}:
        wrong.append(f"{tables['checks']}: {checks} expected")
    for row in [*tables["parts"], *tables["checks"]]:
        name, factor = row["part"].split(" · ")
        one = students[row["student"]].by_task_aspect[name][factor]
        wrong += unlike_measure(row, "score", one)
    return wrong


def choices(grid: ScoreGrid) -> Iterator[dict[str, list[str]]]:
    drawn = random.Random(5)
    names = dict(
        zip(
            DIMENSIONS,
            (grid.tasks, grid.teachers, grid.judges, grid.factors, list(grid.items.attributes)),
            strict=True,
        )
    )
    yield {}
    yield {"task": ["third"], "judge": ["ann"], "factor": ["plot"]}
    for _ in range(40):
        needed = drawn.sample(DIMENSIONS, drawn.randint(1, 3))
        there = [name for name in needed if names[name]]
        yield {name: drawn.sample(list(names[name]), drawn.randint(1, len(names[name]))) for name in there}


def test_figures_of_random_filters_are_those_of_python(page: Page, measured: MeasuredRun) -> None:
    grid = measured.grid
    assert "level-shares" in page.content()  # of one scale
    assert grid.items.alike is not None
    assert len(grid.items.ids) - 3 > len(set(grid.items.alike.tolist()))
    hold_under_filters(page, measured)


def test_checks_weights_and_other_scales_are_filtered_as_python_does(
    browser: Browser, tmp_path: Path
) -> None:
    made = run_of(tmp_path, MIXED, (model("cal", "judge", noise=0.3),))
    measured = measured_of(made)
    assert measured.grid.checked is not None
    assert len(measured.grid.scales) == 3
    assert "level-shares" not in (made.path / "report.html").read_text(encoding="utf-8")
    seen = opened(browser, made.path / "report.html")
    hold_under_filters(seen.page, measured)
    seen.leave()


def test_three_judges_are_a_sample_as_in_python(browser: Browser, tmp_path: Path) -> None:
    made = run_of(tmp_path, DEFAULT, (model("eve", "judge", noise=0.3),))
    seen = opened(browser, made.path / "report.html")
    hold_under_filters(seen.page, measured_of(made))
    seen.leave()


def test_of_a_run_that_grows_figures_hold_at_any_look_as_in_python(browser: Browser, tmp_path: Path) -> None:
    made = run_of(tmp_path, DEFAULT)
    look = {"at": "2026-01-01T00:00:00Z", "scores": 3, "items": 3, "planned": 50}
    (made.path / "looks.jsonl").write_text(json.dumps(look) + "\n")
    write_report(made.path, made.path)
    measured = measured_of(made)
    assert measured.grid.looks is not None
    assert measured.grid.looks.many
    seen = opened(browser, made.path / "report.html")
    hold_under_filters(seen.page, measured)
    found = seen.page.evaluate("window.coevalPage.tables('')")
    assert (
        any("at any look" in text for text in found["sentences"]) is found["tables"]["differences"][0]["sure"]
    )
    seen.leave()


def test_a_run_of_checks_alone_is_filtered_as_python_does(browser: Browser, tmp_path: Path) -> None:
    made = run_of(tmp_path, CHECKED)
    measured = measured_of(made)
    assert not measured.grid.judges
    seen = opened(browser, made.path / "report.html")
    reported = 0
    for choice in choices(measured.grid):
        query = urlencode(choice, doseq=True)
        found = seen.page.evaluate("query => window.coevalPage.tables(query)", query)
        assert compared(found, chosen(measured.grid, choice)) == [], query
        reported += len(found["tables"]["differences"])
    assert reported > 100
    seen.leave()


def given_run(folder: Path) -> Lab:
    """Answers that exist: of two students to all three tasks, of two others to some of them."""
    drawn = random.Random(7)
    names = ("story", "second", "third")
    prompts = {name: [f"{name} {n}: {drawn.random()}" for n in range(9)] for name in names}
    tasks = []
    for name in names:
        (folder / f"{name}.csv").write_text("\n".join(["q", *prompts[name]]))
        tasks.append(
            {
                "name": name,
                "description": "Answer.",
                "items": {"path": f"{name}.csv", "prompt": "q"},
                "rubric": {"tone": "It is kind.", "depth": "It goes deep."},
            }
        )
    students = []
    does = {"all": names, "both": names, "most": names[:2], "one": names[1:2]}
    for nth, (student, own) in enumerate(does.items()):
        asked = [prompt for name in own for prompt in prompts[name]][: -1 if nth else None]
        rows = [f"{prompt},{prompt} quality {0.2 * nth + 0.3:.2f}" for prompt in asked]
        (folder / f"{student}-answers.csv").write_text("\n".join(["q,a", *rows]))
        given = {"path": f"{student}-answers.csv", "prompt": "q", "response": "a"}
        students.append({"name": student, "responses": given, "tasks": [*own]})
    made = Lab(folder, [model("ann", "student", "judge"), model("ben", "judge")], tasks, students=students)
    made.run()
    write_report(made.path, made.path)
    return made


def test_students_of_some_tasks_have_no_place_under_a_filter_either(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = given_run(tmp_path)
    measured = measured_of(made)
    assert (
        set(measured.measures.ranking.partial)
        == {"most", "one"}
        == {name for name in measured.grid.students if name not in measured.measures.ranking.ranges}
    )
    seen = opened(browser, made.path / "report.html")
    hold_under_filters(seen.page, measured)
    for query, ranked, said in (
        ("judge=ann", {"ann", "all", "both"}, "are to do some of the tasks only"),
        ("task=story&task=second", {"ann", "all", "both", "most"}, "one is to do some of the tasks only"),
        ("task=second", {"ann", "all", "both", "most", "one"}, ""),
    ):
        found = seen.page.evaluate("query => window.coevalPage.tables(query)", query)
        assert {row["student"] for row in found["tables"]["students"] if row["ranks"]} == ranked
        assert said in " ".join(found["notes"])
        assert bool(said) == ("some of the tasks only" in " ".join(found["notes"]))
        assert not any(row["missing"] for row in found["tables"]["students"][:1])
    seen.leave()


def hold_under_filters(page: Page, measured: MeasuredRun) -> None:
    reported = 0
    for choice in choices(measured.grid):
        query = urlencode(choice, doseq=True)
        found = page.evaluate("query => window.coevalPage.tables(query)", query)
        kept = chosen(measured.grid, choice)
        assert compared(found, kept) + of_standings(found["tables"]["standings"], kept) == [], query
        reported += len(found["tables"]["differences"])
    assert reported > 100, "filters left nearly nothing to compare"


def test_costs_and_times_follow_the_filter(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of one student's answers have no price, and the other has a price in one task alone."""
    models = [model("tea", "teacher", "judge"), model("ann", "student"), model("ben", "student", skill=0.4)]
    made = Lab(tmp_path, models, [task(total=6), task("saga", total=5)])
    made.run()
    spent: dict[tuple[str, str], list[tuple[float | None, float]]] = {}
    for path in sorted((made.path / "phase4_responses").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for nth, line in enumerate(lines):
            own, of_task = line["student_model_id"], line["task_id"]
            known = nth % 2 == 0 if own == "ann" else of_task == "saga"
            figures = (0.001 * (nth + 1) if known else None, 1.0 + nth)
            line["usage"], line["latency_s"] = {**line["usage"], "cost_usd": figures[0]}, figures[1]
            spent.setdefault((own, of_task), []).append(figures)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_report(made.path, made.path)
    seen = opened(browser, made.path / "report.html")
    for query, names in (("task=story", ["story"]), ("task=saga", ["saga"]), ("", ["saga", "story"])):
        found = seen.page.evaluate("query => window.coevalPage.tables(query)", query)["tables"]
        for row in (*found["front"], *found["quality-cost"]):
            each = [one for name in names for one in spent[row["student"], name]]
            usd = [1000 * one for one, _ in each if one is not None]
            assert row["usd"] == (pytest.approx(mean(usd), rel=1e-3) if usd else None)
            assert row["seconds"] == median(seconds for _, seconds in each)
    seen.leave()
    monkeypatch.setattr("coeval.analysis.answer_costs.MOST_KEPT", 10)
    write_report(made.path, made.path)
    seen = opened(browser, made.path / "report.html", "#leads?task=story")
    until(seen.page, "document.body.classList.contains('filtered')")
    assert "Price and time are known for the whole run only." in seen.page.inner_text("#filter-status")
    assert seen.page.get_attribute("#lead .forest tbody td:last-child", "title") == (
        "Price and time are known for the whole run only."
    )
    seen.page.close()


def test_numbers_are_rounded_as_python_rounds_them(page: Page) -> None:
    numbers = [n / 16 for n in range(-40, 41)] + [random.Random(3).uniform(-2, 2) for _ in range(200)]
    numbers += [0.285, 2.675, 1.005, 0.0004, -0.0004]
    for digits in (1, 2, 3):
        shown = page.evaluate(
            "given => given[0].map((n) => coevalPage.fixed(n, given[1]))", [numbers, digits]
        )
        texts = [f"{number:.{digits}f}" for number in numbers]
        assert shown == [t.replace("-", "−") if float(t) else t.removeprefix("-") for t in texts]
    shown = page.evaluate("given => given.map(coevalPage.points)", numbers)
    assert shown == [points(number) for number in numbers], "a score of a page is that of the terminal"


def test_a_filter_stands_in_the_address_and_holds_for_tables_charts_and_links(page: Page, lab: Lab) -> None:
    address = (lab.path / "report.html").as_uri()
    rows = page.locator('table[data-table="students"] tbody tr')
    before = rows.all_inner_texts()
    page.goto(f"{address}#leads?task=story&judge=ann")
    page.locator("#filter-status:not(:empty)").wait_for()
    found = page.evaluate("window.coevalPage.tables('task=story&judge=ann')")
    assert [text.split("\t")[0] for text in rows.all_inner_texts()] == found["order"]
    assert rows.all_inner_texts() != before
    link = rows.first.locator("a").get_attribute("href") or ""
    assert {"task=story", "judge=ann", f"student={found['order'][0]}"} <= set(link.split("?")[1].split("&"))
    assert page.locator("#judges > .of-whole-run").is_visible()
    page.locator('details[data-dimension="factor"] summary').click()
    page.locator('#filters input[value="plot"]').check()
    until(page, "location.hash.includes('factor=plot')")
    page.reload()
    page.locator("#filter-status:not(:empty)").wait_for()
    assert page.locator('details[data-dimension="factor"] summary').inner_text().startswith("factors plot")
    page.get_by_role("button", name="Clear").click()
    until(page, "!document.body.classList.contains('filtered')")
    assert rows.all_inner_texts() == before, "what JavaScript writes is what Python wrote"


def test_the_forest_plot_shows_the_chosen_scores_under_the_filter(page: Page, lab: Lab) -> None:
    page.goto(f"{(lab.path / 'report.html').as_uri()}#leads?judge=ann")
    forest = page.locator("#forest")
    forest.locator("svg").wait_for()
    forest.get_by_role("button", name="by task", exact=True).click()
    forest.get_by_role("button", name="without own", exact=True).press("Enter")
    until(page, "location.hash.includes('scores=without+own')")
    assert "judge=ann" in page.evaluate("location.hash")
    rows = page.evaluate("window.coevalPage.tables('judge=ann').then((found) => found.tables.standings)")
    needed = [
        f"{row['task']} · {row['student']}"
        for row in rows
        if row["scores"] == "without own" and row["task"] and row["score"] is not None
    ]
    assert needed
    assert not [name for name in needed if name.endswith("ann")], "the only judge chosen is ann"
    shown = (
        "[...document.querySelectorAll('#forest svg .role-axis-label text')].map((one) => one.textContent)"
    )
    until(
        page,
        f"wanted => JSON.stringify({shown}.filter((t) => t.includes(' · '))) === wanted",
        arg=json.dumps(needed, separators=(",", ":"), ensure_ascii=False),
    )
    page.reload()
    until(page, f"wanted => {shown}.includes(wanted)", arg=needed[0])
    assert forest.get_by_role("button", name="by task", exact=True).get_attribute("aria-pressed") == "true"
    page.go_back()
    until(page, f"() => {shown}.some((text) => text.includes(' · ann'))")
    page.go_back()
    until(page, "!location.hash.includes('by=')")
    until(page, f"() => {shown}.includes('ann')")


def test_a_filter_that_matches_nothing_leaves_no_chart_and_an_unknown_item_is_told(
    page: Page, lab: Lab
) -> None:
    address = (lab.path / "report.html").as_uri()
    page.goto(f"{address}#leads?task=story")
    page.locator("#forest .drawing svg").wait_for()
    ticks = page.locator("#forest .role-axis-label text").all_text_contents()
    assert (ticks[0], "100" in ticks) == ("0", True), "scores run from 0 to 100"
    page.goto(f"{address}#leads?task=story&factor=depth")  # a factor of another task
    page.locator("#forest .drawing", has_text="Nothing is chosen.").wait_for()
    for figure in page.locator("#leads figure, #where figure").all():
        figure.scroll_into_view_if_needed()
        figure.locator(".drawing", has_text="Nothing is chosen.").wait_for()
    page.goto(f"{address}#leads?task=story")
    page.locator("#forest .drawing svg").wait_for()
    page.goto(f"{address}#items?open=zzz")
    page.locator(".items .status", has_text="zzz is not here").wait_for()


def test_a_filter_is_handed_on_to_items_and_back(page: Page, lab: Lab) -> None:
    address = (lab.path / "report.html").as_uri()
    page.goto("about:blank")
    page.goto(f"{address}#where?task=story&by=by+task")
    page.locator("#filter-status:not(:empty)").wait_for()
    chips = page.locator(".items .chips button")
    page.locator("nav ul a", has_text="Items").click()
    until(page, "location.hash.startsWith('#items?task=story')")
    chips.first.wait_for()
    assert [text.removesuffix(" ×") for text in chips.all_inner_texts()] == ["task story"]
    page.locator('details[data-dimension="judge"] summary').click()
    page.locator('#filters input[name="judge"][value="ben"]').check()
    until(page, "new URLSearchParams(location.hash.slice(7)).getAll('judge').includes('ben')")
    page.locator(".items .chips button", has_text="judge ben").wait_for()
    page.keyboard.press("Escape")
    page.locator("table.rows a").first.click()
    page.locator(".items .walk h3").wait_for()
    page.reload()
    page.locator(".items .walk h3").wait_for()
    page.locator("#filter-status:not(:empty)").wait_for()
    state = page.evaluate("new URLSearchParams(location.hash.slice(7)).get('report')")
    assert dict(parse_qsl(state)) == {"task": "story", "judge": "ben", "by": "by task"}
    page.locator("nav ul a", has_text="Where?").click()
    until(page, "location.hash.startsWith('#where?')")
    assert dict(parse_qsl(page.evaluate("location.hash.slice(7)"))) == dict(parse_qsl(state))
    page.go_back()
    page.locator(".items .walk h3").wait_for()
    page.go_back()
    page.locator("table.rows").wait_for()
    page.go_back()
    until(page, "document.querySelectorAll('.items .chips button').length === 1")
    said = page.locator("#filter-status").inner_text()
    page.locator(".items details.menus summary").click()
    page.locator(".items select[data-key=student]").select_option("cem")
    page.locator(".items .chips button", has_text="task story").click()
    until(page, "document.querySelectorAll('.items .chips button').length === 1")
    assert page.locator("#filter-status").inner_text() == said, "a choice of items is not the page's filter"
    page.locator(".items select[data-key=factor]").select_option("plot")
    page.get_by_role("link", name="Figures of this choice").click()
    until(page, "location.hash.startsWith('#leads?factor=plot')")
    until(page, "said => document.getElementById('filter-status').textContent !== said", arg=said)
    assert page.locator('details[data-dimension="task"] summary').inner_text().startswith("tasks all")
    number = page.locator("#judges .said a").first
    assert "factor=plot" in (number.get_attribute("href") or ""), "no link within the page loses the filter"
    value = page.locator("#filters input[name=attribute]").first.get_attribute("value") or ""
    page.evaluate("query => { location.hash = `#where?${query}` }", urlencode({"attribute": value}))
    until(page, "document.body.classList.contains('filtered')")
    link = page.locator('table[data-table="students"] tbody a').first
    until(page, "document.querySelector('table[data-table=students] tbody a').href.includes('attribute=')")
    link.click()
    page.locator(".items .chips button", has_text=" = ").first.wait_for()
