"""``coeval models``: what credentials reach, and which were found, from hosts on loopback."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.coeval_process import called
from cli.eval_process import surroundings
from cli.invoked import Command
from cli.terminal import Seen, on_terminal
from fakes import gemini
from fakes.anthropic_messages import anthropic_fake
from fakes.openai_chat import Answer, fake
from pipeline.experiments import Lab, model
from ruamel.yaml import YAML

KEY = "sk-planted-4f8Kq2Zr7Lw9Xb3T"
OTHER = "sk-planted-9Zt5Rm1Qc6Yh3Nd8"
THIRD = "sk-planted-2Bw7Kx4Vg9Ls5Pj6"
LISTED: list[dict[str, Any]] = [
    {"id": "gpt-4o-mini"},
    {"id": "gpt-4.1", "context_window": 1_047_576},
    {"id": "nobody-knows"},
]


def table(out: str) -> dict[str, list[str]]:
    """The rows of a table by their first word."""
    return {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}


@pytest.mark.process
async def test_a_host_tells_its_models_with_what_is_known_of_them(tmp_path: Path) -> None:
    async with fake(keys=[KEY], listed=LISTED) as server:
        at = ("--interface", "openai", "--base-url", server.url)
        done = await called(tmp_path, "models", *at, env={"OPENAI_API_KEY": KEY})
        reported = await called(tmp_path, "models", *at, "--json", env={"OPENAI_API_KEY": KEY})
        more = await seen(tmp_path, "models", *at, "--verbose", OPENAI_API_KEY=KEY)
        assert (server.requested, server.lists) == ([], 3)
    assert (done.code, done.err) == (0, "")
    rows = table(done.out)
    assert rows["gpt-4.1"][0] == "1,047,576"
    assert rows["gpt-4o-mini"] == ["128,000", "0.15", "0.60"]
    assert rows["nobody-knows"] == ["–", "–", "–"]
    assert "genai-prices" in done.out
    assert more.code == 0
    assert any("0.075" in line and "genai-prices" in line for line in more.screen)
    [host] = json.loads(reported.out)["hosts"]
    assert (host["interface"], host["base_url"], host["problem"]) == ("openai", server.url, None)
    by_id = {model["id"]: model for model in host["models"]}
    assert list(by_id) == sorted(by_id)
    assert by_id["nobody-knows"]["price"] is None
    assert by_id["gpt-4o-mini"]["price"]["source"].endswith(": openai gpt-4o-mini")


async def seen(folder: Path, *words: object, **env: str) -> Seen:
    """What stands on a terminal of 80 columns, which nothing overruns but a path that cannot be folded."""
    command = (sys.executable, "-m", "coeval", *words)
    around = {**surroundings(folder), **env}
    shown = await asyncio.to_thread(
        lambda: on_terminal(command, 80, cwd=folder, rows=50, out_piped=False, **around)
    )
    assert [line for line in shown.written if len(line) > 80 and str(folder) not in line] == []
    return shown


def experiment(folder: Path, *models: dict[str, Any], **settings: Any) -> Path:
    task = {
        "name": "t", "description": "Say a word.", "target_attributes": {"mood": ["glad"]},
        "sampling": {"total": 2}, "rubric": {"f": "It is good."},
    }  # fmt: skip
    roles = {"roles": ["teacher", "student", "judge"]}
    config = {
        "models": [{**roles, **model} for model in models],
        "tasks": [task],
        "experiment": {"id": "e", "storage_folder": "runs", **settings},
    }
    file = folder / "e.yaml"
    with file.open("w") as text:
        YAML(typ="safe", pure=True).dump(config, text)
    return file


def at(name: str, interface: str, url: str, model: str) -> dict[str, Any]:
    return {"name": name, "interface": interface, "parameters": {"base_url": url, "model": model}}


@pytest.mark.process
async def test_the_hosts_of_a_file_are_asked_once_each_and_those_that_fail_are_told(tmp_path: Path) -> None:
    google: list[dict[str, Any]] = [
        {"name": "models/gemini-2.5-flash", "supportedGenerationMethods": ["generateContent"]}
    ]
    async with (
        fake(keys=[KEY], listed=LISTED) as openai,
        anthropic_fake(
            keys=[KEY], models=["claude-3-5-haiku-20241022", "claude-sonnet-4-6", "claude-9"]
        ) as claude,
        gemini.fake(keys=[OTHER], listed=google) as wrong_key,
    ):
        file = experiment(
            tmp_path,
            at("a", "openai", openai.url, "gpt-4.1"),
            at("b", "openai", openai.url, "gpt-4.1"),
            at("c", "anthropic", claude.url, "claude-sonnet-4-6"),
            at("d", "gemini", wrong_key.url, "gemini-2.5-flash"),
            {"name": "e", "interface": "simulated"},
        )
        env = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), KEY)
        done = await called(tmp_path, "models", "--config", file, env=env)
        assert (openai.lists, openai.requested, claude.requested, wrong_key.requested) == (1, [], [], [])
    assert done.code == 0
    assert "gpt-4.1 (a, b)" in done.out
    assert "claude-sonnet-4-6 (c)" in done.out
    assert "claude-9" in done.out
    assert "gemini-2.5-flash" not in done.out
    [failure] = done.err.splitlines()
    assert failure.startswith(f"warning: gemini at {wrong_key.url}")
    assert "API key not valid" in failure
    assert not (tmp_path / "runs").exists()


@pytest.mark.process
async def test_a_model_is_named_only_where_and_as_whom_it_is_asked(tmp_path: Path) -> None:
    """Two accounts at one host, and one id at another host and in nobody's list there."""
    (tmp_path / "keys.yaml").write_text(
        f"providers:\n  openai: {KEY}\n  lab:\n    interface: openai\n    api_key: {OTHER}\n"
    )
    (tmp_path / "keys.yaml").chmod(0o600)
    listed = [{"id": "gpt-4.1"}, {"id": "gpt-4.1-mini"}]
    async with fake(keys=[KEY, OTHER], listed=listed) as one, fake(listed=listed) as other:
        file = experiment(
            tmp_path,
            at("ours", "openai", one.url, "gpt-4.1"),
            at("the-labs", "openai", one.url, "gpt-4.1-mini") | {"account": "lab"},
            at("elsewhere", "vllm", other.url, "gpt-4.1"),
        )
        done = await called(tmp_path, "models", "--config", file)
        reported = await called(tmp_path, "models", "--config", file, "--json")
    assert done.code == 0, done.err
    assert [line for line in done.out.splitlines() if "gpt-4.1-mini" in line and "(" in line] == [
        line for line in done.out.splitlines() if "gpt-4.1-mini (the-labs)" in line
    ]
    hosts = json.loads(reported.out)["hosts"]
    names = [[(model["id"], model["names"]) for model in host["models"]] for host in hosts]
    assert names == [
        [("gpt-4.1", ["ours"]), ("gpt-4.1-mini", [])],
        [("gpt-4.1", []), ("gpt-4.1-mini", ["the-labs"])],
        [("gpt-4.1", ["elsewhere"]), ("gpt-4.1-mini", [])],
    ]


@pytest.mark.process
async def test_without_a_word_all_are_asked_that_a_credential_was_found_for(tmp_path: Path) -> None:
    async with fake(keys=[KEY], listed=[{"id": "llama3:8b"}]) as server:
        env = {
            "OLLAMA_HOST": server.url.removesuffix("/v1"),
            "OLLAMA_API_KEY": KEY,
            "AZURE_AI_API_KEY": OTHER,
        }
        env["AZURE_AI_ENDPOINT"] = "https://nowhere.invalid"
        done = await called(tmp_path, "models", env=env)
    assert done.code == 0
    assert table(done.out)["llama3:8b"] == ["0.00", "0.00"]  # a column of what no model tells is left out
    assert "Prices in US dollars per million tokens; local models are free; –: not known." in done.out
    assert done.err.startswith("warning: azure_ai at https://nowhere.invalid")
    assert "it lists no models" in done.err


@pytest.mark.process
async def test_where_no_host_answers_the_exit_code_says_so(tmp_path: Path) -> None:
    done = await called(tmp_path, "models", "--interface", "vllm", "--base-url", "http://127.0.0.1:9/v1")
    assert (done.code, done.out) == (2, "")
    assert "GET 127.0.0.1:9/v1/models: no connection (Connection refused)" in done.err


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "no credential for any host was found"),
        (("--interface", "openia"), "there is no openia; there are anthropic, azure_ai"),
        (("--interface", "simulated"), "these models run in this process"),
        (("--base-url", "http://127.0.0.1:9/v1"), "--base-url needs --interface"),
        (("--interface", "vllm", "--base-url", "127.0.0.1:9/v1"), "no http:// or https:// before its host"),
        (("--interface", "openai", "--config", "e.yaml"), "exclude each other"),
    ],
)
def test_what_cannot_be_asked_is_a_wrong_request(
    words: tuple[str, ...], says: str, here: Path, coeval: Command
) -> None:
    done = coeval("models", *words)
    assert (done.code, done.out) == (1, "")
    assert says in done.err


def plant(folder: Path) -> dict[str, str]:
    """Keys in a key file, the environment and a configuration; the environment's is returned."""
    keys = folder / "keys.yaml"
    keys.write_text(
        f"providers:\n  groq: {KEY}\n  openai:\n    api_key: {OTHER}\n"
        f"  lab:\n    interface: anthropic\n    api_key: {THIRD}\n"
    )
    keys.chmod(0o600)
    return {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": THIRD, "AWS_REGION": "eu-central-1"}


@pytest.mark.process
async def test_which_credentials_were_found_is_told_by_place_and_never_by_value(tmp_path: Path) -> None:
    env = plant(tmp_path)
    done = await called(tmp_path, "models", "--providers", env=env)
    assert (await seen(tmp_path, "models", "--providers", **env)).code == 0
    reported = await called(tmp_path, "models", "--providers", "--json", env=env)
    assert (done.code, done.err) == (0, "")
    found = {(each["interface"], each["account"]): each for each in json.loads(reported.out)["providers"]}
    file = tmp_path / "keys.yaml"
    assert found["groq", None]["found"] == {"api_key": f"`providers.groq` in {file}"}
    assert found["openai", None]["found"] == {"api_key": f"`providers.openai` in {file}"}, (
        "before the environment"
    )
    assert found["anthropic", None]["found"] == {"api_key": "ANTHROPIC_API_KEY in the environment"}
    assert found["anthropic", "lab"]["found"] == {"account": f"`providers.lab` in {file}"}
    assert found["bedrock", None]["found"] == {"region": "AWS_REGION in the environment"}
    assert not found["bedrock", None]["usable"]
    assert not found["mistral", None]["usable"]
    assert "MISTRAL_API_KEY" in found["mistral", None]["missing"]
    assert found["vllm", None]["usable"]
    for text in (done.out, reported.out):
        assert not any(key in text for key in (KEY, OTHER, THIRD))


@pytest.mark.process
@pytest.mark.parametrize(
    ("interface", "env", "lacking"),
    [
        ("azure_openai", {"AZURE_OPENAI_API_KEY": KEY}, "AZURE_OPENAI_ENDPOINT in the environment"),
        (
            "bedrock",
            {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": OTHER},
            "needs region and none was found: set `providers.bedrock.region`",
        ),
        ("bedrock", {"AWS_ACCESS_KEY_ID": KEY}, "secret_access_key was not found"),
        (
            "vertex",
            {"GOOGLE_CLOUD_PROJECT": "p", "NO_GCE_CHECK": "true", "CLOUDSDK_CONFIG": "none"},
            "no credentials of Google Cloud were found",
        ),
    ],
)
async def test_where_a_part_is_lacking_that_part_is_named(
    interface: str, env: dict[str, str], lacking: str, tmp_path: Path
) -> None:
    shown = await called(
        tmp_path, "models", "--providers", "--interface", interface, env={**env, "COLUMNS": "500"}
    )
    reported = await called(tmp_path, "models", "--providers", "--interface", interface, "--json", env=env)
    [found] = json.loads(reported.out)["providers"]
    assert (found["usable"], list(found["found"])) != (True, [])
    assert lacking in found["missing"]
    assert lacking in shown.out


@pytest.mark.process
async def test_accounts_and_keys_of_models_are_usable_only_where_there_is_an_address(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text(
        f"providers:\n  lab:\n    interface: azure_openai\n    api_key: {KEY}\n"
        f"  cloud:\n    interface: bedrock\n    api_key: {KEY}\n"
        f"  home:\n    interface: openai\n    api_key: {KEY}\n"
    )
    keys.chmod(0o600)
    bare = {"name": "bare", "interface": "azure_openai", "access_key": OTHER}
    file = experiment(
        tmp_path, bare, at("placed", "azure_openai", "http://127.0.0.1:9", "m") | {"access_key": OTHER}
    )
    reported = [
        await called(tmp_path, "models", "--providers", "--json", *words)
        for words in ((), ("--config", file))
    ]
    rows = [each for done in reported for each in json.loads(done.out)["providers"]]
    found = {each["account"] or each["model"]: each for each in rows if each["account"] or each["model"]}
    usable = {name: each["usable"] for name, each in found.items()}
    assert usable == {"lab": False, "cloud": False, "home": True, "bare": False, "placed": True}
    assert found["lab"]["missing"].startswith("needs endpoint and none was found")
    assert found["cloud"]["missing"].startswith("needs region and none was found")
    assert found["bare"]["missing"].startswith("needs endpoint and none was found")


@pytest.mark.process
async def test_no_planted_key_is_in_any_output_or_file_of_models_and_probe(tmp_path: Path) -> None:
    """Key file, environment and configuration each hold one; hosts repeat what they were shown."""
    env, own = plant(tmp_path), "sk-planted-own-6Tg2Hq8Wn4"
    repeating = [{"id": f"tuned-for-{key}"} for key in (KEY, own)]
    async with fake(keys=["nobody's"]) as refusing, fake(listed=repeating) as open_to_all:
        file = experiment(
            tmp_path,
            at("a", "openai", refusing.url, "m"),
            at("b", "groq", open_to_all.url, "m"),
            at("c", "vllm", open_to_all.url, "m") | {"access_key": own},
            log_level="DEBUG",
        )
        planted = (KEY, OTHER, THIRD, own)
        ends = [
            await called(tmp_path, *words, env=env)
            for words in (
                ("models", "--config", file, "--verbose"),
                ("models", "--config", file, "--json"),
                ("models", "--config", file, "--providers"),
                ("probe", "--config", file),
                ("probe", "--config", file, "--on-fail", "warn"),
            )
        ]
    assert [ended.code for ended in ends] == [0, 0, 0, 2, 0], ends[0].err
    assert "Incorrect API key provided: [redacted]" in ends[3].err
    written = [path.read_text() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert len(written) >= 2
    for text in (*(ended.out + ended.err for ended in ends), *written):
        assert [key for key in planted if key in text] == []


# ``coeval probe``: each model is tried, nothing is run, and the exit code says what came of it.


def experiment_at(folder: Path, url: str, *ids: str, **settings: Any) -> Path:
    """Models at a host, named a, b, …"""
    config = {
        "models": [
            {
                "name": "abcdef"[n], "interface": "openai", "roles": ["teacher", "student", "judge"],
                "parameters": {"base_url": url, "model": name}, "access_key": KEY,
            }
            for n, name in enumerate(ids)
        ],
        "tasks": [{
            "name": "t", "description": "Say a word.", "output_description": "A word.",
            "target_attributes": {"mood": ["glad", "sad"]}, "sampling": {"total": 2},
            "rubric": {"f": "It is good."},
        }],
        "experiment": {"id": "e", "storage_folder": "runs", **settings},
    }  # fmt: skip
    file = folder / "e.yaml"
    with file.open("w") as text:
        YAML(typ="safe", pure=True).dump(config, text)
    return file


def written(folder: Path) -> dict[str, tuple[bool, bool]]:
    """Of each model in ``probe_results.json``: whether it can be asked, and whether its list said so."""
    found = json.loads((folder / "runs/e/probe_results.json").read_text())
    assert found["at"].endswith("Z")
    return {each["name"]: (each["ok"], each.get("listed", False)) for each in found["models"]}


@pytest.mark.process
async def test_what_is_listed_costs_nothing_and_what_is_not_is_asked_for_a_token(tmp_path: Path) -> None:
    listed = [{"id": "gpt-4.1"}, {"id": "gpt-4.1-mini"}]
    async with fake(keys=[KEY], models=["gpt-4.1", "gpt-4.1-mini", "an-alias"], listed=listed) as server:
        file = experiment_at(tmp_path, server.url, "gpt-4.1", "gpt-4.1-mini", "an-alias")
        done = await called(tmp_path, "probe", "--config", file)
        assert (done.code, len(server.requested), server.lists) == (0, 1, 1)
        assert server.bodies[0]["max_tokens"] == 1
    assert written(tmp_path) == {"a": (True, True), "b": (True, True), "c": (True, False)}
    rows = {line.split()[0]: line.split() for line in done.out.splitlines()}
    assert rows["a"] == ["a", "openai", "found", "gpt-4.1"]
    assert rows["c"][:3] == ["c", "openai", "answered"]
    assert rows["c"][-1] == "an-alias"
    used = json.loads((tmp_path / "runs/e/usage.json").read_text())["models"]
    assert {name: row["requests"] for name, row in used.items()} == {"a": 0, "b": 0, "c": 1}
    assert not (tmp_path / "runs/e/meta.json").exists()


@pytest.mark.process
@pytest.mark.parametrize(
    ("flags", "code"), [((), 2), (("--on-fail", "abort"), 2), (("--on-fail", "warn"), 0)]
)
async def test_one_that_is_not_there_is_exit_code_2_or_only_told(
    tmp_path: Path, flags: tuple[str, ...], code: int
) -> None:
    async with fake(keys=[KEY], models=["gpt-4.1"], listed=[{"id": "gpt-4.1"}]) as server:
        file = experiment_at(tmp_path, server.url, "gpt-4.1", "gpt-4.9")
        done = await called(tmp_path, "probe", "--config", file, *flags)
    assert done.code == code
    assert written(tmp_path) == {"a": (True, True), "b": (False, False)}
    rows = {line.split()[0]: line.split() for line in done.out.splitlines()}
    assert rows["b"] == ["b", "openai", "not", "found", "gpt-4.9"]
    assert "warning: b: POST 127.0.0.1:" in done.err
    assert "The model `gpt-4.9` does not exist." in done.err.replace("\n", " ")
    assert KEY not in done.out + done.err
    if code:
        assert done.err.splitlines()[-1] == "1 of 2 models cannot be reached."


@pytest.mark.process
async def test_the_file_says_what_flags_do_not(tmp_path: Path) -> None:
    async with fake(keys=[KEY], models=[], listed=[]) as server:
        file = experiment_at(tmp_path, server.url, "gpt-4.9", probe_on_fail="warn")
        assert (await called(tmp_path, "probe", "--config", file)).code == 0
        file = experiment_at(tmp_path, server.url, "gpt-4.9", probe_mode="disable")
        requested = len(server.requested)
        done = await called(tmp_path, "probe", "--config", file)
        assert (done.code, done.err, len(server.requested)) == (0, "no model was probed\n", requested)
        assert (await called(tmp_path, "probe", "--config", file, "--probe", "full")).code == 2


@pytest.mark.process
async def test_with_resume_those_are_tried_that_have_work_left(tmp_path: Path) -> None:
    scores = json.dumps({"f": "High"})
    item = json.dumps({"prompt": "Say.", "response": "Word."})

    def reply(messages: list[dict[str, Any]]) -> Answer:
        return Answer(item if "prompt" in messages[-1]["content"].lower() else scores)

    async with fake(reply=reply, listed=[]) as server:
        file = experiment_at(tmp_path, server.url, "one")
        assert (await called(tmp_path, "run", "--config", file)).code == 0
        done = await called(tmp_path, "probe", "--config", file, "--probe", "resume")
        assert (done.code, done.err) == (0, "no model was probed\n")
        experiment_at(tmp_path, server.url, "one", "two")
        done = await called(tmp_path, "probe", "--config", file, "--probe", "resume")
        assert (done.code, set(written(tmp_path))) == (0, {"a", "b"})


@pytest.mark.process
def test_a_model_without_a_key_is_a_wrong_request(here: Path, coeval: Command) -> None:
    file = experiment_at(here, "http://127.0.0.1:9/v1", "gpt-4.1")
    text = (
        file.read_text()
        .replace(f"access_key: {KEY}", "")
        .replace("base_url: http://127.0.0.1:9/v1", "top_p: 1.0")
    )
    file.write_text(text)
    done = coeval("probe", "--config", file)
    assert (done.code, done.out) == (1, "")
    assert "needs a key and none was found" in done.err
    assert not (here / "runs").exists()


@pytest.mark.process
def test_simulated_models_are_tried_too(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("tea", "teacher"), model("ann", "student", "judge")])
    done = coeval("probe", "--config", lab.file)
    assert done.code == 0
    assert [line.split()[:3] for line in done.out.splitlines()[1:]] == [
        ["tea", "simulated", "answered"],
        ["ann", "simulated", "answered"],
    ]
    assert coeval("run", "--config", lab.file).code == 0, "a folder that holds a probe's results is free"
