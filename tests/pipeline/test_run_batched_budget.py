"""Batch jobs under a budget: what is held for them is not spent on others, and comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.openai_batches import openai_batches
from fakes.openai_chat import Answer, Fault
from pipeline.batched_lab import KEY, VERDICT, account, lab, sent

TOTAL = 12
ANSWER_USD = 50 * 1e-4 / 2
"""50 tokens at a hundredth of a cent, at half the price."""
MOST_USD = 200 * 1e-4 / 2


@pytest.fixture(autouse=True)
def priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output alone costs anything; there is a key."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    Path("Config").mkdir()
    price = {"gpt-4o-mini": {"input_usd_per_mtok": 0.0, "output_usd_per_mtok": 100.0}}
    Path("Config/provider_pricing.yaml").write_text(json.dumps({"overrides": price}))


async def test_a_budget_for_few_at_once_is_spent_in_several_jobs(tmp_path: Path) -> None:
    total = 60
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: Answer(VERDICT, usage=(100, 50))
        budget = total * ANSWER_USD + 25 * MOST_USD  # of the requests at their highest price, 40 fit at once
        exp = lab(tmp_path, host, total=total, budget_usd=budget)
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert len(host.jobs) > 1
    assert set(sent(host).values()) == {1}
    assert len(sent(host)) == total
    assert account(exp)["cost_usd"] == pytest.approx(total * ANSWER_USD)
    assert account(exp)["jobs"] == {}


async def test_a_budget_that_is_reached_leaves_the_rest_owed(tmp_path: Path) -> None:
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: Answer(VERDICT, usage=(100, 50))
        budget = 5 * ANSWER_USD + MOST_USD
        exp = lab(tmp_path, host, total=TOTAL, quota={"gpt": {"max_cost_usd": budget}})
        run = await exp.arun()
        assert run.exit_code == 3
        assert account(exp)["cost_usd"] <= budget
        made = len(exp.records("evaluation"))
        assert made == len(sent(host)) == 2  # what fits at once: a job of so few is not waited for
        exp.settings["quota"] = {"gpt": {"max_cost_usd": 1.0}}
        again = await exp.arun(continue_run=True)
    assert again.exit_code == 0
    assert set(sent(host).values()) == {1}


@pytest.mark.parametrize("kind", ["upload", "create"])
@pytest.mark.parametrize("status", [404, 403, 400])
async def test_what_a_refused_job_held_is_there_for_others(tmp_path: Path, kind: str, status: int) -> None:
    """A judge by batches and a live one share a budget for all that is owed, and hardly more."""
    total = 8
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: Answer(VERDICT, usage=(100, 50))
        host.troubles = [(kind, Fault(status, "Nothing of that kind is here.")) for _ in range(50)]
        exp = lab(tmp_path, host, total=total, budget_usd=total * 2 * MOST_USD)
        parameters = {"model": "gpt-4o-mini", "base_url": host.url, "max_tokens": 200}
        exp.models.append(
            {"name": "live", "interface": "openai", "roles": ["judge"], "parameters": parameters}
        )
        run = await exp.arun()
    assert run.exit_code == 3
    assert run.summary is not None
    assert list(run.summary.stopped) == ["gpt"]
    assert f"answered {status}" in run.summary.stopped["gpt"]
    assert "budget" not in run.summary.stopped["gpt"]
    assert len(exp.records("evaluation")) == total
    gone = account(exp)
    assert (gone["requests"], gone["jobs"], gone["uncertain_usd"]) == (0, {}, 0)


@pytest.mark.parametrize("output", [None, "50", -1, 49.5, [50], True, 1 << 40])
async def test_half_a_usage_in_a_batch_is_perhaps_what_was_held(tmp_path: Path, output: object) -> None:
    """An answer is a record like any other; what it cost is unknown, and not nothing."""
    async with openai_batches(keys=[KEY]) as host:
        told = {"prompt_tokens": 100} | ({} if output is None else {"completion_tokens": output})
        host.says = lambda _: Answer(VERDICT, body={"usage": told})
        exp = lab(tmp_path, host, total=TOTAL, budget_usd=1.0)
        run = await exp.arun()
    assert run.exit_code == 0
    assert account(exp)["cost_usd"] is None
    assert account(exp)["unpriced"] == TOTAL
    assert account(exp)["uncertain_usd"] == pytest.approx(TOTAL * MOST_USD)
