"""A real vLLM, which the fakes are held against: `make test-vllm`. It starts seven servers, a minute each."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines.real_vllm import VARIABLE, Vllm, home, server_command, serving
from fakes.vllm import vllm

from coeval.sweeps.server_process import find_free_port

if home() is None:
    pytest.skip(f"needs a real vLLM, which {VARIABLE} names: make test-vllm", allow_module_level=True)

pytestmark = [pytest.mark.process, pytest.mark.timeout(2400)]
ROOT = Path(__file__).resolve().parents[2]
WINDOW = 640
PROMPTS = [f"What is item {n} of a run, and which judge scores it?" for n in range(40)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training run: five checkpoints and an adapter."""
    python, out = home(), tmp_path_factory.mktemp("trained")
    assert python is not None
    words = [python / "bin" / "python", Path(__file__).with_name("train_tiny_model.py"), out]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    words += sorted(ROOT.glob("docs/*.md"))
    subprocess.run(words, check=True, capture_output=True, env=one_thread)
    return out


@pytest.fixture(scope="module")
def server(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    log = tmp_path_factory.mktemp("served") / "server.log"
    adapters = ("--enable-lora", "--lora-modules", f"polite={run / 'adapter'}")
    compact = ("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}')
    with serving(run / "global_step_160", log, WINDOW, *adapters, *compact) as up:
        yield up


def write_prompts(folder: Path, prompts: list[str]) -> Path:
    path = folder / "prompts.jsonl"
    records = (
        {"key": n, "prompt": prompt, "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
        for n, prompt in enumerate(prompts)
    )
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def begin(folder: Path, module: str, *words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, words)],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=1800)
    return process.returncode, " ".join((out + err).split())


def evaluate(folder: Path, server: Vllm, *words: object, prompts: list[str] = PROMPTS) -> tuple[int, str]:
    return finish(begin_evaluation(folder, server.url, *words, prompts=prompts))


def begin_evaluation(
    folder: Path, url: str, *words: object, prompts: list[str] = PROMPTS
) -> subprocess.Popen[str]:
    file = write_prompts(folder, prompts)
    how = ("--tasks", "ifeval", "--ifeval-input", file, "--model", "tiny", "--base-url", url, *words)
    return begin(folder, "coeval.cli.eval_framework", *how)


def answers(folder: Path, output: str = "outputs") -> dict[str, str]:
    lines = (folder / output / "ifeval" / "responses.jsonl").read_text().splitlines()
    return {
        line["id"]: line["response"] for line in map(json.loads, lines) if line.get("response") is not None
    }


def numberless(body: dict[str, Any]) -> str:
    return re.sub(r"\d+", "N", json.dumps(body["error"], sort_keys=True))


def test_the_window_is_refused_before_the_first_request(server: Vllm, tmp_path: Path) -> None:
    before = server.tokens()
    for name in ("tiny", "polite"):
        code, said = evaluate(tmp_path, server, "--model", name, "--output-dir", name)
        assert code == 1, said
        assert f"{name}: an answer may have 2,048 tokens" in said
        assert f"(max_model_len) has {WINDOW}" in said
    assert server.tokens() == before


async def test_the_fake_says_what_the_engine_says(server: Vllm) -> None:
    """Of the three ways in which a request does not fit; a long prompt, and one that leaves little room."""
    long, middling = "word " * 1500, "word " * 60
    asked = (("Hi", 2048), (long, 8), (middling, 600))
    real = [
        server.ask(messages=[{"role": "user", "content": text}], max_tokens=most, ignore_eos=True)
        for text, most in asked
    ]
    assert [reply.status for reply in real] == [400, 400, 200]
    from aiohttp import ClientSession

    async with vllm(WINDOW) as fake, ClientSession() as session:
        for reply, (text, most) in zip(real[:2], asked, strict=False):
            body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": most}
            async with session.post(f"{fake.url}/chat/completions", json=body) as faked:
                said = await faked.json()
            assert faked.status == reply.status
            for field in ("type", "param", "code"):
                assert said["error"][field] == reply.body["error"][field]
            first = re.sub(r"\d+", "N", said["error"]["message"]).split(". ")[0]
            assert first in re.sub(r"\d+", "N", reply.body["error"]["message"]), numberless(reply.body)
    [choice], usage = real[2].body["choices"], real[2].body["usage"]
    assert choice["finish_reason"] == "length"
    assert usage["completion_tokens"] < 600
    assert usage["prompt_tokens"] + usage["completion_tokens"] == WINDOW


def test_answers_that_fill_the_window_are_told_from_those_at_the_limit(server: Vllm, tmp_path: Path) -> None:
    prompts = ["word " * 100] * 2 + ["Hi"] * 2
    how = ("--max-tokens", 600, "--temperature", 1)
    code, said = evaluate(tmp_path, server, *how, prompts=prompts)
    assert code == 0, said
    found = json.loads((tmp_path / "outputs/ifeval/summary.json").read_text())["truncated"]
    lines = (tmp_path / "outputs/ifeval/responses.jsonl").read_text().splitlines()
    cut = [line for line in map(json.loads, lines) if line.get("truncated")]
    full = [x for x in cut if x["usage"]["input_tokens"] + x["usage"]["output_tokens"] == WINDOW]
    assert found["by_window"] == len(full)


def test_seeds_repeat_answers_and_tokens_are_those_that_the_engine_counts(
    server: Vllm, tmp_path: Path
) -> None:
    how = ("--max-tokens", 60, "--temperature", 1)
    before = server.tokens()
    code, said = evaluate(tmp_path, server, *how, "--output-dir", "one")
    assert code == 0, said
    spent = [after - then for after, then in zip(server.tokens(), before, strict=True)]
    account = json.loads((tmp_path / "one/usage.json").read_text())["models"]["tiny"]
    assert [account["input_tokens"], account["output_tokens"]] == spent
    assert evaluate(tmp_path, server, *how, "--output-dir", "two")[0] == 0
    assert answers(tmp_path, "one") == answers(tmp_path, "two")
    assert len(set(answers(tmp_path, "one").values())) > len(PROMPTS) / 2
    assert evaluate(tmp_path, server, *how, "--output-dir", "other", "--seed", 7)[0] == 0
    assert answers(tmp_path, "one") != answers(tmp_path, "other")


def test_verdicts_follow_their_schema(server: Vllm, tmp_path: Path) -> None:
    """A model that writes nonsense judges in JSON, since the engine holds it to the schema."""
    (tmp_path / "items.csv").write_text(
        "prompt,answer\n" + "".join(f"What is {n}?,It is {n}.\n" for n in range(6))
    )
    (tmp_path / "exp.yaml").write_text(
        f"""
models:
  - name: judge
    roles: [judge]
    interface: vllm
    parameters: {{model: tiny, base_url: '{server.url}', max_tokens: 400, temperature: 0.7}}
students: [{{name: given, responses: {{path: items.csv, prompt: prompt, response: answer}}}}]
tasks:
  - name: qa
    description: Answer.
    items: {{path: items.csv, prompt: prompt}}
    rubric: {{right: Is it right?, short: Is it short?}}
    rationale: false
experiment: {{id: exp, storage_folder: runs}}
"""
    )
    code, said = finish(begin(tmp_path, "coeval", "run", "--config", "exp.yaml"))
    assert code == 0, said
    files = (tmp_path / "runs/exp/phase5_evaluations").glob("*.jsonl")
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [record.get("status", "ok") for record in records] == ["ok"] * 6
    assert all(set(record["scores"]) == {"right", "short"} for record in records)


def test_a_killed_engine_is_waited_for(run: Path, tmp_path: Path) -> None:
    """Its own errors, refused connections, a start of a minute: every answer is there in the end."""
    port, log, prompts = find_free_port("127.0.0.1"), tmp_path / "server.log", PROMPTS * 5
    prompts = [f"{n}. {prompt}" for n, prompt in enumerate(prompts)]
    how = ("--max-tokens", 200, "--temperature", 1, "--num-threads", 8)
    checkpoint = run / "global_step_160"
    with serving(checkpoint, log, 4096, port=port) as first:
        process = begin_evaluation(tmp_path, first.url, *how, prompts=prompts)
        recorded = tmp_path / "outputs/ifeval/responses.jsonl"
        while not recorded.exists() or recorded.read_bytes().count(b"\n") < 10:
            assert process.poll() is None, finish(process)
            time.sleep(0.2)
        first.kill()
    with serving(checkpoint, log, 4096, port=port) as second:
        code, said = finish(process)
        assert code == 0, said
        assert len(answers(tmp_path)) == len(prompts)
        assert "trying again for" in said
        code, said = evaluate(tmp_path, second, *how, "--output-dir", "calm", prompts=prompts)
        assert code == 0, said
    calm, disturbed = answers(tmp_path, "calm"), answers(tmp_path)
    differing = sum(calm[key] != disturbed[key] for key in calm)
    print(f"{differing} of {len(prompts)} answers differ from an undisturbed run")
    assert differing <= len(prompts) / 100, "an attempt that met a dead connection keeps its seed"


def test_a_sweep_of_three_checkpoints_goes_on_over_a_killed_server(run: Path, tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path, [f"{n}. {prompt}" for n, prompt in enumerate(PROMPTS * 3)])
    for step in (0, 40, 160):
        (tmp_path / "ckpt").mkdir(exist_ok=True)
        (tmp_path / "ckpt" / f"global_step_{step}").symlink_to(run / f"global_step_{step}")
    process = begin(
        tmp_path,
        *("coeval", "sweep", "--checkpoints", "ckpt", "--name-pattern", "global_step_{step}"),
        *("--out", "out", "--tasks", "ifeval", "--n-samples", "ifeval=1", "--slots", "1", "--no-plot"),
        *("--task-option", f"ifeval-input={prompts}", "--server-command", server_command(2048)),
        *("--served-name", "tiny", "--max-tokens", "120"),
    )
    record = tmp_path / "out/sweep/workers"
    killed = False
    while process.poll() is None and not killed:
        for file in record.glob("*/progress.json"):
            progress = json.loads(file.read_text())
            if progress["state"] == "asking" and progress.get("done", 0) >= 5:
                server = json.loads(file.with_name("server.json").read_text())
                os.killpg(server["group"], signal.SIGKILL)
                killed = True
        time.sleep(0.2)
    code, said = finish(process)
    assert killed, said
    assert code == 0, said
    assert "3 of 3 jobs done" in said
    assert "its server ended and is being restarted" in said


def test_local_answers_are_those_of_the_engine(run: Path, server: Vllm, tmp_path: Path) -> None:
    """Greedily, transformers in this process and vLLM say the same of one checkpoint."""
    pytest.importorskip("torch")
    prompts, how = PROMPTS[:8], ("--temperature", 0, "--max-tokens", 40)
    assert evaluate(tmp_path, server, *how, "--output-dir", "served", prompts=prompts)[0] == 0
    file = write_prompts(tmp_path, prompts)
    local = ("--local", "--device", "cpu", "--model", run / "global_step_160", "--output-dir", "local")
    words = ("--tasks", "ifeval", "--ifeval-input", file, *local, *how)
    code, said = finish(begin(tmp_path, "coeval.cli.eval_framework", *words))
    assert code == 0, said
    served, here = answers(tmp_path, "served"), answers(tmp_path, "local")
    same = sum(served[key] == here[key] for key in served)
    print(f"{same} of {len(served)} greedy answers are the same")
    assert same >= len(served) - 1
