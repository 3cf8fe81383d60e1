"""Runs whose judge, or any other model, goes by batch jobs: from the file to the table."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from fakes.batch_jobs import LOST
from fakes.openai_batches import openai_batches
from fakes.openai_chat import Answer, Behaviour, Fault, Raw
from pipeline.batched_lab import KEY, VERDICT, account, batched, judging, lab, sent
from pipeline.experiments import Notes, model, task

from coeval.engine.session import Session


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.mark.process
async def test_a_judge_by_batches_scores_as_a_live_one_would(tmp_path: Path) -> None:
    async with judging(tmp_path) as (host, exp):
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert len(host.jobs) == 1
    assert exp.counts() == (6, 6, 6)
    assert {tuple(record["scores"].items()) for record in exp.records("evaluation").values()} == {
        (("plot", "High"), ("style", "Low"))
    }
    assert not (exp.path / "batches").exists()
    assert not (exp.path / "pending_batches.json").exists()


@pytest.mark.process
async def test_a_teacher_a_student_and_a_judge_by_batches_take_turns(tmp_path: Path) -> None:
    def says(body: dict[str, Any]) -> Answer:
        text = body["messages"][-1]["content"]
        if "plot" in text and "style" in text:
            return Answer(VERDICT)
        return Answer(
            '{"prompt": "Tell me.", "reference_response": "So be it."}' if "JSON" in text else "Once."
        )

    async with openai_batches(keys=[KEY]) as host:
        host.says = says
        exp = lab(tmp_path, host, total=4)
        exp.models = [
            batched(name, host, role)
            for name, role in (("tea", "teacher"), ("stu", "student"), ("jud", "judge"))
        ]
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert exp.counts() == (4, 4, 4)
    assert len(host.jobs) == 3


@pytest.mark.process
async def test_what_cannot_be_read_is_asked_again_live(tmp_path: Path) -> None:
    async with openai_batches(keys=[KEY]) as host:
        host.script.extend([Answer("I would rather not."), *[Answer(VERDICT)] * 6])
        exp = lab(tmp_path, host)
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert (len(host.jobs), len(host.requested)) == (1, 7)
    assert sorted(record["attempts"] for record in exp.records("evaluation").values()) == [1] * 5 + [2]


@pytest.mark.process
async def test_a_job_whose_answer_was_lost_is_found_though_it_is_listed_late(tmp_path: Path) -> None:
    async with judging(tmp_path) as (host, exp):
        host.troubles = [("create", LOST)]
        host.lag = 2
        run = await exp.arun()
    assert run.exit_code == 0
    assert set(sent(host).values()) == {1}
    assert len(host.jobs) == 1
    assert host.heard.count("list") == 3


@pytest.mark.process
async def test_a_file_that_is_too_large_for_its_host_is_split(tmp_path: Path) -> None:
    async with judging(tmp_path, total=12) as (host, exp):
        host.most_bytes = 4_000
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert set(sent(host).values()) == {1}
    assert len(sent(host)) == 12
    assert len(host.jobs) > 2


@pytest.mark.process
async def test_what_expires_is_owed_and_the_rest_is_kept(tmp_path: Path) -> None:
    async with judging(tmp_path) as (host, exp):
        host.states = ("validating", "in_progress", "expired")
        host.done = 4
        run = await exp.arun()
        assert run.exit_code == 3
        assert run.summary is not None
        assert run.summary.phases["evaluation"].gaps == {"batch": 2}
        assert "expired" in run.summary.stopped["gpt"]
        assert len(exp.records("evaluation")) == 4
        assert account(exp)["requests"] == 4
        host.states, host.done = ("completed",), None
        again = await exp.arun(continue_run=True)
    assert again.exit_code == 0
    assert account(exp)["requests"] == 6
    assert set(sent(host).values()) == {1}


async def test_a_job_that_is_refused_whole_costs_nothing_and_says_why(tmp_path: Path) -> None:
    async with judging(tmp_path) as (host, exp):
        host.states = ("validating", "failed")
        host.failed_with = ("model_not_allowed", f"The key {KEY} may not ask this model.")
        run = await exp.arun()
    assert run.exit_code == 3
    assert run.summary is not None
    assert "may not ask this model" in run.summary.stopped["gpt"]
    assert KEY not in run.summary.stopped["gpt"]
    assert account(exp)["requests"] == 0
    assert not (exp.path / "pending_batches.json").exists()


async def test_a_batch_that_cannot_be_submitted_is_said_at_once_and_ends(tmp_path: Path) -> None:
    """What a LiteLLM proxy answers that has no storage for files."""
    unset = Fault(
        500,
        "files_settings is not set, set it on your config.yaml file.",
        headers={"x-should-retry": "false"},
    )
    notes = Notes()
    async with openai_batches(keys=[KEY]) as host:
        host.troubles = [("upload", unset) for _ in range(30)]
        exp = lab(tmp_path, host)
        run = await exp.arun(watcher=notes)
    assert host.heard == ["upload"] * 3, "neither sent on for hours, nor looked for"
    assert run.exit_code == 3
    assert run.summary is not None
    assert "files_settings is not set" in notes.said[0]
    assert notes.said[0].endswith("trying again")
    assert re.search(r"files_settings is not set.*batch_enabled: false", run.summary.stopped["gpt"])
    assert account(exp)["requests"] == 0
    assert not (exp.path / "pending_batches.json").exists()
    assert run.summary.batches == []


@pytest.mark.parametrize(
    "job_id", ["", ".", "..", "../files/file-1", "a/../../b", "/batches", "a//b", "x\\..", "a\n"]
)
async def test_a_job_whose_id_leads_nowhere_ends_at_once(tmp_path: Path, job_id: str) -> None:
    async with openai_batches(keys=[KEY]) as host:
        made = json.dumps({"id": job_id, "status": "validating"}).encode()
        host.troubles = [("create", Raw(made))]
        host.says = lambda _: Answer(VERDICT)
        exp = lab(tmp_path, host)
        run = await exp.arun()
        assert run.exit_code == 3
        assert host.heard == ["upload", "create"], "nothing is asked under such a name"
        assert run.summary is not None
        assert "not an id" in run.summary.stopped["gpt"]
        assert not (exp.path / "pending_batches.json").exists()
        again = await exp.arun(continue_run=True)
    assert again.exit_code == 0


async def test_what_is_too_much_at_once_for_an_account_goes_in_smaller_jobs(tmp_path: Path) -> None:
    """The limit on what is enqueued is told by a job that failed: smaller ones are made of it."""
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: Answer(VERDICT)
        host.states = ("validating", "failed")
        host.failed_with = ("token_limit_exceeded", "Enqueued token limit reached.")

        def recover(_: dict[str, Any]) -> Answer:
            if len(host.jobs) >= 2:
                host.states = ("completed",)
            return Answer(VERDICT)

        host.says = recover
        exp = lab(tmp_path, host)
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert len(exp.records("evaluation")) == 6


@pytest.mark.process
async def test_errors_of_single_requests_are_those_of_live_ones(tmp_path: Path) -> None:
    async with openai_batches(keys=[KEY]) as host:
        faults = (Fault(400, "Too long.", code="context_length_exceeded"), Fault(500, "Oops"))
        host.script.extend([*faults, *[Answer(VERDICT)] * 5])
        exp = lab(tmp_path, host)
        run = await exp.arun()
    assert run.exit_code == 3
    records = exp.records("evaluation").values()
    failed = [record for record in records if record.get("status") == "failed"]
    assert [record["error"]["kind"] for record in failed] == ["bad_request"]
    assert len(records) == 6


@pytest.mark.process
async def test_a_schema_that_a_host_refuses_is_left_out_of_the_next_job(tmp_path: Path) -> None:
    def says(body: dict[str, Any]) -> Behaviour:
        if "response_format" in body:
            return Fault(400, "'response_format' is not supported with this model.", param="response_format")
        return Answer(VERDICT)

    async with openai_batches(keys=[KEY]) as host:
        host.says = says
        exp = lab(tmp_path, host)
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert len(host.jobs) == 2


@pytest.mark.process
async def test_what_a_window_cut_off_is_called_so_whatever_the_host_has_refused(tmp_path: Path) -> None:
    def says(body: dict[str, Any]) -> Behaviour:
        if "response_format" in body:
            return Fault(400, "'response_format' is not supported with this model.", param="response_format")
        return Answer(VERDICT, finish_reason="length", usage=(200, 30))

    async with openai_batches(keys=[KEY]) as host:
        host.says = says
        exp = lab(tmp_path, host)
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert {record["finish_reason"] for record in exp.records("evaluation").values()} == {"window"}


@pytest.mark.process
async def test_each_factor_by_itself_waits_and_comes_together(tmp_path: Path) -> None:
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: Answer('{"score": "High"}')
        exp = lab(tmp_path, host)
        exp.tasks = [task(total=3, evaluation_mode="per_factor")]
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert (len(host.jobs), len(sent(host))) == (1, 6)
    assert [len(record["scores"]) for record in exp.records("evaluation").values()] == [2, 2, 2]


@pytest.mark.process
async def test_ctrl_c_leaves_jobs_running(tmp_path: Path) -> None:
    async with judging(tmp_path) as (host, exp):
        host.states = ("in_progress",)
        interrupt = asyncio.Event()
        running = asyncio.create_task(exp.arun(interrupt=interrupt))
        async with asyncio.timeout(60):
            await host.arrived(6)
        interrupt.set()
        run = await running
        assert run.exit_code == 130
        assert run.summary is not None
        assert [job.id for job in run.summary.batches] == ["batch_0001"]
        host.states = ("completed",)
        again = await exp.arun(continue_run=True)
    assert again.exit_code == 0
    assert set(sent(host).values()) == {1}
    assert len(host.jobs) == 1


@pytest.mark.process
async def test_a_ceiling_holds_for_what_is_parked(tmp_path: Path) -> None:
    async with judging(tmp_path, quota={"gpt": {"max_calls": 4}}) as (host, exp):
        run = await exp.arun()
    assert run.exit_code == 3
    assert len(sent(host)) == 4
    assert account(exp)["requests"] == 4
    assert run.summary is not None
    assert run.summary.phases["evaluation"].gaps == {"quota": 2}


@pytest.mark.process
async def test_an_answer_is_never_taken_for_that_to_another_question(tmp_path: Path) -> None:
    """What was submitted for another text of the rubric is not used, though its record has the same id."""
    async with judging(tmp_path) as (host, exp):
        host.states = ("in_progress",)
        assert (await exp.arun(wait=False)).exit_code == 3
        host.states = ("completed",)
        host.says = lambda _: Answer('{"plot": "Medium", "style": "Medium"}')
        exp.tasks = [task(total=6, rubric={"plot": "Another text.", "style": "It reads well."})]
        run = await exp.arun(continue_run=True)
    assert run.exit_code == 0
    assert all(record["scores"]["plot"] == "Medium" for record in exp.records("evaluation").values())


@pytest.mark.process
async def test_batches_that_are_turned_off_bring_what_they_were_asked(tmp_path: Path) -> None:
    async with judging(tmp_path) as (host, exp):
        host.states = ("in_progress",)
        assert (await exp.arun(wait=False)).exit_code == 3
        host.states = ("completed",)
        exp.models[2]["batch_enabled"] = False
        run = await exp.arun(continue_run=True)
    assert run.exit_code == 0
    assert len(host.requested) == 6


@pytest.mark.process
async def test_batched_answers_cost_what_batches_cost(tmp_path: Path) -> None:
    costs = []
    for batch in (True, False):
        async with openai_batches(keys=[KEY]) as host:
            host.script.extend([Answer(VERDICT, usage=(1000, 100))] * 6)
            exp = lab(tmp_path / str(batch), host)
            (tmp_path / str(batch)).mkdir()
            exp.models[2] |= {"batch_enabled": batch}
            exp.models[2]["parameters"]["base_url"] = host.url
            assert (await exp.arun()).exit_code == 0
        costs.append(account(exp)["cost_usd"])
        shown = [record["usage"]["cost_usd"] for record in exp.records("evaluation").values()]
        assert sum(shown) == pytest.approx(costs[-1])
    assert costs[0] == pytest.approx(costs[1] / 2)


@pytest.mark.process
async def test_what_failed_in_a_round_is_left_for_the_next_start(tmp_path: Path) -> None:
    """A second student's answers come by batches, in a later round, which does not ask the first's again."""
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: Answer("Once.")
        exp = lab(tmp_path, host, total=3, generation_retries=0)
        exp.models[2]["batch_enabled"] = False
        exp.models.append(batched("stu", host, "student"))
        run = await exp.arun()
    assert run.exit_code == 3
    lines = exp.lines("evaluation")
    assert [line["status"] for line in lines] == ["failed"] * 6, "the judge says nothing that can be read"
    assert len({line["id"] for line in lines}) == 6


@pytest.mark.process
@pytest.mark.parametrize("barriers", [False, True])
async def test_redoing_what_a_batched_judge_said_redoes_it_once(tmp_path: Path, barriers: bool) -> None:
    async with judging(tmp_path) as (host, exp):
        assert (await exp.arun(phase_barriers=barriers)).exit_code == 0
        exp.models[1]["parameters"]["skill"] = 0.2
        run = await exp.arun(continue_run=True, changed="redo", phase_barriers=barriers)
        assert run.exit_code == 0, run.summary
        assert exp.counts() == (6, 12, 12)
        again = await exp.arun(continue_run=True)
    assert again.exit_code == 0
    assert len(host.requested) == 12
    assert exp.counts() == (6, 12, 12)


@pytest.mark.process
async def test_a_combination_that_has_begun_in_this_run_is_not_left_by_its_mode(tmp_path: Path) -> None:
    async with judging(tmp_path, phases={"evaluation": "Model", "response_collection": "Keep"}) as (
        host,
        exp,
    ):
        host.most_requests, host.most_bytes = 50_000, 4_000
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert exp.counts() == (6, 6, 6)
    assert len(host.jobs) > 1


@pytest.mark.process
async def test_a_batched_student_is_submitted_while_a_slow_live_one_answers(tmp_path: Path) -> None:
    there: list[int] = []
    async with openai_batches(keys=[KEY]) as host:
        exp = lab(tmp_path, host)

        def says(_: dict[str, Any]) -> Answer:
            there.append(len(exp.lines("response_collection")))
            return Answer("Once upon a time.")

        host.says = says
        exp.models[1] = model("slow", "student", latency_s=0.2, max_concurrency=1)
        exp.models[2] = model("jim", "judge")
        exp.models.append(batched("stu", host, "student"))
        run = await exp.arun()
    assert run.exit_code == 0, run.summary
    assert there[0] < 6
    assert exp.counts() == (6, 12, 12)


@pytest.mark.process
@pytest.mark.parametrize(("total", "budget_usd", "jobs"), [(6, 0.0006, 1), (60, 0.012, 2)])
async def test_the_last_of_a_budget_does_not_go_job_by_job(
    tmp_path: Path, total: int, budget_usd: float, jobs: int
) -> None:
    async with judging(tmp_path, total=total, budget_usd=budget_usd) as (host, exp):
        run = await exp.arun()
    assert len(host.jobs) == jobs
    judged = len(exp.records("evaluation"))
    assert judged == len(host.requested)
    assert run.exit_code == (0 if judged == total else 3), run.summary
    assert (judged == total) == (jobs == 2)


@pytest.mark.process
@pytest.mark.parametrize("says", [Answer(VERDICT, usage=(0, 0)), Answer(VERDICT, body={"choices": 5})])
async def test_what_nobody_told_the_tokens_of_may_have_cost_what_was_held(
    tmp_path: Path, says: Answer
) -> None:
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: says
        exp = lab(tmp_path, host, budget_usd=1, generation_retries=0)
        await exp.arun()
    assert len(host.jobs) == 1
    assert account(exp)["jobs"] == {}
    assert 0.001 < account(exp)["uncertain_usd"] < 0.003


@pytest.mark.process
async def test_what_jobs_have_brought_is_not_too_dear_to_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ends_when_it_is_collected(session: Session) -> bool:
        assert session.batches is not None
        await session.batches.submit_parked_and_await_results()
        return False

    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda _: Answer(VERDICT, usage=(3500, 200))
        exp = lab(tmp_path, host, budget_usd=0.002)
        with monkeypatch.context() as patched:
            patched.setattr(Session, "await_next_round", ends_when_it_is_collected)
            await exp.arun()
        assert account(exp)["cost_usd"] > 0.0019
        assert exp.counts() == (6, 6, 0)
        run = await exp.arun(continue_run=True)
    assert run.exit_code == 0
    assert exp.counts() == (6, 6, 6)
    assert len(host.requested) == 6


# Batch jobs under a budget: what is held for them is not spent on others, and comes back.

TOTAL = 12
ANSWER_USD = 50 * 1e-4 / 2
"""50 tokens at a hundredth of a cent, at half the price."""
MOST_USD = 200 * 1e-4 / 2


@pytest.fixture
def priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output alone costs anything; there is a key."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    Path("Config").mkdir()
    price = {"gpt-4o-mini": {"input_usd_per_mtok": 0.0, "output_usd_per_mtok": 100.0}}
    Path("Config/provider_pricing.yaml").write_text(json.dumps({"overrides": price}))


@pytest.mark.process
@pytest.mark.usefixtures("priced")
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


@pytest.mark.process
@pytest.mark.usefixtures("priced")
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


@pytest.mark.process
@pytest.mark.usefixtures("priced")
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
    assert run.summary.stopped["gpt"].endswith("To send its requests live: batch_enabled: false")
    assert len(exp.records("evaluation")) == total
    gone = account(exp)
    assert (gone["requests"], gone["jobs"], gone["uncertain_usd"]) == (0, {}, 0)


@pytest.mark.process
@pytest.mark.usefixtures("priced")
@pytest.mark.parametrize("output", [None, "50", -1, 49.5, [50], True, 1 << 40])
async def test_half_a_usage_in_a_batch_is_perhaps_what_was_held(tmp_path: Path, output: object) -> None:
    """An answer is a record like any other; what it cost is unknown, and not nothing."""
    async with openai_batches(keys=[KEY]) as host:
        reported = {"prompt_tokens": 100} | ({} if output is None else {"completion_tokens": output})
        host.says = lambda _: Answer(VERDICT, body={"usage": reported})
        exp = lab(tmp_path, host, total=TOTAL, budget_usd=1.0)
        run = await exp.arun()
    assert run.exit_code == 0
    assert account(exp)["cost_usd"] is None
    assert account(exp)["unpriced"] == TOTAL
    assert account(exp)["uncertain_usd"] == pytest.approx(TOTAL * MOST_USD)


@pytest.mark.process
async def test_variants_and_samples_go_as_one_batch_with_ids_of_their_own(tmp_path: Path) -> None:
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda body: Answer(f"Once, {body['messages'][0]['content'][:7]}.")
        exp = lab(tmp_path, host, total=2)
        student = batched("gpt", host, "student") | {"samples": 2}
        student["variants"] = {"plain": {}, "kind": {"system_prompt": "Be kind."}}
        exp.models[1:] = [student, model("joe", "judge")]
        run = await exp.arun()
        assert run.exit_code == 0, run.summary
        assert len(host.jobs) == 1, "one model, and so one job"
        assert len(sent(host)) == 8
        assert exp.counts() == (2, 8, 8)
        student["samples"] = 3
        assert (await exp.arun(continue_run=True)).exit_code == 0
        assert len(sent(host)) == 12
    assert exp.counts() == (2, 12, 12)
    assert account(exp)["requests"] == 12


@pytest.mark.process
async def test_comparisons_go_by_batches_round_by_round(tmp_path: Path) -> None:
    async with openai_batches(keys=[KEY]) as host:
        host.says = lambda body: Answer(
            '{"verdict": "tie"}' if "verdict" in body["messages"][-1]["content"] else "Once."
        )
        exp = lab(tmp_path, host)
        exp.models[1:2] = [model("ben", "student"), batched("joe", host, "student"), model("cid", "student")]
        exp.tasks = [task(total=6, rationale=False, judging="pairwise")]
        run = await exp.arun()
        assert run.exit_code == 0, run.summary
        answers, comparisons = 6 * 3, len(exp.records("evaluation"))
        assert exp.counts() == (6, answers, comparisons)
        assert comparisons == 36
        assert len(host.requested) == 6 + comparisons
        again = await exp.arun(continue_run=True)
        assert again.exit_code == 0
        assert len(host.requested) == 6 + comparisons
    assert {record["winner"] for record in exp.records("evaluation").values()} == {"tie"}
    assert len(run.records("pairs")) == comparisons
