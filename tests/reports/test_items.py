"""Items behind numbers: found by what an address says, and read whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from written_run import REFERENCE, WHY_SKIPPED, Run, append

from coeval.analysis.judged_answers import AnswerChoice, read_chosen_answers
from coeval.analysis.load import open_reader
from coeval.analysis.measures.compute import compute_run_measures
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import UsageError
from coeval.pipeline.plan.run_reading import open_folder_reader
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_rows import parse_item_filters
from coeval.reports.items.item_selection import select_items

LEVELS = ("High", "Medium", "Low")


@contextmanager
def source_of(folder: Path) -> Iterator[ItemBrowser]:
    with open_reader(folder) as reader:
        yield ItemBrowser(reader)


def found(source: ItemBrowser, query: str) -> list[str]:
    """The ends of the ids of the items that a query chooses."""
    return [row.item.rpartition("__")[2] for row in source.find_rows(parse_item_filters(query)).rows]


@pytest.fixture
def written(tmp_path: Path) -> Run:
    """Four items; ann is judged by two judges, bob by one, and one of his answers failed."""
    run = Run(tmp_path / "run")
    for n in range(1, 5):
        mood = "glad=ly" if n % 2 else "sad"
        run.datapoint(
            n, sampled_target_attributes={"form": "strict", "mood": mood}, prompt=f"Prompt {n} ÄPFEL"
        )
        run.response(n, "ann", response=f"ann says {n}")
        run.evaluation(n, "ann", "j1", {"plot": LEVELS[n % 3], "style": "High"})
        run.evaluation(n, "ann", "j2", {"plot": "Low", "style": "High"}, missing=["rhyme"])
        if n < 4:
            run.response(n, "bob", response="bob is SILENT")
            run.evaluation(n, "bob", "j1", {"plot": "Low", "style": "Low"}, raw="dull")
    run.response(4, "bob", response=None, status="failed", error={"kind": "server", "message": "boom"})
    return run


def test_items_are_found_by_names_values_words_and_order(written: Run) -> None:
    with source_of(written.folder) as source:
        every = ["00001", "00002", "00003", "00004"]
        assert found(source, "") == every
        assert found(source, "task=haiku&teacher=t.1&student=ann") == every
        assert found(source, "student=bob&failed=1") == ["00004"]
        assert found(source, "attribute=mood=glad=ly") == ["00001", "00003"]
        assert found(source, "attribute=mood=sad&attribute=mood=glad%3Dly") == every
        assert found(source, "attribute=mood=sad&attribute=form=loose") == []
        assert found(source, "q=SAYS+3") == ["00003"]
        assert found(source, "q=%C3%84pfel+silent") == every[:3]
        assert found(source, "q=dull") == []  # what judges said is not text of an item's
        assert found(source, "item=haiku__t.1__00002") == ["00002"]
        assert found(source, "judge=j2&order=worst") == every
        assert found(source, "order=disagreement")[0] == "00003"  # High against Low in plot
        assert found(source, "student=ann&factor=plot&order=difficulty")[-1] == "00003"
        assert found(source, "lost=bob,ann") == ["00003", "00001", "00002"]
        assert found(source, "lost=ann,bob") == []
        assert source.find_rows(parse_item_filters("student=ann"), 3, 2).total == 4
        assert [row.item[-1] for row in source.find_rows(parse_item_filters(""), 3, 2).rows] == ["4"]
        assert source.find_rows(parse_item_filters(""), 40, 2).total == 4
        assert source.find_rows(parse_item_filters("student=nobody")).total == 0
        assert source.facets.attributes == {"form": ["strict"], "mood": ["glad=ly", "sad"]}
        assert (source.facets.students, source.facets.judges) == (["ann", "bob"], ["j1", "j2"])


def test_a_row_tells_scores_of_the_choice(written: Run) -> None:
    with source_of(written.folder) as source:
        third, fourth = source.find_rows(parse_item_filters("")).rows[2:]
        assert third.scores == {"ann": 0.75, "bob": 0.0}
        assert third.disagreement == 0.5
        assert third.difficulty == pytest.approx(0.625)
        assert fourth.scores == {"ann": (0.5 + 1 + 0 + 1) / 4, "bob": None}
        assert fourth.failed == 2  # bob's answer, and the factor that j2 did not score
        [row] = source.find_rows(parse_item_filters("item=haiku__t.1__00003&judge=j1&factor=plot")).rows
        assert row.scores == {"ann": 1.0, "bob": 0.0}
        assert row.disagreement is None


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("studnt=x", "studnt: items are not chosen by this"),
        ("order=best", "order=best: items are ordered by id, worst, disagreement, difficulty"),
        ("lost=a", "write lost=A,B"),
        ("attribute=mood", "write attribute=NAME=VALUE"),
        ("&".join(["item=x"] * 1001), "at most 1,000 parts"),
    ],
)
def test_an_address_that_says_nothing_is_told_why(query: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("[", r"\[")):
        parse_item_filters(query)


def test_an_item_is_read_whole_and_the_record_that_counts_is_shown(written: Run) -> None:
    written.response(1, "ann", status="failed", response=None)  # in vain: the good one stays
    written.response(2, "ann", response="ann says it anew")
    with source_of(written.folder) as source:
        one = source.read_detail("haiku__t.1__00001")
        two = source.read_detail("haiku__t.1__00002")
        four = source.read_detail("haiku__t.1__00004")
        assert source.read_detail("haiku__t.1__0000") is None
        assert one is not None
        assert two is not None
        assert four is not None
    assert [answer.text for answer in one.answers] == ["ann says 1", "bob is SILENT"]
    assert two.answers[0].text == "ann says it anew"
    assert (one.prompt, one.attributes["mood"], one.answers[0].score) == ("Prompt 1 ÄPFEL", "glad=ly", 0.625)
    assert [judgment.judge for judgment in one.answers[0].judgments] == ["j1", "j2"]
    assert one.answers[0].judgments[1].scores == {"plot": "Low", "style": "High", "rhyme": None}
    assert one.answers[1].judgments[0].words == "dull"
    assert four.answers[1].failed
    assert four.answers[1].error is not None
    assert four.answers[1].error.message == "boom"


@pytest.mark.process
@pytest.mark.skipif(not REFERENCE.exists(), reason=WHY_SKIPPED)
def test_rows_and_details_agree_with_the_measures_and_with_show() -> None:
    with open_folder_reader(REFERENCE / "legacy_run") as (reader, _):
        assert isinstance(reader, RunReader)
        reported = compute_run_measures(reader).measures.items
        shown = read_chosen_answers(reader, AnswerChoice(id="haiku_writing__beta__00001")).answers
        source = ItemBrowser(reader)
        source.replace_flags(reported)
        rows = source.find_rows(parse_item_filters(""), 0, 100).rows
        assert {row.item for row in rows} == set(reported)
        for row in rows:
            assert row.difficulty == pytest.approx(reported[row.item].difficulty, abs=1e-12)
            assert ("all_fail" in row.flags) == reported[row.item].all_fail
            assert ("near_duplicate" in row.flags) == bool(reported[row.item].near_duplicate_of)
        twins = [row.item for row in rows if "near_duplicate" in row.flags]
        assert [
            row.item for row in source.find_rows(parse_item_filters("flag=near_duplicate"), 0, 100).rows
        ] == twins
        detail = source.read_detail("haiku_writing__beta__00001")
        assert detail is not None
        for answer, other in zip(detail.answers, shown, strict=True):
            assert other.answer is not None
            assert answer.text == other.answer.response
            assert answer.score == pytest.approx(other.score)
            scores = [{**each.scores, **dict.fromkeys(each.missing)} for each in other.judgments]
            assert [judgment.scores for judgment in answer.judgments] == scores


def test_labels_are_scores_where_nothing_else_is(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.datapoint(1)
    run.response(1, "ann", response="red")
    label = {"expected": "blue", "predicted": "red", "match": False}
    run.evaluation(1, "ann", "exact_match", {}, label_scores={"colour": label})
    with source_of(run.folder) as source:
        [row] = source.find_rows(parse_item_filters("")).rows
        detail = source.read_detail(row.item, row.task)
    assert row.scores == {"ann": 0.0}
    assert detail is not None
    assert detail.answers[0].judgments == []
    assert msgspec.to_builtins(detail.answers[0].labels) == {"colour": label}


def test_comparisons_are_scores_where_nothing_else_is(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.datapoint(1, prompt="Say\n   something.")
    for student in ("ann", "bob", "cem"):
        run.response(1, student)
    for first, second, winner in (("ann", "bob", "first"), ("cem", "ann", "tie"), ("bob", "cem", "second")):
        item = run.datapoint_id(1)
        record = {
            "id": f"{item}__{first}:{second}__j1",
            "datapoint_id": item,
            "task_id": run.task,
            "teacher_model_id": run.teacher,
            "judge_model_id": "j1",
            "first_model_id": first,
            "second_model_id": second,
            "winner": winner,
        }
        append(run.folder / "phase5_evaluations" / f"{run.task}.{run.teacher}.j1.pairs.jsonl", record)
    with source_of(run.folder) as source:
        [row] = source.add_openings(source.find_rows(parse_item_filters(""))).rows
        assert row.scores == {"ann": 0.75, "bob": 0.0, "cem": 0.75}
        assert (row.opening, row.disagreement) == ("Say something.", None)
        assert select_items(source, 10_000).lost == [("bob", "ann", 1), ("bob", "cem", 1)]
        assert found(source, "lost=bob,ann") == ["00001"]


def test_items_of_eval_framework_have_verdicts_metrics_and_both_orders(tmp_path: Path) -> None:
    arena, ifeval = tmp_path / "arena-hard", tmp_path / "run_1" / "ifeval"
    append(
        arena / "responses.jsonl",
        {"id": "q1", "prompt": "Which?", "response": "mine", "model": "m", "recipe": "r"},
    )
    games = [{"verdict": "A>B"}, {"verdict": "B>>A"}]
    for order, game in zip(("baseline-first", "model-first"), games, strict=True):
        judgment = {
            "id": f"q1__{order}",
            "item": "q1",
            "judge": "j",
            "recipe": "new",
            "value": game,
            "raw": f"so {order}",
        }
        append(arena / "judgments.j-new.jsonl", judgment)
    append(arena / "judgments.j-old.jsonl", {**judgment, "recipe": "old"})
    append(arena / "scores.jsonl", {"id": "q1", "scores": {"win_rate": 25.0, "hard_prompt": 25.0}})
    figure = {"value": 25.0, "n": 1, "unit": "percent"}
    summary = {
        "task": "arena-hard", "model": "m", "judge": {"model": "j", "recipe": "new"},
        "metrics": {"win_rate": figure, "hard_prompt": figure},
    }  # fmt: skip
    (arena / "summary.json").write_text(json.dumps(summary))
    append(ifeval / "responses.jsonl", {"id": "q1", "prompt": "No commas.", "response": "a, b", "model": "m"})
    append(ifeval / "scores.jsonl", {"id": "q1", "scores": {"prompt_level_strict_accuracy": 0.0}})
    for reading, followed in (("strict", False), ("loose", True)):
        line = {
            "key": "q1",
            "instruction_id_list": ["punctuation:no_comma"],
            "follow_instruction_list": [followed],
        }
        append(ifeval / f"eval_results_{reading}.jsonl", line)
    metrics = {"prompt_level_strict_accuracy": {"value": 0.0, "n": 1, "unit": "share"}}
    (ifeval / "summary.json").write_text(json.dumps({"task": "ifeval", "model": "m", "metrics": metrics}))
    with source_of(tmp_path) as source:
        rows = source.find_rows(parse_item_filters("")).rows
        assert [(row.task, row.item, row.scores) for row in rows] == [
            ("arena-hard", "q1", {"m": 25.0}), ("ifeval", "q1", {"m": 0.0}),
        ]  # fmt: skip
        assert rows[0].difficulty is None  # a percentage is no share
        assert [row.task for row in source.find_rows(parse_item_filters("q=comma")).rows] == ["ifeval"]
        pair, rule = source.read_detail("q1", "arena-hard"), source.read_detail("q1", "ifeval")
    assert pair is not None
    assert rule is not None
    assert [(each.what, each.verdict, each.words) for each in pair.answers[0].judgments] == [
        ("baseline-first", games[0], "so baseline-first"), ("model-first", games[1], "so model-first"),
    ]  # fmt: skip
    assert pair.answers[0].metrics == {"hard_prompt": 25.0, "win_rate": 25.0}
    assert (rule.prompt, rule.answers[0].sample, rule.answers[0].score) == ("No commas.", 1, 0.0)
    [instruction] = rule.answers[0].instructions
    assert (instruction.instruction, instruction.strict, instruction.loose) == (
        "punctuation:no_comma",
        False,
        True,
    )


def test_a_page_takes_the_most_telling_items_that_fit(written: Run) -> None:
    written.response(3, "ann", response="word " * 50_000)
    with source_of(written.folder) as source:
        all_of_them = select_items(source, 1_000_000)
        few = select_items(source, 700)
        none = select_items(source, 10)
    assert [row.item[-1] for row in all_of_them.rows] == ["1", "2", "3", "4"]
    assert [detail.item for detail in all_of_them.details] == [row.item for row in all_of_them.rows]
    shortened = all_of_them.details[2].answers[0].text or ""
    assert shortened.endswith("230,100 more characters; coeval view shows them")
    assert "3" in [row.item[-1] for row in few.rows]
    assert (len(few.rows) < 4, few.total) == (True, 4)
    assert (none.rows, none.total) == ([], 4)


def test_a_hostile_line_hides_no_other_item(written: Run) -> None:
    with written.responses("ann").open("ab") as file:
        file.write(b'{"id": "haiku__t.1__00001__ann", "datapoint_id": 7}\nnot json\n{"id": "hai')
    with source_of(written.folder) as source:
        detail = source.read_detail("haiku__t.1__00001")
        assert detail is not None
        assert detail.answers[0].text == "ann says 1"
        assert found(source, "q=says") == ["00001", "00002", "00003", "00004"]
