"""Money: no interleaving of requests, answers, batch jobs, crashes and restarts costs more than a budget."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coeval.core.errors import QuotaExhausted, StoreError
from coeval.core.records import Usage
from coeval.models.metering.account_file import Terms
from coeval.models.metering.budget_gate import Held
from coeval.models.metering.ledger import Ledger
from coeval.models.metering.meter import Meter, Reservation

MODELS = ("a", "b")
UNIT = 0.25
"""Money in the machine is counted in quarters, which floats add exactly."""


class OnItsWay(NamedTuple):
    reservation: Reservation
    model: str


class Batch(NamedTuple):
    tag: str
    model: str
    most: tuple[float, ...]


def terms(max_cost_usd: float | None = None) -> Terms:
    """An output token costs a quarter; input is free."""
    return Terms(
        price=lambda usage: UNIT * usage.output_tokens,
        max_cost_usd=max_cost_usd,
        most=lambda _, made: UNIT * made,
        batch_price=lambda usage: UNIT / 2 * usage.output_tokens,
        batch_most=lambda _, made: UNIT / 2 * made,
    )


def used(tokens: int) -> Usage:
    return Usage(1, tokens)


class Spending(RuleBasedStateMachine):
    """Two models, one of them with a budget of its own, and what really was spent beside them."""

    @initialize(budget=st.integers(0, 80), own=st.none() | st.integers(0, 60))
    def begin(self, budget: int, own: int | None) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("os.fsync", lambda _: None)  # nothing pulls the plug here
        self.path = Path(self.folder.name, "usage.json")
        self.budget, self.own = budget * UNIT, None if own is None else own * UNIT
        self.true = dict.fromkeys(MODELS, 0.0)
        self.jobs: list[Batch] = []
        self.tags = 0
        self.open()

    def open(self) -> None:
        self.ledger = Ledger(self.path, {"a": terms(self.own), "b": terms()}, budget_usd=self.budget)
        self.on_the_way: list[OnItsWay] = []
        self.parked: list[OnItsWay] = []
        self.waiting: list[tuple[OnItsWay, asyncio.Future[None], list[OnItsWay]]] = []

    def soon(self, act: Callable[[], Any]) -> Any:
        """Within a loop, as all of it is."""

        async def inside() -> Any:
            return act()

        return self.loop.run_until_complete(inside())

    def meter(self, model: str) -> Meter:
        return self.ledger.meter(model)

    def ask(self, taken: OnItsWay, take: Callable[[], Any], place: list[OnItsWay]) -> None:
        try:
            wait = self.soon(take)
        except QuotaExhausted:
            return
        if wait is None:
            taken.reservation.sent()
            place.append(taken)
        else:
            self.waiting.append((taken, asyncio.ensure_future(wait, loop=self.loop), place))

    @rule(model=st.sampled_from(MODELS), tokens=st.integers(1, 12), rank=st.integers(0, 2))
    def send(self, model: str, tokens: int, rank: int) -> None:
        reservation = Reservation(self.meter(model), UNIT * tokens, rank)
        self.ask(OnItsWay(reservation, model), reservation.take, self.on_the_way)

    @rule(model=st.sampled_from(MODELS), tokens=st.integers(1, 12), rank=st.integers(0, 2))
    def park(self, model: str, tokens: int, rank: int) -> None:
        usd = UNIT / 2 * tokens
        taken = OnItsWay(Reservation(self.meter(model), usd, rank), model)
        self.ask(taken, lambda: self.meter(model).park(usd, rank), self.parked)

    @rule()
    def go_on(self) -> None:
        """Those who waited and were served are on their way; who was refused is gone."""
        self.soon(lambda: None)
        self.loop.run_until_complete(asyncio.sleep(0))
        for entry in list(self.waiting):
            taken, wait, place = entry
            if wait.done():
                self.waiting.remove(entry)
                if wait.exception() is None:
                    taken.reservation.sent()
                    place.append(taken)

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        reservation, model = self.take_one(data, self.on_the_way)
        tokens = data.draw(st.integers(0, int(reservation.usd / UNIT)))
        self.true[model] += UNIT * tokens
        self.soon(lambda: reservation.settle(used(tokens)))
        self.soon(reservation.close)

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data(), billed=st.booleans())
    def lose(self, data: st.DataObject, billed: bool) -> None:
        reservation, model = self.take_one(data, self.on_the_way)
        self.true[model] += reservation.usd * billed
        self.soon(reservation.close)

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        reservation, _ = self.take_one(data, self.on_the_way)
        self.soon(reservation.unspent)
        self.soon(reservation.close)

    @precondition(lambda self: self.parked)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        reservation, model = self.take_one(data, self.parked)
        self.soon(lambda: self.meter(model).unpark(reservation.usd))

    @precondition(lambda self: self.parked)
    @rule()
    def submit(self) -> None:
        model = self.parked[0].model
        mine = [each for each in self.parked if each.model == model]
        self.parked = [each for each in self.parked if each.model != model]
        self.tags += 1
        batch = Batch(f"job-{self.tags}", model, tuple(each.reservation.usd for each in mine))
        for _ in range(2):  # it may be repeated
            self.soon(lambda: self.meter(model).submit(batch.tag, len(mine), sum(batch.most)))
        self.jobs.append(batch)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), again=st.booleans())
    def collect(self, data: st.DataObject, again: bool) -> None:
        batch = data.draw(st.sampled_from(self.jobs))
        self.jobs.remove(batch)
        bill = self.meter(batch.model).bill()
        for most in batch.most:
            tokens = data.draw(st.integers(-1, int(most / UNIT * 2)))
            if tokens >= 0:  # else it expired
                bill.answered(used(tokens))
        self.true[batch.model] += bill.cost_usd
        for _ in range(2 if again else 1):
            self.soon(lambda: self.meter(batch.model).settle_job(batch.tag, bill))

    @rule()
    def write(self) -> None:
        self.ledger.flush()

    @rule(billed=st.booleans())
    def crash(self, billed: bool) -> None:
        """What was on the wire may have been billed; what was parked was not sent."""
        for reservation, model in self.on_the_way:
            self.true[model] += reservation.usd * billed
        for _, wait, _ in self.waiting:
            wait.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.open()

    def take_one(self, data: st.DataObject, place: list[OnItsWay]) -> OnItsWay:
        taken = data.draw(st.sampled_from(place))
        place.remove(taken)
        return taken

    @invariant()
    def nothing_costs_more(self) -> None:
        promised = dict.fromkeys(MODELS, 0.0)
        for reservation, model in self.on_the_way:
            promised[model] += reservation.usd
        for batch in self.jobs:
            promised[batch.model] += sum(batch.most)
        spent = {model: self.true[model] + promised[model] for model in MODELS}
        assert sum(spent.values()) <= self.budget
        assert self.own is None or spent["a"] <= self.own
        rows = json.loads(self.path.read_text())["models"] if self.path.exists() else {}
        for model, usd in spent.items():
            assert committed(rows.get(model)) >= usd, "spent before it was written"
        assert sum(map(committed, rows.values())) <= self.budget

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        self.go_on()
        if not (self.on_the_way or self.parked or self.jobs):
            assert not self.waiting
        assert self.ledger.waiting == len(self.waiting)

    def teardown(self) -> None:
        for _, wait, _ in self.waiting:
            wait.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
        self.patch.undo()
        self.folder.cleanup()


def committed(row: dict[str, Any] | None) -> float:
    if row is None:
        return 0.0
    jobs = sum(float(job["usd"]) for job in row["jobs"].values())
    return float((row["cost_usd"] or 0.0) + row["uncertain_usd"] + row["reserved_usd"] + jobs)


TestSpending = Spending.TestCase
TestSpending.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


async def test_who_waits_for_jobs_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    def no_disk() -> Held:
        raise StoreError("the disk is full")

    ledger = Ledger(tmp_path / "usage.json", {"a": terms()}, budget_usd=30 * UNIT)
    ledger.jobs_free_money(no_disk)
    meter = ledger.meter("a")
    for _ in range(30):
        assert meter.park(UNIT, 1) is None
    money = meter.park(UNIT, 1)
    assert money is not None
    with pytest.raises(StoreError, match="disk is full"):
        await asyncio.wait_for(asyncio.ensure_future(money), 5)
