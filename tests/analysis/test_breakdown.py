"""Scores by factor, attribute, judge and teacher: what is in each mean, and what is counted beside it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from cli.invoked import Command
from scipy.stats import pearsonr
from written_run import Run

import coeval as api
from coeval.analysis.breakdown import By, break_down_scores_and_labels
from coeval.analysis.measures.benchmark_measures import measure_attribute_coverage, measure_item_quality
from coeval.analysis.measures.compute import compute_run_measures
from coeval.analysis.measures.near_duplicates import (
    NearDuplicate,
    find_earlier_duplicates,
    first_of_duplicate_group,
    jaccard_similarity,
    mean_prompt_similarity,
    word_shingles,
)
from coeval.analysis.readers.run_reader import RunReader


def means(run: Run, by: By) -> dict[tuple[str | None, str], float | None]:
    with RunReader(run.folder) as reader:
        scores = break_down_scores_and_labels(reader, by).scores
        students = compute_run_measures(reader).measures.students["s"]
    assert all(score.student == "s" for score in scores)
    if by == "judge":
        assert {one.part: (one.score, one.low, one.high, one.n, one.missing) for one in scores} == dict(
            students.by_judge
        )
    return {(one.task, one.part): None if one.score is None else round(one.score, 4) for one in scores}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two items, two judges of the first; a second task by another teacher."""
    made = Run(tmp_path / "run")
    made.judged(1, "s", "j", {"a": "High", "b": "Low"})
    made.evaluation(1, "s", "k", {"a": "Medium", "b": "Low"})
    made.datapoint(2, sampled_target_attributes={"form": "free", "tone": "dry"})
    made.response(2, "s")
    made.evaluation(2, "s", "j", {"a": "Low", "b": "Low"})
    Run(made.folder, task="sum", teacher="t.2").judged(1, "s", "j", {"a": "High"})
    return made


def test_parts_are_those_of_the_measures(run: Run) -> None:
    """Means over single scores."""
    assert means(run, "factor") == {
        ("haiku", "a"): 0.5,
        ("haiku", "b"): 0.0,
        ("sum", "a"): 1.0,
    }
    assert means(run, "judge") == {(None, "j"): 0.4, (None, "k"): 0.25}
    assert means(run, "teacher") == {(None, "t.1"): 0.25, (None, "t.2"): 1.0}
    assert means(run, "attribute") == {
        (None, "form=free"): 0.0,
        (None, "form=strict"): 0.5,
        (None, "tone=dry"): 0.0,
    }


@pytest.mark.process
def test_a_run_without_scores_has_no_parts(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.datapoint(1)
    with RunReader(run.folder) as reader:
        for by in get_args(By):
            assert break_down_scores_and_labels(reader, by) == ((), ())


# Coverage of the declared space, likeness of prompts, difficulty and discrimination of datapoints.


def test_coverage_counts_declared_strata_that_occur_and_those_that_are_rare() -> None:
    declared = {"a": ["x", "y", "z"], "b": ["u", "v"]}
    sampled = [["a=x", "b=u"]] * 3 + [["a=y", "b=u"], ["a=other"]]
    found = measure_attribute_coverage(declared, sampled)
    assert found.acr == pytest.approx(3 / 5), "x, y and u; other was not declared"
    assert found.rar == pytest.approx(1 / 3), "y once; z and v never"
    assert found.pairwise_acr == pytest.approx(2 / 6)
    assert found.pairwise_rar == pytest.approx(1 / 5)
    assert found.absent == ("a=z", "b=v")
    whole = measure_attribute_coverage({"a": ["x"]}, [["a=x"]] * 3)
    assert (whole.acr, whole.rar, whole.pairwise_acr) == (1.0, None, None), (
        "nothing is rare; there is no pair"
    )
    assert measure_attribute_coverage({}, sampled)[:4] == (None, None, None, None)


def test_names_and_values_may_hold_the_sign_between_them(tmp_path: Path) -> None:
    run = Run(tmp_path)
    space = {"n=1": ["few", "a=b"], "n=2": ["some", "many"]}
    mapping = run.folder / "phase1_attributes" / "haiku_target_attrs.json"
    mapping.parent.mkdir(parents=True)
    mapping.write_text(json.dumps(space))
    for n, (one, other) in enumerate([("few", "some"), ("a=b", "many"), ("few", "many")], 1):
        run.datapoint(n, sampled_target_attributes={"n=1": one, "n=2": other})
        run.response(n, "s")
        run.evaluation(n, "s", "j", {"tone": "High"})
    found = api.open_run(run.folder).measures()["coverage"]["haiku"]
    assert (found["acr"], found["pairwise_acr"], found["absent"]) == (1.0, 0.75, [])


def test_surface_bias_is_the_mean_over_all_pairs_where_these_are_few() -> None:
    prompts = ["the cat sat on the mat", "the cat sat on a mat", "a dog ran far away"]
    grams = [word_shingles(prompt) for prompt in prompts]
    pairs = [
        jaccard_similarity(grams[0], grams[1]),
        jaccard_similarity(grams[0], grams[2]),
        jaccard_similarity(grams[1], grams[2]),
    ]
    assert pairs == [2 / 6, 0.0, 0.0]
    few = mean_prompt_similarity(prompts)
    assert few.mean == pytest.approx(sum(pairs) / 3)
    assert few.pairs == 3
    assert mean_prompt_similarity(["alone"]) == (None, 0)


@pytest.mark.process
def test_a_large_sample_of_pairs_is_the_same_every_time() -> None:
    words, drawn = [f"w{n}" for n in range(9)], random.Random(1)
    prompts = [" ".join(drawn.choices(words, k=20)) for _ in range(300)]
    found = mean_prompt_similarity(prompts)
    assert found.pairs == 2000
    assert found == mean_prompt_similarity(prompts)
    every = [
        jaccard_similarity(word_shingles(a), word_shingles(b))
        for n, a in enumerate(prompts)
        for b in prompts[:n]
    ]
    assert found.mean == pytest.approx(np.mean(every), abs=0.002)


def test_near_duplicates_are_found_among_thousands_and_nothing_else_is() -> None:
    drawn = random.Random(2)
    words = [f"word{n}" for n in range(400)]
    prompts = [" ".join(drawn.choices(words, k=40)) for _ in range(3000)]
    planted = {}
    for n in range(60):
        at, of = 1000 + n, n * 3
        changed = prompts[of].split()
        changed[n % 40] = "changed"
        prompts[at] = " ".join(changed).upper() if n % 2 else " ".join(changed)
        planted[at] = of
    found = {twin.later: twin.earlier for twin in find_earlier_duplicates(prompts)}
    assert found == planted


@pytest.mark.process
def test_equal_prompts_do_not_cost_their_square() -> None:
    found = find_earlier_duplicates(["one and the same prompt for all"] * 20_000)
    assert len(found) == 19_999
    assert {twin.earlier for twin in found} == {0}
    assert find_earlier_duplicates(["", "", "a", "a b"])[0][:2] == (1, 0)


def test_discrimination_is_the_correlation_with_the_rest() -> None:
    random_ = np.random.default_rng(3)
    scores = np.round(random_.random((8, 12)) * 4) / 4
    scores[2, 5] = scores[0, 0] = np.nan
    found = measure_item_quality(scores)
    for item in range(12):
        known = np.isfinite(scores[:, item])
        rest = np.nanmean(np.delete(scores, item, axis=1), axis=1)
        expected = pearsonr(scores[known, item], rest[known]).statistic
        assert found.discrimination[item] == pytest.approx(expected, abs=1e-12)
        assert found.difficulty[item] == pytest.approx(1 - np.nanmean(scores[:, item]))


def test_items_that_say_nothing_are_told() -> None:
    scores = np.array([[1.0, 0.0, 1.0], [1.0, 0.0, 0.5], [1.0, np.nan, 0.0]])
    found = measure_item_quality(scores)
    assert found.all_pass.tolist() == [True, False, False]
    assert found.all_fail.tolist() == [False, True, False]
    assert np.isnan(found.discrimination[:2]).all()
    assert np.isnan(measure_item_quality(scores[:2]).discrimination).all(), "two students are too few"


@pytest.mark.process
def test_the_command_tells_each_datapoint_and_the_space_it_is_of(tmp_path: Path, coeval: Command) -> None:
    run = Run(tmp_path / "run")
    space = run.folder / "phase1_attributes" / "haiku_target_attrs.json"
    space.parent.mkdir(parents=True)
    space.write_text(json.dumps({"form": ["strict", "loose"]}))
    for n in range(1, 7):
        run.datapoint(n, prompt="write a haiku about the sea in spring" if n < 3 else f"topic {n} of the day")
        for place, student in enumerate(("x", "y", "z")):
            run.response(n, student)
            level = "High" if n == 3 or place > n % 3 else "Low"
            run.evaluation(n, student, "j", {"a": level})
    found = json.loads(coeval("analyze", "items", "--run", run.folder, "--format", "json").out)
    assert found["coverage"]["haiku"]["acr"] == 0.5
    assert found["coverage"]["haiku"]["absent"] == ["form=loose"]
    assert found["coverage"]["haiku"]["near_duplicates"] == 1
    assert found["coverage"]["haiku"]["all_pass"] == 1
    items = found["items"]
    assert items[run.datapoint_id(2)]["near_duplicate_of"] == run.datapoint_id(1)
    assert items[run.datapoint_id(3)]["all_pass"]
    assert items[run.datapoint_id(3)]["difficulty"] == 0
    assert len(items) == 6
    assert "items" not in api.open_run(run.folder).measures(), "which stays small"


def test_what_a_template_says_around_each_item_counts_for_nothing() -> None:
    """Instructions that all prompts share do not make them duplicates of each other."""
    drawn = random.Random(1)
    words = [f"word{n}" for n in range(500)]
    template = " ".join(drawn.choices(words, k=100))
    prompts = [f"{template} {' '.join(drawn.choices(words, k=20))}" for _ in range(40)]
    assert find_earlier_duplicates(prompts) == []
    found = find_earlier_duplicates([*prompts, *(f"{prompt} more" for prompt in prompts[:5])])
    assert {(twin.later, twin.earlier) for twin in found} == {(40 + n, n) for n in range(5)}
    assert len(find_earlier_duplicates([template] * 12)) == 11


@pytest.mark.parametrize("template", ["", "Are these brackets closed? "])
def test_prompts_without_words_of_their_own_are_duplicates_where_they_are_equal(template: str) -> None:
    """Brackets, emoji: nothing of them is in the 3-grams of words."""
    drawn = random.Random(1)
    prompts = [template + " ".join(drawn.choices("()[]{}", k=20)) for _ in range(30)]
    assert find_earlier_duplicates(prompts) == []
    found = find_earlier_duplicates([*prompts, prompts[3], f"{prompts[7]}  "])
    assert [(twin.later, twin.earlier) for twin in found] == [(30, 3), (31, 7)]


def test_a_chain_of_duplicates_is_one_group() -> None:
    chain = [NearDuplicate(3, 1, 0.8), NearDuplicate(4, 2, 0.8), NearDuplicate(5, 3, 0.9)]
    assert first_of_duplicate_group([*chain, NearDuplicate(4, 3, 0.7)], 7).tolist() == [0, 1, 1, 1, 1, 1, 6]
