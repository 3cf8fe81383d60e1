"""What students gain on items of their own family's teachers: a planted gain is told, ease is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.score_grid import GridItems, ScoreGrid, TaskDesign
from coeval.analysis.measures.teacher_leak import teacher_leak

FAMILIES = {
    "oak-1": "oak",
    "oak-2": "oak",
    "elm-1": "elm",
    "fir-1": "fir",
    "oak-t": "oak",
    "elm-t": "elm",
    "ash-t": "ash",
}
STUDENTS = {"elm-1": 0.6, "fir-1": 0.35, "oak-1": 0.8, "oak-2": 0.55}


def drawn(
    seed: int, items: int = 90, leak: float = 0.0, students: dict[str, float] = STUDENTS
) -> tuple[ScoreGrid, Floats]:
    """Items of three teachers in turn, those of oak-t easier; ``leak`` is added to what oaks see of these."""
    random = np.random.default_rng(seed)
    names, teachers = tuple(sorted(students)), ("ash-t", "elm-t", "oak-t")
    teacher = np.arange(items) % 3
    skills = np.array([students[name] for name in names])[:, None]
    quality = (
        skills
        + random.normal(0, 0.2, items)
        + 0.2 * (teacher == 2)
        + random.normal(0, 0.15, (len(names), items))
    )
    own = np.array([FAMILIES[name] == "oak" for name in names])[:, None] & (teacher == 2)
    worth = (quality + leak * own)[..., None] + random.normal(0, 0.05, (len(names), items, 3))
    scores = ((worth >= 1 / 3).astype(float) + (worth >= 2 / 3)).mean(axis=-1) / 2
    task = np.arange(items) // 3 % 2
    nothing = np.zeros(0, np.int64)
    grid = ScoreGrid(
        nothing, nothing, nothing, np.zeros((0, 1), np.int8),
        GridItems([f"i{n}" for n in range(items)], task, teacher, {}),
        names, ("j",), ("f",), ("s", "t"), teachers, (TaskDesign(frozenset(), frozenset()),) * 2,
    )  # fmt: skip
    return grid, scores


def leaks(seed: int, **how: Any) -> dict[str, Any]:
    return teacher_leak(*drawn(seed, **how), FAMILIES)


def test_a_family_that_gains_on_its_own_teacher_s_items_is_told() -> None:
    found = [leaks(seed, items=240, leak=0.15) for seed in range(20)]
    sure = [one["families"]["oak"]["p_adjusted"] < 0.05 for one in found]
    assert np.mean(sure) >= 0.8
    assert all(one["families"]["oak"]["value"] > 0 for one in found)
    assert np.mean([one["families"]["elm"]["p_adjusted"] < 0.05 for one in found]) <= 0.2
    assert found[0]["students"].keys() == {"elm-1", "oak-1", "oak-2"}, "fir-1 has no kin among the teachers"
    assert found[0]["families"]["oak"]["items"] == 80
    [low, high] = found[0]["families"]["oak"]["ci95"]
    assert low < found[0]["families"]["oak"]["value"] < high


@pytest.mark.parametrize("items", [18, 90])
def test_who_finds_easy_items_easy_gains_nothing(items: int) -> None:
    """All differ less on items that are easy for all: of means alone, weak students would seem to gain."""
    found = [leaks(seed, items=items) for seed in range(80)]
    for kind, name in (
        ("families", "oak"),
        ("students", "oak-1"),
        ("students", "oak-2"),
        ("students", "elm-1"),
    ):
        sure = [one[kind][name]["ci95"][0] > 0 or one[kind][name]["ci95"][1] < 0 for one in found]
        assert np.mean(sure) <= 0.1, name


def test_whose_gain_it_is_cannot_always_be_told() -> None:
    """Two teachers and a student of each: one may gain by as much as the other loses."""
    grid, scores = drawn(1, students={"elm-1": 0.6, "oak-1": 0.8})
    of_two = grid.items.teacher > 0
    found = teacher_leak(grid.kept(of_two), scores[:, of_two], FAMILIES)
    assert found["students"]["oak-1"]["value"] is None
    assert found["families"]["elm"]["p_adjusted"] is None
    alone = teacher_leak(*drawn(1, students={"oak-1": 0.8}), FAMILIES)
    assert alone["students"]["oak-1"]["value"] is None, "its gain may be the items' ease"
    assert teacher_leak(*drawn(1, students={"fir-1": 0.8}), FAMILIES) == {"students": {}, "families": {}}


def test_scores_that_are_all_alike_say_that_nobody_gains_and_are_not_sure_of_it() -> None:
    grid, scores = drawn(1)
    found = teacher_leak(grid, np.ones_like(scores), FAMILIES)["families"]["oak"]
    assert abs(found["value"]) < 0.01
    assert found["ci95"][0] < -0.005 < 0.005 < found["ci95"][1]
    assert teacher_leak(grid, np.full_like(scores, np.nan), FAMILIES)["families"]["oak"]["value"] is None
