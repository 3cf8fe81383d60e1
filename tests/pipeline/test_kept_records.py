"""What is kept of a large run's files is what reading them gives, whatever happened to either since."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import count
from math import inf
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pipeline.experiments import Lab, content, model, quiz, task

from coeval.core.records import Datapoint, Evaluation, Response
from coeval.pipeline import run as run_module
from coeval.pipeline.plan.reading import run_records
from coeval.pipeline.plan.reading.kept_index import KeptIndex
from coeval.pipeline.plan.reading.run_records import RunRecords
from coeval.pipeline.plan.recorded import Recorded
from coeval.pipeline.upkeep.quick_look import quick_look
from coeval.store import jsonl
from coeval.store import record_files as files_module
from coeval.store.jsonl import Lines, groups_of_lines
from coeval.store.record_files import RecordFiles
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


def test_what_came_between_reading_and_keeping_is_read_on(lab: Lab, cache: Path) -> None:
    whole = RunRecords(RunDir(lab.path))
    whole.read()
    double(next((lab.path / "phase4_responses").glob("*.jsonl")))
    whole.keep()
    assert found(lab) == read(lab)


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
    begun = spy_on_reading(monkeypatch)
    lab.run()
    assert not {path.name for path in record_files(lab)} & begun.keys(), "nor is it read for that"
    quick_look(RunDir(lab.path))
    assert not cache.exists()


# --- reading on --------------------------------------------------------------------------------


def record_files(lab: Lab) -> list[Path]:
    return sorted(lab.path.glob("phase[345]*/*.jsonl"))


def spy_on_reading(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """From which offset on each file is read from now on; others are not read."""
    begun: dict[str, int] = {}

    def noted(path: Path, offset: int = 0) -> Iterator[Lines]:
        begun[path.name] = offset
        return groups_of_lines(path, offset)

    monkeypatch.setattr(files_module, "groups_of_lines", noted)
    return begun


def test_any_beginning_of_the_files_is_read_on_to_the_same(lab: Lab, cache: Path) -> None:
    """Whatever part of each file was there at a look: a failed item, its second asking, a redone answer."""
    lab.run(continue_run=True, changed="redo")
    lab.models[0]["parameters"]["temperature"] = 0.4  # another recipe: all that it says is made again
    lab.run(continue_run=True, changed="redo")
    expected, random = read(lab), Random(7)
    whole = {path: path.read_bytes() for path in record_files(lab)}
    kept = 0
    for _ in range(60):
        there: set[str] = {"prompts are made from nothing"}
        for path, data in whole.items():
            lines = data.splitlines(keepends=True)
            known = [made_from(line) in there for line in lines]
            most = known.index(False) if False in known else len(lines)
            begun = lines[
                : random.choice([most, most, most, random.randint(0, most), random.randint(0, len(lines))])
            ]
            there.update(json.loads(line)["id"] for line in begun)
            path.write_bytes(b"".join(begun))
        looked(lab)
        kept += cache.exists()
        for path, data in whole.items():
            path.write_bytes(data)
        assert found(lab) == expected
        shutil.rmtree(cache, ignore_errors=True)
    assert kept > 10, "what follows from none is in doubt, and not kept"


def made_from(line: bytes) -> str:
    record = json.loads(line)
    source = record.get("response_id") or record.get("datapoint_id")
    return source or "prompts are made from nothing"


def looked(lab: Lab) -> None:
    records = RunRecords(RunDir(lab.path))
    records.read()
    records.keep()


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_last_line_without_its_end_is_read_on(lab: Lab, cache: Path, ending: str) -> None:
    path = min((lab.path / "phase5_evaluations").glob("*.jsonl"))
    *lines, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines)[:-1])
    looked(lab)
    assert cache.exists()
    path.write_bytes(b"".join(lines)[:-1] + ending.encode() + last)
    assert found(lab) == read(lab)


def test_the_end_of_a_run_keeps_its_records(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look after it reads nothing, and its next start only what has been added since."""
    lab = Lab(tmp_path)
    lab.run()
    sizes = {path.name: path.stat().st_size for path in record_files(lab)}
    begun = spy_on_reading(monkeypatch)
    assert found(lab)["items"]
    assert begun == {}
    lab.tasks[0]["sampling"]["total"] = 4
    lab.run(continue_run=True)
    assert {name: begun[name] for name in sizes} == sizes, "the start read nothing, and the end what was new"
    begun.clear()
    assert found(lab) == read(lab)


@pytest.mark.parametrize("within_s", [0.0, 60.0])
async def test_an_interrupted_run_keeps_what_it_can_read_in_time(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, within_s: float
) -> None:
    monkeypatch.setattr(run_module, "AT_INTERRUPTION_S", within_s)
    lab, interrupt = Lab(tmp_path, tasks=[task(total=30)]), asyncio.Event()
    run = asyncio.create_task(lab.arun(interrupt=interrupt))
    while not any(path.stat().st_size for path in record_files(lab)):  # noqa: ASYNC110  files
        await asyncio.sleep(0.001)
    interrupt.set()
    await run
    expected, begun = read(lab), spy_on_reading(monkeypatch)
    assert found(lab) == expected
    assert set(begun.values()) == (set() if within_s else {0})


def test_reading_may_end_after_any_line(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, folder, clock = read(lab), RunDir(lab.path), count()
    monkeypatch.setattr(jsonl, "_GROUP", 1)
    monkeypatch.setattr(files_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    for lines in range(0, 90, 7):
        clock = count()
        recorded = Recorded(goes_on=True)
        recorded.stop_at(lines)
        recorded.read(folder)
        assert len(recorded.items) + len(recorded.responses) + len(recorded.evaluations) <= lines
        recorded.stop_at(inf)
        assert told(recorded.read_on(folder)) == expected


# --- what may happen to the cache ----------------------------------------------------------------


def test_another_runs_records_are_not_taken(lab: Lab, cache: Path, tmp_path: Path) -> None:
    other = Lab(tmp_path, id="other")
    other.run()
    (theirs,) = cache.iterdir()
    looked(lab)
    (ours,) = (path for path in cache.iterdir() if path != theirs)
    shutil.copy(theirs, ours)
    assert found(lab) == read(lab)


@pytest.mark.parametrize("part", ["items", "entries", "verdicts", "attributes"])
def test_an_index_that_contradicts_itself_is_not_taken(lab: Lab, cache: Path, part: str) -> None:
    """Its checksum is right, and what it refers to is not there."""
    looked(lab)
    (ours,) = cache.iterdir()
    data, place = msgspec.json.decode(ours.read_bytes()[32:]), KeptIndex.__struct_fields__.index(part)
    data[place].pop()
    changed = msgspec.json.encode(data)
    ours.write_bytes(sha256(changed).digest() + changed)
    assert found(lab) == read(lab)


_WRITING = """
import sys
from coeval.pipeline import run as run_module
from coeval.pipeline.plan.reading import run_records
from coeval.pipeline.plan.reading.kept_index import KeptIndex
from coeval.store.rundir import RunDir
run_records.SMALLEST = 0
while True:
    records = run_records.RunRecords(RunDir(sys.argv[1]))
    records.read()
    records._place.unlink(missing_ok=True)
    records._on_disk = None
    records.keep()
    print(flush=True)
"""


def test_two_that_keep_at_once_and_are_killed_leave_what_is_right(lab: Lab, cache: Path) -> None:
    expected = read(lab)
    command = [sys.executable, "-c", _WRITING, str(lab.path)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        for _ in range(20):
            assert found(lab) == expected
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    assert found(lab) == expected
    for kept in cache.glob("[!.]*"):
        kept.unlink()
    looked(lab)
    assert len(list(cache.iterdir())) == 1, "what the killed ones left is gone"


def test_a_full_disk_keeps_what_was_there(lab: Lab, cache: Path) -> None:
    looked(lab)
    (ours,) = cache.iterdir()
    before = ours.read_bytes()
    double(max((lab.path / "phase5_evaluations").glob("*.jsonl")))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
    try:
        looked(lab)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(cache.iterdir()) == [ours]
    assert ours.read_bytes() == before
    assert found(lab) == read(lab)
