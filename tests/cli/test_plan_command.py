"""``coeval plan`` and ``run --estimate-only``: calls, tokens, money and hours before anything is asked."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command, Ended
from pipeline.experiments import Lab, listen, model, task

from coeval.core.records import Request
from coeval.store.rundir import RunDir

ROOT = Path(__file__).resolve().parents[2]
MEDIUM = ROOT / "benchmark" / "medium_benchmark.yaml"
CHEAP = ("gpt-4o-mini", "gpt-3.5-turbo", "claude-3-5-haiku-20241022", "gemini-2.5-flash", "deepseek-chat")


def price(folder: Path, *models: str, into: float = 0.15, out: float = 0.60) -> None:
    """Give models a price in the working directory's own file."""
    file = folder / "Config" / "provider_pricing.yaml"
    file.parent.mkdir(exist_ok=True)
    rates = f"{{input_usd_per_mtok: {into}, output_usd_per_mtok: {out}}}"
    file.write_text("overrides:\n" + "".join(f"  {name}: {rates}\n" for name in models))


def figures(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


def plan(coeval: Command, file: Path, *more: str) -> dict[str, Any]:
    return figures(coeval("plan", "--config", file, "--estimate-samples", "0", "--json", *more))


def test_the_medium_benchmark_costs_what_the_guide_says(here: Path, coeval: Command) -> None:
    price(here, *CHEAP)
    found = plan(coeval, MEDIUM)
    assert found["calls"]["total"] == {"central": 12400, "low": 12400, "high": 12400}
    assert 1.80 <= found["cost_usd"]["central"] <= 2.50
    assert found["cost_usd"]["low"] <= found["cost_usd"]["central"] <= found["cost_usd"]["high"]
    assert found["hours"]["low"] <= found["hours"]["central"] <= found["hours"]["high"]
    assert found["unpriced"] == []


def test_five_models_that_do_not_think_cost_it_too(here: Path, coeval: Command) -> None:
    price(here, "gpt-4o-mini")
    text = MEDIUM.read_text()
    for name, interface in (("gemini-2.5-flash", "gemini"), ("deepseek-chat", "deepseek")):
        text = text.replace(f"interface: {interface}", "interface: openai").replace(
            f"model: {name}", "model: gpt-4o-mini"
        )
    text = text.replace("model: gpt-3.5-turbo", "model: gpt-4o-mini").replace(
        "max_tokens: 2048", "max_tokens: 512"
    )
    text = text.replace("interface: anthropic", "interface: openai").replace(
        "model: claude-3-5-haiku-20241022", "model: gpt-4o-mini"
    )
    file = here / "five.yaml"
    file.write_text(text)
    assert 1.80 <= plan(coeval, file)["cost_usd"]["central"] <= 2.50


@pytest.mark.process
def test_the_same_figures_stand_in_the_file_and_in_the_table(here: Path, coeval: Command) -> None:
    price(here, *CHEAP)
    found = plan(coeval, MEDIUM)
    written = json.loads((here / "benchmark/runs/medium-benchmark-v1/cost_estimate.json").read_text())
    assert written == found
    shown = coeval("run", "--config", MEDIUM, "--estimate-only", "--estimate-samples", "0")
    assert shown.code == 0
    central = found["cost_usd"]["central"]
    tokens = found["tokens"]["total"]["central"]
    assert f"12,400 calls, {tokens / 1e6:.1f}M tokens, ${central:.2f}" in shown.out
    assert "evaluation           10,000" in shown.out


def test_nothing_is_asked_without_samples(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested, lab = listen(monkeypatch), Lab(here)
    found = plan(coeval, lab.file)
    assert requested.requests == []
    assert found["cost_usd"] == {"central": 0.0, "low": 0.0, "high": 0.0}
    assert sorted(path.name for path in lab.path.iterdir()) == ["cost_estimate.json"]
    assert lab.run().exit_code == 0  # a folder that holds only an estimate is not a run


@pytest.mark.process
def test_it_says_what_so_few_items_cannot_cover(here: Path, coeval: Command) -> None:
    """Of all values two items are enough, of all pairs of values four."""
    pairs = {"target": [2, 2], "total": 3}
    lab = Lab(here, [model("ann"), model("ben", "student")], [task(sampling=pairs), task("more", total=60)])
    said = "story: 3 items cannot hold all 4 pairs of values of the target attributes; that takes at least 4."
    assert plan(coeval, lab.file)["notes"] == [said]
    shown = coeval("plan", "--config", lab.file, "--estimate-samples", "0").out
    assert said in " ".join(shown.split())
    lab.tasks[0]["sampling"]["total"] = 4
    assert plan(coeval, lab.file)["notes"] == []


@pytest.mark.parametrize(
    ("limit", "rationale", "said"),
    [
        (
            300,
            None,
            "story: judges give no reasons: reasons for 6 factors need about 360 tokens a reply, and "
            "max_tokens allows fewer (joe 300); set it to 360 or more, or set `rationale`",
        ),
        (
            300,
            True,
            "V-43 tasks.story.rationale is true, but reasons for 6 factors need about 360 tokens a reply, "
            "and max_tokens allows fewer (joe 300); set it to 360 or more, or verdicts may be cut off",
        ),
        (360, None, "story: judges give reasons (`rationale`); their max_tokens is sent unchanged"),
        (300, False, ""),
    ],
)
def test_the_plan_says_whether_judges_give_reasons(
    here: Path,
    coeval: Command,
    limit: int,
    rationale: bool | None,
    said: str,
) -> None:
    six = {f"factor-{number}": "It is met." for number in range(6)}
    stated: dict[str, Any] = {} if rationale is None else {"rationale": rationale}
    lab = Lab(here, [model("ann"), model("joe", "judge", max_tokens=limit)], [task(rubric=six, **stated)])
    ended = coeval("plan", "--config", lab.file, "--estimate-samples", "0")
    shown = " ".join(f"{ended.out} {ended.err}".split())
    assert said in shown
    assert ("V-43" in shown) == ("V-43" in said)
    assert ("no reasons" in shown) == ("no reasons" in said)


@pytest.mark.process
def test_a_model_without_a_price_is_named_and_none_is_invented(here: Path, coeval: Command) -> None:
    served = model("own", "judge") | {"interface": "openai", "parameters": {"model": "nobody-knows-it"}}
    lab = Lab(here, [model("ann", "teacher", "student"), served], [task()])
    found = plan(coeval, lab.file)
    assert found["unpriced"] == ["own"]
    assert found["cost_usd_of"]["by_model"]["own"] is None
    lab.models = [served | {"roles": ["teacher", "student", "judge"]}]
    assert plan(coeval, lab.file)["cost_usd"] is None
    assert "No price is known for own" in coeval("plan", "--config", lab.file, "--estimate-samples", "0").out


@pytest.mark.process
def test_what_is_left_costs_less(here: Path, coeval: Command) -> None:
    price(here, "ann", "ben")
    lab = Lab(here, [model("ann"), model("ben")], [task(total=4)])
    whole = plan(coeval, lab.file)
    lab.run()
    assert plan(coeval, lab.file, "--continue")["calls"]["total"]["high"] == 0
    for key in list(lab.records("evaluation"))[:8]:
        lab.lose("evaluation", key)
    left = plan(coeval, lab.file, "--continue")
    assert left["calls"]["total"]["central"] == 8
    assert 0 < left["cost_usd"]["high"] < whole["cost_usd"]["low"]


@pytest.mark.process
def test_samples_are_asked_as_the_run_asks_and_counted(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    price(here, "ann", "ben")
    lab = Lab(here, [model("ann"), model("ben", "student")], [task("one"), task("two"), task("three")])
    guessed, requested = plan(coeval, lab.file), listen(monkeypatch)
    ended = coeval("plan", "--config", lab.file, "--json")
    found = figures(ended)
    assert requested.phases() == (0, 0, 1, 3, 0), "ann writes one and answers one; ben answers two"
    assert ended.err.count("sample of ann as student") == 1
    assert found["basis"] == {"ann": "2 samples", "ben": "2 samples"}
    accounts = json.loads((lab.path / "usage.json").read_text())["models"]
    assert (accounts["ann"]["requests"], accounts["ben"]["requests"]) == (2, 2)
    assert accounts["ann"]["cost_usd"] > 0
    assert f": {lab.path / 'usage.json'} keeps it, and it counts" in ended.err
    assert lab.counts() == (0, 0, 0)  # a sample is no record
    assert width(figures(coeval("plan", "--config", lab.file, "--json", "--estimate-samples", "6"))) < (
        width(guessed)
    )
    no_run = coeval("status", "--run", lab.path).err.replace("\n", " ")
    assert f"before a run (samples, probes) are counted in {lab.path / 'usage.json'}" in no_run
    assert lab.run().exit_code == 0


@pytest.mark.parametrize(
    ("samples", "cast", "each"),
    [
        (1, [model("ann")], (0, 0, 1, 0, 0)),
        (2, [model("ann")], (0, 0, 1, 1, 0)),
        (3, [model("ann")], (0, 0, 1, 1, 1)),
        (5, [model("ann")], (0, 0, 1, 2, 2)),
        (1, [model("ann"), model("ben", "student", "judge")], (0, 0, 1, 1, 0)),
        (2, [model("ann"), model("ben")], (0, 0, 2, 2, 0)),
        (2, [model("ann", "teacher"), model("ben", "student", "judge")], (0, 0, 2, 1, 1)),
    ],
)
def test_samples_are_so_many_of_each_model_whatever_its_roles(
    here: Path,
    coeval: Command,
    monkeypatch: pytest.MonkeyPatch,
    samples: int,
    cast: list[dict[str, Any]],
    each: tuple[int, ...],
) -> None:
    """Without a sampled item nobody could be asked to answer, and without an answer nobody to judge."""
    lab = Lab(here, cast, [task("one", total=6), task("two", rubric={"plot": "It has one."}, total=6)])
    requested = listen(monkeypatch)
    assert coeval("plan", "--config", lab.file, "--estimate-samples", str(samples)).code == 0
    assert requested.phases() == each
    assert all(sum(name == of for of, _ in requested.requests) <= samples for name in requested.models())


def width(found: dict[str, Any]) -> float:
    cost = found["cost_usd"]
    return float(cost["high"] / cost["low"])


@pytest.mark.process
def test_records_tell_how_long_texts_are(here: Path, coeval: Command) -> None:
    price(here, "ann", "ben")
    lab = Lab(here, [model("ann"), model("ben", "student")], [task(total=6)])
    guessed = plan(coeval, lab.file)
    lab.run()
    lab.tasks[0]["sampling"]["total"] = 12
    spent = json.loads((lab.path / "usage.json").read_text())["models"]
    known = plan(coeval, lab.file, "--continue")
    assert known["basis"]["ann"] == "24 records"
    assert width(known) < width(guessed)
    lab.run(continue_run=True)
    after = json.loads((lab.path / "usage.json").read_text())["models"]
    cost = sum(after[name]["cost_usd"] - spent[name]["cost_usd"] for name in after)
    assert known["cost_usd"]["low"] <= cost <= known["cost_usd"]["high"]


def text(request: Request) -> str:
    return "\n".join(message.content for message in request.messages)


def own_table(here: Path, *texts: str) -> Lab:
    """An experiment over a table of one's own, nothing of which lies in the run's folder yet."""
    (here / "own.csv").write_text("\n".join(["text", *texts]) + "\n")
    own = {"name": "own", "description": "Answer.", "items": {"path": "own.csv", "prompt": "text"}}
    cast = [model("ann", "student"), model("jim", "judge")]
    return Lab(here, cast, [own | {"rubric": {"right": "It is right."}}])


@pytest.mark.parametrize("how", [["plan"], ["plan", "--estimate-samples", "1"], ["run", "--estimate-only"]])
def test_rows_of_a_table_are_sampled_before_they_lie_in_the_run(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    lab = own_table(here, "quay", "rook", "sloe")
    requested = listen(monkeypatch)
    ended = coeval(*how, "--config", lab.file)
    assert (ended.code, "warning" in ended.err) == (0, False), ended.err
    samples = 1 if "1" in how else 2
    assert requested.phases() == (0, 0, 0, samples, samples)
    shown = "".join(text(request) for _, request in requested.requests)
    assert [row for row in ("quay", "rook", "sloe") if row in shown] == ["quay", "rook", "sloe"][:samples]
    assert not list(lab.path.glob("phase*"))


@pytest.mark.process
def test_rows_of_a_table_are_estimated_as_when_they_lie_in_the_run(here: Path, coeval: Command) -> None:
    lab = own_table(here, *("word " * n * 40 for n in range(1, 6)))
    price(here, "ann", "jim")
    before = plan(coeval, lab.file)
    lab.settings["phases"] = dict.fromkeys(("response_collection", "evaluation"), "Extend")
    assert lab.run().exit_code == 0
    for folder in ("phase4_responses", "phase5_evaluations"):
        for file in (lab.path / folder).iterdir():
            file.unlink()
    assert plan(coeval, lab.file, "--continue") == before


def test_rows_of_a_changed_table_are_sampled_as_they_stand_now(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer rows than those in the run's folder: no offset of theirs is one of its lines'."""
    assert own_table(here, "one", "two", "three").run().exit_code == 0
    lab = own_table(here, "four and more", "five and much more", "six")
    requested = listen(monkeypatch)
    ended = coeval("plan", "--config", lab.file, "--continue", "--redo-changed", "--estimate-samples", "5")
    assert (ended.code, "damaged" in ended.err) == (0, False), ended.err
    about = [text(request) for _, request in requested.requests]
    assert about
    assert all("four and more" in each or "five and much more" in each for each in about)


def test_a_model_without_a_key_is_estimated_by_rules_of_thumb(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    judge = {"name": "gpt-4o-mini", "interface": "openai", "roles": ["judge"]}
    lab = Lab(here, [model("ann", "teacher", "student"), judge], [task()])
    ended = coeval("plan", "--config", lab.file, "--json")
    found = figures(ended)
    assert "no samples of gpt-4o-mini: " in ended.err
    assert found["basis"] == {"ann": "2 samples", "gpt-4o-mini": "rules of thumb"}
    assert found["cost_usd"]["low"] > 0


@pytest.mark.process
def test_whose_prices_these_are_is_said_once_for_all_models(here: Path, coeval: Command) -> None:
    shown = coeval("plan", "--config", MEDIUM, "--estimate-samples", "0").out
    prices = next(line for line in shown.splitlines() if line.startswith("Prices: "))
    assert prices.count("genai-prices") == 1
    assert "openai gpt-4o-mini, openai gpt-3.5-turbo, " in prices


def test_a_sample_that_fails_is_told_and_costs_no_estimate(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("ann"), model("eve", "student", failure_rate=1.0)], [task()])
    ended = coeval("plan", "--config", lab.file, "--json")
    assert ended.code == 0
    assert ended.err.count("warning: sample of eve as student, response_collection: simulated failure") == 2
    assert json.loads(ended.out)["basis"]["eve"] == "rules of thumb"


def test_a_ceiling_holds_for_samples_too(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(here, [model("ann")], [task()], {"quota": {"ann": {"max_calls": 3}}})
    requested = listen(monkeypatch)
    ended = coeval("plan", "--config", lab.file, "--estimate-samples", "5")
    assert ended.code == 0
    assert len(requested.requests) == 3
    assert ended.err.count("no more samples of ann: model ann has used 3 of the 3 requests") == 1
    assert "max_calls is 3, and leaves 0 requests for 9 calls: samples count towards it" in ended.err
    assert "--continue" not in ended.err


def test_requests_in_batch_jobs_are_not_short_of_a_ceiling(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("ann")], [task()], {"quota": {"ann": {"max_calls": 20}}})
    lab.path.mkdir(parents=True)
    account: dict[str, Any] = {"requests": 12, "jobs": {"tag": {"requests": 9}}}
    (lab.path / "usage.json").write_text(json.dumps({"models": {"ann": account}}))
    ended = coeval("plan", "--config", lab.file)
    assert (ended.code, ended.err.count("sample of ann")) == (0, 2)
    assert "samples count towards it" not in ended.err


def test_no_more_samples_are_asked_than_calls_are_owed(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(here, [model("ann")], [task(total=1)])
    requested = listen(monkeypatch)
    assert coeval("plan", "--config", lab.file, "--estimate-samples", "5").code == 0
    assert requested.phases() == (0, 0, 1, 1, 1)


def test_records_stand_in_for_samples(here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(here, [model("ann"), model("ben", "student")], [task()])
    lab.run()
    lab.tasks[0]["sampling"]["total"] = 5
    lab.models.append(model("new", "student"))
    requested = listen(monkeypatch)
    found = figures(coeval("plan", "--config", lab.file, "--continue", "--json"))
    assert requested.phases() == (0, 0, 0, 2, 0)  # of the new student alone
    assert found["basis"]["new"] == "2 samples"
    assert found["basis"]["ben"] == "3 records"


def test_factors_that_teachers_are_yet_to_propose_are_a_range(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("ann")], [task(rubric="auto", evaluation_mode="per_factor", total=2)])
    price(here, "ann")
    found = plan(coeval, lab.file)
    calls = found["calls"]["by_phase"]
    assert calls["rubric_mapping"] == {"central": 1, "low": 1, "high": 1}
    assert (
        calls["evaluation"]["low"] == 2 < calls["evaluation"]["central"] < calls["evaluation"]["high"] == 80
    )
    lab.run()
    made = sum(len(record["scores"]) for record in lab.records("evaluation").values())
    assert calls["evaluation"]["low"] <= made <= calls["evaluation"]["high"]


def test_auto_is_priced_as_the_cheapest_host_without_a_key(here: Path, coeval: Command) -> None:
    judge = {"name": "judge", "interface": "auto", "roles": ["judge"], "parameters": {"model": "gpt-4o-mini"}}
    lab = Lab(here, [model("ann", "teacher", "student"), judge], [task()])
    ended = coeval("plan", "--config", lab.file, "--estimate-samples", "0")
    assert ended.code == 0
    assert "model judge: interface auto is openai, as gpt-4o-mini" in ended.out
    assert "a run would not start" in ended.err


@pytest.mark.parametrize("batch", [{"batch": {"openai": {"evaluation": True}}}, {}])
def test_batches_cost_half_and_take_hours(here: Path, coeval: Command, batch: dict[str, Any]) -> None:
    judge: dict[str, Any] = {"name": "gpt-4o-mini", "interface": "openai", "roles": ["judge"]}
    live = Lab(here, [model("ann", "teacher", "student"), judge], [task()], id="live")
    alone = judge if batch else judge | {"batch_enabled": True}
    batched = Lab(here, [model("ann", "teacher", "student"), alone], [task()], batch, id="batched")
    one, other = plan(coeval, live.file), plan(coeval, batched.file)
    assert other["cost_usd"]["central"] == pytest.approx(one["cost_usd"]["central"] / 2)
    assert one["hours"]["high"] < other["hours"]["low"]
    assert other["hours"]["high"] >= 4


@pytest.mark.process
def test_what_would_cost_less_is_priced_as_its_own_plan(here: Path, coeval: Command) -> None:
    models: list[dict[str, Any]] = [
        model("ann", "teacher", "student"),
        {"name": "gpt-4o", "interface": "openai", "roles": ["judge"]},
        {"name": "gpt-4o-mini", "interface": "openai", "roles": ["student"]},
    ]
    lab = Lab(here, models, [task(total=20)])
    [saving] = plan(coeval, lab.file)["savings"]
    assert saving["change"] == "batch jobs for gpt-4o, gpt-4o-mini (batch_enabled: true)"
    assert saving["change"] in coeval("plan", "--config", lab.file, "--estimate-samples", "0").out
    lab.models = [*models[:1], *(each | {"batch_enabled": True} for each in models[1:])]
    assert plan(coeval, lab.file)["cost_usd"] == saving["cost_usd"]
    assert plan(coeval, lab.file)["savings"] == []


@pytest.mark.process
def test_a_run_may_tell_its_cost_before_it_begins(here: Path, coeval: Command) -> None:
    price(here, "ann")
    lab = Lab(here, [model("ann")], [task()], {"estimate_cost": True, "estimate_samples": 1})
    ended = coeval("run", "--config", lab.file)
    assert ended.code == 0
    reported = ended.err.index("estimate of evaluation: 3 calls, $")
    assert ended.err.index("sample of ann as teacher") < reported
    assert "estimate: 9 calls" in ended.err
    found = json.loads((lab.path / "cost_estimate.json").read_text())
    assert found["calls"]["total"]["central"] == sum(lab.counts())
    used = json.loads((lab.path / "usage.json").read_text())["models"]["ann"]
    assert used["requests"] == 1 + 9 + 1  # a sample, records, and the probe


@pytest.mark.process
async def test_ctrl_c_while_samples_are_asked_ends_with_nothing_run(here: Path) -> None:
    lab = Lab(here, [model("ann", latency_s=60)], [task()])
    words = [sys.executable, "-m", "coeval", "plan", "--config", str(lab.file)]
    process = await asyncio.create_subprocess_exec(*words, cwd=here, stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        while not lab.path.exists():  # noqa: ASYNC110  the folder is locked when models are asked
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
    assert process.returncode == 130
    assert b"nothing was run" in said
    assert not (lab.path / "meta.json").exists()


@pytest.mark.process
def test_the_estimate_is_held_against_the_budget(here: Path, coeval: Command) -> None:
    price(here, "ann")
    bounded = model("ann", max_tokens=200)
    lab = Lab(here, [bounded], [task()])
    cost = plan(coeval, lab.file)["cost_usd"]
    reported = {
        cost["low"] / 2: "warning: The estimate does not fit into the budget",
        cost["central"]: "warning: The estimate may not fit into the budget",
        cost["high"] * 20: "The estimate fits into the budget",
    }
    for budget, sentence in reported.items():
        lab.settings = {"budget_usd": budget}
        for command in (("plan",), ("run", "--estimate-only")):
            ended = coeval(*command, "--config", lab.file, "--estimate-samples", "0")
            assert (ended.code, ended.err.count(sentence)) == (0, 1), ended.err
            assert "is left" not in ended.err
    lab.run()
    lab.tasks[0]["sampling"]["total"] = 4
    ended = coeval("plan", "--config", lab.file, "--continue", "--estimate-samples", "0")
    assert "experiment.budget_usd is" in ended.err
    assert "of it is spent, and $" in ended.err
    lab.settings = {"quota": {"ann": {"max_cost_usd": cost["low"] / 2}}}
    ended = coeval("plan", "--config", lab.file, "--continue", "--estimate-samples", "0")
    assert "does not fit into the budget: experiment.quota.ann.max_cost_usd is" in ended.err


@pytest.mark.process
def test_a_refusal_names_the_plan_of_the_same_start(here: Path, coeval: Command) -> None:
    price(here, "ann")
    lab = Lab(here, [model("ann", max_tokens=200)], [task()])
    lab.run()
    lab.tasks[0]["sampling"]["total"] = 30
    lab.settings = {"budget_usd": 0.0001}
    ended = coeval("run", "--config", lab.file, "--overwrite")
    assert ended.code == 1
    assert "plan --overwrite`" in ended.err.replace("\n", " ")
    ended = coeval("run", "--config", lab.file, "--continue")
    assert ended.code == 3, "what goes on goes as far as the money carries"
    assert coeval("plan", "--config", lab.file, "--continue", "--estimate-samples", "0").code == 0


def test_a_plan_of_a_run_at_work_says_that_it_can_do_without_samples(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("ann")], [task()])
    lab.run()
    lab.tasks[0]["sampling"]["total"] = 30
    with RunDir(lab.path).hold_lock():
        ended = coeval("plan", "--config", lab.file, "--continue")
        assert ended.code == 1
        assert "estimate without samples (--estimate-samples 0)" in ended.err.replace("\n", " ")
        assert coeval("plan", "--config", lab.file, "--continue", "--estimate-samples", "0").code == 0
