"""Budgets over kills, lost answers and restarts: the host adds up what it bills, and never comes to more."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import pytest
from cli.coeval_process import called
from fakes.moments import Ended, Forks, forks
from flaky_host import MODELS, Asked, Host, error, hosted
from small_runs import experiment, folder_of, run

from coeval.core.errors import UsageError
from coeval.core.text import dollars
from coeval.models.metering.account_file import read_accounts

RUNS, PARTS = 100, 5
MOST_KILLS = 3


class Experiment:
    """One with random prices, limits and budget, at a host that bills what it makes."""

    def __init__(self, folder: Path, host: Host, seed: int) -> None:
        draw = self.draw = random.Random(seed)
        self.host = host
        self.spent = dict.fromkeys(MODELS, 0.0)
        self.rates = {name: (10 ** draw.uniform(-1, 1), 10 ** draw.uniform(-0.5, 1.5)) for name in MODELS}
        write_prices(self.rates)
        self.total = draw.randint(6, 14)
        self.budget = self.total * draw.uniform(0.5, 1.8) * self.about()
        self.own = {"judge-1": self.budget * draw.uniform(0.1, 0.6)} if draw.random() < 0.4 else {}
        self.folder = folder
        self.max_tokens = draw.randint(200, 500)
        self.bad = draw.choice((0.0, 0.0, 0.03, 0.1))
        host.fault, host.billed = self.fault, self.billed
        self.write(self.budget)

    def about(self) -> float:
        """What an item costs with all that follows from it, more or less."""
        asked = {"teacher": 1, "student-1": 1, "student-2": 1, "judge-1": 2, "judge-2": 2}
        return (
            sum(
                times * (350 * self.rates[name][0] + 40 * self.rates[name][1])
                for name, times in asked.items()
            )
            / 1e6
        )

    def write(self, budget: float) -> None:
        quota = {name: {"max_cost_usd": usd} for name, usd in self.own.items()}
        self.file = experiment(
            self.folder,
            self.host.url,
            total=self.total,
            parameters={"max_tokens": self.max_tokens, "max_concurrency": 16},
            settings={"budget_usd": budget, "quota": quota, "generation_retries": 1},
        )

    async def fault(self, _: Asked) -> Any:
        if self.draw.random() >= self.bad:
            return None
        return error(self.draw.choice((400, 429, 503)))

    def billed(self, asked: Asked, prompt: int, answer: int) -> bool:
        into, out = self.rates[asked.model]
        self.spent[asked.model] += (prompt * into + answer * out) / 1e6
        return self.draw.random() < self.bad

    async def start(self, commands: Forks, *, at: int = 0) -> Ended:
        return await asyncio.to_thread(
            commands.run, "coeval", "run", "--config", self.file, *self.going_on(), below=self.folder, at=at
        )

    def going_on(self) -> list[str]:
        return ["--continue"] if folder_of(self.file).meta.exists() else []

    def holds(self) -> None:
        """What the host billed is within the budgets, and within what the folder has on account."""
        accounts = read_accounts(folder_of(self.file).usage)
        assert sum(self.spent.values()) <= self.budget + 1e-12
        for name, usd in self.own.items():
            assert self.spent[name] <= usd + 1e-12
        for name, usd in self.spent.items():
            account = accounts.get(name)
            on_account = 0.0 if account is None else account.spent_usd + account.reserved_usd
            assert usd <= on_account + 1e-12, f"{name} was billed more than is on account"
        assert sum(each.spent_usd for each in accounts.values()) <= self.budget + 1e-12


def write_prices(rates: dict[str, tuple[float, float]]) -> None:
    """In the working directory."""
    own = {
        name: {"input_usd_per_mtok": into, "output_usd_per_mtok": out} for name, (into, out) in rates.items()
    }
    file = Path("Config/provider_pricing.yaml")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(msgspec.json.encode({"overrides": {"simulated": own}}))


@pytest.mark.slow
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
                done = await tried.start(commands)
                assert done.code in ended, done.said
                ended[done.code] += 1
                tried.holds()
                if done.code == 3 and "budget_usd is" in done.said:
                    unused.append(1 - sum(tried.spent.values()) / tried.budget)
    assert min(killed, len(unused)) >= 2
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
    with pytest.raises(UsageError) as told:
        await run(file)
    assert not host.asked, "something was asked all the same"
    assert not folder_of(file).meta.exists()
    return str(told.value)


async def test_a_budget_needs_prices_and_bounds(priced: Path) -> None:
    async with hosted() as host:
        public = "https://models.example.com/v1"
        file = experiment(
            priced, host.url, urls={"judge-2": public}, parameters={}, settings={"budget_usd": 1.0}
        )
        said = await refused(file, host)
        assert "nobody knows the price of judge-2" in said
        assert "max_tokens" in said
        assert "teacher" in said


async def test_a_run_that_cannot_fit_is_refused_before_anything_is_asked(priced: Path) -> None:
    async with hosted() as host:
        said = await refused(budgeted(priced, host.url, 0.0001, max_tokens=300), host)
    assert "does not fit into its budget" in said
    assert "experiment.budget_usd" in said


async def test_requests_wait_for_money_that_others_turn_out_not_to_need(priced: Path) -> None:
    """All of them at once may cost more than the budget; what they do cost fits."""
    async with hosted(latency_s=0.01) as host:
        summary = await run(budgeted(priced, host.url, 0.03, max_tokens=1000, max_concurrency=64))
        assert summary.exit_code == 0
    spent = sum(account.spent_usd for account in read_accounts(folder_of(priced / "x.yaml").usage).values())
    assert 0 < spent < 0.03


async def test_what_nobody_can_know_of_stays_spent_and_is_told(priced: Path) -> None:
    async with hosted() as host:
        host.billed = lambda asked, _prompt, _answer: asked.model == "student-1"
        summary = await run(budgeted(priced, host.url, 1.0, max_tokens=300))
        assert summary.exit_code == 3
    account = read_accounts(folder_of(priced / "x.yaml").usage)["student-1"]
    assert account.cost_usd is None
    assert account.uncertain_usd > 0


@pytest.mark.slow
async def test_what_a_killed_process_had_set_aside_is_told_alike_by_all(priced: Path) -> None:
    """Every refusal to go on, and `status`: spent for sure, and perhaps."""
    async with hosted() as host:
        write_prices(dict.fromkeys(MODELS, (1.0, 4.0)))
        await run(budgeted(priced, host.url, 1.0, max_tokens=300))
        folder = folder_of(priced / "x.yaml")
        usage = json.loads(folder.usage.read_text())
        usage["models"]["student-1"]["reserved_usd"] = 0.0401
        folder.usage.write_text(json.dumps(usage))
        file = experiment(
            priced, host.url, total=300, parameters={"max_tokens": 300}, settings={"budget_usd": 0.06}
        )
        told = []
        for _ in range(2):
            with pytest.raises(UsageError) as refusal:
                await run(file, continue_run=True)
            told.append(str(refusal.value))
    assert told[0] == told[1]
    known = sum(account.cost_usd or 0.0 for account in read_accounts(folder.usage).values())
    assert f"is $0.06, and {dollars(known + 0.0401)} of it is spent ($0.0401 of that perhaps: " in told[0]
    shown = await called(priced, "status", "--run", folder.path)
    assert f"{dollars(known)} of $1.00 spent, and $0.0401 perhaps (nobody" in " ".join(shown.out.split())
    assert "set aside" not in shown.out
