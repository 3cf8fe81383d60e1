"""What is kept of a large run's files is what reading them gives, whatever happened to either since."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pipeline.experiments import Lab, content, model, quiz, task

from coeval.core.records import Datapoint, Evaluation, Response
from coeval.pipeline.plan.reading import run_records
from coeval.pipeline.plan.reading.run_records import RunRecords
from coeval.pipeline.plan.recorded import Recorded
from coeval.pipeline.upkeep.quick_look import quick_look
from coeval.store.record_index import RecordFiles
from coeval.store.rundir import RunDir

KINDS = {"items": Datapoint, "responses": Response, "evaluations": Evaluation}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where records are kept; here they are of runs of any size."""
    monkeypatch.setattr(run_records, "SMALLEST", 0)
    monkeypatch.setenv("COEVAL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "records"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A run in which much went wrong and was asked for again."""
    models = [model("ann", malformed_rate=0.3, failure_rate=0.3), model("ben")]
    made = Lab(tmp_path, models=models, tasks=[task(total=6), quiz()])
    made.run()
    made.run(continue_run=True)
    return made


def read(lab: Lab) -> dict[str, Any]:
    return told(Recorded().read(RunDir(lab.path)))


def found(lab: Lab) -> dict[str, Any]:
    return told(RunRecords(RunDir(lab.path)).read())


def told(recorded: Recorded) -> dict[str, Any]:
    """All that records of a run tell, each read again from disk."""
    told: dict[str, Any] = {"teachers": {key: list(of.items()) for key, of in recorded.by_teacher.items()}}
    for name, kind in KINDS.items():
        index = getattr(recorded, name)
        told[name] = {
            key: (msgspec.structs.asdict(index.get(key)), index.asked_in_vain(key), index.load(key, kind))
            for key in index
        }
    scored, empty = recorded.scored, recorded.empty_answers()
    return told | {"scored": scored, "empty": empty, "doubtful": recorded.doubtful, "bad": recorded.damaged}


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("a line was read again")

    monkeypatch.setattr(RecordFiles, "lines", read)


def test_what_is_kept_is_what_was_read(lab: Lab, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = read(lab)
    assert any(entry["good"] is False for entry, *_ in expected["evaluations"].values()), "some failed"
    quick_look(RunDir(lab.path))
    assert len(list(cache.iterdir())) == 1
    forbid_reading(monkeypatch)
    assert found(lab) == expected


def test_a_run_that_owes_nothing_is_kept_by_its_next_start(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path)
    assert lab.run().exit_code == 0
    assert lab.run(continue_run=True).exit_code == 0
    expected = read(lab)
    forbid_reading(monkeypatch)
    assert found(lab) == expected


def test_a_run_goes_on_from_what_is_kept(tmp_path: Path, cache: Path) -> None:
    """Items and answers are read from where they lie, and only what is owed is asked for."""
    whole, cut = Lab(tmp_path, id="whole"), Lab(tmp_path, id="cut")
    for each in (whole, cut):
        assert each.run().exit_code == 0
    cut.lose("response_collection", "story__ann__00002__ben")
    for judged in ("00002__ben__ann", "00002__ben__ben"):
        cut.lose("evaluation", f"story__ann__{judged}")
    cut.lose("evaluation", "story__ben__00003__ann__ben")
    quick_look(RunDir(cut.path))
    assert cache.exists()
    again = cut.run(continue_run=True)
    assert again.exit_code == 0
    assert content(cut) == content(whole)


def flip(path: Path) -> None:
    """One byte of a recipe becomes another, and nobody can see it in the file's size or time."""
    before, data = path.stat(), bytearray(path.read_bytes())
    data[data.index(b'"recipe":"') + len(b'"recipe":"')] = ord("z")
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def double(path: Path) -> None:
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[0])


def lose_file(path: Path) -> None:
    path.unlink()


def rename(path: Path) -> None:
    path.rename(path.with_name("zz." + path.name))


@pytest.mark.parametrize("change", [flip, cut, double, lose_file, rename])
@pytest.mark.parametrize("folder", ["phase3_datapoints", "phase4_responses", "phase5_evaluations"])
def test_any_change_of_the_files_is_seen(
    lab: Lab, cache: Path, change: Callable[[Path], None], folder: str
) -> None:
    quick_look(RunDir(lab.path))
    assert cache.exists()
    change(min((lab.path / folder).glob("*.jsonl")))
    assert found(lab) == read(lab)


@pytest.mark.parametrize("place", [0, 31, 32, 40, 400, -1])
def test_what_is_damaged_in_the_cache_is_not_taken(lab: Lab, cache: Path, place: int) -> None:
    quick_look(RunDir(lab.path))
    (kept,) = cache.iterdir()
    data = bytearray(kept.read_bytes())
    data[place] ^= 1
    for damaged in (bytes(data), bytes(data[:place]), b""):
        kept.write_bytes(damaged)
        assert found(lab) == read(lab)


def test_what_other_code_has_read_is_read_anew(
    lab: Lab, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_look(RunDir(lab.path))
    assert cache.exists()
    monkeypatch.setattr(run_records, "_code", lambda: "another")
    forbid_reading(monkeypatch)
    with pytest.raises(AssertionError, match="read again"):
        found(lab)


def test_files_in_doubt_are_not_kept(lab: Lab, cache: Path) -> None:
    """Whether they are sound is found out by every look."""
    lab.lose("data_generation", "story__ben__00001")
    quick_look(RunDir(lab.path))
    assert not cache.exists()


def test_files_that_changed_while_they_were_read_are_not_kept(lab: Lab, cache: Path) -> None:
    whole = RunRecords(RunDir(lab.path))
    recorded = whole.read()
    double(next((lab.path / "phase4_responses").glob("*.jsonl")))
    whole.keep(recorded)
    assert not cache.exists()


@pytest.mark.parametrize("place", ["file", "~no-such-user/cache"])
def test_a_look_does_without_a_cache(
    lab: Lab, cache: Path, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("COEVAL_CACHE", place if place.startswith("~") else str(tmp_path / place))
    assert quick_look(RunDir(lab.path)).report is not None
    assert found(lab) == read(lab)


def test_of_small_runs_nothing_is_kept(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path)
    monkeypatch.undo()
    monkeypatch.setenv("COEVAL_CACHE", str(cache.parent))
    lab.run()
    quick_look(RunDir(lab.path))
    assert not cache.exists()
