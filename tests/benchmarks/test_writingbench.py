"""WritingBench on invented queries: what is asked, what counts, what is written."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from fakes.judged_tasks import MODEL, Panel, Shelf, hold_on_the_scale

from coeval.benchmarks.benchmark import Item
from coeval.benchmarks.tasks.writingbench import WritingBench

POETRY, LAW = "=Poetry", "Law & Order"
NAMES = ("Tone", "Form", "Length", "Depth", "Truth")


def query(index: int, domain1: str, names: tuple[str, ...] = NAMES) -> dict[str, object]:
    criteria = [{"name": name, "criteria_description": f"About {name}", "1-2": "bad"} for name in names]
    return {
        "index": index,
        "domain1": domain1,
        "domain2": f"{domain1} 2",
        "query": f"Write number {index} {{response}}.",
        "checklist": criteria,
    }


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    shelf = Shelf(tmp_path)
    shelf.lines("writingbench/queries", [query(1, POETRY), query(2, POETRY), query(3, LAW)])
    subsets = {"style": ([1, 3], ("Tone",)), "format": ([2], ("Form", "Depth")), "length": ([], ())}
    for requirement, (indices, names) in subsets.items():
        shelf.lines(f"writingbench/{requirement}_R", [query(index, POETRY) for index in indices])
        shelf.lines(f"writingbench/{requirement}_C", [query(index, POETRY, names) for index in indices])
    shelf.text("writingbench/judge_system", "You judge.")
    shelf.text("writingbench/judge_prompt", '{{"score": 1}} C {criteria} Q {query} R {response} C {criteria}')
    return shelf


SCORES = {1: (10, 8, 6, 4, 2), 2: (1, 2, 3, 4, 5), 3: (9, 9, 9, 9, 4)}


def graded(ask_id: str, _: object) -> str:
    item, number = ask_id.split("__criterion-")
    return json.dumps({"score": SCORES[int(item)][int(number) - 1], "reason": f"for {ask_id}"})


def written(item: Item) -> str:
    return f"answer {item.id} with {{query}}"


def test_each_criterion_is_asked_by_itself_with_nothing_filled_in_twice(shelf: Shelf) -> None:
    panel = Panel(WritingBench(shelf.settings()), written)
    requests = panel.requests()
    assert len(requests) == 15
    system, user = requests["2__criterion-3"].messages
    assert (system.role, system.content) == ("system", "You judge.")
    heads = [requested.messages[1].content[: requested.shared] for requested in requests.values()]
    assert set(heads) == {'{"score": 1} C '}
    criterion = "{'name': 'Length', 'criteria_description': 'About Length', '1-2': 'bad'}"
    expected = (
        f'{{"score": 1}} C {criterion} Q Write number 2 {{response}}. R answer 2 with {{query}} C {criterion}'
    )
    assert user.content == expected
    assert panel.benchmark.judge_sampling().to_dict() == {
        "temperature": 1.0,
        "top_p": 0.95,
        "max_tokens": 2048,
    }


def test_official_figures(shelf: Shelf) -> None:
    scored = Panel(WritingBench(shelf.settings()), written).judge(graded)
    values = {name: metric.value for name, metric in scored.metrics.items()}
    assert values == {
        "overall": pytest.approx(85 / 15),
        "style_R": pytest.approx((6 + 8) / 2),
        "style_C": pytest.approx((10 + 9) / 2),
        "format_R": pytest.approx(3),
        "format_C": pytest.approx((2 + 4) / 2),
        "length_R": None,
        "length_C": None,
    }
    assert next(iter(scored.metrics)) == "overall"
    assert {name: metric.value for name, metric in scored.tables["domain1"].items()} == {POETRY: 4.5, LAW: 8}
    assert {name: metric.n for name, metric in scored.tables["domain2"].items()} == {
        f"{POETRY} 2": 2,
        f"{LAW} 2": 1,
    }
    assert (scored.n_expected, scored.n_scored, scored.n_failed, scored.reasons) == (15, 15, {}, ())
    assert {item: scores["overall"] for item, scores in scored.items.items()} == {"1": 6, "2": 3, "3": 8}
    assert scored.metrics["overall"].n == 3


@pytest.mark.parametrize("score", [1, 7, 10])
def test_of_equal_scores_the_intervals_have_a_width_and_stay_between_1_and_10(
    shelf: Shelf, score: int
) -> None:
    scored = Panel(WritingBench(shelf.settings()), written).judge(lambda *_: json.dumps({"score": score}))
    metrics = [metric for metric in scored.metrics.values() if metric.n]
    domains = [*scored.tables["domain1"].values(), *scored.tables["domain2"].values()]
    assert {metric.n for metric in domains} == {1, 2}, "of a single query too"
    assert hold_on_the_scale([*metrics, *domains], 1, 10)


def test_a_score_off_the_scale_is_a_failed_judgment_and_enters_no_mean(shelf: Shelf) -> None:
    def wild(ask_id: str, request: object) -> str:
        return '{"score": 42}' if ask_id == "1__criterion-1" else graded(ask_id, request)

    scored = Panel(WritingBench(shelf.settings()), written).judge(wild)
    assert scored.metrics["overall"].value == pytest.approx(75 / 14)
    assert scored.metrics["style_C"].value == 9
    assert (scored.n_expected, scored.n_scored, scored.n_failed) == (15, 14, {"unparsable": 1})


def test_what_was_not_answered_or_not_judged_is_counted_by_its_reason(shelf: Shelf) -> None:
    panel = Panel(WritingBench(shelf.settings()), lambda item: None if item.id == "1" else written(item))
    panel.judge(graded)
    del panel.judgments["2__criterion-4"]
    scored = panel.score()
    assert scored.n_failed == {"answer timeout": 5, "missing": 1}
    assert scored.metrics["overall"].value == pytest.approx((40 + 11) / 9)
    assert "1" not in scored.items


def test_nothing_judged_is_no_figure(shelf: Shelf) -> None:
    scored = Panel(WritingBench(shelf.settings()), written).score()
    assert {metric.value for metric in scored.metrics.values()} == {None}
    assert scored.n_failed == {"missing": 15}


def test_the_workbook_holds_texts_as_texts(shelf: Shelf, tmp_path: Path) -> None:
    settings = shelf.settings(model="=HYPERLINK(1)", options={"writingbench-write-excel": True})
    panel = Panel(WritingBench(settings), written)
    panel.judge(graded)
    panel.write(tmp_path)
    with zipfile.ZipFile(tmp_path / "scores.xlsx") as book:
        sheets = [book.read(f"xl/worksheets/sheet{number}.xml").decode() for number in (1, 2)]
        strings = book.read("xl/sharedStrings.xml").decode()
    assert not any("<f>" in sheet for sheet in sheets)
    assert "=HYPERLINK(1)" in strings
    assert f"Domain1_{POETRY}" in strings
    assert sheets[1].count("<row") == 16


def test_no_workbook_unless_asked_for(shelf: Shelf, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    panel = Panel(WritingBench(shelf.settings(model=MODEL)), written)
    panel.judge(graded)
    panel.write(folder)
    assert list(folder.iterdir()) == []
