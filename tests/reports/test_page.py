"""Pages in a real browser: they open from disk, ask no network, complain of nothing, and show hostile texts
as the texts they are."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pypdf
import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, task
from playwright.sync_api import Browser
from reports.browser import draw_all, nothing_serious, opened, until
from written_run import Run

from coeval.analysis.measures.measure_tree import Measured
from coeval.core.plain import escape_line
from coeval.reports.content import Alert, Report, ReportColumn, ReportSection, ReportTable, Sentence
from coeval.reports.site import report_file
from coeval.reports.site.page import make_page
from coeval.reports.site.report_file import LARGEST, write_report_and_measures
from perf.analysis import FACTORS, JUDGES, STUDENTS, write_judged_run

SCRIPT = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
FACTOR = "<b onclick=alert(1)>bold</b>"
HOSTILE = (SCRIPT, "\u202egnp.exe", "\x1b[31mred\x1b[0m", "=1+1", "${alert(1)} {{ 7 * 7 }}")
LONG = "long " * 200_000


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Three students and judges; names of values and factors, and answers, are hostile."""
    models = [model("ann"), model("ben", skill=0.5), model("cem", skill=0.2)]
    rubric = {"plot": "Things happen.", FACTOR: SCRIPT}
    attributes = {"mood": [*HOSTILE, "glad"], "length": ["short", "long"]}
    tasks = [task(total=6, target_attributes=attributes, rubric=rubric), task("second", total=6)]
    made = Lab(tmp_path_factory.mktemp("page"), models, tasks)
    assert made.run().exit_code == 0
    [answers] = made.path.glob("phase4_responses/story.ann.*")
    first, second, *rest = [json.loads(line) for line in answers.read_text().splitlines()]
    lines = [{**first, "response": "\n".join(HOSTILE)}, {**second, "response": LONG}, *rest]
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_report_and_measures(made.path, made.folder / "report")
    return made


@pytest.fixture(scope="module")
def written(lab: Lab) -> Path:
    return lab.folder / "report" / "report.html"


@pytest.mark.system
def test_it_opens_from_disk_without_a_complaint_and_shows_hostile_texts(
    browser: Browser, lab: Lab, written: Path
) -> None:
    seen = opened(browser, written)
    draw_all(seen.page)
    measures = json.loads((written.parent / "measures.json").read_text())
    leader = measures["ranking"]["order"][0]
    assert seen.page.locator(".lead .said").first.inner_text().startswith(leader)
    assert seen.page.locator(".forest tbody th").all_inner_texts() == measures["ranking"]["order"]
    shown = seen.page.locator('table[data-table="students"] tbody tr td:nth-child(1)').all_inner_texts()
    assert shown == measures["ranking"]["order"]
    assert FACTOR in (seen.page.locator('table[data-table="parts"]').text_content() or "")
    assert "\\u202egnp.exe" in (seen.page.locator('table[data-table="values"]').text_content() or "")
    assert "\u202e" not in seen.page.locator("body").inner_text()
    [answers] = lab.path.glob("phase4_responses/story.ann.*")
    item = json.loads(answers.read_text().splitlines()[0])["datapoint_id"]
    seen.page.goto(f"{written.as_uri()}#items?item={item}")
    seen.page.locator("#items-body").get_by_text("window.hacked").locator("visible=true").first.wait_for()
    assert seen.page.evaluate("window.hacked") is None
    assert written.stat().st_size <= LARGEST
    nothing_serious(seen.page)
    seen.leave()


@pytest.mark.system
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1600, "light")])
def test_nothing_overflows_and_everything_can_be_reached(
    browser: Browser, written: Path, width: int, scheme: str
) -> None:
    touched = {"has_touch": True, "is_mobile": True} if width < 500 else {}
    seen = opened(
        browser, written, "#where", viewport={"width": width, "height": 800}, color_scheme=scheme, **touched
    )
    page = seen.page
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is (scheme == "dark")
    drawn = page.locator("figure[data-picture]").evaluate_all("all => all.map(one => one.dataset.drawn)")
    assert set(drawn) == {scheme}
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="light or dark").click()
    until(page, "before => getComputedStyle(document.body).backgroundColor !== before", arg=ground)
    nothing_serious(page)
    seen.leave()


@pytest.mark.system
def test_pictures_follow_the_systems_colours(browser: Browser, written: Path) -> None:
    seen = opened(browser, written, color_scheme="light")
    page = seen.page
    draw_all(page)
    for scheme in ("dark", "light", "dark"):
        page.emulate_media(color_scheme=scheme)
        until(
            page,
            "scheme => [...document.querySelectorAll('figure[data-picture]')]"
            ".every((one) => one.dataset.drawn === scheme)",
            arg=scheme,
        )
    written_in = page.locator("#forest svg text").first.evaluate("one => getComputedStyle(one).fill")
    assert written_in == page.evaluate("getComputedStyle(document.body).color")
    seen.leave()


class OddlyNamed(Run):
    """Its files are named by the hexadecimal digits of what names hold."""

    def responses(self, student: str) -> Path:
        return super().responses(student.encode().hex())

    def evaluations(self, judge: str) -> Path:
        return super().evaluations(judge.encode().hex())


@pytest.mark.system
def test_names_that_no_script_may_hold_are_drawn_and_filtered(browser: Browser, tmp_path: Path) -> None:
    run = OddlyNamed(tmp_path / "odd")
    names = ("ann\u2028x", "ben\u2029y", "cem\0z", "eve\nw")
    for n in range(1, 13):
        for place, student in enumerate(names):
            for judge in (names[0], "j2"):
                level = ("High", "Medium", "Low")[min(2, (n + place) % (place + 2))]
                run.judged(n, student, judge, {"plot": level, "sty\u2028le": "High"})
    write_report_and_measures(run.folder, tmp_path / "report")
    seen = opened(browser, tmp_path / "report" / "report.html")
    for address in ("", "#leads?judge=j2"):
        seen.page.goto(f"{(tmp_path / 'report' / 'report.html').as_uri()}{address}")
        draw_all(seen.page)
        labels = seen.page.locator("#forest [aria-label^='Y-axis'] .role-axis-label text").all_text_contents()
        assert sorted(labels) == [escape_line(name) for name in names]
        points = seen.page.locator("#matrix svg .mark-rect path").count()
        assert points == 6
    seen.leave()


def test_figures_in_names_lead_nowhere(tmp_path: Path) -> None:
    names = ("GPT 4.1 mini", "org/3.1-8B", "Phi 3", "3")
    rows = tuple((name, Measured(0.5, 0.4, 0.6, 40, 0)) for name in names)
    table = ReportTable(
        "students",
        "Students",
        (ReportColumn("student", "Student"), ReportColumn("score", "Score", "points")),
        rows,
    )
    said = Sentence(
        "GPT 4.1 mini leads with 90.1 [86.0, 93.2]; 3 and Phi 3 follow org/3.1-8B by 9.9.", "students"
    )
    page = make_page(
        Report("experiment", "r", (), (said,), (ReportSection("leads", "Who leads?", (), (), (table,)),))
    ).decode()
    linked = re.findall(r'<a href="#students">([^<]*)</a>', page)
    assert linked == ["90.1 [86.0, 93.2]", "3", "9.9"]


@pytest.mark.system
def test_charts_are_saved_tables_opened_and_links_followed_by_keyboard(
    browser: Browser, written: Path, tmp_path: Path
) -> None:
    seen = opened(browser, written)
    page = seen.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    starts = {"SVG": b"<svg", "PNG": b"\x89PNG", "CSV": b"scores,task,student,ranks,"}
    for kind, start in starts.items():
        with page.expect_download() as waiting:
            page.locator("#forest .saves").get_by_role("button", name=kind).press("Enter")
        saved = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(saved)
        assert saved.suffix == f".{kind.lower()}"
        assert saved.read_bytes().startswith(start)
    summary = page.locator("#differences > summary")
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("#differences").evaluate("one => one.open")
    page.goto(f"{written.as_uri()}#agreement")
    assert page.locator("#agreement").evaluate("one => one.open"), "a deep link opens what it leads to"
    first = page.locator('table[data-table="students"] tbody a').first
    first.focus()
    page.keyboard.press("Enter")
    until(page, "location.hash.startsWith('#items?student=')")
    seen.leave()


@pytest.mark.system
def test_all_pictures_are_drawn_without_scrolling_and_link_previews_have_the_answer(
    browser: Browser, written: Path
) -> None:
    seen = opened(browser, written)
    page = seen.page
    until(page, "document.documentElement.dataset.pictures === 'drawn'")
    places = page.locator("figure[data-picture]")
    assert places.count() == page.locator("figure[data-drawn]").count() > 3
    assert page.evaluate("window.scrollY") == 0
    said = " ".join(page.locator(".lead > .said").all_inner_texts())
    for name in ("meta[name=description]", "meta[property='og:description']"):
        assert said.startswith((page.locator(name).get_attribute("content") or "–").removesuffix(" …"))
    title = page.locator("meta[property='og:title']").get_attribute("content")
    assert title == page.locator("h1").inner_text()
    seen.leave()


@pytest.mark.system
@pytest.mark.parametrize("width", [1440, 390])
def test_a_name_of_200_characters_is_cut_in_the_forest(browser: Browser, tmp_path: Path, width: int) -> None:
    long = "org/" + "x" * 98 + "-" + "y" * 97
    run = Run(tmp_path / "long")
    for n in range(1, 4):
        run.judged(n, long, "judge", {"plot": "High"})
        run.judged(n, "short", "judge", {"plot": "Low"})
    write_report_and_measures(run.folder, tmp_path / "report")
    seen = opened(browser, tmp_path / "report" / "report.html", viewport={"width": width, "height": 900})
    forest = seen.page.locator(".forest")
    assert long.removeprefix("org/") in str(forest.locator("tbody th").first.get_attribute("title"))
    heights = forest.locator("tbody th").evaluate_all("all => all.map((one) => one.clientHeight)")
    assert max(heights) < 65, "two lines"
    edges = "all => all.map((one) => one.getBoundingClientRect().right)"
    assert max(forest.locator("tbody .num").evaluate_all(edges)) <= width
    assert seen.complaints == []
    seen.page.close()


@pytest.mark.system
def test_a_command_is_copied_and_where_nothing_can_be_selected(browser: Browser, tmp_path: Path) -> None:
    command = "coeval run --config first.yaml --continue"
    report = Report("experiment", "r", (), (), (), (Alert("Incomplete.", command),))
    (tmp_path / "r.html").write_bytes(make_page(report))
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto((tmp_path / "r.html").as_uri())
    button = page.locator("button.copy")
    button.click()
    until(page, "document.querySelector('button.copy').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == command
    page.evaluate("""() => {
      navigator.clipboard.writeText = () => Promise.reject(new Error("no"));
      document.execCommand = () => false;
    }""")
    button.click()
    until(page, "document.querySelector('button.copy').textContent === 'Selected'")
    assert page.evaluate("getSelection().toString()") == command
    context.close()


@pytest.mark.system
def test_a_picture_and_the_view_are_copied(browser: Browser, written: Path) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"{written.as_uri()}#leads?by=by+task")
    page.locator("#forest .saves").get_by_role("button", name="Copy").click()
    read = "async () => (await navigator.clipboard.read())[0].types.join()"
    until(page, "document.querySelector('#forest .saves button').textContent !== 'Copy'")
    assert page.evaluate(read) == "image/png"
    page.get_by_role("button", name="Link").click()
    until(page, "document.getElementById('view-link').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == f"{written.as_uri()}#leads?by=by+task"
    page.evaluate("() => { navigator.clipboard.write = () => Promise.reject(new Error('no')); }")
    with page.expect_download() as waiting:
        page.locator("#forest .saves").get_by_role("button", name="Copy").click()
    assert waiting.value.suggested_filename == "forest.png"
    context.close()


@pytest.mark.system
def test_it_prints_a_brief_or_all_of_it(browser: Browser, written: Path) -> None:
    seen = opened(browser, written, color_scheme="dark")
    page = seen.page
    told = "[document.documentElement.dataset.theme, document.documentElement.dataset.print].join()"
    page.evaluate(f"window.print = () => {{ window.printed = {told}; }}")
    for button, key, printed in (
        ("#print", "Enter", "light,brief"),
        ("#print-all", "Enter", "light,whole"),
        ("body", "Control+p", "light,brief"),
    ):
        page.evaluate("window.printed = ''")
        page.locator(button).press(key)
        until(page, "printed => window.printed === printed", arg=printed)
    page.emulate_media(media="print")
    assert page.locator("nav ul, #where, #judges, #items").locator("visible=true").count() == 0
    assert page.locator(".lead, #cost").locator("visible=true").count() == 2
    brief = pypdf.PdfReader(io.BytesIO(page.pdf(format="A4", prefer_css_page_size=True)))
    assert len(brief.pages) <= 2
    page.evaluate("document.documentElement.dataset.print = 'whole'")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details.table:not([open])").count() == 0
    assert page.locator("#where, #judges").locator("visible=true").count() == 2
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.table:not([open])").count() > 0
    assert seen.complaints == []
    page.close()


@pytest.mark.system
def test_filtered_tables_write_out_what_cannot_be_shown(browser: Browser, written: Path) -> None:
    seen = opened(browser, written)
    cells = seen.page.locator('table[data-table="values"] tbody tr')
    [before] = {text for text in cells.all_text_contents() if "gnp.exe" in text and "ann" in text}
    seen.page.goto(f"{written.as_uri()}#leads?judge=ann")
    seen.page.locator("#filter-status:not(:empty)").wait_for()
    after = cells.all_text_contents()
    assert before.split("0.")[0] in {text.split("0.")[0] for text in after}
    assert any("\\u202e" in text for text in after)
    choices = seen.page.locator("#filters, table").all_text_contents()
    assert not any(sign in text for text in choices for sign in ("\u202e", "\x1b"))
    own = seen.page.locator("section > .said a")
    assert not own.evaluate_all(
        "links => links.some((link) => link.dataset.own === `#${link.closest('section').id}`)"
    ), "a number leads to what explains it"
    seen.leave()


@pytest.mark.system
def test_outputs_of_eval_framework_and_comparisons_have_pages(
    browser: Browser, lab: Lab, tmp_path: Path, coeval: Command
) -> None:
    folder = tmp_path / "output" / "ifeval"
    folder.mkdir(parents=True)
    answer = {"id": "q1", "prompt": SCRIPT, "response": SCRIPT, "model": "m"}
    (folder / "responses.jsonl").write_text(json.dumps(answer) + "\n")
    score = {"id": "q1", "scores": {"prompt_level_strict_accuracy": 1.0}}
    (folder / "scores.jsonl").write_text(json.dumps(score) + "\n")
    for reading in ("strict", "loose"):
        line = {"key": "q1", "instruction_id_list": ["a:b"], "follow_instruction_list": [True]}
        (folder / f"eval_results_{reading}.jsonl").write_text(json.dumps(line) + "\n")
    figure = {"value": 1.0, "n": 1, "unit": "share", "ci95": [0.2, 1.0]}
    summary = {"task": "ifeval", "model": "m", "metrics": {"prompt_level_strict_accuracy": figure}}
    (folder / "summary.json").write_text(json.dumps(summary))
    ended = coeval("analyze", "--run", tmp_path / "output", "--format", "html", "--out", tmp_path / "page")
    assert ended.code == 0, ended.err
    seen = opened(browser, tmp_path / "page" / "report.html")
    draw_all(seen.page)
    lead = seen.page.locator(".lead").inner_text()
    assert "m scores 100.0 [20.0, 100.0] in ifeval." in lead
    seen.page.goto(f"{(tmp_path / 'page' / 'report.html').as_uri()}#items?item=q1")
    seen.page.locator("#items-body").get_by_text("window.hacked").locator("visible=true").first.wait_for()
    assert (seen.page.evaluate("window.hacked"), seen.complaints, seen.requests) == (None, [], [])
    seen.page.close()

    ended = coeval("compare", lab.path, "--html", tmp_path / "nowhere" / "both.html")
    assert (ended.code, "there is no folder" in ended.err) == (1, True)
    ended = coeval("compare", lab.path, "--students", "ann,ben", "--html", tmp_path / "both.html", "--json")
    assert ended.code == 0, ended.err
    compared = json.loads(ended.out)["comparisons"]
    seen = opened(browser, tmp_path / "both.html")
    draw_all(seen.page)
    first_sentence = compared[0]["sentence"].partition(". ")[0]
    assert first_sentence in seen.page.locator(".lead").inner_text()
    assert "Simulated models" in seen.page.locator(".banner").first.inner_text()
    first, second = compared[0]["a"], compared[0]["b"]
    for plot in seen.page.locator("figure[id$=-plot] svg").all():
        texts = plot.locator("text").all_text_contents()
        assert {f"← better: {first}", f"better: {second} →"} <= set(texts)
        zero, mark = (
            plot.locator(f".mark-{kind}.role-mark > *").first.evaluate("one => one.getBoundingClientRect().x")
            for kind in ("rule", "symbol")
        )
        assert (mark < zero) is (compared[0]["difference"] < 0)
    shown = seen.page.locator("table[data-table='differences'] tbody tr").count()
    assert shown == sum(one["family"] in ("overall", "task") for one in compared), "one view at a time"
    assert (seen.page.evaluate("window.hacked"), seen.complaints, seen.requests) == (None, [], [])
    nothing_serious(seen.page)
    seen.page.close()


@pytest.mark.process
def test_a_run_writes_it_at_its_end(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [model("ann")], [task(total=1)], {"report": True})
    run = lab.run()
    assert "story" in (run.path / "report.html").read_text(encoding="utf-8")
    assert json.loads((run.path / "measures.json").read_text()) == run.measures()


# How large a page is.

EVALUATIONS = 10_000


@pytest.mark.process
def test_a_page_of_ten_thousand_evaluations_can_be_mailed(tmp_path: Path) -> None:
    write_judged_run(tmp_path / "run", EVALUATIONS // STUDENTS // JUDGES)
    write_report_and_measures(tmp_path / "run", tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"{EVALUATIONS * FACTORS:,} scores" in page
    assert len(page.encode()) <= LARGEST


@pytest.mark.process
def test_choices_leave_room_for_items_and_say_how_many_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_judged_run(tmp_path / "run", 40)
    write_report_and_measures(tmp_path / "run", tmp_path)
    whole = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "For combinations, run <code>coeval view</code>" in whole
    monkeypatch.setattr(report_file, "LARGEST", len(whole.encode()) - 30_000)
    write_report_and_measures(tmp_path / "run", tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    held, offered = page.count('id="data-choice-'), whole.count('id="data-choice-')
    assert 0 < held < offered
    assert f"For {offered - held} more choices, and for combinations, run <code>coeval view</code>" in page
    assert len(page.encode()) <= len(whole.encode()) - 30_000
