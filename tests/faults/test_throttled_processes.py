"""Programs of their own that share one pace by a file: `MIN_INTERVAL_S` and `EVAL_THROTTLE_STATE_PATH`."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from cli.eval_process import surroundings, write_prompts
from cli.warm_process import EVAL_FRAMEWORK, WarmProcess
from fakes.openai_chat import Answer, Behaviour, fake
from products import PRODUCTS, N, Product, ended

INTERVAL_S = 0.02
BURST_S = 0.1
JOINED_S = 0.5
"""Requests that were sent apart may arrive together where this machine has other things to do."""


class Arrivals:
    """When a host was asked."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def reply(self, _: list[dict[str, Any]]) -> Behaviour:
        self.at.append(time.monotonic())
        return Answer("one")

    async def first(self, count: int) -> None:
        while len(self.at) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def evaluation(folder: Path, url: str, prompts: int, **env: str) -> WarmProcess:
    """`eval-framework` in a folder of its own."""
    folder.mkdir()
    file = write_prompts(
        folder / "prompts.jsonl", "punctuation:no_comma", [f"Say {n}." for n in range(prompts)]
    )
    how = ("--tasks", "ifeval", "--ifeval-input", file, "--model", "m", "--base-url", url)
    return WarmProcess(*how, module=EVAL_FRAMEWORK, cwd=folder, env=surroundings(folder) | env)


@pytest.mark.system
async def test_five_processes_keep_one_pace_and_go_on_without_one_that_is_killed(
    tmp_path: Path,
) -> None:
    host, state = Arrivals(), tmp_path / "state"
    shared = {"MIN_INTERVAL_S": str(INTERVAL_S), "EVAL_THROTTLE_STATE_PATH": str(state)}
    async with asyncio.timeout(60), fake(reply=host.reply, extra_fields=["top_k"]) as server:
        programs = [evaluation(tmp_path / f"{n}", server.url, 60, **shared) for n in range(5)]
        await host.first(100)
        programs[0].kill()
        codes = [await program.ended() for program in programs]
    assert codes == [-9, 0, 0, 0, 0]
    assert 4 * 61 < len(host.at) < 5 * 61
    for number, at in enumerate(host.at):  # counted from the first: a request may come late, and none early
        assert number <= (at - host.at[0] + BURST_S + JOINED_S) / INTERVAL_S + 1
    assert state.stat().st_mode & 0o777 == 0o600


@pytest.mark.process
@pytest.mark.parametrize("product", PRODUCTS)
async def test_a_file_that_cannot_be_shared_is_told_and_an_interval_that_is_none_is_refused(
    product: str, tmp_path: Path
) -> None:
    async with fake(reply=Arrivals().reply, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)

        def run(**env: str) -> tuple[int, str, int]:
            module = EVAL_FRAMEWORK if product == "eval-framework" else "coeval"
            words = program.words(None)
            process = WarmProcess(*words, module=module, cwd=tmp_path, env=surroundings(tmp_path) | env)
            done = ended(process)
            return done.code, done.out + done.err, len(server.requested)

        code, reported, requested = await asyncio.to_thread(run, MIN_INTERVAL_S="often")
        assert (code, requested) == (1, 0)
        assert "MIN_INTERVAL_S in the environment is not a number of seconds" in reported
        nowhere = str(tmp_path / "nowhere" / "state")
        code, reported, requested = await asyncio.to_thread(
            run, MIN_INTERVAL_S="0.0001", EVAL_THROTTLE_STATE_PATH=nowhere
        )
        assert (code, requested) == (0, N + 1)
        assert reported.count("requests are kept 0.0001 s apart in this process only") == 1


@pytest.mark.process
async def test_servers_of_ones_own_are_not_throttled_unless_it_is_asked_for(tmp_path: Path) -> None:
    """The remote host is asked through a proxy, which answers itself."""
    async with fake(reply=Arrivals().reply, extra_fields=["top_k"]) as server:
        proxy = {"http_proxy": server.url.removesuffix("/v1")}
        own, remote = server.url, "http://api.example.com/v1"
        off, slow = {"MIN_INTERVAL_S": "0"}, {"MIN_INTERVAL_S": "0.001"}
        cases: list[tuple[str, dict[str, str], bool]] = [
            (own, {}, False),
            (own, slow, True),
            (remote, proxy, True),
            (remote, proxy | off, False),
        ]
        for number, (url, env, used) in enumerate(cases):
            folder, state = tmp_path / f"{number}", tmp_path / f"{number}.state"
            program = evaluation(folder, url, 3, EVAL_THROTTLE_STATE_PATH=str(state), **env)
            assert await program.ended() == 0, program.continue_if_started()
            reported = (
                f"at most one request each {env.get('MIN_INTERVAL_S', '0.005')} s of all that use {state}"
            )
            assert state.exists() is used
            log = folder / "outputs" / "run.log"
            assert (log.exists() and reported in log.read_text()) is used
        assert len(server.requested) == 4 * 4
