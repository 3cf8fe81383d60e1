"""Which checkpoints there are, and whether one is whole."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from coeval.core.errors import StoreError, UsageError
from coeval.sweeps.checkpoints import (
    Checkpoint,
    CheckpointPlaces,
    CheckpointWatch,
    find_step_folders,
    find_whole_or_named,
    refuse_duplicate_steps,
    why_incomplete,
)


def written(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names or ("config.json", "model.safetensors"):
        (folder / name).write_text("{}")
    return folder


@pytest.mark.parametrize("pattern", ["global_step_{step}/actor_hf", "step_{step}", "hf/checkpoint-{step}"])
def test_checkpoints_are_found_in_the_order_of_their_steps(tmp_path: Path, pattern: str) -> None:
    for step in (20, 100, 3):
        written(tmp_path / pattern.replace("{step}", str(step)))
    written(tmp_path / "hf" / "step_x")
    (tmp_path / "step_7").write_text("a file")
    found = find_whole_or_named(tmp_path, pattern)
    assert [checkpoint.step for checkpoint in found] == [3, 20, 100]
    assert found[0].path == str(tmp_path / pattern.replace("{step}", "3"))
    assert [each.step for each in find_whole_or_named(tmp_path, pattern, [100, 3])] == [3, 100]


def test_a_step_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    written(tmp_path / "step_10")
    with pytest.raises(UsageError, match=r"step_20 is not there; steps below .*: 10$"):
        find_whole_or_named(tmp_path, "step_{step}", [10, 20])
    with pytest.raises(StoreError, match="nowhere"):
        find_whole_or_named(tmp_path / "nowhere", "step_{step}")


@pytest.mark.parametrize("text", ["step_10", "../step_{step}", "/ckpt/{step}", "{step}/{step}", ""])
def test_a_pattern_names_one_step_below_its_folder(text: str) -> None:
    with pytest.raises(UsageError, match="is not a pattern of checkpoints"):
        find_step_folders(Path(), text)


@pytest.mark.parametrize(
    ("names", "whole"),
    [
        (["config.json", "model.safetensors"], True),
        (["config.json", "pytorch_model.bin"], True),
        (["config.json"], False),
        (["model.safetensors"], False),
        (["config.json", "model.safetensors", "optimizer.pt.tmp"], False),
    ],
)
def test_what_is_being_written_is_not_whole(tmp_path: Path, names: list[str], whole: bool) -> None:
    assert (why_incomplete(written(tmp_path / "step_1", *names)) is None) is whole


def test_what_is_passed_over_is_told_with_what_it_lacks(tmp_path: Path) -> None:
    written(tmp_path / "step_1")
    written(tmp_path / "step_2", "config.json")
    written(tmp_path / "step_3", "model.safetensors")
    places = CheckpointPlaces(folder=tmp_path)
    assert [checkpoint.step for checkpoint in places.find_all()] == [1]
    assert places.explain_skipped() == {
        str(tmp_path / "step_2"): "it has no weights",
        str(tmp_path / "step_3"): "it has no config.json",
    }


def test_all_files_of_an_index_are_there(tmp_path: Path) -> None:
    folder = written(tmp_path / "step_1", "config.json", "a.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    assert why_incomplete(folder) is not None
    (folder / "b.safetensors").write_text("")
    assert why_incomplete(folder) is None
    index.write_text('{"weight_map": {"x": "a.saf')
    assert why_incomplete(folder) is not None


def test_a_watch_gives_what_has_not_changed_between_two_looks(tmp_path: Path) -> None:
    watch = CheckpointWatch(CheckpointPlaces(folder=tmp_path, pattern="step_{step}"), interval_s=30)
    growing, still = written(tmp_path / "step_1"), written(tmp_path / "step_2")
    assert watch.find_newly_ready() == []
    (growing / "model.safetensors").write_text("more")
    assert [checkpoint.path for checkpoint in watch.find_newly_ready()] == [str(still)]
    assert [checkpoint.path for checkpoint in watch.find_newly_ready()] == [str(growing)]
    assert watch.find_newly_ready() == [], "each once"


def test_two_of_one_step_are_refused() -> None:
    with pytest.raises(UsageError, match="step 5 is given twice: /a and /b"):
        refuse_duplicate_steps([Checkpoint(step=5, path="/a"), Checkpoint(step=5, path="/b")])


def test_steps_may_be_written_with_zeros_before_them(tmp_path: Path) -> None:
    for name in ("step_0010", "step_0200", "step_200"):
        written(tmp_path / name)
    found = find_whole_or_named(tmp_path, "step_{step}")
    assert [(each.step, Path(each.path).name) for each in found] == [(10, "step_0010"), (200, "step_200")]
    [one] = find_whole_or_named(tmp_path, "step_{step}", [10])
    assert one.path == str(tmp_path / "step_0010")


def test_usual_patterns_are_tried_and_listed_ones_stand_beside_them(tmp_path: Path) -> None:
    written(tmp_path / "checkpoint-30")
    written(tmp_path / "checkpoint-4")
    (tmp_path / "checkpoint-50").mkdir()
    base = Checkpoint(step=0, path="Qwen/Qwen3-4B")
    places = CheckpointPlaces(listed=(base,), folder=tmp_path)
    assert [each.step for each in places.find_all()] == [0, 4, 30], "50 is not whole"
    with pytest.raises(UsageError, match=r"checkpoint-9 is not there"):
        CheckpointPlaces(folder=tmp_path, steps=(9,)).find_all()


async def test_a_watch_waits_for_its_folder_and_for_files_at_rest(tmp_path: Path) -> None:
    watch = CheckpointWatch(CheckpointPlaces(folder=tmp_path / "late"), until_step=7, interval_s=0.01)
    waiting = asyncio.create_task(watch.wait_for_next())
    await asyncio.sleep(0.05)
    assert not waiting.done(), "the folder is not there yet"
    written(tmp_path / "late" / "step_7")
    found = await waiting
    assert found is not None
    assert [each.step for each in found] == [7]
    assert await watch.wait_for_next() is None, "that was the last one"


def test_a_watched_base_model_of_a_hub_is_ready_at_once(tmp_path: Path) -> None:
    base = Checkpoint(step=0, path="some/model")
    watch = CheckpointWatch(CheckpointPlaces(listed=(base,), folder=tmp_path), interval_s=30)
    assert watch.find_newly_ready() == [base]
    assert watch.find_newly_ready() == []
