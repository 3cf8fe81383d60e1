"""Calls as a host counts them: those of the guide's formulas, and of the dry run, exactly."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import Lab, listen, model, quiz, task

from coeval.api import load_config
from coeval.pipeline.config.schema import PHASES
from coeval.pipeline.plan.forecast import forecast
from coeval.pipeline.run_options import RunOptions

AUTO: dict[str, Any] = {"target_attributes": "auto", "nuanced_attributes": "auto", "rubric": "auto"}


def foretold(lab: Lab, **options: Any) -> list[tuple[int, int]]:
    """The forecast's range for each phase."""
    expected = forecast(load_config(lab.file), RunOptions(**options))
    return [(calls.low, calls.high) for calls in map(expected.calls_of_phase, PHASES)]


def exactly(*calls: int) -> list[tuple[int, int]]:
    return [(count, count) for count in calls]


@pytest.mark.slow
def test_many_models_are_counted_without_a_walk_over_what_they_will_make(tmp_path: Path) -> None:
    """432 million evaluations, one by one, would outlast the runner's limit."""
    many = 600
    lab = Lab(tmp_path, [model(f"m{n}") for n in range(many)], [task(total=2)])
    assert foretold(lab) == exactly(0, 0, 2 * many, 2 * many**2, 2 * many**3)


CASES: dict[str, tuple[list[dict[str, Any]], tuple[int, ...]]] = {
    # tasks, and calls of phases 1–5 for two models in all roles
    "single": ([task(total=3)], (0, 0, 6, 12, 24)),
    "per factor": ([task(total=3, evaluation_mode="per_factor")], (0, 0, 6, 12, 48)),
    "label alone": ([quiz(total=3)], (0, 0, 6, 12, 0)),
    "label beside a factor": (
        [quiz(total=3, rubric={"colour": "Right.", "style": "Good."}, evaluation_mode="per_factor")],
        (0, 0, 6, 12, 24),
    ),
    "auto": ([task(total=3, **AUTO)], (4, 2, 6, 12, 24)),
    "complete": ([task(total=3, target_attributes="complete")], (2, 0, 6, 12, 24)),
    "all": ([task(total=3, sampling={"target": "all", "total": 3})], (0, 0, 6, 12, 24)),
    "several": ([task(total=1), task("b", total=2, rubric="auto"), quiz(total=2)], (0, 2, 10, 20, 24)),
}


@pytest.mark.parametrize(("tasks", "calls"), CASES.values(), ids=CASES)
def test_calls_are_those_of_the_formulas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: list[dict[str, Any]], calls: tuple[int, ...]
) -> None:
    lab = Lab(tmp_path, tasks=tasks)
    assert foretold(lab) == exactly(*calls)
    asked = listen(monkeypatch)
    assert lab.run().exit_code == 0
    assert asked.phases() == calls
    assert foretold(lab, continue_run=True) == exactly(0, 0, 0, 0, 0)


def test_where_the_number_of_factors_is_not_known_yet_a_range_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, tasks=[task(rubric="auto", evaluation_mode="per_factor")])
    expected = foretold(lab)
    asked = listen(monkeypatch)
    lab.run()
    assert expected[:4] == exactly(*asked.phases()[:4])
    low, high = expected[4]
    assert low == 24
    assert low < asked.phases()[4] <= high
    factors = json.loads((lab.path / "phase2_rubric" / "story.rubric.json").read_text())
    assert asked.phases()[4] == 24 * len(factors)


ALL_SIX = ["accuracy", "completeness", "clarity", "relevance", "conciseness", "format"]
"""All factors that simulated teachers know: to these they add nothing."""
EXTENDING = dict.fromkeys(("data_generation", "response_collection", "evaluation"), "Extend")


@pytest.mark.parametrize("mode", ["single", "per_factor"])
@pytest.mark.parametrize("factors", [ALL_SIX, ALL_SIX[:1]], ids=["nothing new", "something new"])
def test_an_extended_rubric_may_bring_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factors: list[str], mode: str
) -> None:
    """16 answers were judged, but for one, and the teacher may add factors or not."""
    rubric = {name: f"Of the best {name}." for name in factors}
    tasks = [task(total=4, rubric=rubric, evaluation_mode=mode)]
    source = Lab(tmp_path, [model("ann"), model("ben", "student", "judge")], tasks, id="old")
    source.run()
    source.lose("evaluation", "story__ann__00002__ben__ann")
    settings = {"resume_from": "old", "phases": EXTENDING}
    lab = Lab(tmp_path, source.models, [tasks[0] | {"rubric": "extend"}], settings)
    expected = foretold(lab)
    asked = listen(monkeypatch)
    assert lab.run().exit_code == 0
    assert expected[:4] == exactly(*asked.phases()[:4]) == exactly(0, 1, 0, 0)
    written = json.loads((lab.path / "phase2_rubric" / "story.rubric.json").read_text())
    added = len(written) - len(factors)
    assert bool(added) == (factors != ALL_SIX)
    low, high = expected[4]
    per_answer = len(factors) if mode == "per_factor" else 1
    assert low == per_answer, "nothing new: one judgment is missing"
    assert high == (per_answer + 40 * 16 if mode == "per_factor" else 16)
    made = asked.phases()[4]
    new = 16 * (added if mode == "per_factor" else bool(added))
    assert made == (low + new if mode == "per_factor" else max(low, new))
    assert low <= made <= high


def test_a_rubric_drawn_anew_may_be_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--overwrite asks the teachers again, and the judgments stay."""
    lab = Lab(tmp_path, tasks=[task(rubric="auto")])
    lab.run()
    lab.settings["phases"] = EXTENDING
    assert foretold(lab, overwrite=True) == [(0, 0), (2, 2), (0, 0), (0, 0), (0, 24)]
    asked = listen(monkeypatch)
    assert lab.run(overwrite=True).exit_code == 0
    assert asked.phases() == (0, 2, 0, 0, 0)


def test_of_a_file_that_a_run_has_itself_nothing_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Lab(tmp_path, id="old").run()
    lab = Lab(tmp_path, settings={"resume_from": "old", "phases": EXTENDING})
    lab.run()
    lab.lose("response_collection", "story__ann__00002__ben")
    judgments = (0, 2)  # the lost answer may come again the same, and does
    assert foretold(lab, overwrite=True) == [*exactly(0, 0, 0, 1), judgments]
    asked = listen(monkeypatch)
    assert lab.run(overwrite=True).exit_code == 0
    assert asked.phases() == (0, 0, 0, 1, 0)


def test_what_was_proposed_before_a_crash_is_known(tmp_path: Path) -> None:
    """One of two teachers was heard before the run was cut short."""
    lab = Lab(tmp_path, tasks=[task(total=2, rubric="auto", evaluation_mode="per_factor")])
    lab.run()
    folder = lab.path / "phase2_rubric"
    first, _ = (folder / "proposals.jsonl").read_text().splitlines()
    (folder / "proposals.jsonl").write_text(first + "\n")
    (folder / "story.rubric.json").unlink()
    for phase in ("phase3_datapoints", "phase4_responses", "phase5_evaluations"):
        shutil.rmtree(lab.path / phase)
    judgments, heard = 2 * 4 * 2, 4
    assert foretold(lab, continue_run=True)[1:] == [
        (1, 1), (4, 4), (8, 8), (judgments * heard, judgments * (heard + 40)),
    ]  # fmt: skip


def test_open_attributes_leave_a_static_rubric_known(tmp_path: Path) -> None:
    lab = Lab(tmp_path, tasks=[task(target_attributes="auto", evaluation_mode="per_factor")])
    assert foretold(lab) == exactly(2, 0, 6, 12, 48)


def supply(lab: Lab, name: str, teacher: str, count: int) -> None:
    """Put whole items of a benchmark where a run reads them."""
    path = lab.path / "phase3_datapoints" / f"{name}.{teacher}.datapoints.jsonl"
    path.parent.mkdir(parents=True)
    items = [
        {
            "id": f"{name}__{teacher}__q-{n:03}",
            "task_id": name,
            "teacher_model_id": teacher,
            "sampled_target_attributes": {"mood": "glad"},
            "prompt": f"Question {n}?",
            "reference_response": f"Answer {n}.",
            "generated_at": "2026-01-01T00:00:00Z",
            "benchmark_native_score": 1.0,
        }
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(item) + "\n" for item in items))


@pytest.fixture
def benchmark(tmp_path: Path) -> Lab:
    """A task on supplied items beside one that a model writes for."""
    exam = {"name": "exam", "interface": "benchmark", "roles": ["teacher"]}
    tasks = [task("quiz", total=4, category="benchmark"), task("story", total=2)]
    return Lab(tmp_path, [exam, model("ann")], tasks)


def test_supplied_items_take_no_calls_of_phase_3(benchmark: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = benchmark
    assert foretold(lab) == exactly(0, 0, 2, 4 + 2, 4 + 2), "without items, `total` of them are counted"
    supply(lab, "quiz", "exam", 6)
    asked = listen(monkeypatch)
    assert lab.run().exit_code == 0
    assert asked.phases() == (0, 0, 2, 6, 6)
    answered = [r["datapoint_id"] for r in lab.lines("response_collection") if r["task_id"] == "quiz"]
    assert answered == [f"quiz__exam__q-{n:03}" for n in range(4)], "the first `total` are used"
    lab.tasks[0]["sampling"]["total"] = 6
    assert foretold(lab, continue_run=True) == exactly(0, 0, 0, 2, 2)
    assert lab.run(continue_run=True).exit_code == 0
    assert asked.phases() == (0, 0, 2, 8, 8)


def test_overwriting_a_run_keeps_the_items_it_began_with(
    benchmark: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = benchmark
    supply(lab, "quiz", "exam", 4)
    lab.run()
    assert foretold(lab, overwrite=True) == exactly(0, 0, 2, 6, 6)
    asked = listen(monkeypatch)
    assert lab.run(overwrite=True).exit_code == 0
    assert asked.phases() == (0, 0, 2, 6, 6)


def test_every_request_of_a_run_is_known_by_what_it_is_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tries of the same thing are two calls, now and at the next start."""
    models = [model("ann", malformed_rate=0.3, failure_rate=0.2), model("ben")]
    tasks = [task("one", total=3), task("two", total=2, evaluation_mode="per_factor", rubric="auto")]
    lab = Lab(tmp_path, models, tasks)
    asked = listen(monkeypatch)
    lab.run()
    lab.run(continue_run=True)
    calls = Counter((who, request.call) for who, request in asked.requests)
    assert len(calls) > 60
    assert all(call is not None for _, call in calls)
    assert max(calls.values()) == 1
    tries = {call.attempt for _, call in calls if call is not None}
    assert {0, 1, 2} <= tries
