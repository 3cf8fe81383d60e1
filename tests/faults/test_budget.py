"""Budgets over kills, lost answers and restarts: the host adds up what it bills, and never comes to more."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import pytest
from cli.coeval_process import called
from fakes.batch_jobs import DAMAGES
from fakes.flaky_host import MODELS, Host, Requested, error, hosted
from fakes.moments import Ended, Forks, forks
from fakes.openai_batches import OpenAiBatchHost, openai_batches
from fakes.openai_chat import Answer
from fakes.threaded import in_a_thread
from pipeline.experiments import Lab, model, task
from small_runs import experiment, folder_of, run

from coeval.core.errors import UsageError
from coeval.core.figures import dollars
from coeval.models.metering.account_file import read_accounts
from coeval.pipeline.start.session_start import sum_own_usage
from coeval.store.rundir import RunDir

RUNS, PARTS = int(os.environ.get("COEVAL_MONEY_RUNS", "24")), 2
"""Experiments of each kind: live, and by batch jobs. The variable asks for more of them."""
MOST_KILLS = 3
NO_COUNT = (None, "400", -1, 399.5, [40], True, 1 << 40)


def half_reported(usage: dict[str, Any], draw: random.Random) -> Any:
    """The usage as a careless host reports it: left out, or a count of it left out or impossible."""
    how = draw.choice(("none", "absent", "wrong"))
    name = draw.choice(("prompt_tokens", "completion_tokens"))
    if how == "none":
        return None
    if how == "absent":
        return {key: value for key, value in usage.items() if key != name}
    return usage | {name: draw.choice(NO_COUNT)}


class Experiment:
    """One with random prices, limits and budget, at a host that bills what it makes and does not always say
    what. A budget may be set later: what was billed by then is ``before``."""

    def __init__(self, folder: Path, host: Host, seed: int) -> None:
        draw = self.draw = random.Random(seed)
        self.host = host
        self.spent = dict.fromkeys(MODELS, 0.0)
        self.bills: dict[str, list[float]] = {}
        self.before = 0.0
        self.rates = {name: (10 ** draw.uniform(-1, 1), 10 ** draw.uniform(-0.5, 1.5)) for name in MODELS}
        write_prices(self.rates)
        self.total = draw.randint(6, 14)
        self.budget = self.total * draw.uniform(0.5, 1.8) * self.about()
        self.own = {"judge-1": self.budget * draw.uniform(0.1, 0.6)} if draw.random() < 0.4 else {}
        self.folder = folder
        self.max_tokens = draw.randint(200, 500)
        self.bad = draw.choice((0.0, 0.0, 0.03, 0.1))
        self.careless = draw.choice((0.0, 0.0, 0.1, 0.5))
        host.fault, host.billed, host.tells = self.fault, self.billed, self.tells
        self.later = draw.random() < 0.4
        self.write(None if self.later else self.budget)

    def about(self) -> float:
        """What an item costs with all that follows from it, more or less."""
        requested = {"teacher": 1, "student-1": 1, "student-2": 1, "judge-1": 2, "judge-2": 2}
        return (
            sum(
                times * (350 * self.rates[name][0] + 40 * self.rates[name][1])
                for name, times in requested.items()
            )
            / 1e6
        )

    def set_budget(self) -> None:
        if self.later:
            self.later, self.before = False, sum(self.spent.values())
            self.own = {}
            self.write(self.budget)

    def write(self, budget: float | None) -> None:
        own = {} if budget is None else self.own
        quota = {name: {"max_cost_usd": usd} for name, usd in own.items()}
        self.file = experiment(
            self.folder,
            self.host.url,
            total=self.total,
            parameters={"max_tokens": self.max_tokens, "max_concurrency": 16},
            settings={"quota": quota, "generation_retries": 1}
            | ({} if budget is None else {"budget_usd": budget}),
        )

    async def fault(self, _: Requested) -> Any:
        if self.draw.random() >= self.bad:
            return None
        return error(self.draw.choice((400, 429, 503)))

    def billed(self, requested: Requested, prompt: int, answer: int) -> bool:
        into, out = self.rates[requested.model]
        usd = (prompt * into + answer * out) / 1e6
        self.spent[requested.model] += usd
        self.bills.setdefault(requested.digest, []).append(usd)
        return self.draw.random() < self.bad

    def tells(self, usage: dict[str, Any]) -> Any:
        return half_reported(usage, self.draw) if self.draw.random() < self.careless else usage

    async def start(self, commands: Forks, *, at: int = 0) -> Ended:
        return await asyncio.to_thread(
            commands.run, "coeval", "run", "--config", self.file, *self.going_on(), below=self.folder, at=at
        )

    def going_on(self) -> list[str]:
        return ["--continue"] if folder_of(self.file).meta.exists() else []

    def holds(self) -> None:
        """What the host billed is within the budgets, and within what the folder has on account."""
        folder = folder_of(self.file)
        accounts = read_accounts(folder.usage)
        if not self.later:
            assert sum(self.spent.values()) <= max(self.budget, self.before) + 1e-12
            for name, usd in self.own.items():
                assert self.spent[name] <= usd + 1e-12
        for name, usd in self.spent.items():
            account = accounts.get(name)
            on_account = 0.0 if account is None else account.spent_usd + account.reserved_usd
            assert usd <= on_account + 1e-12, f"{name} was billed more than is on account"
        on_account = sum(each.spent_usd + each.reserved_usd for each in accounts.values())
        if not self.later and not self.before:
            assert on_account <= self.budget + 1e-12
        recorded = sum(each.cost_usd or 0.0 for each in sum_own_usage(folder).values())
        twice = sum(sum(bills) - max(bills) for bills in self.bills.values())
        assert twice <= on_account - recorded + 1e-12, "paid twice, and on account no more than once"


def write_prices(rates: dict[str, tuple[float, float]]) -> None:
    """In the working directory."""
    own = {
        name: {"input_usd_per_mtok": into, "output_usd_per_mtok": out} for name, (into, out) in rates.items()
    }
    file = Path("Config/provider_pricing.yaml")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(msgspec.json.encode({"overrides": {"simulated": own}}))


@pytest.mark.system
@pytest.mark.parametrize("part", range(PARTS))
async def test_random_budgets_hold_through_lost_answers_and_kills(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, unused, killed = dict.fromkeys((0, 1, 3), 0), [], 0
    async with hosted() as host:
        with forks() as commands:
            for seed in range(part, RUNS, PARTS):
                folder = tmp_path / f"{seed}"
                folder.mkdir()
                tried = Experiment(folder, host, seed)
                for _ in range(tried.draw.choice((0, 0, 1, MOST_KILLS))):
                    done = await tried.start(commands, at=tried.draw.randint(3, 250))
                    killed += done.code < 0
                    tried.holds()
                tried.set_budget()
                done = await tried.start(commands)
                assert done.code in ended, done.said
                ended[done.code] += 1
                tried.holds()
                if done.code == 3 and "budget_usd is" in done.said and not tried.before:
                    unused.append(1 - sum(tried.spent.values()) / tried.budget)
    assert min(killed, len(unused)) >= 1
    with capsys.disabled():
        print(f"\n{RUNS // PARTS} budgets, {killed} kills: {len(unused)} were reached; of these ", end="")
        print(f"{fmean(unused):.0%} was left unused in the mean, {max(unused):.0%} at most")


@pytest.fixture
def priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory in which all models have prices, save judge-2."""
    monkeypatch.chdir(tmp_path)
    write_prices({name: (1.0, 4.0) for name in MODELS if name != "judge-2"})
    return tmp_path


def budgeted(folder: Path, url: str, budget: float, **parameters: Any) -> Path:
    return experiment(folder, url, total=4, parameters=parameters, settings={"budget_usd": budget})


async def refused(file: Path, host: Host) -> str:
    with pytest.raises(UsageError) as reported:
        await run(file)
    assert not host.requested, "something was asked all the same"
    assert not folder_of(file).meta.exists()
    return str(reported.value)


async def test_a_budget_needs_prices_and_bounds(priced: Path) -> None:
    async with hosted() as host:
        public = "https://models.example.com/v1"
        file = experiment(
            priced, host.url, urls={"judge-2": public}, parameters={}, settings={"budget_usd": 1.0}
        )
        said = await refused(file, host)
        assert "without a known price for judge-2" in said
        assert "max_tokens" in said
        assert "teacher" in said


async def test_a_run_that_cannot_fit_is_refused_before_anything_is_asked(priced: Path) -> None:
    async with hosted() as host:
        said = await refused(budgeted(priced, host.url, 0.0001, max_tokens=300), host)
    assert "does not fit into its budget" in said
    assert "experiment.budget_usd" in said


@pytest.mark.process
async def test_requests_wait_for_money_that_others_turn_out_not_to_need(priced: Path) -> None:
    """All of them at once may cost more than the budget; what they do cost fits."""
    async with hosted(latency_s=0.01) as host:
        summary = await run(budgeted(priced, host.url, 0.03, max_tokens=1000, max_concurrency=64))
        assert summary.exit_code == 0
    spent = sum(account.spent_usd for account in read_accounts(folder_of(priced / "x.yaml").usage).values())
    assert 0 < spent < 0.03


@pytest.mark.process
async def test_what_nobody_can_know_of_stays_spent_and_is_told(priced: Path) -> None:
    async with hosted() as host:
        host.billed = lambda requested, _prompt, _answer: requested.model == "student-1"
        summary = await run(budgeted(priced, host.url, 1.0, max_tokens=300))
        assert summary.exit_code == 3
    account = read_accounts(folder_of(priced / "x.yaml").usage)["student-1"]
    assert account.cost_usd is None
    assert account.uncertain_usd > 0


@pytest.mark.process
async def test_after_a_kill_a_run_goes_on_and_the_bill_settles_what_is_perhaps_spent(priced: Path) -> None:
    """What a killed process had set aside leaves less of the budget; the provider's bill gives it back."""
    async with hosted() as host:
        write_prices(dict.fromkeys(MODELS, (1.0, 4.0)))
        await run(budgeted(priced, host.url, 1.0, max_tokens=300))
        folder = folder_of(priced / "x.yaml")
        usage = json.loads(folder.usage.read_text())
        usage["models"]["student-1"]["reserved_usd"] = 0.0401
        folder.usage.write_text(json.dumps(usage))
        known = sum(account.cost_usd or 0.0 for account in read_accounts(folder.usage).values())
        file = experiment(
            priced, host.url, total=300, parameters={"max_tokens": 300}, settings={"budget_usd": 0.06}
        )
        shown = await called(priced, "status", "--run", folder.path)
        assert f"{dollars(known)} of $1.00 spent, and $0.040 perhaps (billing" in " ".join(shown.out.split())
        assert "set aside" not in shown.out.replace("was set aside for requests that may", "")
        first = await run(file, continue_run=True)
        assert first.exit_code == 3
        assert "$0.040 of that perhaps" in folder.log.read_text()
        assert "or settle the uncertain cost (coeval status RUN --settle)" in folder.log.read_text()
        before = len(host.requested)
        assert before > 28
        settled = await called(priced, "status", "--run", folder.path, "--settle", "student-1=0.001")
        assert "replacing an uncertain $0.040" in " ".join(settled.err.split())
        account = read_accounts(folder.usage)["student-1"]
        assert account.uncertain_usd == 0
        assert account.spent_usd == pytest.approx(max(0.001, account.cost_usd or 0.0))
        [settlement] = account.settlements
        assert settlement.bill_usd == 0.001
        assert settlement.perhaps_usd == pytest.approx(0.0401)
        assert settlement.by
        assert settlement.at
        second = await run(file, continue_run=True)
        assert second.exit_code == 3
        assert len(host.requested) > before + 28
    assert sum(each.spent_usd for each in read_accounts(folder.usage).values()) <= 0.06


@pytest.mark.process
async def test_a_bill_that_cannot_be_taken_is_refused(priced: Path) -> None:
    async with hosted() as host:
        write_prices(dict.fromkeys(MODELS, (1.0, 4.0)))
        await run(budgeted(priced, host.url, 1.0, max_tokens=300))
    folder = folder_of(priced / "x.yaml")
    before = folder.usage.read_text()
    for given, why in {
        "student-9=1": "no model student-9 has an account",
        "student-1": "write MODEL=USD",
        "student-1=-1": "write MODEL=USD",
        "student-1=nan": "write MODEL=USD",
        "student-1=1 student-1=2": "names student-1 twice",
    }.items():
        bills = [word for bill in given.split() for word in ("--settle", bill)]
        refusal = await called(priced, "status", "--run", folder.path, *bills)
        assert refusal.code == 1
        assert why in " ".join(refusal.err.split())
    assert folder.usage.read_text() == before


@pytest.mark.process
@pytest.mark.parametrize("bounded", [True, False], ids=["bounded", "no max_tokens"])
async def test_a_killed_run_without_a_budget_keeps_its_account(bounded: bool, priced: Path) -> None:
    """A budget set later counts what was spent before: the records' cost at least, and with max_tokens what
    was on its way too."""
    write_prices(dict.fromkeys(MODELS, (1.0, 4.0)))
    spent = 0.0

    def billed(_: Requested, prompt: int, answer: int) -> bool:
        nonlocal spent
        spent += (prompt * 1.0 + answer * 4.0) / 1e6
        return False

    async with hosted() as host:
        host.billed = billed
        limits = {"max_tokens": 300} if bounded else {}
        file = experiment(priced, host.url, total=12, parameters=limits)
        folder = folder_of(file)
        with forks() as commands:
            command = ("coeval", "run", "--config", file)
            done = await asyncio.to_thread(commands.run, *command, below=priced, at=120)
            assert done.code < 0, done.said
            recorded = sum(each.cost_usd or 0.0 for each in sum_own_usage(folder).values())
            assert recorded > 0
            if not bounded:
                await asyncio.to_thread(commands.run, *command, "--continue", below=priced, at=20)
                account = read_accounts(folder.usage).values()
                assert sum(each.cost_usd or 0.0 for each in account) >= recorded - 1e-12
                return
            at_the_kill = spent
            assert (
                sum(each.spent_usd + each.reserved_usd for each in read_accounts(folder.usage).values())
                >= spent
            )
            budget = at_the_kill * 1.5
            file = experiment(priced, host.url, total=12, parameters=limits, settings={"budget_usd": budget})
            done = await asyncio.to_thread(commands.run, *command, "--continue", below=priced)
            assert done.code == 3, done.said
    assert spent <= budget


class BatchedExperiment:
    """One whose judge goes by batch jobs, at a host that bills what it carries out, whatever it gives out of
    it: results that are late, short or damaged, usages that say half, errors that are billed."""

    OUTPUT_USD = 1e-4 / 2
    """Of a token, in a job; input costs nothing."""
    VERDICT = '{"plot": "High", "style": "Low"}'

    def __init__(self, folder: Path, host: OpenAiBatchHost, seed: int) -> None:
        draw = self.draw = random.Random(seed)
        self.host = host
        self.bills: dict[str, list[float]] = {}
        self.before = 0.0
        self.careless = draw.choice((0.0, 0.0, 0.2))
        self.damage = draw.choice(("none", "none", "late", "short", "empty", *DAMAGES))
        self.damaged: dict[int, list[bytes]] = {}
        for known in (host.jobs, host.files, host.requested, host.endings, host.requested_for_results):
            known.clear()
        host.states = ("validating", "in_progress", "completed")
        host.says, host.gives = self.says, self.gives
        self.total = draw.randint(4, 10)
        self.budget = self.total * draw.uniform(0.4, 2.5) * 200 * self.OUTPUT_USD
        self.later = draw.random() < 0.4
        judge = {
            "name": "gpt",
            "interface": "openai",
            "roles": ["judge"],
            "parameters": {"model": "gpt-4o-mini", "base_url": host.url, "max_tokens": 200},
            "batch_enabled": True,
        }
        settings = {"batch_poll_s": [0.01, 0.02], "probe_mode": "disable", "generation_retries": 1}
        self.lab = Lab(
            folder,
            [model("ann", "teacher"), model("ben", "student"), judge],
            [task(total=self.total)],
            settings | ({} if self.later else {"budget_usd": self.budget}),
        )

    def says(self, body: dict[str, Any]) -> Answer:
        tokens = self.draw.randint(20, 200)
        question = json.dumps(body, sort_keys=True)
        self.bills.setdefault(question, []).append(tokens * self.OUTPUT_USD)
        usage = {"prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens}
        reported = half_reported(usage, self.draw) if self.draw.random() < self.careless else usage
        return Answer(self.VERDICT, body={"usage": reported})

    def gives(self, times: int, lines: list[bytes]) -> list[bytes] | None:
        hurt = self.draw.sample(range(len(lines)), max(1, len(lines) // 3)) if lines else []
        match self.damage:
            case "none":
                return lines
            case "late":
                return lines if times > 1 else None
            case "empty":
                return []
            case "short":
                return [line for number, line in enumerate(lines) if number not in hurt]
            case damage:
                return [
                    DAMAGES[damage](line) if number in hurt else line for number, line in enumerate(lines)
                ]

    @property
    def spent(self) -> float:
        return sum(map(sum, self.bills.values()))

    def set_budget(self) -> None:
        if self.later:
            self.later, self.before = False, self.spent
            self.lab.settings["budget_usd"] = self.budget

    def start(self, commands: Forks, *, at: int = 0) -> Ended:
        goes_on = ["--continue"] if (self.lab.path / "meta.json").exists() else []
        return commands.run("coeval", "run", "--config", self.lab.file, *goes_on, below=self.lab.path, at=at)

    def holds(self) -> None:
        accounts = read_accounts(self.lab.path / "usage.json").values()
        in_jobs = sum(job.usd for each in accounts for job in each.jobs.values())
        on_account = sum(each.spent_usd + each.reserved_usd for each in accounts) + in_jobs
        assert self.spent <= on_account + 1e-12, "billed more than is on account"
        if not self.later:
            assert self.spent <= max(self.budget, self.before) + 1e-12
        recorded = sum(each.cost_usd or 0.0 for each in sum_own_usage(RunDir(self.lab.path)).values())
        twice = sum(sum(bills) - max(bills) for bills in self.bills.values())
        assert twice <= on_account - recorded + 1e-12, "paid twice, and on account no more than once"


@pytest.mark.system
@pytest.mark.parametrize("part", range(PARTS))
def test_random_budgets_hold_through_short_and_damaged_results_of_jobs(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("Config").mkdir()
    price = {"gpt-4o-mini": {"input_usd_per_mtok": 0.0, "output_usd_per_mtok": 100.0}}
    Path("Config/provider_pricing.yaml").write_text(json.dumps({"overrides": price}))
    key = "sk-batches-5512-aa31-9f04"
    ended, killed = dict.fromkeys((0, 3), 0), 0
    with in_a_thread(openai_batches(keys=[key])) as host, forks(OPENAI_API_KEY=key) as commands:
        for seed in range(part, RUNS, PARTS):
            folder = tmp_path / f"{seed}"
            folder.mkdir()
            tried = BatchedExperiment(folder, host, seed)
            for _ in range(tried.draw.choice((0, 0, 1, MOST_KILLS))):
                done = tried.start(commands, at=tried.draw.randint(3, 150))
                killed += done.code < 0
                tried.holds()
            tried.set_budget()
            done = tried.start(commands)
            assert done.code in ended or "does not fit into its budget" in done.said, done.said
            tried.holds()
    assert killed >= 1
