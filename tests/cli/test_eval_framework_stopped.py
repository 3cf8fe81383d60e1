"""Ctrl-C in `eval-framework`: what is finished is shown, the rest is counted and goes on where it stood."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from cli.eval_process import finish, start, write_prompts
from fakes.openai_chat import Answer, Behaviour, Broken, Server, fake

ASKED = 7
"""A probe, and one request for each prompt."""


class Host:
    """Answers all but the prompts that ask for patience, until it is released."""

    def __init__(self) -> None:
        self.patient = False

    def reply(self, messages: list[dict[str, Any]]) -> Behaviour:
        text = messages[-1]["content"]
        return Broken.HANG if text.startswith("Slow") and not self.patient else Answer(f"Answer to {text}")


def command(folder: Path, server: Server) -> list[object]:
    quick = write_prompts(folder / "quick.jsonl", "punctuation:no_comma", ["Quick 0.", "Quick 1."])
    mixed = write_prompts(
        folder / "mixed.jsonl", "format:parentheses", ["Quick 2.", "Quick 3.", "Slow 4.", "Slow 5."]
    )
    how: list[object] = ["--model", "m", "--base-url", server.url, "--top-k", "5"]
    return [*how, "--tasks", "ifeval,ifbench", "--ifeval-input", quick, "--ifbench-input", mixed]


async def test_finished_tasks_are_shown_and_the_rest_goes_on(tmp_path: Path) -> None:
    host = Host()
    async with fake(reply=host.reply, extra_fields=["top_k"]) as server:
        how = command(tmp_path, server)
        process = await start(tmp_path, *how)
        await server.arrived(ASKED)
        process.send_signal(signal.SIGINT)
        ended = await finish(process)
        assert ended.code == 130
        assert "prompt_level_strict_accuracy" in ended.out
        assert "ifbench was stopped: 2 of 4 answers are there" in ended.out
        assert "Stopped. The same command again goes on from here." in ended.err
        assert "Traceback" not in ended.err
        summary = json.loads((tmp_path / "outputs" / "ifeval" / "summary.json").read_text())
        assert (summary["complete"], summary["n_expected"]) == (True, 2)
        assert not (tmp_path / "outputs" / "ifbench" / "summary.json").exists()

        host.patient, asked = True, len(server.asked)
        again = await finish(await start(tmp_path, *how))
        assert again.code == 0
        assert "was stopped" not in again.out
        prompts = [body["messages"][-1]["content"] for body in server.bodies[asked:]]
        assert sorted(text for text in prompts if not text.startswith("Reply")) == ["Slow 4.", "Slow 5."]


@pytest.mark.slow
async def test_stopped_results_as_json(tmp_path: Path) -> None:
    async with fake(reply=Host().reply, extra_fields=["top_k"]) as server:
        process = await start(tmp_path, *command(tmp_path, server), "--json")
        await server.arrived(ASKED)
        process.send_signal(signal.SIGINT)
        ended = await finish(process)
    assert ended.code == 130
    told = json.loads(ended.out)
    assert (told["exit_code"], told["interrupted"]) == (130, True)
    assert told["tasks"]["ifeval"]["summary"]["complete"]
    assert told["tasks"]["ifbench"]["summary"] is None
    assert told["tasks"]["ifbench"]["left_at"] == {
        "answers": 2, "prompts": 4, "judgments": 0, "judgments_needed": 0,
    }  # fmt: skip


async def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    async with fake(reply=Host().reply, extra_fields=["top_k"]) as server:
        process = await start(tmp_path, *command(tmp_path, server))
        await server.arrived(ASKED)
        process.send_signal(signal.SIGINT)
        while "stopping" not in process.so_far().err:
            assert process.poll() is None, "it ended at the first"
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGINT)
        ended = await finish(process)
    assert (ended.code, ended.out) == (130, "")
    assert "Stopped at once; what was finished is on disk, and the same command goes on" in ended.err
    assert "Traceback" not in ended.err


async def test_stopped_before_anything_was_asked(tmp_path: Path) -> None:
    async with fake(Broken.HANG, extra_fields=["top_k"]) as server:
        process = await start(tmp_path, *command(tmp_path, server))
        await server.arrived(1)
        process.send_signal(signal.SIGINT)
        ended = await finish(process)
    assert (ended.code, ended.out) == (130, "")
    assert "Stopped before anything was asked." in ended.err
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["usage.json"], "the probe counts"
