"""Owed = planned − recorded, for any state of a folder: hypothesis tries them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline.experiments import FOLDERS, PHASES, Lab, listen, model, quiz, task

from coeval.api import load_config, run
from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan import walk
from coeval.pipeline.plan.count_plan import PlanCount
from coeval.pipeline.plan.preview import preview_run
from coeval.pipeline.run_options import RunOptions, Stance
from coeval.pipeline.upkeep.gaps import Gaps, find_gaps
from coeval.store.rundir import RunDir


@pytest.fixture(scope="module")
def whole() -> Iterator[Lab]:
    """A finished run: two tasks, one of them with a label beside its factor."""
    with tempfile.TemporaryDirectory() as folder:
        tasks = [task(total=3), quiz(total=2, rubric={"colour": "Right.", "style": "Good."})]
        lab = Lab(Path(folder), [model("ann"), model("ben", "student", "judge")], tasks)
        assert lab.run().exit_code == 0
        yield lab


def owed(config: Config, **options: Any) -> dict[str, int]:
    found = preview_run(config, RunOptions(continue_run=True, **options)).plan_count
    return {phase: found.total(phase).owed for phase in PHASES}


ALL = {"data_generation": 5, "response_collection": 10, "evaluation": 20 + 4}


def test_a_whole_run_owes_nothing(whole: Lab) -> None:
    config = load_config(whole.file)
    found = preview_run(config, RunOptions(continue_run=True)).plan_count
    assert {phase: found.total(phase).planned for phase in PHASES} == ALL
    assert owed(config) == dict.fromkeys(PHASES, 0)
    assert not any(found.open)


def lost(whole: Lab, folder: Path, gone: set[str], failed: set[str]) -> Lab:
    """A copy of the run without some records, and with others failed."""
    lab = Lab(folder, whole.models, whole.tasks)
    for source in whole.path.rglob("*"):
        target = lab.path / source.relative_to(whole.path)
        if not source.is_file() or source.name.startswith("."):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix != ".jsonl":
            target.write_bytes(source.read_bytes())
            continue
        records = [json.loads(line) for line in source.read_text().splitlines()]
        left = [
            {**record, "status": "failed", "error": {"kind": "server", "message": "no"}, "prompt": None}
            if record["id"] in failed
            else record
            for record in records
            if record["id"] not in gone
        ]
        target.write_text("".join(json.dumps(record) + "\n" for record in left))
    return lab


@given(data=st.data())
@settings(max_examples=10)
def test_whatever_is_lost_is_owed_with_what_follows_and_made_again(whole: Lab, data: st.DataObject) -> None:
    keys = sorted(key for phase in PHASES for key in whole.records(phase))
    gone = data.draw(st.sets(st.sampled_from(keys), max_size=8), "lost")
    failed = data.draw(st.sets(st.sampled_from(keys), max_size=4), "failed") - gone
    missing = gone | failed
    expected = dict.fromkeys(PHASES, 0)
    for phase in PHASES:
        for key in whole.records(phase):
            above = {"__".join(key.split("__")[:parts]) for parts in range(3, 6)}
            expected[phase] += bool(above & missing)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        lab = lost(whole, Path(folder), gone, failed)
        assert owed(load_config(lab.file)) == expected
        asked = listen(patch)
        assert run(lab.file, continue_run=True).exit_code == 0
        judged = [key for key in whole.records("evaluation") if key.endswith("exact_match")]
        labels = sum(bool({"__".join(k.split("__")[:n]) for n in range(3, 6)} & missing) for k in judged)
        # What comes again the same keeps what was made from it: fewer may be asked for than were owed.
        _, _, items, answers, judgments = asked.phases()
        assert items == expected["data_generation"]
        assert answers <= expected["response_collection"]
        assert judgments <= expected["evaluation"] - labels
        assert {phase: len(lab.records(phase)) for phase in PHASES} == ALL
        assert all(record.get("status", "ok") == "ok" for p in PHASES for record in lab.records(p).values())
        assert owed(load_config(lab.file)) == dict.fromkeys(PHASES, 0)


def test_a_record_of_a_model_that_is_named_is_its_alone(whole: Lab, tmp_path: Path) -> None:
    lab = lost(whole, tmp_path, set(whole.records("evaluation")), set())
    config = load_config(lab.file)
    assert owed(config)["evaluation"] == 24
    assert owed(config, only_models=("ann",))["evaluation"] == 24, "ann wrote all items"
    lab.models[0]["name"] = "amy"
    assert owed(load_config(lab.file), only_models=("ben",)) == {
        "data_generation": 0,
        "response_collection": 0,
        "evaluation": 0,
    }, "amy has written nothing yet that ben could answer"


def test_a_line_that_is_no_record_is_owed(whole: Lab, tmp_path: Path) -> None:
    lab = lost(whole, tmp_path, set(), set())
    path = next((lab.path / FOLDERS["response_collection"]).glob("story.ann.*"))
    lines = path.read_text().splitlines()
    path.write_text("\n".join(['{"id": 3}', *lines[1:], "not JSON"]) + "\n")
    config = load_config(lab.file)
    assert owed(config) == {"data_generation": 0, "response_collection": 1, "evaluation": 2}
    assert len(preview_run(config, RunOptions(continue_run=True)).plan.recorded.damaged) == 2


def test_a_good_line_of_an_id_counts_wherever_it_stands_and_a_failed_one_is_owed(
    whole: Lab, tmp_path: Path
) -> None:
    lab = lost(whole, tmp_path, set(), set())
    path = next((lab.path / FOLDERS["response_collection"]).glob("story.ann.*"))
    good, *others = path.read_text().splitlines()
    failed = json.dumps({**json.loads(good), "status": "failed", "response": None})
    for lines, expected in (([good, failed], 0), ([failed, good], 0), ([failed, failed], 1)):
        path.write_text("\n".join([*lines, *others]) + "\n")
        assert owed(load_config(lab.file))["response_collection"] == expected


@pytest.mark.parametrize("stance", list(Stance))
def test_looking_ahead_changes_nothing(whole: Lab, stance: Stance) -> None:
    before = {path: path.read_bytes() for path in whole.path.rglob("*") if path.is_file()}
    preview_run(load_config(whole.file), RunOptions(continue_run=True, stance=stance))
    assert {path: path.read_bytes() for path in whole.path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("changed", ["keep", "redo"])
def test_what_stands_whole_is_counted_as_item_by_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """Items that stand with all that follows from them are counted in one; the figures are the same."""
    lab = Lab(tmp_path, [model("ann", failure_rate=0.1), model("ben")], [task(total=8), quiz(total=8)])
    lab.run()
    lab.lose("response_collection", "story__ann__00002__ben")
    lab.lose("evaluation", "quiz__ben__00003__ann__exact_match")
    lab.tasks[0]["sampling"]["total"] = 9
    lab.models[1]["parameters"]["temperature"] = 0.3
    config = load_config(lab.file)
    options = RunOptions(continue_run=True, stance=Stance(changed))

    def counted() -> tuple[PlanCount, Gaps]:
        plan = preview_run(config, options)
        return plan.plan_count, find_gaps(RunDir(lab.path), config, plan.plan.recorded)

    quickly = counted()
    monkeypatch.setattr(walk, "rows_that_stand", lambda *_: set())
    assert counted() == quickly
