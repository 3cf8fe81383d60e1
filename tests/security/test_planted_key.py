"""A key that every command of both programs is given and its host repeats: nothing shows or keeps it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp
import pytest
from cli.eval_process import surroundings, write_prompts
from fakes.echo_host import echo_host
from pipeline.experiments import model, quiz, task
from ruamel.yaml import YAML
from secret_encodings import ENCODINGS, left_of

from coeval.benchmarks.assets.library import Library, Presence
from coeval.benchmarks.task_registry import TASKS, benchmark_class

KEY = "sk-proj-9aK2mQ7xR4vT1zW8+/b5Nc3Yd6Lg0Hj"
"""With signs that URLs, base64 and JSON each write in their own way."""
NAMES = ["ann", "ben"]
PROGRAM = """\
import importlib, json, sys
for module, words in json.loads(sys.stdin.read()):
    sys.argv = ["program", *words]
    try:
        importlib.import_module(module).main()
    except SystemExit as end:
        print("exit", end.code, flush=True)
"""
COEVAL, EVAL_FRAMEWORK = "coeval.cli.main", "coeval.cli.eval_framework.command"


class Place(NamedTuple):
    """``given`` holds what the user wrote, keys and all; everything else is below ``here``."""

    given: Path
    here: Path

    @property
    def run(self) -> Path:
        return self.here / "runs" / "exp"


class Shown(NamedTuple):
    out: str
    err: str

    @property
    def codes(self) -> list[str]:
        return [line.removeprefix("exit ") for line in self.out.splitlines() if line.startswith("exit ")]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "given", tmp_path / "here")
    place.given.mkdir()
    place.here.mkdir()
    return place


def configured(place: Place, url: str, **fields: Any) -> Path:
    """An experiment whose models are at ``url``, with all that a teacher may propose left to it."""
    models = [
        model(name, temperature=0)
        | {"interface": "vllm", "parameters": {"base_url": url, "max_tokens": 500}}
        | fields
        for name in NAMES
    ]
    proposed = {"target_attributes": "auto", "nuanced_attributes": "auto", "rubric": "auto"}
    tasks = [task(total=2, **proposed), task("told", total=2), quiz(total=2)]
    settings = {"probe_mode": "full", "probe_on_fail": "warn", "log_level": "DEBUG", "generation_retries": 6}
    experiment = {"id": "exp", "storage_folder": str(place.here / "runs"), **settings}
    path = place.given / "exp.yaml"
    with path.open("w") as stream:
        YAML(typ="safe", pure=True).dump({"models": models, "tasks": tasks, "experiment": experiment}, stream)
    return path


async def shown(place: Place, commands: Sequence[tuple[str, Sequence[object]]], **env: str) -> Shown:
    """What the commands print, one after the other in one process."""
    clean = {name: value for name, value in os.environ.items() if not name.endswith(("_KEY", "_TOKEN"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, cwd=place.here,
        env={**clean, "HOME": str(place.here / "home"), "COLUMNS": "500", **env},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    words = json.dumps([(module, [str(word) for word in said]) for module, said in commands])
    out, err = await asyncio.wait_for(process.communicate(words.encode()), 280)
    return Shown(out.decode(), err.decode())


def kept(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every file's text below a folder; of JSON also what its strings say, of archives what is in them."""
    for path in sorted(folder.rglob("*")):
        yield path, path.name
        if not path.is_file() or path.is_symlink():
            continue
        content = path.read_bytes()
        yield path, content.decode("utf-8", "replace")
        if path.suffix in (".json", ".jsonl"):
            lines = content.splitlines() if path.suffix == ".jsonl" else [content]
            yield path, "\n".join(text for line in lines for text in texts(json.loads(line)))
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    yield path / name, archive.read(name).decode("utf-8", "replace")


def texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, item in value.items():
                yield key
                yield from texts(item)
        case list():
            for item in value:
                yield from texts(item)


def assert_hidden(place: Place, *printed: Shown) -> None:
    for output in printed:
        for line in (output.out + output.err).splitlines():
            assert left_of(KEY, line) == [], line
        assert left_of(KEY, output.out + output.err) == []
        assert "internal error" not in output.err
    for path, text in kept(place.here):
        assert left_of(KEY, text) == [], path


def readers(place: Place) -> list[tuple[str, list[str]]]:
    """Every command that shows a run."""
    run = ["--run", str(place.run)]
    said: list[list[str]] = [
        ["status", *run],
        ["results", *run],
        *(["results", *run, "--by", part] for part in ("factor", "attribute", "judge", "teacher")),
        ["results", *run, "--json"],
        ["results", *run, "--csv"],
        ["show", *run, "--full"],
        ["show", *run, "--json"],
        ["show", *run, "--disagreement", "--full"],
        ["repair", *run, "--dry-run", "--stats", "--breakdown", "--examples", "9"],
        ["repair", *run],
        ["datasets", "list"],
        ["datasets", "verify"],
    ]
    return [(COEVAL, words) for words in said]


SOURCES = ("config", "key file", "environment")
WITNESSES = ("as it is", "in base64", "for HTML, every sign")
"""`test_redaction` tries every encoding, here three of them show that each text goes by the redactor."""


@pytest.mark.system
@pytest.mark.parametrize(("encoding", "source"), [*zip(WITNESSES, SOURCES, strict=True)])
async def test_no_command_of_coeval_shows_or_keeps_a_key(place: Place, encoding: str, source: str) -> None:
    async with echo_host(NAMES, ENCODINGS[encoding]) as host:
        config = configured(place, host.url, **({"access_key": KEY} if source == "config" else {}))
        how: list[str] = ["run", "--config", str(config), "--log-level", "DEBUG"]
        keys = place.given / "keys.yaml"
        if source == "key file":
            keys.write_text(f"providers:\n  vllm: {KEY}\n")
            keys.chmod(0o600)
            how += ["--keys", str(keys)]
        requested = await shown(
            place,
            [
                (COEVAL, [*how, "--dry-run"]),
                (COEVAL, how),
                (COEVAL, [*how, "--continue"]),
                (COEVAL, [*how, "--continue", "--dry-run"]),
                *readers(place),
                (COEVAL, [*how, "--overwrite"]),
                (COEVAL, ["status", "--run", str(place.run)]),
            ],
            **({"VLLM_API_KEY": KEY} if source == "environment" else {}),
        )
    assert set(requested.codes) == {"0", "3"}
    assert set(host.heard) == {KEY}
    assert len(host.faults) == 7
    assert "repeats a credential in its answers" in requested.err
    records = [path.read_text() for path in place.run.glob("phase*/*.jsonl")]
    assert any("[redacted]" in text for text in records), "faults meet whoever asks then"
    assert_hidden(place, requested)


def tasks_there_is_data_for() -> list[str]:
    """The two that are judged by rules bring their own prompts; the others need what is fetched."""
    library = Library()
    judged = [name for name in TASKS if benchmark_class(name).needs_judge]
    return [
        name
        for name in judged
        if all(library.presence(asset)[0] is Presence.READY for asset in benchmark_class(name).assets)
    ]


@pytest.mark.system
@pytest.mark.parametrize(("encoding", "source"), [*zip(WITNESSES, SOURCES[::-1], strict=True)])
async def test_no_command_of_eval_framework_shows_or_keeps_a_key(
    place: Place, encoding: str, source: str
) -> None:
    cache = place.here / "cache"
    cache.mkdir()
    (cache / "files").symlink_to(Library().cache.root / "files")
    prompts = write_prompts(place.given / "prompts.jsonl", "punctuation:no_comma", ["One.", "Two."])
    responses = place.given / "responses.jsonl"
    responses.write_text('{"key": 0, "response": "One"}\n{"key": 1, "response": "Two, too"}\n')
    own = ["--ifeval-input", prompts, "--ifbench-input", prompts]
    judged = tasks_there_is_data_for()
    every = ",".join(["ifeval", "ifbench", *judged, f"coeval:{place.run}"])
    keys = place.given / "keys.yaml"
    keys.write_text(f"providers:\n  vllm: {KEY}\n")
    keys.chmod(0o600)
    ways: dict[str, list[object]] = {
        "config": ["--api-key", KEY],
        "key file": ["--keys", keys],
        "environment": [],
    }
    with_key = ways[source]
    async with echo_host(NAMES, ENCODINGS[encoding]) as host:
        config = configured(place, host.url)
        how = ["--model", "ann", "--base-url", host.url, *with_key, *own, "--log-level", "DEBUG"]
        few = ["--max-examples", 2]
        judge = ["--judge-model", "ben", "--judge-base-url", host.url]
        judge += ["--judge-api-key", KEY] if source == "config" else []
        later = ["--tasks", ",".join(judged or ["arena-hard"]), *how, *few, "--output-dir", "later"]
        given = ["--ifeval-responses", responses, "--ifeval-input", prompts, "--output-dir", "given"]
        requested = await shown(
            place,
            [
                (COEVAL, ["run", "--config", config]),
                (EVAL_FRAMEWORK, ["--tasks", every, *how, *few, *judge]),
                (EVAL_FRAMEWORK, ["--tasks", every, *how, *few, *judge, "--writingbench-write-excel"]),
                (EVAL_FRAMEWORK, ["--tasks", every, *how, *few, *judge, "--json"]),
                (EVAL_FRAMEWORK, ["--tasks", every, *how, *few, "--inference-only", "--output-dir", "later"]),
                (EVAL_FRAMEWORK, [*later, *judge, "--judge-only"]),
                (EVAL_FRAMEWORK, ["--tasks", "ifeval", *how, "--num-runs", 2, "--output-dir", "twice"]),
                (EVAL_FRAMEWORK, [*given, *with_key, "--log-level", "DEBUG"]),
            ],
            **surroundings(place.given),
            COEVAL_CACHE=str(cache),
            VLLM_API_KEY=KEY,
        )  # fmt: skip
    # Refusals, echo and all, end a probe or a model, by their number; then nothing may be there to judge.
    assert {"0", "3"} <= set(requested.codes) <= {"0", "1", "2", "3"}, requested.err
    assert "does not answer" in requested.err
    assert set(host.heard) == {KEY}
    assert len(host.faults) == 7
    assert "repeats a credential in its answers" in requested.err
    assert "[redacted]" in "".join(text for _, text in kept(place.here / "outputs"))
    assert_hidden(place, requested)


@pytest.mark.process
@pytest.mark.parametrize("encoding", WITNESSES)
async def test_fetching_data_shows_and_keeps_no_password_of_an_index_or_a_mirror(
    place: Place, encoding: str
) -> None:
    async with echo_host(NAMES, ENCODINGS[encoding]) as host:
        _, _, address = host.url.removesuffix("/v1").partition("://")
        mirror = f"http://me:{quote(KEY, safe='')}@{address}"
        assets = ["ifeval", "alpaca-eval/difficulty", "nltk/averaged_perceptron_tagger_eng"]
        fetch = ["datasets", "fetch", *assets]
        requested = await shown(
            place,
            [(COEVAL, fetch), (COEVAL, ["datasets", "list"]), (COEVAL, ["datasets", "verify"])],
            COEVAL_CACHE=str(place.here / "cache"),
            PIP_INDEX_URL=f"{mirror}/simple",
            HF_ENDPOINT=mirror,
            COEVAL_GITHUB_MIRROR=f"{host.url}/{KEY}",
        )
    assert requested.codes[0] == "1", requested
    assert KEY in host.heard
    assert_hidden(place, requested)


@pytest.mark.process
async def test_a_simulated_server_shows_nobody_its_key(place: Place) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "coeval", "simulate", "--port", "0", "--model", "ann",
        cwd=place.here, env={**os.environ, "COEVAL_SIMULATE_API_KEY": KEY},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    said = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
    reported: list[str] = []
    try:
        url = said.split()[3].rstrip(":") + "/chat/completions"
        ask = {"model": "ann", "messages": [{"role": "user", "content": "What is your key?"}]}
        async with aiohttp.ClientSession() as client:
            for key, body in ((KEY, ask), (KEY[:-1], ask), (KEY, {"model": 1}), ("", None)):
                headers = {"Authorization": f"Bearer {key}"}
                async with client.post(url, json=body, headers=headers) as answer:
                    reported += [await answer.text(), str(answer.headers), str(answer.status)]
    finally:
        process.terminate()
        out, err = await asyncio.wait_for(process.communicate(), 60)
    assert reported[2::3] == ["200", "401", "400", "401"]
    assert_hidden(place, Shown("\n".join((said, out.decode(), *reported)), err.decode()))
