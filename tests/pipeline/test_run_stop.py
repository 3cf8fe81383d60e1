"""Tasks with `stop`: asked in looks of 20 items, and no further than enough is known."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, listen, model, task

import coeval
from coeval.core.errors import UsageError
from coeval.pipeline.config.items_section import Stop
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.plan.forecast import forecast
from coeval.pipeline.plan.planned_looks import EACH, expected_share
from coeval.pipeline.run_options import RunOptions

pytestmark = pytest.mark.process
TOTAL = 120


def lab_of(folder: Path, stop: dict[str, Any], skills: dict[str, float], **how: Any) -> Lab:
    models = [model("tea", "teacher"), model("jan", "judge"), model("joe", "judge", severity=0.1)]
    models += [model(name, "student", skill=skill) for name, skill in skills.items()]
    return Lab(folder, models, [task(total=TOTAL, stop=stop)], **how)


def answered(lab: Lab) -> Counter[str]:
    return Counter(line["student_model_id"] for line in lab.lines("response_collection"))


def test_who_is_settled_stops_first_and_all_stop_before_the_total(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"decided": True}, {"ann": 0.9, "ben": 0.75, "cy": 0.05})
    run = lab.run()
    counts = answered(lab)
    assert run.exit_code == 0
    assert lab.meta()["status"] == "completed"
    assert counts["cy"] < counts["ann"] == counts["ben"] < TOTAL
    assert {count % EACH for count in counts.values()} == {0}
    assert len(lab.lines("data_generation")) == counts["ann"]
    assert len(lab.lines("evaluation")) == 2 * counts.total()
    compared = coeval.compare(lab.path, students=["cy", "ann"])
    assert compared.comparisons[0].at_any_look is not None, "it ended by looks, so its tests allow for them"
    assert compared.comparisons[0].significant
    assert "The run ends by planned looks: a difference is called significant only if" in compared.notes[0]


def test_going_on_asks_for_nothing_more_and_a_kill_changes_no_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = lab_of(tmp_path, {"decided": True}, {"ann": 0.9, "ben": 0.75, "cy": 0.05})
    lab.run()
    whole = {phase: set(lab.records(phase)) for phase in ("response_collection", "evaluation")}
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True, progress=False).exit_code == 0
    assert requested.requests == []
    assert {phase: set(lab.records(phase)) for phase in whole} == whole  # type: ignore[arg-type]
    for phase in ("response_collection", "evaluation"):
        for path in sorted((lab.path).glob(f"*{'responses' if phase[0] == 'r' else 'evaluations'}/*.jsonl")):
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(lines[: len(lines) // 3]))
    assert lab.run(continue_run=True).exit_code == 0
    assert {phase: set(lab.records(phase)) for phase in whole} == whole  # type: ignore[arg-type]


def test_barriers_make_the_same_looks(tmp_path: Path) -> None:
    found = []
    for name, barriers in (("flow", False), ("steps", True)):
        lab = lab_of(tmp_path, {"decided": True}, {"ann": 0.9, "ben": 0.4}, id=name)
        assert lab.run(phase_barriers=barriers).exit_code == 0
        found.append(set(lab.records("response_collection")))
    assert found[0] == found[1]


def test_a_half_width_that_is_never_met_asks_for_the_total(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"half_width": 0.01, "min_items": 60}, {"ann": 0.8, "ben": 0.8})
    assert lab.run().exit_code == 0
    assert set(answered(lab).values()) == {TOTAL}
    wide = lab_of(tmp_path, {"half_width": 60, "min_items": 45}, {"ann": 0.8, "ben": 0.8}, id="wide")
    assert wide.run().exit_code == 0
    assert set(answered(wide).values()) == {45}


def test_what_is_counted_before_is_what_may_be_asked(tmp_path: Path, coeval: Command) -> None:
    lab = lab_of(tmp_path, {"decided": True}, {"ann": 0.9, "ben": 0.1})
    foreseen = forecast(load_config(lab.file), RunOptions())
    assert (foreseen.total.low, foreseen.total.high) == (EACH * 7, TOTAL * 7)
    assert any("story asks in looks of 20 items" in warning for warning in foreseen.warnings)
    shown = coeval("run", "--config", lab.file, "--dry-run")
    assert "at most 120 items, and" in shown.out + shown.err
    lab.run()
    made = sum(lab.counts())
    assert foreseen.total.low <= made <= foreseen.total.high
    assert json.loads((lab.path / "meta.json").read_text())["status"] == "completed"


def test_the_expected_share_falls_with_items_and_rises_with_students() -> None:
    shares = [expected_share(Stop(decided=True), 2, total) for total in (40, 200, 1000)]
    assert shares == sorted(shares, reverse=True)
    assert expected_share(Stop(decided=True), 10, 200) > expected_share(Stop(decided=True), 2, 200)
    assert expected_share(Stop(half_width=1), 2, 200) == 1.0


@pytest.mark.parametrize(
    ("stop", "more", "said"),
    [
        ({}, {}, "set `half_width: 3` or `decided: true`"),
        ({"half_width": 3, "decided": True}, {}, "V-41"),
        ({"half_width": 0}, {}, "half_width"),
        ({"min_itmes": 3, "decided": True}, {}, "did you mean 'min_items'"),
        ({"decided": True}, {"judging": "pairwise"}, "use `pairs: active` there"),
    ],
)
def test_a_stop_that_says_nothing_clear_is_refused(
    stop: dict[str, Any], more: dict[str, Any], said: str, tmp_path: Path
) -> None:
    lab = lab_of(tmp_path, stop, {"ann": 0.9, "ben": 0.1})
    lab.tasks[0] |= more
    with pytest.raises(UsageError, match=said):
        load_config(lab.file)


def test_one_student_alone_is_never_settled(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"decided": True}, {"ann": 0.9})
    with pytest.raises(UsageError, match="name two at least"):
        load_config(lab.file)


def test_the_estimate_lies_between_the_first_look_and_the_total(tmp_path: Path, coeval: Command) -> None:
    lab = lab_of(tmp_path, {"decided": True}, {"ann": 0.9, "ben": 0.1})
    shown = json.loads(coeval("plan", "--config", lab.file, "--json").out)
    calls = shown["calls"]["total"]
    assert (calls["low"], calls["high"]) == (EACH * 7, TOTAL * 7)
    assert calls["central"] == round(expected_share(Stop(decided=True), 2, TOTAL) * TOTAL) * 7
