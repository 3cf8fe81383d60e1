"""A disk that is full, torn, read-only or taken: a clear error or recovery, and nothing lost."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.warm_process import WarmProcess
from fakes.flaky_host import Requested, hosted
from small_runs import PHASES, content, errors, experiment, folder_of, good_lines, run

from coeval.core.errors import StoreError, UsageError
from coeval.store.rundir import Meta, RunDir

TOTAL = 40

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.argv[1:2] = []
from coeval.cli.main import main
main()
"""


def coeval(*words: str | Path) -> subprocess.CompletedProcess[str]:
    process = WarmProcess(*words)
    written = process.communicate()
    return subprocess.CompletedProcess(words, process.wait(), *written)


def limited(bytes_per_file: int, *words: str) -> subprocess.CompletedProcess[str]:
    """`coeval …` where no file may grow beyond a size."""
    limit = [sys.executable, "-c", LIMITED, str(bytes_per_file)]
    return subprocess.run([*limit, *words], capture_output=True, text=True, check=False)


def messages(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What was said on stderr beside the lines of progress, which begin with the time."""
    return [line for line in done.stderr.splitlines() if not re.match(r"\d+:\d\d  ", line)]


def goes_on(file: Path) -> None:
    done = coeval("run", "--config", file, "--continue")
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(good_lines(folder_of(file)).values()) == {1}


def every_line_is_whole(folder: RunDir) -> int:
    """The number of lines of phases 3–5, each of which is a record."""
    count = 0
    for phase in PHASES:
        for path in folder.files(phase):
            data = path.read_bytes()
            assert data.endswith(b"\n") or not data, path
            count += sum(1 for line in data.splitlines() if json.loads(line)["id"])
    return count


@pytest.fixture
async def undisturbed(tmp_path: Path) -> Path:
    (tmp_path / "undisturbed").mkdir()
    file = experiment(tmp_path / "undisturbed", total=TOTAL)
    await run(file)
    return file


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, 96 KiB large."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "none", folder], check=False)
    if mounted.returncode:
        pytest.skip("this sandbox lets nobody mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """An empty file system that cannot be written to lies over a folder."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


@pytest.mark.process
async def test_a_full_disk_ends_the_run_and_loses_nothing(small_disk: Path, undisturbed: Path) -> None:
    file = experiment(small_disk, total=TOTAL)
    full = coeval("run", "--config", file)
    assert full.returncode == 1
    assert "is full; free some space and run again with --continue" in full.stderr
    assert "Traceback" not in full.stderr
    assert "Logging error" not in full.stderr
    assert len(messages(full)) == 1, full.stderr
    kept = every_line_is_whole(folder_of(file))
    assert kept > TOTAL
    still = coeval("run", "--config", file, "--continue")
    assert still.returncode == 1, "the disk is as full as before"
    assert every_line_is_whole(folder_of(file)) >= kept
    remount(small_disk, "size=8m")
    goes_on(file)
    assert content(folder_of(file)) == content(folder_of(undisturbed))


@pytest.mark.process
async def test_a_file_size_limit_ends_the_run_and_loses_nothing(tmp_path: Path, undisturbed: Path) -> None:
    file = experiment(tmp_path, total=TOTAL)
    words = ["run", "--config", str(file)]
    for limit in (9_000, 13_000):
        done = limited(limit, *words)
        assert done.returncode == 1, done.stdout
        assert "cannot append to" in done.stderr
        assert "the file-size limit of this process is reached (see `ulimit -f`)" in done.stderr
        assert every_line_is_whole(folder_of(file))
        words = ["run", "--config", str(file), "--continue"]
    goes_on(file)
    assert content(folder_of(file)) == content(folder_of(undisturbed))


CUTS: dict[str, Callable[[bytes], int]] = {
    "first byte": lambda line: 1,
    "half": lambda line: len(line) // 2,
    "all but its last bracket": lambda line: len(line) - len(b"}\n"),
}


@pytest.mark.parametrize("cut", CUTS)
async def test_a_torn_last_line_in_every_file_is_made_again(
    tmp_path: Path, undisturbed: Path, cut: str
) -> None:
    file = experiment(tmp_path, total=TOTAL)
    await run(file)
    folder = folder_of(file)
    torn, owed = {}, []
    for phase in PHASES:
        for path in folder.files(phase):
            lines = path.read_bytes().splitlines(keepends=True)
            owed.append(json.loads(lines[-1])["id"])
            torn[path.name] = lines[-1][: CUTS[cut](lines[-1])]
            path.write_bytes(b"".join([*lines[:-1], torn[path.name]]))
    folder.errors.write_bytes(b'{"at":"2026-01-01T00:00:00Z","phase":"eval')
    summary = await run(file, continue_run=True)
    assert summary.exit_code == 0
    assert every_line_is_whole(folder)
    assert content(folder) == content(folder_of(undisturbed))
    again = [key for key, lines in good_lines(folder).items() if lines > 1]
    assert all(key.startswith(tuple(f"{made}__" for made in owed)) for key in again), (
        "only what follows from a record that was made again is made twice"
    )
    noted = errors(folder)
    assert {line.kind for line in noted} == {"torn_line"}
    kept = {line.message.removeprefix("cut off the end of "): line.torn for line in noted}
    assert kept.pop("run_errors.jsonl") == '{"at":"2026-01-01T00:00:00Z","phase":"eval'
    assert kept == {name: text.decode(errors="backslashreplace") for name, text in torn.items()}


async def test_last_lines_that_lack_only_their_newline_are_records(tmp_path: Path) -> None:
    """An editor left them so. Nothing is asked for again, and what is appended later begins a line."""
    async with hosted() as host:
        file = experiment(tmp_path, host.url, total=TOTAL)
        await run(file)
        folder, requested = folder_of(file), len(host.requested)
        before = content(folder)
        paths = [path for phase in PHASES for path in folder.files(phase)]
        for path in paths:
            path.write_bytes(path.read_bytes().removesuffix(b"\n"))
        assert (await run(file, continue_run=True)).exit_code == 0
        assert len(host.requested) == requested
        assert content(folder) == before
        assert (await run(experiment(tmp_path, host.url, total=TOTAL + 1), continue_run=True)).exit_code == 0
        assert len(host.requested) == requested + 7
    assert every_line_is_whole(folder) == len(before) // TOTAL * (TOTAL + 1)
    assert errors(folder) == []


async def test_a_torn_proposal_is_asked_for_again_and_no_other(tmp_path: Path) -> None:
    async with hosted() as host:
        auto = {
            "target_attributes": "auto",
            "nuanced_attributes": "auto",
            "rubric": "auto",
            "label_attributes": [],
        }
        file = experiment(tmp_path, host.url, total=2, task=auto)
        assert (await run(file)).exit_code == 0
        folder = folder_of(file)
        before = content(folder)
        paths = [folder.target_attrs("triage"), folder.nuanced_attrs("triage"), folder.rubric("triage")]
        artifacts = {path: path.read_bytes() for path in paths}
        for path in artifacts:
            path.unlink()
        proposals = folder.folder("attribute_mapping") / "proposals.jsonl"
        proposals.write_bytes(proposals.read_bytes()[:-20])
        requested_before = len(host.requested)
        assert (await run(file, continue_run=True)).exit_code == 0
        assert len(host.requested) - requested_before == 1
    assert {path: path.read_bytes() for path in artifacts} == artifacts
    assert content(folder) == before


@pytest.fixture
def sealed(small_disk: Path) -> Path:
    remount(small_disk, "size=8m")
    return small_disk


@pytest.mark.process
async def test_a_read_only_folder_is_named_and_nothing_is_asked(sealed: Path, undisturbed: Path) -> None:
    async with hosted() as host:
        file = experiment(sealed, host.url, total=TOTAL)
        started = await asyncio.to_thread(coeval, "run", "--config", file, "--only-models", "teacher")
        assert started.returncode == 0
        path = folder_of(file).files("evaluation")[-1]
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
        requested_before = len(host.requested)
        remount(sealed, "ro")
        refused = await asyncio.to_thread(coeval, "run", "--config", file, "--continue")
        assert refused.returncode == 1
        assert refused.stderr.splitlines() == [
            f"cannot lock {sealed}/runs/run/.lock: it cannot be written to; make it writable or "
            "choose another storage_folder"
        ]
        shown = await asyncio.to_thread(coeval, "status", "--run", sealed / "runs" / "run")
        assert shown.returncode == 0, shown.stderr
        remount(sealed, "rw")
        assert len(host.requested) == requested_before
        await asyncio.to_thread(goes_on, file)
        assert len(host.requested) == requested_before + 1
    assert content(folder_of(file)) == content(folder_of(undisturbed))


@pytest.mark.process
async def test_one_folder_of_the_run_that_is_read_only_is_named(sealed: Path, undisturbed: Path) -> None:
    file = experiment(sealed, total=TOTAL)
    judged = folder_of(file).folder("evaluation")
    judged.mkdir(parents=True)
    with read_only(judged):
        refused = coeval("run", "--config", file)
    assert refused.returncode == 1
    [message] = messages(refused)
    assert message.startswith(f"cannot open {judged}/")
    goes_on(file)
    assert content(folder_of(file)) == content(folder_of(undisturbed))


@pytest.mark.process
@pytest.mark.parametrize("flag", ["--continue", "--overwrite"])
async def test_a_second_process_on_a_run_is_sent_away_by_name(
    tmp_path: Path, undisturbed: Path, flag: str
) -> None:
    released = asyncio.Event()

    async def waits(requested: Requested) -> None:
        if requested.n > 20:
            await released.wait()

    async with hosted(fault=waits) as host:
        file = experiment(tmp_path, host.url, total=TOTAL)
        first = WarmProcess("run", "--config", file)
        await host.arrived(21)
        second = await asyncio.to_thread(coeval, "run", "--config", file, flag)
        released.set()
        assert second.returncode == 1, second.stdout
        assert f"is in use by process {first.pid} on " in second.stderr
        shown = await first.output()
        assert first.returncode == 0, shown
        assert len(host.requested) == TOTAL * 7, "the second asked nothing"
    assert not (folder_of(file).path / "replaced").exists()
    assert content(folder_of(file)) == content(folder_of(undisturbed))


# A start that was cut short can be repeated, wherever it was cut.

KEPT = {"data_generation": "Keep", "response_collection": "Keep"}


def no_space(_: RunDir, __: Meta) -> None:
    raise StoreError("the disk is full")


async def cut_short(file: Path) -> None:
    """Start, and end where ``meta.json`` would be written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDir, "write_meta", no_space)
        with pytest.raises(StoreError):
            await run(file)
    assert not folder_of(file).meta.exists()


async def test_a_first_start_is_repeated(tmp_path: Path) -> None:
    file = experiment(tmp_path, total=2)
    await cut_short(file)
    assert (await run(file)).exit_code == 0


async def test_a_start_from_another_run_is_repeated(tmp_path: Path) -> None:
    for name in ("older", "newer"):
        (tmp_path / name).mkdir()
    older = experiment(tmp_path / "older", total=2)
    await run(older)
    source = {"resume_from": str(folder_of(older).path), "phases": KEPT}
    file = experiment(tmp_path / "newer", total=2, settings=source)
    await cut_short(file)
    assert folder_of(file).files("data_generation"), "taking over came before"
    assert (await run(file)).exit_code == 0
    assert content(folder_of(file)) == content(folder_of(older))


async def test_what_stands_without_being_a_run_is_never_overwritten(tmp_path: Path) -> None:
    file = experiment(tmp_path, total=2)
    await run(file)
    folder_of(file).meta.unlink()
    before = content(folder_of(file))
    with pytest.raises(UsageError, match="overwrite=True moves it to replaced/"):
        await run(file)
    assert content(folder_of(file)) == before
