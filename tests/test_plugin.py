"""Another package adds a host and a benchmark: `examples/plugin`, installed by pip, run in processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from fakes.openai_chat import Answer, fake

from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request, SamplingParameters
from coeval.simulation.simulated_model import SimulatedModel

pytestmark = pytest.mark.process


ROOT = Path(__file__).resolve().parents[1]
NOWHERE = "http://127.0.0.1:9/v1"
"""Where nobody listens."""
KEY = "parley-key-5f0c1d7e9b3a4c68"
PERIOD_S = 0.5
GOOD_FOR = 40
"""Periods: a machine that is busy may take seconds to send what it has signed."""
ANSWER_S = 0.2


class Ended(NamedTuple):
    code: int | None
    out: str
    err: str


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip has installed the example into."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    how = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(target)]
    subprocess.run([*pip, *how, str(ROOT / "examples" / "plugin")], check=True, timeout=300)
    return target


@pytest.fixture
def plugin(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's module of tokens."""
    monkeypatch.syspath_prepend(str(installed))
    return import_module("coeval_parley.signer")


async def call(module: str, *arguments: object, folder: Path, site: Path, **env: str) -> Ended:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *map(str, arguments),
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{site}", **env},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 300)
    return Ended(process.returncode, out.decode(), err.decode())


@dataclass
class ParleyHost:
    """A host that speaks the example's format; ``tokens`` that it was shown, ``refused`` among them."""

    plugin: Any
    url: str = ""
    tokens: set[str] = field(default_factory=set)
    refused: int = 0
    models: set[str] = field(default_factory=set)
    heard: int = 0
    spoken: int = 0

    async def minds(self, request: web.Request) -> web.Response:
        """A page holds one of them; `answerer` is not listed."""
        shown = request.headers.get("X-Parley-Token", "")
        self.tokens.add(shown)
        if "after" in request.query:
            return web.json_response({"minds": [{"called": "preview-mind", "remembers": 512}]})
        return web.json_response({"minds": [{"called": "writer", "remembers": 8192}], "more": "writer"})

    async def say(self, request: web.Request) -> web.Response:
        shown = request.headers.get("X-Parley-Token", "")
        self.tokens.add(shown)
        now = time.time()
        if shown not in {self.plugin.token_at(KEY, now - n * PERIOD_S, PERIOD_S) for n in range(GOOD_FOR)}:
            self.refused += 1
            return web.json_response({"wrong": f"this token is not valid now: {shown}"}, status=401)
        requested = await request.json()
        assert requested.keys() == {"model", "turns", "settings"}
        self.models.add(requested["model"])
        messages = tuple(Message(turn["by"], turn["text"]) for turn in requested["turns"])
        model = SimulatedModel(ModelSpec(name="m", interface="simulated", model=requested["model"]))
        seed = requested["settings"].pop("seed", None)
        said = await model.complete(
            Request(messages, SamplingParameters.of(requested["settings"]), seed=seed)
        )
        await asyncio.sleep(ANSWER_S)
        ended = "limit" if said.truncated else "done"
        usage = {"heard": said.usage.input_tokens, "spoken": said.usage.output_tokens}
        self.heard += usage["heard"]
        self.spoken += usage["spoken"]
        return web.json_response({"said": said.text, "ended": ended, **usage})


@asynccontextmanager
async def parley_host(plugin: Any) -> AsyncIterator[ParleyHost]:
    host = ParleyHost(plugin)
    app = web.Application()
    app.router.add_post("/v1/say", host.say)
    app.router.add_get("/v1/minds", host.minds)
    async with TestServer(app) as server:
        host.url = str(server.make_url("/v1"))
        yield host


def experiment(folder: Path, url: str) -> Path:
    roles = {"writer": "teacher", "answerer": "student", "marker": "judge"}
    models = "".join(
        f"  - {{name: {name}, interface: parley, roles: [{role}],"
        f" parameters: {{base_url: '{url}', max_tokens: 256}}}}\n"
        for name, role in roles.items()
    )
    path = folder / "experiment.yaml"
    path.write_text(
        f"models:\n{models}"
        "tasks:\n"
        "  - name: explain\n"
        "    description: Explain a concept.\n"
        "    output_description: Two sentences.\n"
        "    target_attributes: {field: [biology, physics]}\n"
        "    sampling: {target: [1, 1], total: 4}\n"
        "    rubric: {clarity: The answer is easy to follow.}\n"
        "experiment: {id: parley, storage_folder: ./runs}\n"
    )
    return path


def written(folder: Path) -> Iterator[bytes]:
    return (path.read_bytes() for path in folder.rglob("*") if path.is_file())


def assert_nothing_secret(ended: Ended, folder: Path, secrets: set[str]) -> None:
    texts = [ended.out.encode(), ended.err.encode(), *written(folder)]
    assert len(texts) > 2
    for secret in secrets:
        assert not any(secret.encode() in text for text in texts)


async def test_a_host_of_another_package_plays_every_role(
    installed: Path, plugin: Any, tmp_path: Path
) -> None:
    async with parley_host(plugin) as host:
        how = ["run", "--config", experiment(tmp_path, host.url)]
        env = {"PARLEY_API_KEY": KEY, "PARLEY_PERIOD_S": str(PERIOD_S)}
        ended = await call("coeval", *how, folder=tmp_path, site=installed, **env)
        old = plugin.token_at(KEY, time.time() - 2 * GOOD_FOR * PERIOD_S, PERIOD_S)
        async with ClientSession() as client:
            reply = await client.post(f"{host.url}/say", headers={"X-Parley-Token": old}, json={})
    assert ended.code == 0, ended
    assert host.models == {"writer", "answerer", "marker"}
    assert len(host.tokens - {old}) > 1, "the token never changed"
    assert (host.refused, reply.status) == (1, 401)
    run = tmp_path / "runs" / "parley"
    [judgments] = (run / "phase5_evaluations").glob("*.jsonl")
    records = [json.loads(line) for line in judgments.read_text().splitlines()]
    assert len(records) == 4
    assert all(record["scores"]["clarity"] for record in records)
    assert_nothing_secret(ended, tmp_path, {KEY, *host.tokens})
    used = json.loads((run / "usage.json").read_text())["models"]
    paid = sum(row["cost_usd"] for row in used.values())
    assert paid == pytest.approx((host.heard * 1000 + host.spoken * 5000) / 1e6)
    assert used["writer"]["priced_by"] == "coeval_parley.prices"
    probes = json.loads((run / "probe_results.json").read_text())["models"]
    assert {probe["name"] for probe in probes if probe.get("listed")} == {"writer"}


async def test_what_a_host_of_another_package_serves_is_listed_with_its_prices(
    installed: Path, plugin: Any, tmp_path: Path
) -> None:
    async with parley_host(plugin) as host:
        how = ["models", "--interface", "parley", "--base-url", host.url]
        env = {"PARLEY_API_KEY": KEY}
        ended = await call("coeval", *how, folder=tmp_path, site=installed, **env)
        found = await call("coeval", "models", "--providers", folder=tmp_path, site=installed, **env)
    assert ended.code == found.code == 0, ended
    rows = {line.split()[0]: line.split()[1:] for line in ended.out.splitlines() if line}
    assert (rows["writer"], rows["preview-mind"]) == (["8,192", "1000.00", "5000.00"], ["512", "–", "–"])
    assert "by coeval_parley.prices" in ended.out
    assert "api_key: PARLEY_API_KEY in the environment" in found.out
    assert all(key not in text for key in (KEY, *host.tokens) for text in (*ended[1:], *found[1:]))


async def test_a_token_that_the_host_refuses_ends_the_run_in_the_hosts_words(
    installed: Path, plugin: Any, tmp_path: Path
) -> None:
    wrong = "another-key-77aa41e8"
    async with parley_host(plugin) as host:
        how = ["run", "--config", experiment(tmp_path, host.url)]
        env = {"PARLEY_API_KEY": wrong, "PARLEY_PERIOD_S": str(PERIOD_S)}
        ended = await call("coeval", *how, folder=tmp_path, site=installed, **env)
    assert ended.code == 2, ended
    assert "this token is not valid now: " in ended.err  # the token itself, which the host repeats, is not
    assert_nothing_secret(ended, tmp_path, {wrong, *host.tokens})


async def test_a_setting_of_the_hosts_own_that_is_wrong_is_told(
    installed: Path, plugin: Any, tmp_path: Path
) -> None:
    how = ["run", "--config", experiment(tmp_path, NOWHERE)]
    env = {"PARLEY_API_KEY": KEY, "PARLEY_PERIOD_S": "soon"}
    ended = await call("coeval", *how, folder=tmp_path, site=installed, **env)
    assert ended.code == 1
    assert "PARLEY_PERIOD_S is soon; it is a number of seconds above 0" in ended.err


async def evaluated(folder: Path, site: Path, url: str, *flags: object) -> Ended:
    how = ["--tasks", "say-the-word", "--model", "m", "--base-url", url, *flags]
    return await call("coeval.cli.eval_framework", *how, folder=folder, site=site)


async def test_a_benchmark_of_another_package_is_asked_and_scored_by_its_own_flag(
    installed: Path, tmp_path: Path
) -> None:
    def reply(messages: list[dict[str, Any]]) -> Answer:
        _, _, rest = messages[-1]["content"].partition("'")
        if not rest:
            return Answer("ok")  # to the question whether it answers
        word = rest.partition("'")[0]
        return Answer(f"A {word} here, and the {word} there." if word < "o" else f"One {word}.")

    async with fake(reply=reply, extra_fields={"top_k"}) as server:
        shares = {}
        for times in (1, 2):
            flags = ["--say-the-word-times", times, "--output-dir", f"out-{times}"]
            ended = await evaluated(tmp_path, installed, server.url, *flags)
            assert ended.code == 0, ended
            assert "word_accuracy" in ended.out
            summary = json.loads((tmp_path / f"out-{times}" / "say-the-word" / "summary.json").read_text())
            shares[times] = summary["metrics"]["word_accuracy"]["value"]
    assert shares == {1: 1.0, 2: 0.4}


async def test_its_flag_is_checked_and_shown_in_a_section_of_its_own(installed: Path, tmp_path: Path) -> None:
    ended = await evaluated(tmp_path, installed, NOWHERE, "--say-the-word-times", "many")
    assert ended.code == 1
    assert "--say-the-word-times" in ended.err
    helped = await evaluated(tmp_path, installed, "", "--help")
    options, section = helped.out.split("\nOptions of say-the-word:\n")
    assert "How often each answer is to use its word." in " ".join(section.split())
    assert "alpaca-eval,say-the-word,coeval:PATH_TO_RUN" in "".join(options.split())


async def test_without_the_package_its_names_are_unknown(tmp_path: Path) -> None:
    how = ["run", "--config", experiment(tmp_path, NOWHERE)]
    ended = await call("coeval", *how, folder=tmp_path, site=tmp_path)
    assert (ended.code, "the interface 'parley' is unknown" in ended.err) == (1, True)
    ended = await evaluated(tmp_path, tmp_path, NOWHERE)
    assert (ended.code, "there is no task 'say-the-word'" in ended.err) == (1, True)


def package(site: Path, points: str, **modules: str) -> Path:
    """A folder that holds a package named broken-extras, as pip would have installed it."""
    metadata = site / "broken_extras-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-extras\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(points)
    for name, source in modules.items():
        (site / f"{name}.py").write_text(source)
    return site


def assert_one_message(ended: Ended, *said: str) -> None:
    assert ended.code == 1, ended
    assert len(ended.err.splitlines()) == 1, ended.err
    assert all(words in ended.err for words in said), ended.err


BROKEN = {
    "it is not there": ("nowhere:Thing", "No module named 'nowhere'"),
    "it fails": ("failing:Thing", "ZeroDivisionError: division by zero"),
    "another kind of thing": ("odd:THING", "is not a"),
    "it lacks a file": (
        "fileless:Thing",
        "FileNotFoundError: [Errno 2] No such file or directory: 'table.bin'",
    ),
    "it exits": ("exiting:Thing", "SystemExit: 0"),
    "it interrupts": ("interrupting:Thing", "KeyboardInterrupt"),
    "it ends like a generator": ("generating:Thing", "GeneratorExit"),
    "its error cannot be shown": ("unspeakable:Thing", "cannot be loaded (Unspeakable)"),
    "it wants all memory": ("greedy:Thing", "cannot be loaded: out of memory"),
}
SOURCES = {
    "failing": "1 / 0\n",
    "odd": "THING = 7\n",
    "fileless": "open('table.bin')\n",
    "exiting": "import sys\nsys.exit(0)\n",
    "interrupting": "raise KeyboardInterrupt\n",
    "generating": "raise GeneratorExit\n",
    "unspeakable": (
        "class Unspeakable(Exception):\n    def __str__(self): raise ValueError('no')\nraise Unspeakable\n"
    ),
    "greedy": "raise MemoryError\n",
    "stopped": "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n",
}


@pytest.mark.parametrize(("place", "said"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_package_is_named_in_one_message(tmp_path: Path, place: str, said: str) -> None:
    points = f"[coeval.hosts]\nparley = {place}\n[coeval.benchmarks]\nsay-the-word = {place}\n"
    site = package(tmp_path / "site", points, **SOURCES)
    how = ["run", "--config", experiment(tmp_path, NOWHERE)]
    ran = await call("coeval", *how, folder=tmp_path, site=site)
    assert_one_message(ran, "broken-extras", "coeval.hosts", said)
    assert_one_message(await evaluated(tmp_path, site, NOWHERE), "broken-extras", "coeval.benchmarks", said)
    helped = await call("coeval", "--help", folder=tmp_path, site=site)  # which looks for no other package
    assert helped.code == 0


async def test_ctrl_c_while_a_package_is_loaded_is_no_fault_of_the_package(tmp_path: Path) -> None:
    points = "[coeval.hosts]\nparley = stopped:Thing\n[coeval.benchmarks]\nsay-the-word = stopped:Thing\n"
    site = package(tmp_path / "site", points, **SOURCES)
    how = ["run", "--config", experiment(tmp_path, NOWHERE)]
    for ended in (
        await call("coeval", *how, folder=tmp_path, site=site),
        await evaluated(tmp_path, site, NOWHERE),
    ):
        assert (ended.code, "Interrupted" in ended.err, "broken-extras" in ended.err) == (130, True, False), (
            ended
        )


EXITING = """
import sys
from coeval.models.catalog import Host

def signs(credential):
    sys.exit(0)

def costs(model):
    sys.exit(0)

def placed(given):
    sys.exit(0)

class Talk:
    labels_field = model_list = None
    keeps_prefix = False

    def path(self, spec):
        return "/say"

    def encode(self, *_, **__):
        sys.exit(0)

    decode = explain = encode

TALK = Talk()
ROW = Host(name="parley", needs_key=False, %s)
"""
WHEN_CALLED = {
    "signer": "dialect='openai_chat', signer='exiting:signs'",
    "prices": "dialect='openai_chat', prices='exiting:costs'",
    "place": "dialect='openai_chat', placed='exiting:placed'",
    "dialect, inside the event loop": "dialect='exiting:TALK'",
}


@pytest.mark.parametrize("fields", WHEN_CALLED.values(), ids=WHEN_CALLED)
async def test_what_another_package_exits_with_is_no_end_of_ours(tmp_path: Path, fields: str) -> None:
    site = package(tmp_path / "site", "[coeval.hosts]\nparley = exiting:ROW\n", exiting=EXITING % fields)
    how = ["run", "--config", experiment(tmp_path, NOWHERE), "--probe", "disable"]
    ended = await call("coeval", *how, folder=tmp_path, site=site)
    assert ended.code == 1, ended
    assert "exiting" in ended.err.splitlines()[-1], ended.err
    assert "SystemExit: 0" in ended.err.splitlines()[-1], ended.err


ROW = "from coeval.models.catalog import Host\nROW = Host(name='parley', needs_key=False, {})\n"
PARTS = {
    "no such dialect": ("dialect='nowhere:D'", "parley: nowhere:D cannot be loaded"),
    "another thing as dialect": ("dialect='json:dumps'", "parley: json:dumps is not a Dialect"),
    "no such signer": ("dialect='openai_chat', signer='json:signs'", "parley: json:signs cannot be loaded"),
    "a signer misspelt": ("dialect='openai_chat', signer='baerer'", "parley: baerer is not known here"),
    "another thing as signer": ("dialect='openai_chat', signer='json:dumps'", "json:dumps makes no Signer"),
}


@pytest.mark.parametrize(("fields", "said"), PARTS.values(), ids=PARTS)
async def test_a_hosts_row_that_leads_nowhere_is_told(tmp_path: Path, fields: str, said: str) -> None:
    site = package(tmp_path / "site", "[coeval.hosts]\nparley = rows:ROW\n", rows=ROW.format(fields))
    how = ["run", "--config", experiment(tmp_path, NOWHERE)]
    ended = await call("coeval", *how, folder=tmp_path, site=site, PARLEY_API_KEY=KEY)
    assert_one_message(ended, said)


ELSEWHERE = {
    "it is not there": ("nowhere:Thing", "say-the-word: nowhere:Thing cannot be loaded"),
    "another kind of thing": ("json:dumps", "say-the-word: json:dumps is not a Benchmark"),
}


@pytest.mark.parametrize(("place", "said"), ELSEWHERE.values(), ids=ELSEWHERE)
async def test_a_tasks_row_that_leads_nowhere_is_told(tmp_path: Path, place: str, said: str) -> None:
    row = f"TaskRow(name='say-the-word', place='{place}')"
    rows = f"from coeval.benchmarks.task_registry import TaskRow\nROW = {row}\n"
    site = package(tmp_path / "site", "[coeval.benchmarks]\nsay-the-word = rows:ROW\n", rows=rows)
    assert_one_message(await evaluated(tmp_path, site, NOWHERE), said)


TASK = """
from pathlib import Path
from coeval.benchmarks.task_registry import TaskOption, TaskRow

MINE = TaskOption(name="output-dir", kind=Path, help="Mine.")
GREEDY = TaskRow(name="greedy", place="tasks:Greedy", options=(MINE,))
OURS = TaskRow(name="ifeval", place="tasks:Ours")
"""
TAKEN = {
    "a flag": ("greedy = tasks:GREEDY", "the option --output-dir, which exists already"),
    "a task": ("ifeval = tasks:OURS", "the name ifeval is taken"),
}


@pytest.mark.parametrize(("point", "said"), TAKEN.values(), ids=TAKEN)
async def test_what_is_ours_cannot_be_replaced(tmp_path: Path, point: str, said: str) -> None:
    site = package(tmp_path / "site", f"[coeval.benchmarks]\n{point}\n", tasks=TASK)
    ended = await call("coeval.cli.eval_framework", "--help", folder=tmp_path, site=site)
    assert_one_message(ended, said)
