"""What surrounds a command may be odd: it works, or ends with an error that names the thing."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import EXPERIMENT, command, eval_framework

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


@pytest.mark.slow
@pytest.mark.parametrize("files", [8, 12, 20, 31])
def test_few_open_files_are_an_error_that_names_the_limit(place: Path, files: int) -> None:
    before = limited(resource.RLIMIT_NOFILE, files)
    ended = command(place, "run", "--config", "e.yaml", "--continue", before=before)
    assert ended.code == 1
    assert f"this process may hold {files} files open, and a run takes at least 32" in ended.err
    assert "ulimit -n" in ended.err
    assert command(place, "status", "--run", "runs/e", before=before).code == 0


def test_a_low_limit_of_open_files_is_raised_where_it_may_be(place: Path) -> None:
    def lowered() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (8, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    assert command(place, "run", "--config", "e.yaml", "--overwrite", before=lowered).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("mebibytes", [400, 700, 1_000])
def test_little_address_space_ends_with_a_message_and_no_signal(place: Path, mebibytes: int) -> None:
    before = limited(resource.RLIMIT_AS, mebibytes << 20)
    for words in ("results --run runs/e", "show --run runs/e", "run --config e.yaml --overwrite"):
        ended = command(place, *words.split(), before=before)
        assert ended.code == 1, ended.err
        assert "ulimit -v" in ended.err
    assert command(place, "status", "--run", "runs/e", before=before).code == 0
    assert command(place, "results", "--run", "runs/e").code == 0, "the run itself is whole"


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


def test_a_key_file_that_sets_an_anchor_twice_is_not_quoted(place: Path) -> None:
    (place / "k.yaml").write_text(
        "providers:\n  openai: &a sk-one-secret-word\n  groq: &a sk-another-secret\n"
    )
    (place / "k.yaml").chmod(0o600)
    ended = command(place, "run", "--config", "e.yaml", "--continue", "--keys", "k.yaml")
    assert ended.code == 0
    assert "secret" not in ended.out + ended.err
