"""Cached data is the pinned data when it is used, and a summary says whose data was read."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from fakes.asset_shelf import MANIFEST, PROMPTS, WHEEL_NAME, WORDS, library, stock, use
from fakes.package_index import PackageIndex, running

from coeval.benchmarks.assets.cache import (
    HUBS,
    AssetMissing,
    pip_command,
    read_manifest,
    read_string_constant,
)
from coeval.benchmarks.assets.library import Library, read_records
from coeval.models.transport.network import SourceFailed

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
    index.requested.clear()
    assert prompts(library(tmp_path)).stat().st_mtime_ns == before
    assert index.requested == []
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


@pytest.mark.process
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
    index.requested.clear()
    assert prompts(library(tmp_path)).read_text() == PROMPTS
    assert index.requested == []


def test_one_changed_file_of_a_folder_is_replaced(index: PackageIndex, tmp_path: Path) -> None:
    folder = library(tmp_path).ensure(["nltk/words"])["nltk/words"]
    (folder / "corpora/words/english").write_text(WORDS.upper())
    assert library(tmp_path).ensure(["nltk/words"]) == {"nltk/words": folder}
    assert (folder / "corpora/words/english").read_text() == WORDS


@pytest.mark.process
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


@pytest.mark.process
def test_a_summary_says_whose_data_was_read_and_its_hash(shelf: Library, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("Judge it.")
    found = shelf.ensure(["bench/prompts", "bench/judge", "nltk/words"], given={"bench/judge": mine})
    used = {name: shelf.hash_asset(name, path) for name, path in found.items()}
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
    assert shelf.hash_asset("bench/prompts", found["bench/prompts"]).origin == "official"


# The packaged manifest, in itself and (slow) against the real package index.

SHA256 = re.compile(r"[0-9a-f]{64}")


def test_every_file_is_pinned_and_has_a_source_that_exists() -> None:
    manifest = read_manifest()
    for name, asset in manifest.assets.items():
        for file in asset.files:
            assert file.sha256, name
            assert all(SHA256.fullmatch(pinned) for pinned in file.sha256), name
            assert file.sources, name
            assert all(source.parcel in manifest.parcels for source in file.sources), name
    for key, parcel in manifest.parcels.items():
        assert SHA256.fullmatch(parcel.sha256), key
        if parcel.requirement:
            assert parcel.requirement.startswith(f"{key}=="), "a wheel is pinned to one version"
        else:
            assert parcel.hub in HUBS, key
            assert re.fullmatch(r"[0-9a-f]{40}", parcel.revision), f"{key} is not pinned to a revision"


def test_files_of_the_cache_do_not_collide_or_leave_it() -> None:
    manifest = read_manifest()
    paths = [(asset.folder, file.path) for asset in manifest.assets.values() for file in asset.files]
    assert len(paths) == len(set(paths))
    for _, path in paths:
        assert not PurePosixPath(path).is_absolute()
        assert ".." not in PurePosixPath(path).parts
    parcels = [parcel.file for parcel in manifest.parcels.values()]
    assert len(parcels) == len(set(parcels))


def test_every_task_has_its_data_with_count_flag_and_licence() -> None:
    manifest = read_manifest()
    counts = {name: asset.records for name, asset in manifest.assets.items() if asset.flag}
    assert counts == {
        "ifeval/prompts": 541,
        "ifbench/prompts": 300,
        "writingbench/queries": 1000,
        "healthbench/examples": 500,
        "arena-hard/questions": 750,
        "arena-hard/baseline_o3_mini": 750,
        "arena-hard/baseline_gemini": 748,
        "alpaca-eval/baseline": 805,
    }
    assert all(asset.license and asset.origin and asset.purpose for asset in manifest.assets.values())


def test_the_page_about_datasets_says_what_the_manifest_says() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "datasets.md").read_text(encoding="utf-8")
    manifest = read_manifest()
    pins = [parcel.sha256 for parcel in manifest.parcels.values()]
    pins += [pin for asset in manifest.assets.values() for file in asset.files for pin in file.sha256]
    assert [pin for pin in pins if f"`{pin}`" not in page] == []
    lines = page.splitlines()
    for name, asset in manifest.assets.items():
        (line,) = [line for line in lines if line.startswith(f"- **`{name}`**")]
        assert asset.license in line
        assert asset.records is None or f"{asset.records:,} records" in line


@pytest.mark.system
def test_the_real_wheels_hold_what_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By pip, as a user's first use does; what only a hub has is left out."""
    pip = pip_command()
    if pip is None:
        pytest.skip("there is no pip to fetch the wheels with")
    options = ["--no-deps", "--quiet", "--retries", "0", "--timeout", "20", "--dest", str(tmp_path)]
    probe = [*pip, "download", *options, "alpaca-eval==0.6.6"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("the package index cannot be reached from here")
    monkeypatch.setenv("NLTK_DATA", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    library = Library(root=tmp_path / "cache")
    in_wheels = [
        name
        for name, asset in library.manifest.assets.items()
        if all(library.manifest.parcels[file.sources[0].parcel].requirement for file in asset.files)
    ]
    found = library.ensure(in_wheels)
    assert len(found) == len(library.manifest.assets) - 3, "only three assets are on hubs alone"
    for name, path in found.items():
        assert library.is_official(name, path), name
        needed = library.manifest.assets[name].records
        if needed is not None:
            assert sum(1 for _ in read_records(path)) == needed, name


# test_assets_constants

SOURCE = '''
raise SystemExit("this source must never run")
PLAIN = "a judge"
JOINED = (
    "two "
    "halves"
)
STRIPPED = """
text {x}
""".strip()
NESTED = {"one": {"prompt": "a judge"}, "two": {"prompt": "other"}}
FORMATTED = f"{PLAIN}!"
CALLED = open("/etc/passwd").read()
'''


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("PLAIN", "a judge"),
        ("JOINED", "two halves"),
        ("STRIPPED", "text {x}"),
        ("NESTED/one/prompt", "a judge"),
        ("NESTED/two/prompt", "other"),
    ],
)
def test_a_constant_is_read_without_running_its_source(path: str, text: str) -> None:
    assert read_string_constant(SOURCE, path) == text


@pytest.mark.parametrize("path", ["ABSENT", "NESTED", "NESTED/three", "PLAIN/key", "FORMATTED", "CALLED"])
def test_what_is_no_plain_text_is_refused(path: str) -> None:
    with pytest.raises(SourceFailed, match=path):
        read_string_constant(SOURCE, path)
