"""Credentials in settings: in addresses, wherever one is set, and in fields that are sent with requests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from fakes.openai_chat import Answer, fake
from pipeline.experiments import Lab, model, over_http, served, task
from secret_encodings import ENCODINGS, left_of

from coeval.api import arun
from coeval.benchmarks.assets.cache import Parcel, download_wheel
from coeval.core.errors import ConfigError, UsageError
from coeval.core.shown_url import find_url_secrets, mask_url
from coeval.models.transport.network import SourceFailed
from coeval.pipeline.config.load_file import read_config

KEYS = {
    "of a known host": "sk-proj-9aK2mQ7xR4vT1zW8b5Nc3Yd6Lg0Hj",
    "at random": "Zq7Lw2Np9XvT4sBd",
    "a password": "Tr0ub4dor&3-correct",
}
POSITIONS = {
    "path": "http://{at}/{key}/v1",
    "setting in the path": "http://{at}/v1/key={key}",
    "parameter": "http://{at}/v1;key={key}",
    "query": "http://{at}/v1?key={key}",
    "query without a name": "http://{at}/v1?{key}",
    "fragment": "http://{at}/v1#{key}",
    "user": "http://{key}@{at}/v1",
    "password": "http://me:{key}@{at}/v1",
    "password with an @": "http://me:{key}@x@{at}/v1",
    "password with a slash": "http://me:{key}/x@{at}/v1",
    "without a scheme": "me:{key}@{at}/v1",
    "with one slash": "http:/{key}@{at}/v1",
    "in place of a port": "http://127.0.0.1:{key}/v1",
    "in a bracket left open": "http://[{key}/v1",
    "in place of a host": "http://{key}.invalid/v1",
    "with a blank": "http://me:{key}@{at}/v1 x",
    "in two lines": "http://me:{key}\n@{at}/v1",
    "of another scheme": "ftp://me:{key}@{at}/v1",
    "nothing else": "{key}",
}  # fmt: skip
PLACES = (
    "base_url",
    "--base-url",
    "--judge-base-url",
    "HTTP_PROXY",
    "HF_ENDPOINT",
    "PIP_INDEX_URL",
    "--keys",
)
PROGRAM = """\
import importlib, json, os, sys
for number, (module, words, env) in enumerate(json.loads(sys.stdin.read())):
    sys.argv = ["program", *words]
    os.environ.update(env)
    for stream in (sys.stdout, sys.stderr):
        print(f"@@{number}@@", file=stream, flush=True)
    try:
        importlib.import_module(module).main()
    except SystemExit as end:
        print("exit", end.code, flush=True)
    for name in env:
        del os.environ[name]
"""
COEVAL, EVAL_FRAMEWORK = "coeval.cli.main", "coeval.cli.eval_framework.command"


class Ended(NamedTuple):
    """What a command said, and what the files say that it left."""

    said: str
    kept: str


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    """The address of a host that has nothing, and repeats what it was asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            content = f"there is no {self.path}".encode()
            self.send_response(404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815  the name it has there

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def tried(place: str, at: str, root: Path) -> dict[tuple[str, str], Ended]:
    """What came of every address with every key, by position and key, in one process."""
    (root / "here").mkdir()
    kinds = ("a password",) if place == "PIP_INDEX_URL" else KEYS  # pip is slow to start
    cases = [(position, kind) for position in POSITIONS for kind in kinds]
    addresses = [POSITIONS[position].format(key=KEYS[kind], at=at) for position, kind in cases]
    commands = [_command(root, number, place, address, at) for number, address in enumerate(addresses)]
    clean = {name: value for name, value in os.environ.items() if not name.endswith(("_KEY", "_TOKEN"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(commands), capture_output=True, text=True,
        cwd=root / "here", env={**clean, "HOME": str(root), "NO_PROXY": "127.0.0.1"}, timeout=280, check=True,
    )  # fmt: skip
    said = [""] * len(cases)
    for stream in (done.stdout, done.stderr):
        parts = re.split(r"^@@(\d+)@@\n", stream, flags=re.MULTILINE)
        for number, part in zip(parts[1::2], parts[2::2], strict=True):
            said[int(number)] += part
    return {
        case: Ended(said[number], _kept(root / "here" / "runs" / f"e{number}"))
        for number, case in enumerate(cases)
    }


def _command(
    root: Path, number: int, place: str, address: str, at: str
) -> tuple[str, list[str], dict[str, str]]:
    how = ["--log-level", "DEBUG"]
    match place:
        case "--base-url" | "--judge-base-url":
            others = {"--base-url": f"http://{at}/v1", "--judge-base-url": f"http://{at}/v1"} | {
                place: address
            }
            prompts = root / "prompts.json"
            prompts.write_text('[{"instruction": "Why?", "output": "So.", "dataset": "d"}]')
            words = ["--tasks", "alpaca-eval", "--alpaca-eval-reference", str(prompts), "--model", "m"]
            words += ["--judge-model", "j", "--output-dir", f"runs/e{number}"]
            return EVAL_FRAMEWORK, [*words, *(word for pair in others.items() for word in pair), *how], {}
        case "HF_ENDPOINT":
            return COEVAL, ["datasets", "fetch", "alpaca-eval/difficulty"], _fetching(root, place, address)
        case "PIP_INDEX_URL":
            return COEVAL, ["datasets", "fetch", "ifeval"], _fetching(root, place, address)
        case _:
            url = address if place == "base_url" else "http://somewhere.invalid/v1"
            config = _experiment(root, number, url)
            keys = ["--keys", address] if place == "--keys" else []
            env = {"http_proxy": address} if place == "HTTP_PROXY" else {}
            return COEVAL, ["run", "--config", str(config), *keys, *how], env


def _fetching(root: Path, name: str, address: str) -> dict[str, str]:
    return {name: address, "COEVAL_CACHE": str(root / "cache"), "PIP_RETRIES": "0"}


def _experiment(root: Path, number: int, url: str) -> Path:
    lab = Lab(root / "here", models=[model("m") | {"interface": "vllm"}], tasks=[task()], id=f"e{number}")
    lab.models[0]["parameters"] = {"base_url": url}
    return lab.file.rename(root / f"{number}.yaml")


def _kept(folder: Path) -> str:
    return "\n".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


@pytest.mark.system
@pytest.mark.parametrize("place", PLACES)
def test_no_address_is_shown_or_kept_with_the_key_in_it(place: str, refusing: str, tmp_path: Path) -> None:
    for (position, kind), (said, kept) in tried(place, refusing, tmp_path).items():
        case = f"{kind}, {position}"
        assert left_of(KEYS[kind], said) == [], f"{case}: {said}"
        assert left_of(KEYS[kind], kept) == [], case
        assert "internal error" not in said, f"{case}: {said}"
        assert re.search(r"^exit [12]$", said, re.MULTILINE), f"{case}: {said}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("https://[::1]:8443/v1", "https://[::1]:8443/v1"),
        ("https://example.com/openai/deployments/gpt-4o-mini/v1", None),
        ("https://example.com/v1/accounts/0f1e2d3c-4b5a-6978-88a7-b6c5d4e3f201/ai", None),
        ("https://a.example/projects/My-Project_1/locations/us-central1/Qwen2.5-7B-Instruct", None),
        ("https://a.example/@cf/meta/llama-3.1-8b", None),
    ],
)
def test_addresses_without_a_key_are_shown_whole(url: str, shown: str | None) -> None:
    assert mask_url(url) == (shown or url)
    assert set(find_url_secrets(url)) <= {""}


@pytest.mark.process
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_index_that_repeats_its_password_to_pip_is_not_quoted(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = "correct-horse-battery-staple"
    echoed = quote(ENCODINGS[encoding](password), safe="")
    said = f"echo 'ERROR: 404 for url http://a.example/{echoed}/some.whl'; exit 1"
    parcel = Parcel(requirement="some==1.0", file="some-1.0-py3-none-any.whl", sha256="0" * 64)
    monkeypatch.setattr("coeval.benchmarks.assets.cache.pip_command", lambda: ["sh", "-c", said])
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:{password}@a.example/simple")
    with pytest.raises(SourceFailed, match="404 for url") as failed:
        download_wheel(parcel, tmp_path, lambda _: None)
    assert left_of(password, str(failed.value)) == []


@pytest.mark.process
def test_a_key_given_in_the_place_of_a_name_or_a_file_is_not_repeated(tmp_path: Path) -> None:
    key = KEYS["of a known host"]
    said = [
        (COEVAL, ["status", "--run", key]),
        (COEVAL, ["results", "--run", key]),
        (COEVAL, ["run", "--config", key]),
        (COEVAL, [key]),
        (COEVAL, ["datasets", "fetch", key]),
        (COEVAL, ["simulate", "--model", "m", "--host", key]),
        (EVAL_FRAMEWORK, ["--tasks", key, "--model", "m"]),
        (EVAL_FRAMEWORK, ["--ifeval-responses", key]),
        (EVAL_FRAMEWORK, ["--tasks", "ifeval", "--model", "m", "--keys", key]),
        # what the argument parser itself refuses
        (COEVAL, ["results", "--run", "x", "--by", key]),
        (COEVAL, ["status", "x", key]),
        (COEVAL, ["run", f"--{key}"]),
        (COEVAL, ["datasets", "list", key]),
        (EVAL_FRAMEWORK, [key]),
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps([(*words, {}) for words in said]),
        capture_output=True, text=True, cwd=tmp_path, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.count("exit 1") == len(said)
    assert done.stderr.count("[redacted]") + done.stderr.count("***") >= len(said)
    assert left_of(key, done.stdout + done.stderr) == []


NAMES = (
    "api_key", "apikey", "API-KEY", "apiKey", "x-api-key", "x-auth", "X-Auth-Token", "auth", "authorization",
    "Authorization", "proxy-authorization", "bearer", "bearer_token", "access_token", "accessToken", "token",
    "pwd", "passwd", "password", "user_pass", "passphrase", "secret", "client_secret", "private_key",
    "aws_secret_access_key", "access_key_id", "session_token", "credentials", "cookie", "jwt", "headers",
    "extra_headers", "default_headers", "http_headers",
)  # fmt: skip
HARMLESS = (
    "max_tokens", "stop_token_ids", "eos_token", "prompt_cache_key", "logit_bias", "min_tokens", "user",
    "safety_identifier", "token_count", "skip_special_tokens", "tokenizer", "author", "keyword", "monkey",
    "passes", "secretary", "thinking_token", "add_generation_prompt",
)  # fmt: skip
DEPTHS: dict[str, Any] = {
    "a parameter": lambda name, value: {name: value},
    "in extra_body": lambda name, value: {"extra_body": {name: value}},
    "deep within": lambda name, value: {"extra_body": {"a": [{"b": {name: value}}]}},
    "as a header is written": lambda name, value: {
        "extra_body": {"fields": [{"name": name, "value": value}]}
    },
}


def problems(folder: Path, parameters: dict[str, Any], role: str | None = None, **entry: Any) -> list[str]:
    """What a configuration with these parameters is told."""
    changes = {"role_parameters": {role: parameters}} if role else {"parameters": parameters}
    lab = Lab(folder, models=[model("m") | {"interface": "openai", **changes, **entry}])
    try:
        read_config(lab.file)
    except ConfigError as error:
        return error.problems
    return []


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", NAMES)
def test_a_field_named_like_a_credential_is_refused_with_the_way_out(
    tmp_path: Path, name: str, depth: str
) -> None:
    secret = "s3cr3t-value-of-mine"
    found = problems(tmp_path, DEPTHS[depth](name, {"any": secret} if "eader" in name else secret))
    assert [problem for problem in found if "V-26" in problem], found
    assert "access_key" in found[0]
    assert "secret-value" not in "".join(found).replace("3", "e")


@pytest.mark.parametrize("role", ["teacher", "student", "judge"])
def test_parameters_of_a_role_hold_no_credential_either(tmp_path: Path, role: str) -> None:
    found = problems(tmp_path, {"extra_body": {"x-auth": "any"}}, role)
    assert f"models[0].role_parameters.{role}.extra_body.x-auth  V-26" in "".join(found)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_models_own_key_is_refused_under_any_name(tmp_path: Path, encoding: str) -> None:
    key = KEYS["of a known host"]
    found = problems(tmp_path, {"extra_body": {"user": ENCODINGS[encoding](key)}}, access_key=key)
    assert "V-26" in "".join(found)
    assert left_of(key, "".join(found)) == []


def test_a_key_of_a_known_host_is_refused_under_any_name(tmp_path: Path) -> None:
    key = KEYS["of a known host"]
    (found,) = problems(tmp_path, {"extra_body": {"metadata": {"note": f"it is {key}"}}})
    assert "V-26" in found
    assert left_of(key, found) == []


@pytest.mark.parametrize("name", HARMLESS)
def test_a_field_that_only_sounds_like_one_is_taken(tmp_path: Path, name: str) -> None:
    assert problems(tmp_path, {"extra_body": {name: "any"}}) == []


def test_what_a_json_schema_describes_is_no_credential(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"password": {"type": "string"}, "token": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "login", "parameters": schema}}
    assert problems(tmp_path, {"extra_body": {"tools": [tool], "guided_json": schema}}) == []


@pytest.mark.system
async def test_a_rotated_key_and_another_address_are_no_change_of_the_experiment(tmp_path: Path) -> None:
    """What stands in recipes.json is what was asked, and nothing of who asked or where."""
    old, new = KEYS["of a known host"], KEYS["at random"]
    names = ["ann", "ben"]
    async with served([model(name) for name in names]) as first, served([model(n) for n in names]) as second:
        lab = Lab(tmp_path, models=[over_http(model(name), first) for name in names])
        for entry in lab.models:
            entry["access_key"] = old
            entry["parameters"]["extra_body"] = {"user": "me"}
        assert (await lab.arun()).exit_code == 0
        requested = len(first.bodies)
        recipes = (lab.path / "recipes.json").read_text()
        assert "extra_body" in recipes
        for entry in lab.models:
            entry["access_key"] = new
            entry["parameters"]["base_url"] = second.url
        lab.tasks[0]["sampling"]["total"] += 1
        assert (await lab.arun(continue_run=True)).exit_code == 0
        assert (len(first.bodies), len(second.bodies) > 0) == (requested, True)
    assert recipes == (lab.path / "recipes.json").read_text()
    for path in lab.path.rglob("*"):
        kept = path.read_text() if path.is_file() else ""
        assert left_of(old, kept) + left_of(new, kept) == [], path
        assert path.name != "recipes.json" or "127.0.0.1" not in kept


async def test_a_key_that_only_the_environment_holds_is_refused_in_extra_body_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = KEYS["at random"]
    monkeypatch.setenv("VLLM_API_KEY", key)
    async with fake(reply=lambda _: Answer("ok")) as server:
        entry = model("m") | {"interface": "vllm"}
        entry["parameters"] = {"base_url": server.url, "extra_body": {"user": key}}
        with pytest.raises(UsageError, match="extra_body holds the model's key") as caught:
            await arun(Lab(tmp_path, models=[entry]).file)
    assert left_of(key, str(caught.value)) == []
    assert server.requested == []
