"""An item's score is the grid's, whoever shows it."""

from __future__ import annotations

from collections import defaultdict
from math import isfinite
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from written_run import Run, append

from coeval.analysis.comparison.pairing import pair_sides
from coeval.analysis.comparison.side import read_sides
from coeval.analysis.judged_answers import AnswerChoice, read_chosen_answers
from coeval.analysis.measures.compute import compute_run_measures
from coeval.analysis.measures.student_measures import sum_student_item_scores
from coeval.analysis.planned_names import Planned, PlannedTask
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.sampled_answers import WHOLE, SampledPart
from coeval.core.records import answer_name
from coeval.core.scale import HIGH_MEDIUM_LOW, parse_scale
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_rows import ItemChoice

FIVE = parse_scale("1-5")
STUDENTS, JUDGES, TASKS = ("ann", "bob"), ("j1", "j2", "j3"), ("haiku", "prose")
ITEMS = range(1, 7)
Known = dict[tuple[str, int, str, int, str, str], float]
"""By task, item, student, sample, judge and factor."""


def written(folder: Path, seed: int, samples: int, missing: float) -> Known:
    """A check and two judged factors in one task, two judged factors in the other. What is missing is
    missing of both students, so that they share all that there is."""
    known: Known = {}
    for task in TASKS:
        run, gaps = Run(folder, task), Random(f"{task}{seed}")
        for n in ITEMS:
            run.datapoint(n, prompt=f"{task} {n}: {gaps.random()}")
            cells = [(judge, name) for judge in JUDGES for name in ("tone", "depth")]
            cells += [("check", "says")] if task == "haiku" else []
            there = {
                sample: [cell for cell in cells if gaps.random() >= missing] for sample in range(samples)
            }
            for student in STUDENTS:
                answer(run, n, student, there, known)
    return known


def answer(run: Run, n: int, student: str, there: dict[int, list[tuple[str, str]]], known: Known) -> None:
    drawn = Random(f"{run.task}{n}{student}")
    for sample, cells in there.items():
        name = answer_name(student, sample)
        about: dict[str, Any] = {
            "datapoint_id": run.datapoint_id(n),
            "student_model_id": student,
            "task_id": run.task,
        }
        about |= {"teacher_model_id": run.teacher, "sample": sample}
        append(run.responses(student), {"id": f"{run.datapoint_id(n)}__{name}", "response": "so", **about})
        for judge in dict.fromkeys(judge for judge, _ in cells):
            scores: dict[str, str] = {}
            values: dict[str, float] = {}
            for factor in [factor for who, factor in cells if who == judge]:
                if factor == "tone":
                    scores[factor] = level = drawn.choice(["High", "Medium", "Low"])
                    value = HIGH_MEDIUM_LOW.values[HIGH_MEDIUM_LOW.levels.index(level)]
                else:
                    values[factor] = value = drawn.choice(FIVE.values if factor == "depth" else (0.0, 1.0))
                known[run.task, n, student, sample, judge, factor] = value
            response = {"id": f"{run.datapoint_id(n)}__{name}__{judge}", "judge_model_id": judge} | about
            response |= {"response_id": f"{run.datapoint_id(n)}__{name}", "scores": scores, "values": values}
            append(run.evaluations(judge), response)


def planned(weights: dict[str, float]) -> Planned:
    scales = {"tone": HIGH_MEDIUM_LOW, "depth": FIVE}
    of_task = {
        task: PlannedTask(
            teachers=None,
            judges=frozenset({*JUDGES, *({"check"} if checks else ())}),
            factors=frozenset({"tone", "depth"} | checks),
            labels=None,
            scales=scales,
            checks=frozenset(checks),
            weights=weights if task == "haiku" else {},
        )
        for task, checks in (("haiku", {"says"}), ("prose", set[str]()))
    }
    return Planned(frozenset(STUDENTS), of_task)


def answer_scores(known: Known, weights: dict[str, float]) -> dict[tuple[str, int, str, int], float]:
    """In plain loops. With a check each factor counts once, by its weight, and an answer needs all of them;
    without, each score counts alike."""
    of: defaultdict[tuple[str, int, str, int], defaultdict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for (task, n, student, sample, _, factor), value in known.items():
        of[task, n, student, sample][factor].append(value)
    found = {}
    for place, factors in of.items():
        if place[0] == "prose":
            found[place] = fmean(value for values in factors.values() for value in values)
        elif len(factors) == 3:
            each = [(weights.get(name, 1.0), fmean(values)) for name, values in factors.items()]
            found[place] = sum(w * mean for w, mean in each) / sum(w for w, _ in each)
    return found


@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate], database=None)
@given(
    seed=st.integers(0, 10_000),
    samples=st.sampled_from([1, 3]),
    missing=st.sampled_from([0.0, 0.1]),
    weights=st.sampled_from([{}, {"tone": 2.0}, {"tone": 3.0, "says": 0.5}]),
)
def test_whoever_shows_an_items_score_shows_the_grids(
    seed: int, samples: int, missing: float, weights: dict[str, float]
) -> None:
    with TemporaryDirectory() as folder:
        known = written(Path(folder), seed, samples, missing)
        with RunReader(folder, planned(weights)) as reader:
            run = compute_run_measures(reader)
            compared = pair_sides(*read_sides(reader, {name: name for name in STUDENTS}, {}).values())
            answers = read_chosen_answers(reader, AnswerChoice()).answers
            browser = ItemBrowser(reader)
            rows = {
                (row.item, name): score
                for row in browser.find_rows(ItemChoice()).rows
                for name, score in row.scores.items()
            }
            shown = {
                answer.answer: answer.score
                for row in browser.find_rows(ItemChoice()).rows
                if (detail := browser.read_detail(row.item)) is not None
                for answer in detail.answers
            }
    expected = answer_scores(known, weights)
    means_of_items = sum_student_item_scores(run.grid).mean
    items = {
        (task, n, student): float(means_of_items[run.grid.students.index(student), place])
        for place, item in enumerate(run.grid.items.ids)
        for student in STUDENTS
        for task, n in [(item.split("__")[0], int(item.split("__")[2]))]
    }
    items = {place: score for place, score in items.items() if isfinite(score)}
    of_answers = {one.answer.id: one.score for one in answers if one.answer is not None}
    for (task, n, student, sample), score in expected.items():
        name = f"{task}__t.1__{n:05d}__{answer_name(student, sample)}"
        assert of_answers[name] == pytest.approx(score, abs=1e-12)
        assert shown[name] == pytest.approx(score, abs=1e-12)
    for task in TASKS:
        both = compared.build_scored_pairs(task)
        assert both is not None
        means = dict(zip(STUDENTS, (both.pairs.a, both.pairs.b), strict=True))
        for student in STUDENTS:
            own = [score for (at, _, who), score in items.items() if (at, who) == (task, student)]
            found = run.measures.students[student].mean_recorded_by_task[task]
            assert found.value == pytest.approx(fmean(own), abs=1e-12)
            assert found.n == len(own) == len(means[student])
            assert means[student].tolist() == pytest.approx(own, abs=1e-12)
            if samples > 1 and run.measures.samples is not None:
                of_items = defaultdict(list)
                for (at, n, who, _), score in expected.items():
                    if (at, who) == (task, student):
                        of_items[n].append(score)
                whole = run.measures.samples[SampledPart(student, task, WHOLE)].mean
                assert whole.value == pytest.approx(fmean(map(fmean, of_items.values())), abs=1e-12)
    for (task, n, student), score in items.items():
        assert rows[f"{task}__t.1__{n:05d}", student] == pytest.approx(score, abs=1e-12)
