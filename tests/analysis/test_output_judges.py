"""What an output folder's judgments say of its judges: position, agreement, and agreement with themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coeval.analysis.load import open_reader
from coeval.analysis.measures.compute import compute_measures, position_bias_between_items
from coeval.analysis.measures.run_measures import measures_to_json


def write_task(
    folder: Path,
    answers: Iterable[str],
    judgments: Mapping[str, Iterable[Mapping[str, Any]]],
    recipe: str = "",
) -> None:
    """``judgments``: by ``JUDGE-RECIPE``, what each says; ``recipe``: the one that was scored last."""
    folder.mkdir(parents=True)
    lines = [{"id": one, "model": "tested", "input_hash": one, "response": one} for one in answers]
    (folder / "responses.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, found in judgments.items():
        judge, _, made_by = name.partition("-")
        records = [{"judge": judge, "recipe": made_by, "input_hash": one["id"], **one} for one in found]
        (folder / f"judgments.{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    summary = {"task": folder.name, "model": "tested", "judge": {"model": "x", "recipe": recipe}}
    (folder / "summary.json").write_text(json.dumps(summary))


def measures(folder: Path) -> dict[str, Any]:
    with open_reader(folder) as reader:
        return measures_to_json(compute_measures(reader).measures)


def games(item: str, baseline_first: str, model_first: str) -> list[dict[str, Any]]:
    return [
        {"id": f"{item}__baseline-first", "item": item, "value": {"verdict": baseline_first}},
        {"id": f"{item}__model-first", "item": item, "value": {"verdict": model_first}},
    ]


def test_a_judge_that_saw_both_orders_is_told_by_its_paired_verdicts(tmp_path: Path) -> None:
    """12 prompts are won by whoever stands first, 20 by the model, 8 are ties; strength is nothing."""
    verdicts = [("A>>B", "A>B")] * 12 + [("B>A", "A>>B")] * 20 + [("A=B", "B=A")] * 8
    said = [one for number, pair in enumerate(verdicts) for one in games(f"q{number}", *pair)]
    said.append({"id": "q0__model-first", "item": "q0", "value": None, "status": "failed"})
    write_task(tmp_path / "arena-hard", [f"q{n}" for n in range(40)], {"j-r1": said})
    found = measures(tmp_path)
    position = found["judges"]["j"]["bias"]["position"]
    assert position["value"] == pytest.approx(12 / 40)
    assert position["ci95"][0] > 0.1
    assert position["p_adjusted"] < 0.01
    assert found["findings"] == [
        f"j favours the answer shown first by 30.0 [{100 * position['ci95'][0]:.1f}, "
        f"{100 * position['ci95'][1]:.1f}] points."
    ]
    unknown = {"value": None, "ci95": None, "p_adjusted": None}
    assert found["judges"]["j"]["bias"]["severity"] == unknown, "there is no other judge"
    assert found["judges"]["j"]["consistency"] is None, "nothing was asked twice"


@pytest.mark.process
def test_a_judge_that_saw_one_order_is_told_by_the_two_halves(tmp_path: Path) -> None:
    """AlpacaEval draws the order by instruction."""
    draws = np.random.default_rng(5)
    said = []
    shares: dict[bool, list[float]] = {True: [], False: []}
    for number in range(200):
        switched = bool(draws.integers(2))
        share = float(np.clip(0.4 + 0.2 * switched + 0.2 * draws.normal(), 0, 1))
        shares[switched].append(share)
        value = {
            "preference": 1 + share,
            "switched": switched,
            "top_logprobs": [{"token": "m", "logprob": -0.1}],
        }
        said.append({"id": f"{number}__preference", "item": str(number), "value": value})
    write_task(tmp_path / "alpaca-eval", map(str, range(200)), {"j-r1": said})
    position = measures(tmp_path)["judges"]["j"]["bias"]["position"]
    assert position["value"] == pytest.approx(np.mean(shares[True]) - np.mean(shares[False]), abs=1e-9)
    stats = pytest.importorskip("scipy.stats")
    assert position["p_adjusted"] == pytest.approx(
        stats.ttest_ind(shares[True], shares[False], equal_var=False).pvalue, rel=1e-9
    )
    assert 0.1 < position["ci95"][0] < 0.2 < position["ci95"][1] < 0.3
    in_words = [
        {
            "id": f"{n}__words-{order}",
            "item": str(n),
            "value": {"preference": wins, "order": order, "named": "m"},
        }
        for n in range(30)
        for order, wins in (("baseline-first", 1.0), ("model-first", 2.0))
    ]
    write_task(tmp_path / "words" / "alpaca-eval", map(str, range(30)), {"j-r1": in_words})
    assert measures(tmp_path / "words")["judges"]["j"]["bias"]["position"]["value"] == 1.0


def test_the_halves_of_a_judge_that_minds_no_order_are_rarely_told_apart() -> None:
    draws = np.random.default_rng(1)
    wrong = 0
    for _ in range(400):
        shares, first = draws.choice([0.0, 1.0], 80), draws.random(80) < 0.5
        found = position_bias_between_items(shares[first], shares[~first])
        assert found.low is not None
        assert found.high is not None
        assert -1 <= found.low <= (found.value or 0) <= found.high <= 1
        wrong += found.low > 0 or found.high < 0
    assert wrong <= 32
    assert position_bias_between_items(np.ones(1), np.zeros(9)).value is None


def test_judges_who_saw_the_same_words_agree_or_not(tmp_path: Path) -> None:
    """Another answer's judgment, though of the same item, is in no agreement."""
    met = {"id": "a__item-1", "item": "a", "value": {"criteria_met": True, "explanation": "yes"}}
    other = {**met, "value": {"criteria_met": False}}
    stale = {"id": "b__item-1", "item": "b", "value": {"criteria_met": True}}
    levels = {"id": "c__rubric", "item": "c", "value": {"verdict": "High", "score": "Low"}}
    half = {"id": "c__rubric", "item": "c", "value": {"verdict": "Medium", "score": "Low"}}
    points = {"id": "d__criterion-1", "item": "d", "value": {"criterion": "x", "score": 7}}
    hostile = {"id": "e__x", "item": "e", "value": '{"verdict": '}
    write_task(
        tmp_path / "healthbench",
        "abcde",
        {
            "one-r": [met, stale, levels, points, hostile],
            "two-r": [other, {**stale, "input_hash": "of another answer"}, half, points],
        },
    )
    found = measures(tmp_path)
    assert found["agreement"]["one|two"]["count"] == 3
    assert found["agreement"]["one|two"]["spa"] == pytest.approx(1 / 3)
    assert found["agreement"]["one|two"]["wpa"] == pytest.approx((0 + 0.5 + 1) / 3)
    severity = found["judges"]["two"]["bias"]["severity"]
    assert severity == {"value": None, "ci95": None, "p_adjusted": None}, "three items are too few"


def test_a_judge_agrees_with_itself_or_not_where_it_was_shown_the_same_twice(tmp_path: Path) -> None:
    """Under earlier settings, or on a sample's answer that is the same as another's; the words decide."""
    said = [game for n in range(20) for game in games(f"q{n}", "B>A", "A>B")]
    again = [game for n in range(20) for game in games(f"q{n}", "B>A", "A>B" if n < 15 else "B>A")]
    new = [{**game, "input_hash": f"new {game['id']}"} for game in games("q0", "A>B", "A>B")]
    judgments = {"j-r1": said, "j-r2": again, "k-r": new}
    write_task(tmp_path / "arena-hard", [f"q{n}" for n in range(20)], judgments, "r1")
    found = measures(tmp_path)["judges"]
    assert found["j"]["consistency"]["count"] == 40
    assert found["j"]["consistency"]["spa"] == pytest.approx(35 / 40)
    low, high = found["j"]["ci95"]["consistency"]["spa"]
    assert 0.7 < low < 35 / 40 < high < 1
    assert found["j"]["n"]["consistency"]["spa"] == 20
    assert found["k"]["consistency"] is None
    assert found["j"]["bias"]["position"]["value"] == 0, "of the recipe that was scored last"


def test_samples_of_a_prompt_are_answers_of_their_own_and_one_cluster(tmp_path: Path) -> None:
    prompts = [f"q{n}" for n in range(10)]
    for run in range(3):
        said = [game for prompt in prompts for game in games(prompt, "B>A", "A>B")]
        of_run = {prompt: "" if prompt == "q0" else f" of run {run}" for prompt in prompts}
        shown = [{**game, "input_hash": game["id"] + of_run[game["item"]]} for game in said]
        write_task(tmp_path / f"run_{run}" / "arena-hard", prompts, {"j-r": shown, "k-r": shown})
    found = measures(tmp_path)
    assert found["agreement"]["j|k"]["count"] == 60
    assert found["agreement"]["j|k"]["n"]["spa"] == 10
    assert found["judges"]["j"]["consistency"]["count"] == 6, "an answer that was given three times"
    assert found["judges"]["j"]["n"]["consistency"]["spa"] == 1
