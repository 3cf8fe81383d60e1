"""Ceilings and budgets: no interleaving of requests, answers, jobs, crashes and restarts passes one."""

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
from coeval.core.model import ModelSpec, lowest_answer_limit, mark_if_cut_by_window, refuses_limit
from coeval.core.records import Completion, SamplingParameters, Usage
from coeval.models.metering import account_file
from coeval.models.metering import meter as metering
from coeval.models.metering.account_file import Terms, read_accounts
from coeval.models.metering.budget_gate import Held
from coeval.models.metering.meter import Ledger, Meter
from coeval.models.pacing.admission import Admission, Reservation
from coeval.pricing.tariff import Rates, Tariff, make_pricer


def content(path: Path) -> dict[str, Any]:
    models: dict[str, Any] = json.loads(path.read_text())["models"]
    return models


class Metering(RuleBasedStateMachine):
    """Asking one model, with what really happened beside it. Money is counted in whole dollars."""

    @initialize(ceiling=st.none() | st.integers(0, 70), block=st.integers(1, 32), priced=st.booleans())
    def begin(self, ceiling: int | None, block: int, priced: bool) -> None:
        self.folder = TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("os.fsync", lambda _: None)  # nothing pulls the plug here
        self.path = Path(self.folder.name, "usage.json")
        self.patch.setattr(metering, "BLOCK", block)
        self.ceiling, self.block, self.priced = ceiling, block, priced
        self.sent = self.wasted = self.on_the_way = self.tokens = self.written_tokens = 0
        self.open()

    def open(self) -> None:
        price = (lambda usage: 2.0 * usage.tokens) if self.priced else None
        self.ledger = Ledger(self.path, {"m": Terms(self.ceiling, price)})
        self.meter = self.ledger.meter("m")

    @rule(count=st.sampled_from([1, 1, 1, 5, 40]))
    def reserve(self, count: int) -> None:
        for _ in range(count):
            try:
                self.meter.reserve_request()
            except QuotaExhausted:
                assert self.sent + self.wasted == self.ceiling, "refused while some were left"
                return
            self.sent += 1
            self.on_the_way += 1

    @precondition(lambda self: self.on_the_way)
    @rule(tokens=st.integers(0, 9))
    def settle(self, tokens: int) -> None:
        usage = self.meter.book_answer(Usage(tokens, tokens))
        assert usage == Usage(tokens, tokens, 4.0 * tokens if self.priced else None)
        self.on_the_way -= 1
        self.tokens += 2 * tokens

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        for _ in range(data.draw(st.integers(1, self.on_the_way))):
            self.meter.return_request()
            self.sent -= 1
            self.on_the_way -= 1

    @precondition(lambda self: self.on_the_way)
    @rule()
    def fail(self) -> None:
        """A request that was sent, and that no answer comes to: nothing is told, nothing is booked."""
        self.on_the_way -= 1

    @rule()
    def disk_full(self) -> None:
        with pytest.MonkeyPatch.context() as full:
            full.setattr(account_file, "write_json_atomic", no_space)
            try:
                self.meter.reserve_request()
            except (StoreError, QuotaExhausted):
                return
        self.sent += 1
        self.on_the_way += 1

    @rule()
    def write(self) -> None:
        self.ledger.write_with_reservations_of_one_block()
        self.written_tokens = self.tokens

    @rule()
    def end(self) -> None:
        self.ledger.close()
        self.written_tokens = self.tokens
        self.on_the_way = 0
        self.open()

    @rule()
    def crash(self) -> None:
        """What was not written is lost: of a ceiling nothing, of tokens what came since, of model a block."""
        self.open()
        if self.ceiling is None:
            self.sent = self.meter.requests
        else:
            assert self.sent <= self.meter.requests <= self.sent + self.wasted + self.block
            self.wasted = self.meter.requests - self.sent
        written = self.row()
        held = written["input_tokens"] + written["output_tokens"] if written else 0
        assert self.written_tokens <= held <= self.tokens
        self.tokens = self.written_tokens = held
        self.on_the_way = 0

    @invariant()
    def counts_are_true(self) -> None:
        assert self.meter.requests == self.sent + self.wasted
        if self.ceiling is None:
            return
        assert self.sent <= self.ceiling
        written = self.row()
        assert self.sent <= (written["requests"] + written["reserved"] if written else 0)

    def row(self) -> dict[str, Any]:
        return content(self.path)["m"] if self.path.exists() else {}

    def teardown(self) -> None:
        self.ledger.close()
        written = self.row()
        if written:
            assert written["requests"] == self.sent + self.wasted
            assert written["input_tokens"] + written["output_tokens"] == self.tokens
            assert (written["cost_usd"] or 0.0) == (2.0 * self.tokens if self.priced else 0.0)
        else:
            assert self.sent + self.wasted == self.tokens == 0
        self.patch.undo()
        self.folder.cleanup()


TestMetering = Metering.TestCase
TestMetering.settings = settings(max_examples=120, stateful_step_count=50)


def no_space(path: Path, _: object) -> None:
    raise StoreError(f"cannot write {path}: the disk is full")


def test_the_ceiling_holds_and_its_error_names_the_way_out(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "usage.json", {"gpt-4o": Terms(3)})
    model = ledger.meter("gpt-4o")
    for _ in range(3):
        model.reserve_request()
    with pytest.raises(QuotaExhausted) as caught:
        model.reserve_request()
    message = str(caught.value)
    assert "model gpt-4o has used 3 of the 3" in message
    assert "Raise experiment.quota.gpt-4o.max_calls and run again with continue_run=True." in message
    assert str(model.refusal()) == message
    assert ledger.meter("gpt-4o").requests == 3


def test_a_raised_ceiling_gives_exactly_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    for ceiling, left in ((5, 5), (12, 7)):
        ledger = Ledger(path, {"m": Terms(ceiling)})
        model = ledger.meter("m")
        for _ in range(left):
            model.reserve_request()
        with pytest.raises(QuotaExhausted):
            model.reserve_request()
        ledger.close()
        assert content(path)["m"]["requests"] == ceiling
        assert content(path)["m"]["reserved"] == 0


def row_of(**figures: int) -> dict[str, Any]:
    """What the file has of a model, all of it."""
    counts = ("requests", "reserved", "input_tokens", "output_tokens", "unpriced")
    money = {"cost_usd": None, "priced_by": None, "uncertain_usd": 0.0, "reserved_usd": 0.0}
    settled: dict[str, Any] = {"settled_usd": 0.0, "settlements": []}
    return dict.fromkeys(counts, 0) | money | {"jobs": {}, "booked": []} | settled | figures


def test_models_without_a_ceiling_are_counted_and_written_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    ledger = Ledger(path, {"free": Terms()})
    for _ in range(100):
        ledger.meter("free").reserve_request()
    ledger.meter("other").reserve_request()
    ledger.meter("free").book_answer(Usage(10, 2))
    ledger.meter("free").book_answer(Usage(5, 1))
    assert not path.exists()
    assert ledger.meter("free").refusal() is None
    ledger.write_with_reservations_of_one_block()
    assert content(path) == {
        "free": row_of(requests=100, input_tokens=15, output_tokens=3, unpriced=2),
        "other": row_of(requests=1),
    }


def test_what_the_host_says_an_answer_cost_counts_before_our_price(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "usage.json", {"m": Terms(price=lambda usage: 0.5 * usage.tokens)})
    model = ledger.meter("m")
    assert model.book_answer(Usage(1, 1)) == Usage(1, 1, 1.0)
    assert model.book_answer(Usage(1, 1, 0.25)) == Usage(1, 1, 0.25)
    ledger.write_with_reservations_of_one_block()
    row = content(tmp_path / "usage.json")["m"]
    assert (row["cost_usd"], row["unpriced"]) == (1.25, 0)
    assert row["priced_by"] == "what the host says an answer cost"


def test_what_earlier_runs_left_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    gone = {"requests": 7, "reserved": 0, "input_tokens": 70, "output_tokens": 7, "note": "kept"}
    path.write_text(json.dumps({"models": {"gone": gone}, "since": "2025"}))
    ledger = Ledger(path, {"m": Terms(10)})
    ledger.meter("m").reserve_request()
    ledger.close()
    assert content(path)["gone"] == row_of() | gone
    assert json.loads(path.read_text())["since"] == "2025"


DAMAGED = [
    "",
    "{",
    "[]",
    '{"models": 3}',
    '{"models": {"m": {"requests": -1}}}',
    '{"models": {"m": {"requests": "x"}}}',
]


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_damaged_file_is_never_silently_zero(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "usage.json"
    path.write_text(damaged)
    with pytest.raises(StoreError, match="Restore it from a copy, or move it away") as caught:
        Ledger(path, {"m": Terms(10)})
    assert str(path) in str(caught.value)
    assert path.read_text() == damaged


def test_who_moves_a_damaged_file_away_counts_what_the_records_say(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    path.write_text("{")
    recorded = {"m": Usage(9, 9, 2.5)}
    with pytest.raises(StoreError, match="and costs from what the folder's records say"):
        Ledger(path, budget_usd=3.0, recorded=recorded)
    path.unlink()
    model = Ledger(path, budget_usd=3.0, recorded=recorded).meter("m")
    assert (model.requests, model.spent_usd) == (0, 2.5)


def test_a_damaged_file_without_ceilings_is_set_aside_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    path.write_text("{")
    ledger = Ledger(path, {"m": Terms()})
    ledger.meter("m").reserve_request()
    assert path.read_text() == "{"
    ledger.close()
    assert content(path)["m"]["requests"] == 1
    assert (tmp_path / "usage.json.damaged").read_text() == "{"


def test_a_bill_that_no_budget_can_prevent_is_booked_and_warned_of_once(tmp_path: Path) -> None:
    """More tokens than were set aside for, and a cost of nothing beside tokens that have a price."""
    reported: list[str] = []
    price = make_pricer(Tariff(rates=Rates(input_usd_per_mtok=1e6, output_usd_per_mtok=1e6), source="test"))
    ledger = Ledger(tmp_path / "usage.json", {"m": Terms(price=price, batch_price=price)})
    ledger.warn = reported.append
    model = ledger.meter("m")
    for _ in range(2):
        assert model.book_answer(Usage(1, 9), 4.0).cost_usd == 10.0
        assert model.book_answer(Usage(3, 1, 0.0), 4.0).cost_usd == 0.0
    model.book_answer(Usage(1, 3), 4.0)
    above, free = reported
    assert "m: its host reports 1 tokens of input and 9 of output for one answer, which cost $10.00" in above
    assert "more than the $4.00" in above
    assert "m: its host reports a cost of $0 for 3 tokens of input and 1 of output" in free
    bill = model.open_bill()
    bill.add_answer(Usage(1, 9), 4.0)
    bill.add_answer(Usage(3, 1, 0.0), 4.0)
    assert len(reported) == 2, "once for a model, asked live or by jobs"
    assert bill.add_answer(Usage(3, 0, 0.0, uncounted=True), 4.0).cost_usd is None, "nothing beside no count"
    assert bill.sums.uncertain_usd == 4.0


def test_an_answer_of_a_job_that_cost_too_much_hides_nothing_that_is_unknown(tmp_path: Path) -> None:
    """A job held $4 for each of two requests; one cost $10, and nobody knows what the other did."""
    price = make_pricer(Tariff(rates=Rates(input_usd_per_mtok=1e6, output_usd_per_mtok=1e6), source="test"))
    terms = Terms(price=price, most=lambda *_: 4.0, batch_price=price, batch_most=lambda *_: 4.0)
    model = Ledger(tmp_path / "usage.json", {"m": terms}, budget_usd=20.0).meter("m")
    for _ in range(2):
        model.reserve_for_batch(4.0)
    model.move_parked_to_job("job", 2, 8.0, 4.0)
    bill = model.open_bill()
    bill.add_answer(Usage(1, 9), 4.0)
    bill.add_answer(Usage(uncounted=True), 4.0)
    model.settle_job("job", bill)
    account = read_accounts(tmp_path / "usage.json")["m"]
    assert (account.cost_usd, account.uncertain_usd) == (10.0, 4.0)


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
            place.append(taken)
        else:
            self.waiting.append((taken, asyncio.ensure_future(wait, loop=self.loop), place))

    @rule(model=st.sampled_from(MODELS), tokens=st.integers(1, 12), priority=st.integers(0, 2))
    def send(self, model: str, tokens: int, priority: int) -> None:
        reservation = Reservation(Admission(model, self.meter(model)), UNIT * tokens, priority)
        self.ask(OnItsWay(reservation, model), reservation.take_permit, self.on_the_way)

    @rule(model=st.sampled_from(MODELS), tokens=st.integers(1, 12), priority=st.integers(0, 2))
    def park(self, model: str, tokens: int, priority: int) -> None:
        usd = UNIT / 2 * tokens
        taken = OnItsWay(Reservation(Admission(model, self.meter(model)), usd, priority), model)
        self.ask(taken, lambda: self.meter(model).reserve_for_batch(usd, priority), self.parked)

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
                    if place is self.on_the_way:
                        self.soon(taken.reservation.take_permit)
                    place.append(taken)

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        reservation, model = self.take_one(data, self.on_the_way)
        tokens = data.draw(st.integers(0, int(reservation.usd / UNIT)))
        self.true[model] += UNIT * tokens
        self.soon(lambda: reservation.settle(used(tokens)))
        self.soon(reservation.release_or_book_uncertain)

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data(), billed=st.booleans())
    def lose(self, data: st.DataObject, billed: bool) -> None:
        reservation, model = self.take_one(data, self.on_the_way)
        self.true[model] += reservation.usd * billed
        self.soon(reservation.release_or_book_uncertain)

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        reservation, _ = self.take_one(data, self.on_the_way)
        self.soon(reservation.release)
        self.soon(reservation.release_or_book_uncertain)

    @precondition(lambda self: self.parked)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        reservation, model = self.take_one(data, self.parked)
        self.soon(lambda: self.meter(model).release_unsent_batch_request(reservation.usd))

    @precondition(lambda self: self.parked)
    @rule()
    def submit(self) -> None:
        model = self.parked[0].model
        mine = [each for each in self.parked if each.model == model]
        self.parked = [each for each in self.parked if each.model != model]
        self.tags += 1
        batch = Batch(f"job-{self.tags}", model, tuple(each.reservation.usd for each in mine))
        for _ in range(2):  # it may be repeated
            self.soon(lambda: self.meter(model).move_parked_to_job(batch.tag, len(mine), sum(batch.most)))
        self.jobs.append(batch)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), again=st.booleans())
    def collect(self, data: st.DataObject, again: bool) -> None:
        batch = data.draw(st.sampled_from(self.jobs))
        self.jobs.remove(batch)
        bill = self.meter(batch.model).open_bill()
        for most in batch.most:
            tokens = data.draw(st.integers(-1, int(most / UNIT * 2)))
            if tokens >= 0:  # else it expired
                bill.add_answer(used(tokens))
        self.true[batch.model] += bill.sums.cost_usd or 0.0
        for _ in range(2 if again else 1):
            self.soon(lambda: self.meter(batch.model).settle_job(batch.tag, bill))

    @rule()
    def write(self) -> None:
        self.ledger.write_with_reservations_of_one_block()

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
        assert self.ledger.budget_gate.waiting == len(self.waiting)

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
    ledger.budget_gate.free_jobs_money = no_disk
    meter = ledger.meter("a")
    for _ in range(30):
        assert meter.reserve_for_batch(UNIT, 1) is None
    money = meter.reserve_for_batch(UNIT, 1)
    assert money is not None
    with pytest.raises(StoreError, match="disk is full"):
        await asyncio.wait_for(asyncio.ensure_future(money), 5)


# --- Refusals of the limit on answers, by other servers than vLLM

OF_THE_LIMIT = [
    "'max_tokens' or 'max_completion_tokens' is too large: 2048. This model's maximum context length is 512 "
    "tokens and your request has 20 input tokens (2048 > 512 - 20).",
    "This model's maximum context length is 1024 tokens. However, you requested 2112 tokens (64 in the "
    "messages, 2048 in the completion). Please reduce the length of the messages or completion.",
    "max_tokens is too large: 2048. This model supports at most 1,024 completion tokens.",
    "`max_tokens` must be less than or equal to `1024`, the maximum value for `max_tokens` is less than the "
    "`context_window` for this model",
    "max_tokens: 2048 > 1024, which is the maximum allowed number of output tokens for claude-x",
    "Unable to submit request because it has a maxOutputTokens value of 2048 but the supported range is from "
    "1 (inclusive) to 1025 (exclusive). Update the value and try again.",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 1024]",
    "`inputs` tokens + `max_new_tokens` must be <= 1024. Given: 30 `inputs` tokens and 2048 `max_new_tokens`",
    "Requested token count exceeds the model's maximum context length of 1024 tokens. You requested a total "
    "of 2112 tokens: 64 tokens from the input messages and 2048 tokens for the completion.",
    "too many tokens: max tokens must be less than or equal to 1024",
    "The maximum tokens you requested exceeds the model limit of 1024. Try again with a maximum tokens value "
    "that is lower than 1024.",
    "max_completion_tokens (2048) must be less than 1024",
    "Requests with max_tokens > 1024 must have stream=true",
]
OF_A_PROMPT = [
    "This model's maximum context length is 4096 tokens. However, you requested 5120 tokens (3072 in the "
    "messages, 2048 in the completion).",
    "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input "
    "tokens and you requested 2048 output tokens",
    "'max_tokens' is too large: 2048. This model's maximum context length is 4096 tokens and your request "
    "has 2100 input tokens (2048 > 4096 - 2100).",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3000 `inputs` tokens and 2048 "
    "`max_new_tokens`",
    "the request exceeds the available context size (4096 tokens), try increasing it",
    "temperature must be less than or equal to 2",
    "invalid chat completion request: top_logprobs must be at most 20",
    "messages: text content blocks must be non-empty",
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
]


@pytest.mark.parametrize("message", OF_THE_LIMIT)
def test_a_limit_that_no_request_can_have_is_told_from_a_prompt_that_is_too_long(message: str) -> None:
    assert refuses_limit(message, 2048)
    assert not refuses_limit(message, 256), "the limit is below what the host takes"
    assert not refuses_limit(message, None)


@pytest.mark.parametrize("message", OF_A_PROMPT)
def test_what_is_wrong_with_one_prompt_does_not_end_a_model(message: str) -> None:
    assert not refuses_limit(message, 2048)


# --- Answers that end below their limit


@pytest.mark.parametrize(
    ("text", "reasoning", "output", "finish"),
    [
        ("word " * 100, None, 100, "window"),
        ("word " * 100, None, 290, "length"),
        ("word " * 300, None, 30, "length"),  # words are not what it counts
        ("word " * 30, "word " * 270, 30, "length"),  # reasoning is not counted
        ("----" * 20, None, 20, "window"),
    ],
)
def test_a_count_too_small_for_its_text_is_no_sign_of_a_window(
    text: str, reasoning: str | None, output: int, finish: str
) -> None:
    cut = Completion(text, Usage(20, output), finish_reason="length", reasoning=reasoning, truncated=True)
    assert mark_if_cut_by_window(cut, 300).finish_reason == finish


@pytest.mark.parametrize(
    ("max_tokens", "extra", "limit"),
    [
        (2048, {}, 2048),
        (2048, {"max_tokens": 256}, 256),
        (2048, {"n": 4}, 2048),
        (None, {"options": {"num_predict": 64}}, 64),
        (2048, {"max_tokens": -1}, None),
        (None, {}, None),
    ],
)
def test_one_answer_is_limited_by_what_is_laid_over_it_however_many_there_are(
    max_tokens: int | None, extra: dict[str, Any], limit: int | None
) -> None:
    spec = ModelSpec(name="m", interface="openai", model="m", extra_body=extra)
    assert lowest_answer_limit(SamplingParameters(max_tokens=max_tokens), spec) == limit
