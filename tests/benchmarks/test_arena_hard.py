"""Arena-Hard on invented questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes.judged_tasks import JUDGE, MODEL, Panel, Shelf, hold_on_the_scale, lines_of

from coeval.benchmarks.benchmark import Item
from coeval.benchmarks.tasks.arena_hard import GEMINI, O3_MINI, ArenaHard
from coeval.core.errors import UsageError
from coeval.core.records import Request


def question(uid: str, category: str) -> dict[str, Any]:
    return {"uid": uid, "category": category, "prompt": f"Do {uid} {{ANSWER_A}}"}


def answer(uid: str, model: str) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": uid},
        {"role": "assistant", "content": {"answer": f"{model} on {uid}"}},
    ]
    return {"uid": uid, "model": model, "messages": messages}


QUESTIONS = [
    question("a", "hard_prompt"),
    question("b", "hard_prompt"),
    question("c", "creative_writing"),
]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    shelf = Shelf(tmp_path)
    shelf.lines("arena-hard/questions", QUESTIONS)
    shelf.lines("arena-hard/baseline_o3_mini", [answer(uid, O3_MINI) for uid in "abc"])
    shelf.lines("arena-hard/baseline_gemini", [answer("c", GEMINI)])
    shelf.text("arena-hard/judge_system", "Judge hard.")
    shelf.text("arena-hard/judge_system_creative", "Judge softly.")
    shelf.text("arena-hard/judge_prompt", "Q {QUESTION} A {ANSWER_A} B {ANSWER_B}")
    return shelf


def ours(item: Item) -> str:
    return "" if item.id == "b" else f"ours on {item.id} {{QUESTION}}"


VERDICTS = {
    "a__baseline-first": "[[B>A]]",  # the model wins once
    "a__model-first": "[[A>>B]]",  # and strongly
    "b__baseline-first": "[[A>>B]]",
    "b__model-first": "[[A=B]]",
    "c__baseline-first": "[[A>B]]",
    "c__model-first": "[[A>B]]",
}


def verdict(ask_id: str, _: Request) -> str:
    return f"First I thought [[A=B]], but {VERDICTS[ask_id]}"


def test_two_games_with_the_categorys_judge_and_baseline(shelf: Shelf) -> None:
    panel = Panel(ArenaHard(shelf.settings()), ours)
    shown = {key: [m.content for m in request.messages] for key, request in panel.requests().items()}
    assert shown["a__baseline-first"] == [
        "Judge hard.",
        f"Q Do a {{ANSWER_A}} A {O3_MINI} on a B ours on a {{QUESTION}}",
    ]
    assert shown["c__model-first"] == [
        "Judge softly.",
        f"Q Do c {{ANSWER_A}} A ours on c {{QUESTION}} B {GEMINI} on c",
    ]
    assert panel.benchmark.judge_sampling().to_dict() == {"temperature": 0.0, "max_tokens": 16_000}


def test_an_empty_answer_is_judged(shelf: Shelf) -> None:
    shown = Panel(ArenaHard(shelf.settings()), ours).requests()["b__model-first"].messages[-1].content
    assert shown == f"Q Do b {{ANSWER_A}} A  B {O3_MINI} on b"


def test_strong_verdicts_count_three_times_by_category(shelf: Shelf) -> None:
    scored = Panel(ArenaHard(shelf.settings()), ours).judge(verdict)
    values = {name: metric.value for name, metric in scored.metrics.items()}
    assert values == {
        "win_rate": pytest.approx(100 * 5.5 / 10),
        "win_rate_style_controlled": None,  # so few prompts say nothing about style
        "hard_prompt": pytest.approx(100 * 4.5 / 8),
        "hard_prompt_style_controlled": None,
        "creative_writing": 50,
        "creative_writing_style_controlled": None,
    }
    assert {item: scores["win_rate"] for item, scores in scored.items.items()} == {
        "a": 100,
        "b": pytest.approx(12.5),
        "c": 50,
    }
    (hard,) = (row for row in scored.tables["scores"] if row["category"] == "hard_prompt")
    assert hard["judge"] == JUDGE
    assert hard["win_rate"]["low_95"] <= hard["win_rate"]["low_90"] <= hard["win_rate"]["value"]
    assert (scored.n_expected, scored.n_scored, scored.n_failed, scored.reasons) == (6, 6, {}, ())


def test_a_prompt_without_both_verdicts_is_left_out_and_counted(shelf: Shelf) -> None:
    def unsure(ask_id: str, request: Request) -> str:
        return "I cannot tell" if ask_id == "b__model-first" else verdict(ask_id, request)

    scored = Panel(ArenaHard(shelf.settings()), ours).judge(unsure)
    assert scored.metrics["hard_prompt"].value == 100
    assert scored.metrics["hard_prompt"].n == 1
    assert (scored.n_expected, scored.n_scored, scored.n_failed) == (6, 5, {"unparsable": 1})
    assert "b" not in scored.items


@pytest.mark.process
def test_style_is_controlled_where_there_are_prompts_enough(shelf: Shelf) -> None:
    count = 80
    shelf.lines("arena-hard/questions", [question(f"q{n}", "hard_prompt") for n in range(count)])
    shelf.lines("arena-hard/baseline_o3_mini", [answer(f"q{n}", O3_MINI) for n in range(count)])

    def styled(item: Item) -> str:
        number = int(item.id[1:])
        return ("# Title\n" * (number % 3) + "- item\n" * (number % 5) + "**bold** " * (number % 4)) + "word"

    def longer(ask_id: str, _: Request) -> str:
        item, order = ask_id.split("__")
        model = "B" if order == "baseline-first" else "A"
        other = "AB".replace(model, "")
        wins = int(item[1:]) % 3 == 0
        return f"[[{model}>{other}]]" if wins else f"[[{other}>{model}]]"

    scored = Panel(ArenaHard(shelf.settings()), styled).judge(longer)
    controlled = scored.metrics["hard_prompt_style_controlled"]
    assert controlled.value is not None
    assert controlled.ci95 is not None
    assert controlled.ci95[0] <= controlled.value <= controlled.ci95[1]
    assert set(scored.tables["scores"][0]["style"]["coefficients"]) == {"length", "headers", "lists", "bold"}


@pytest.mark.parametrize("wins", [True, False])
def test_all_won_or_lost_every_interval_has_a_width(shelf: Shelf, wins: bool) -> None:
    count = 60
    shelf.lines("arena-hard/questions", [question(f"q{n}", "hard_prompt") for n in range(count)])
    shelf.lines("arena-hard/baseline_o3_mini", [answer(f"q{n}", O3_MINI) for n in range(count)])

    def unanimous(ask_id: str, _: Request) -> str:
        return "[[B>>A]]" if ask_id.endswith("baseline-first") == wins else "[[A>>B]]"

    scored = Panel(ArenaHard(shelf.settings()), lambda item: item.id * int(item.id[1:])).judge(unanimous)
    assert scored.metrics["hard_prompt"].value == (100 if wins else 0)
    assert len(scored.metrics) == 4
    assert hold_on_the_scale(scored.metrics.values(), 0, 100)


def test_a_question_without_a_baseline_answer_is_told_before_anything_is_asked(shelf: Shelf) -> None:
    shelf.lines("arena-hard/questions", [*QUESTIONS, question("d", "creative_writing")])
    with pytest.raises(UsageError, match=rf"question d .*\(of {GEMINI}\)"):
        ArenaHard(shelf.settings()).items()


@pytest.mark.process
def test_official_files(shelf: Shelf, tmp_path: Path) -> None:
    panel = Panel(ArenaHard(shelf.settings()), ours)
    panel.judge(verdict)
    panel.write(tmp_path / "out")
    answers = lines_of(tmp_path / "out" / "model_answer" / f"{MODEL}.jsonl")
    assert [line["uid"] for line in answers] == ["a", "b", "c"]
    assert answers[1]["messages"][-1] == {"role": "assistant", "content": {"answer": ""}}
    judgments = lines_of(tmp_path / "out" / "model_judgment" / JUDGE / f"{MODEL}.jsonl")
    assert [[game["score"] for game in line["games"]] for line in judgments] == [
        ["B>A", "A>>B"],
        ["A>>B", "A=B"],
        ["A>B", "A>B"],
    ]
    assert {line["baseline"] for line in judgments} == {O3_MINI, GEMINI}
