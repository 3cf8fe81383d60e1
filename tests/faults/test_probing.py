"""Models are tried before anything is asked of them, in both programs by the same flags, to the same end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_chat import Answer, Behaviour, Fault, Server, fake
from products import KEY, PRODUCTS, N, Product, in_thread

pytestmark = pytest.mark.parametrize("product", PRODUCTS)


def good(_: list[dict[str, Any]]) -> Behaviour:
    return Answer("one")


def refusing(_: list[dict[str, Any]]) -> Behaviour:
    return Fault(401, f"Incorrect API key provided: {KEY}")


def probes(server: Server) -> int:
    """Requests that are no work: they ask for a single word."""
    return sum("single word" in body["messages"][-1]["content"] for body in server.bodies)


def found(program: Product) -> list[tuple[str, bool]]:
    """What `probe_results.json` says of each model."""
    written = json.loads((program.output / "probe_results.json").read_text())
    assert written["at"].endswith("Z")
    assert KEY not in json.dumps(written)
    return [(model["name"], model["ok"]) for model in written["models"]]


@pytest.mark.parametrize("mode", ["full", "resume"])
async def test_who_has_work_is_asked_once_and_what_came_of_it_is_kept(
    product: str, mode: str, tmp_path: Path
) -> None:
    async with fake(reply=good, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run, "--probe", mode)
        assert done.code == 0
        assert "probing 1 model" in done.err
        assert (probes(server), len(server.asked)) == (1, N + 1)
        assert found(program) == [("m", True)]
        assert (await in_thread(program.run, "--probe", mode)).code == 0
        assert len(server.asked) == N + 1, "nothing is owed, so nobody is asked"


async def test_nobody_is_asked_where_that_is_turned_off(product: str, tmp_path: Path) -> None:
    async with fake(reply=good, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run, "--probe", "disable")
        assert (done.code, probes(server), len(server.asked)) == (0, 0, N)
        assert not (program.output / "probe_results.json").exists()


async def test_one_that_does_not_answer_ends_the_start(product: str, tmp_path: Path) -> None:
    """Nothing is asked, the message names the way out, and the same command can be repeated."""
    async with fake(reply=refusing, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run)
        assert done.code == 2
        assert "1 of 1 models does not answer:\n  m: " in done.err
        assert "401" in done.err
        assert "go on all the same with --probe-on-fail warn." in done.err
        assert (len(server.asked), program.sent(), found(program)) == (1, 1, [("m", False)])
        assert program.answers() == {}
    async with fake(reply=good, extra_fields=["top_k"]) as server:
        mended = Product(product, tmp_path, server.url)
        assert (await in_thread(mended.run)).code == 0
        assert (found(mended), len(mended.answers())) == ([("m", True)], N)


async def test_one_that_does_not_answer_is_only_told_where_that_is_wanted(
    product: str, tmp_path: Path
) -> None:
    """A host that refuses the first request alone is used all the same."""
    async with fake(Fault(403, "not yet"), reply=good, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run, "--probe-on-fail", "warn")
        assert done.code == 0
        assert "warning: 1 of 1 models does not answer: m: " in done.err
        assert (found(program), len(program.answers())) == ([("m", False)], N)


async def test_other_words_are_refused_with_those_that_there_are(product: str, tmp_path: Path) -> None:
    program = Product(product, tmp_path, "http://127.0.0.1:9/v1")
    done = await in_thread(program.run, "--probe", "sometimes")
    assert done.code == 1
    assert all(word in done.err for word in ("full", "resume", "disable"))
