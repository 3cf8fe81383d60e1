"""What surrounds a command may be odd: it works, or ends with an error that names the thing."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import EXPERIMENT, command, eval_framework

from coeval.store.jsonl import running_process_start_time
from coeval.store.rundir import RunDir

LONG = "x" * 5_000
DEEP = "/".join(["y" * 200] * 25)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    (folder / "e.yaml").write_text(EXPERIMENT)
    assert command(folder, "run", "--config", "e.yaml").code == 0
    return folder


@pytest.fixture
def place(finished: Path, tmp_path: Path) -> Path:
    """A folder with an experiment and its finished run."""
    shutil.copytree(finished, tmp_path / "here")
    return tmp_path / "here"


@pytest.mark.process
@pytest.mark.parametrize("path", [LONG, DEEP], ids=["one name", "many folders"])
@pytest.mark.parametrize(
    "words",
    ["run --config @", "status --run @", "results --run @", "show --run @", "repair --run @",
     "run --config e.yaml --resume @", "run --config new.yaml --keys @", "run --config stored.yaml",
     "run --config stored.yaml --dry-run", "run --config resumed.yaml --dry-run"],
)  # fmt: skip
def test_a_path_of_five_thousand_characters_is_named_and_refused(place: Path, words: str, path: str) -> None:
    (place / "new.yaml").write_text(EXPERIMENT.replace("id: e", "id: new"))
    (place / "stored.yaml").write_text(EXPERIMENT.replace("folder: runs", f"folder: {path}"))
    resumed = EXPERIMENT.replace("id: e", "id: new").replace("runs}", f"runs, resume_from: {path}}}")
    (place / "resumed.yaml").write_text(resumed)
    ended = command(place, *(path if word == "@" else word for word in words.split()))
    assert ended.code == 1
    assert path[:80] in ended.err
    assert "name too long" in ended.err.lower()
    assert not ended.out


@pytest.mark.parametrize("path", [LONG, DEEP], ids=["one name", "many folders"])
@pytest.mark.parametrize(
    "words", ["--output-dir @ --ifeval-responses e.yaml", "--ifeval-responses @", "--ifeval-input @"]
)
def test_a_long_path_of_a_benchmark_is_named_and_refused(place: Path, words: str, path: str) -> None:
    if "--output-dir" in words and sys.version_info >= (3, 13):
        pytest.skip(
            "from 3.13 on too long a path is one that is not there, and the responses are refused first"
        )
    given = [path if word == "@" else word for word in words.split()]
    ended = eval_framework(place, "--tasks", "ifeval", "--model", "m", *given)
    assert ended.code == 1
    assert path[:80] in ended.err


READERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "the experiment": ("e.yaml", ("run", "--config", "e.yaml", "--continue")),
    "the key file": ("k.yaml", ("run", "--config", "e.yaml", "--continue", "--keys", "k.yaml")),
    "the usual key file": ("keys.yaml", ("run", "--config", "e.yaml", "--continue")),
    "the configuration of a run": ("runs/e/config.yaml", ("results", "--run", "runs/e")),
    "meta.json": ("runs/e/meta.json", ("status", "--run", "runs/e")),
    "meta.json of what goes on": ("runs/e/meta.json", ("run", "--config", "e.yaml", "--continue")),
    "items": ("runs/e/phase3_datapoints/t.m.datapoints.jsonl", ("results", "--run", "runs/e")),
    "answers": ("runs/e/phase4_responses/t.m.responses.jsonl", ("show", "--run", "runs/e")),
    "judgments": ("runs/e/phase5_evaluations/t.m.m.evaluations.jsonl", ("repair", "--run", "runs/e")),
    "judgments of what goes on": (
        "runs/e/phase5_evaluations/t.m.m.evaluations.jsonl",
        ("run", "--config", "e.yaml", "--continue"),
    ),
    "usage": ("runs/e/usage.json", ("run", "--config", "e.yaml", "--continue")),
    "recipes": ("runs/e/recipes.json", ("run", "--config", "e.yaml", "--continue")),
    "the lock": ("runs/e/.lock", ("run", "--config", "e.yaml", "--continue")),
    "the log": ("runs/e/run.log", ("run", "--config", "e.yaml", "--continue")),
    "errors": ("runs/e/run_errors.jsonl", ("status", "--run", "runs/e")),
    "prices": ("Config/provider_pricing.yaml", ("run", "--config", "auto.yaml", "--dry-run")),
}

UNNEEDED = ("usage", "recipes", "errors", "the log")
"""What a finished run that goes on does without."""


def put(place: Path, name: str, make: Callable[[Path], None]) -> None:
    path = place / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.unlink(missing_ok=True)
    make(path)
    (place / "auto.yaml").write_text(EXPERIMENT.replace("simulated", "auto").replace("id: e", "id: auto"))


@pytest.mark.parametrize("what", READERS)
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(place: Path, what: str) -> None:
    name, words = READERS[what]
    put(place, name, os.mkfifo)
    ended = command(place, *words)
    assert Path(name).name in ended.err
    assert "a pipe, not a file" in ended.err
    assert ended.code == 1


@pytest.mark.process
@pytest.mark.parametrize("what", [what for what in READERS if what not in UNNEEDED])
def test_a_folder_in_the_place_of_a_file_is_an_error_that_names_it(place: Path, what: str) -> None:
    name, words = READERS[what]
    put(place, name, Path.mkdir)
    ended = command(place, *words)
    assert Path(name).name in ended.out + ended.err


@pytest.mark.parametrize("flag", ["--ifeval-responses", "--ifeval-input"])
def test_a_pipe_in_the_place_of_a_benchmarks_file_is_refused(place: Path, flag: str) -> None:
    os.mkfifo(place / "given.jsonl")
    ended = eval_framework(place, "--tasks", "ifeval", "--model", "m", flag, "given.jsonl")
    assert ended.code == 1
    assert "given.jsonl" in ended.err


def limited(which: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(which, (most, most))


@pytest.mark.process
@pytest.mark.parametrize("files", [8, 12, 20, 31])
def test_few_open_files_are_an_error_that_names_the_limit(place: Path, files: int) -> None:
    before = limited(resource.RLIMIT_NOFILE, files)
    ended = command(place, "run", "--config", "e.yaml", "--continue", before=before)
    assert ended.code == 1
    assert f"this process may open {files} files, and a run needs at least 32" in ended.err
    assert "ulimit -n" in ended.err
    assert command(place, "status", "--run", "runs/e", before=before).code == 0


@pytest.mark.process
def test_a_low_limit_of_open_files_is_raised_where_it_may_be(place: Path) -> None:
    def lowered() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (8, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    assert command(place, "run", "--config", "e.yaml", "--overwrite", before=lowered).code == 0


@pytest.mark.process
@pytest.mark.parametrize("mebibytes", [400, 700, 1_000])
def test_little_address_space_ends_with_a_message_and_no_signal(place: Path, mebibytes: int) -> None:
    before = limited(resource.RLIMIT_AS, mebibytes << 20)
    for words in ("results --run runs/e", "show --run runs/e", "run --config e.yaml --overwrite"):
        ended = command(place, *words.split(), before=before)
        assert ended.code == 1, ended.err
        assert "ulimit -v" in ended.err
    assert command(place, "status", "--run", "runs/e", before=before).code == 0
    assert command(place, "results", "--run", "runs/e").code == 0, "the run itself is whole"


@pytest.mark.process
@pytest.mark.parametrize(
    "proxy",
    ["http://", "://", "http://[::1", "http://h:99999", "http://h:x", "socks5://127.0.0.1:1", "h h", "ftp://h",
     "http://u:p@ss/w@h:1", "http://%zz", "\udcff", "http://" + "x" * 5_000, "[", "http:///path"],
)  # fmt: skip
def test_a_malformed_proxy_is_an_error_that_names_it(place: Path, proxy: str) -> None:
    data = EXPERIMENT.replace("interface: simulated", "interface: vllm").replace("id: e", "id: asked")
    address = "parameters: {base_url: 'http://models.invalid/v1'}, access_key: kkkkkkkk, roles:"
    data = data.replace("roles:", address)
    (place / "asked.yaml").write_text(data)
    everywhere = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy"), proxy) | {"no_proxy": ""}
    ended = command(place, "run", "--config", "asked.yaml", environment=everywhere)
    assert ended.code in (1, 2)
    assert "proxy" in ended.err.lower()
    assert "p@ss" not in ended.err
    assert not (place / "runs" / "asked" / "meta.json").exists()


@pytest.mark.process
def test_a_key_file_that_sets_an_anchor_twice_is_not_quoted(place: Path) -> None:
    (place / "k.yaml").write_text(
        "providers:\n  openai: &a sk-one-secret-word\n  groq: &a sk-another-secret\n"
    )
    (place / "k.yaml").chmod(0o600)
    ended = command(place, "run", "--config", "e.yaml", "--continue", "--keys", "k.yaml")
    assert ended.code == 0
    assert "secret" not in ended.out + ended.err


# A run has one writer, whatever becomes of its lock file, and its folder leads nowhere else.

HOLD = """
import sys
from coeval.store.rundir import RunDir
with RunDir(sys.argv[1]).hold_lock():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def held(place: Path) -> Iterator[Path]:
    """The folder of a run that another process is at work on."""
    run = place / "runs" / "e"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield run
        process.communicate()


def delete(*files: Path) -> None:
    for file in files:
        file.unlink()


def replace(file: Path) -> None:
    file.unlink()
    file.write_bytes(b"")


DELETIONS: dict[str, Callable[[Path], None]] = {
    "the lock": lambda run: delete(run / ".lock"),
    "the lock and who holds it": lambda run: delete(*run.glob(".lock*")),
    "the lock, and another put there": lambda run: replace(run / ".lock"),
    "who holds it": lambda run: delete(run / ".lock.holder.json"),
}


@pytest.mark.process
@pytest.mark.parametrize("what", DELETIONS)
def test_deleting_the_lock_admits_no_second_writer(held: Path, what: str) -> None:
    DELETIONS[what](held)
    for words in (("run", "--config", "e.yaml", "--continue"), ("repair", "--run", "runs/e")):
        ended = command(held.parents[1], *words)
        assert ended.code == 1
        assert "is in use by" in ended.err
        assert "wait for it or stop it" in ended.err


def claim(run: Path, pid: int, begun: str | None) -> None:
    """Have a run say that it is at work, in a process of this number."""
    meta = json.loads((run / "meta.json").read_text())
    (run / "meta.json").write_text(json.dumps({**meta, "status": "running"}))
    who = {"pid": pid, "host": socket.gethostname(), "since": "2026-01-01T00:00:00Z"}
    (run / ".lock.holder.json").write_text(json.dumps(who | ({"started": begun} if begun else {})))


@pytest.mark.process
@pytest.mark.parametrize("begun", ["1", None])
def test_another_process_of_the_same_number_is_not_the_writer(place: Path, begun: str | None) -> None:
    run = place / "runs" / "e"
    claim(run, os.getpid(), begun)
    assert "stopped before its end" in command(place, "status", "--run", "runs/e").out
    assert command(place, "run", "--config", "e.yaml", "--continue").code == 0
    claim(run, os.getpid(), running_process_start_time(os.getpid()))
    assert f"running (process {os.getpid()})" in command(place, "status", "--run", "runs/e").out
    assert command(place, "run", "--config", "e.yaml", "--continue").code == 1


@pytest.mark.process
def test_a_process_that_ended_and_was_not_waited_for_is_not_the_writer(place: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place / "runs" / "e")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert RunDir(place / "runs" / "e").writer_pid() is None
        assert command(place, "run", "--config", "e.yaml", "--continue").code == 0


def moved_out(run: Path, name: str) -> Path:
    """Have a link stand for something of the run, which now lies elsewhere."""
    target = run.parents[2] / "outside" / name.replace("/", "_")
    target.parent.mkdir(exist_ok=True)
    if (run / name).exists():
        (run / name).rename(target)
    else:
        target.write_bytes(b"theirs\n")
    (run / name).symlink_to(target)
    return target


def bytes_below(path: Path) -> dict[Path, bytes]:
    files = path.rglob("*") if path.is_dir() else [path]
    return {file: file.read_bytes() for file in files if file.is_file()}


@pytest.mark.process
def test_a_link_out_of_the_folder_stops_every_command(place: Path) -> None:
    target = moved_out(place / "runs" / "e", "phase4_responses/t.m.responses.jsonl")
    before = bytes_below(target)
    source = EXPERIMENT.replace("id: e", "id: f").replace("runs}", "runs, resume_from: e}")
    (place / "f.yaml").write_text(source)
    for words in (
        ("status", "--run", "runs/e"),
        ("results", "--run", "runs/e"),
        ("show", "--run", "runs/e"),
        ("repair", "--run", "runs/e", "--dry-run"),
        ("repair", "--run", "runs/e"),
        ("run", "--config", "e.yaml", "--continue", "--dry-run"),
        ("run", "--config", "e.yaml", "--continue"),
        ("run", "--config", "e.yaml", "--overwrite"),
        ("run", "--config", "f.yaml"),
    ):
        refuses(place, words, f"t.m.responses.jsonl is a link to {target}, outside of its run")
    assert bytes_below(target) == before


@pytest.mark.process
@pytest.mark.parametrize(
    "name",
    [
        "phase5_evaluations",
        "phase3_datapoints/t.other.datapoints.jsonl",
        ".lock",
        "run.log",
        "usage.json",
        "config.yaml",
        "meta.json",
        "run_errors.jsonl",
    ],
)
def test_a_link_out_of_the_folder_is_neither_read_nor_written(place: Path, name: str) -> None:
    target = moved_out(place / "runs" / "e", name)
    before = bytes_below(target)
    for words in (("results", "--run", "runs/e"), ("run", "--config", "e.yaml", "--continue")):
        refuses(place, words, f"runs/e/{name} is a link to {target}, outside of its run")
    assert bytes_below(target) == before


def refuses(place: Path, words: tuple[str, ...], message: str) -> None:
    ended = command(place, *words)
    assert ended.code == 1, words
    assert message in ended.err, words
    assert not ended.out


@pytest.mark.process
def test_links_that_stay_inside_and_a_folder_that_is_one_are_followed(place: Path) -> None:
    run = place / "runs" / "e"
    (run / "phase4_responses").rename(run / "answers")
    (run / "phase4_responses").symlink_to("answers")
    run.rename(place / "elsewhere")
    run.symlink_to(place / "elsewhere")
    assert command(place, "results", "--run", "runs/e").code == 0
    assert command(place, "run", "--config", "e.yaml", "--continue").code == 0


@pytest.mark.process
def test_links_in_a_circle_are_an_error_that_names_them(place: Path) -> None:
    file = place / "runs" / "e" / "phase4_responses" / "t.m.responses.jsonl"
    file.unlink()
    file.symlink_to(file.name)
    for name in ("status", "results"):
        ended = command(place, name, "--run", "runs/e")
        assert ended.code == 1
        assert "t.m.responses.jsonl" in ended.err
