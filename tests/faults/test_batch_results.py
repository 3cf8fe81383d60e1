"""Results of batch jobs that are short, late or damaged: what can be had is had, and what may have been paid
is booked as perhaps spent, never as nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes.anthropic_batches import BatchServer
from fakes.batch_jobs import DAMAGES, Belied, Gives
from fakes.openai_chat import Fault
from pipeline.batched_clouds import CLOUDS, FILES, VERDICT, Cloud, lab, sent
from pipeline.experiments import Lab

from coeval.models.batch import gemini_batches


class GeminiFiles(type(CLOUDS[0])):  # type: ignore[misc]
    """Gemini's answers in a file, as those of large jobs are."""

    def __repr__(self) -> str:
        return "gemini file"


PLACES = [*FILES, *CLOUDS, GeminiFiles("gemini", "gemini-2.5-flash")]
each = pytest.mark.parametrize("place", PLACES, ids=repr)
slow = pytest.mark.slow


@asynccontextmanager
async def serving(
    place: Cloud, folder: Path, monkeypatch: pytest.MonkeyPatch, gives: Gives | None = None
) -> AsyncIterator[tuple[Any, Lab]]:
    """A host whose judgments all succeed, and an experiment that is judged there, under a budget."""
    if isinstance(place, GeminiFiles):
        monkeypatch.setattr(gemini_batches, "INLINE_REQUESTS", 1)
    async with place.serve() as host:
        for name, value in place.environment(host, folder).items():
            monkeypatch.setenv(name, value)
        if isinstance(host, BatchServer):
            host.fate = lambda _: place.says(VERDICT)
        host.says = lambda _: place.says(VERDICT)
        host.gives = gives
        yield host, lab(place, host, folder, batch_poll_s=[0.001, 0.002], budget_usd=100)


def account(exp: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((exp.path / "usage.json").read_text())["models"]["cloud"]
    assert found["jobs"] == {}
    return found


def errors(exp: Lab) -> list[dict[str, Any]]:
    path = exp.path / "run_errors.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


SHORT: dict[str, Gives] = {
    "no line": lambda _, __: [],
    "all but two": lambda _, lines: lines[:-2],
    "204": lambda _, __: None,
}


@each
@pytest.mark.parametrize(
    "how", ["all but two", *(pytest.param(how, marks=slow) for how in ("no line", "204"))]
)
async def test_what_the_provider_counts_and_does_not_give_is_perhaps_spent(
    place: Cloud, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = 2 if how == "all but two" else place.least
    async with serving(place, tmp_path, monkeypatch, SHORT[how]) as (host, exp):
        first = await exp.arun()
        assert first.exit_code == 3
        assert len(exp.records("evaluation")) == place.least - missing
        before = account(exp)
        assert before["requests"] == place.least
        assert before["uncertain_usd"] > 0
        [told] = errors(exp)
        assert f"{missing} requests without a result" in told["message"]
        host.gives = None
        again = await exp.arun(continue_run=True)
        assert again.exit_code == 0, again.summary
        assert len(sent(host)) == place.least
    after = account(exp)
    assert after["requests"] == place.least + missing
    assert after["uncertain_usd"] == before["uncertain_usd"]


@each
async def test_what_is_late_is_waited_for(
    place: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(times: int, lines: list[bytes]) -> list[bytes]:
        return lines if times > 4 else lines[: -2 * (5 - times)]

    async with serving(place, tmp_path, monkeypatch, late) as (host, exp):
        run = await exp.arun()
        assert run.exit_code == 0, run.summary
        assert set(sent(host).values()) == {1}
    assert (account(exp)["uncertain_usd"], errors(exp)) == (0, [])


@each
@pytest.mark.parametrize(
    "damage",
    [
        "cut",
        "not UTF-8",
        "a number for an id",
        *(pytest.param(damage, marks=slow) for damage in ("null", "deep", "no answer")),
    ],
)
async def test_a_damaged_result_costs_that_result_alone(
    place: Cloud, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(_: int, lines: list[bytes]) -> list[bytes]:
        return [*map(DAMAGES[damage], lines[:1]), *lines[1:]]

    if repr(place) == "gemini" and damage in ("cut", "deep"):
        pytest.skip("its answers stand in one JSON text, which is cut or read as a whole: see below")
    async with serving(place, tmp_path, monkeypatch, damaged) as (host, exp):
        first = await exp.arun()
        assert first.exit_code == 3
        assert len(exp.records("evaluation")) == place.least - 1
        before = account(exp)
        assert before["requests"] == place.least
        assert before["uncertain_usd"] > 0
        [told] = errors(exp)
        assert "1 request without a result (1 result cannot be read" in told["message"]
        host.gives = None
        again = await exp.arun(continue_run=True)
        assert again.exit_code == 0, again.summary
    assert account(exp)["requests"] == place.least + 1


@each
async def test_what_is_said_to_have_expired_costs_nothing(
    place: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same number of lines as where two are missing; the provider says what became of the others."""
    async with serving(place, tmp_path, monkeypatch) as (host, exp):
        words = {
            "bedrock": "Expired",
            "vertex": "EXPIRED",
            "gemini": "EXPIRED",
            "mistral": "TIMEOUT_EXCEEDED",
        }
        if isinstance(host, BatchServer):
            fates = iter([*[place.says(VERDICT)] * (place.least - 2), "expired", "expired"])
            host.fate = lambda _: next(fates)
        else:
            host.states, host.done = (words.get(place.name, "expired"),), place.least - 2
        await exp.arun()
    gone = place.name == "gemini"  # which counts what was done, and gives nothing of it
    assert len(exp.records("evaluation")) == (0 if gone else place.least - 2)
    assert account(exp)["requests"] == place.least - 2
    assert (account(exp)["uncertain_usd"] > 0) is gone
    assert len(errors(exp)) == gone


async def test_errors_that_are_counted_and_not_given_are_owed_and_not_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(FILES[0], tmp_path, monkeypatch) as (host, exp):
        host.script.extend([Fault(500, "oh"), Fault(500, "oh")])
        host.gives = lambda _, lines: [line for line in lines if b'"status_code":200' in line]
        await exp.arun()
    assert len(exp.records("evaluation")) == FILES[0].least - 2
    assert (account(exp)["requests"], account(exp)["uncertain_usd"]) == (FILES[0].least - 2, 0)


async def test_an_answer_that_is_nested_too_deep_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemini's answers stand in the text that says how their job is: no decoder reads it whole."""
    async with serving(CLOUDS[0], tmp_path, monkeypatch) as (host, exp):
        host.gives = lambda _, lines: [*map(DAMAGES["deep"], lines[:1]), *lines[1:]]
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert (account(exp)["requests"], account(exp)["uncertain_usd"]) == (CLOUDS[0].least, 0)


@each
@pytest.mark.parametrize("status", [400, 401])
async def test_a_job_that_was_refused_and_made_all_the_same_is_not_made_again(
    place: Cloud, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(place, tmp_path, monkeypatch) as (host, exp):
        if isinstance(host, BatchServer):
            host.losses.append("belied")
        else:
            host.troubles.append(("create", Belied(place.fault(status))))
        run = await exp.arun()
        assert run.exit_code == 0, run.summary
        assert set(sent(host).values()) == {1}
        assert len(sent(host)) == place.least
    assert account(exp)["requests"] == place.least
