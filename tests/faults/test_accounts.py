"""`usage.json` holds what every answer took, the moment it came: probes, failures and what was broken off."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_chat import Answer, Behaviour, Broken, Fault, fake
from products import PRODUCTS, N, Product, ended, in_thread

pytestmark = pytest.mark.parametrize("product", PRODUCTS)

TOLD = (11, 3)
"""Tokens that the fake host counts for each answer."""
AT_ONCE = {"Retry-After": "0"}


def taken(program: Product) -> tuple[int, int]:
    used = program.used()
    return used["input_tokens"], used["output_tokens"]


def of(answers: int) -> tuple[int, int]:
    return answers * TOLD[0], answers * TOLD[1]


@pytest.mark.slow
async def test_every_answer_is_booked_the_probes_too(product: str, tmp_path: Path) -> None:
    async with fake(reply=lambda _: Answer("one"), extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        assert (await in_thread(program.run)).code == 0
        assert (taken(program), len(server.asked)) == (of(N + 1), N + 1)
        assert program.used()["cost_usd"] == 0.0, "a server of one's own costs nothing"
        assert (await in_thread(program.run)).code == 0
        assert taken(program) == of(N + 1)


async def test_answers_that_cannot_be_used_are_booked_with_what_they_took(
    product: str, tmp_path: Path
) -> None:
    """A filtered one fails its record, one that is broken off is asked for again; an error costs nothing."""
    answered = 0
    special = {5: "content_filter", 6: "error", 7: "content_filter", 8: "error"}

    def reply(_: list[dict[str, Any]]) -> Behaviour:
        nonlocal answered
        if len(server.asked) == 10:
            return Fault(503, headers=AT_ONCE)
        answered += 1
        return Answer("one", finish_reason=special.get(len(server.asked), "stop"), headers=AT_ONCE)

    async with fake(reply=reply, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run)
        assert done.code == 3
        assert {error["kind"] for error in program.errors()} == {"content_filter"}
        assert [record["usage"]["input_tokens"] for record in program.failures()] == [TOLD[0]] * 2
        assert (taken(program), program.sent()) == (of(answered), len(server.asked))


async def test_what_was_answered_before_a_record_was_given_up_is_booked(product: str, tmp_path: Path) -> None:
    """The first answer to each request is broken off; then nothing comes, and the run is interrupted."""
    replies = iter([Answer("one"), *[Answer(finish_reason="error", headers=AT_ONCE)] * 8])
    async with fake(reply=lambda _: next(replies, Broken.HANG), extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        process = program.start()
        await server.arrived(1 + 8 + 8)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        done = await in_thread(ended, process)
    assert done.code == 130
    assert program.answers() == {}
    assert (taken(program), program.sent()) == (of(9), len(server.asked))


@pytest.mark.slow
async def test_no_kill_lets_a_ceiling_be_passed(product: str, tmp_path: Path) -> None:
    """Killed again and again in mid-air: what may have been sent counts, and no token twice."""
    ceiling = 50
    async with fake(reply=lambda _: Answer("one", delay_s=0.02), extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        for more in (1, 9, 5, 2, 14):
            process = program.start(max_calls=ceiling)
            await server.arrived(min(len(server.asked) + more, ceiling))
            process.kill()
            await asyncio.to_thread(process.communicate)
            used = program.used()
            assert len(server.asked) <= used["requests"] + used["reserved"] <= ceiling
            if used["requests"] + used["reserved"] == ceiling:
                break
        done = await in_thread(program.run, max_calls=ceiling)
        assert len(server.asked) <= program.sent() <= ceiling
        assert taken(program) <= of(len(server.asked))
        assert done.code == 3
        done = await in_thread(program.run, max_calls=3 * N)
    assert (done.code, len(program.answers())) == (0, N)
    assert program.used()["reserved"] == 0
