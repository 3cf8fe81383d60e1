"""The flow: every work done once, in bounded memory, each failure kept to itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coeval.core.errors import Draining, QuotaExhausted, StoreError, Unparsable
from coeval.core.records import Failure, Kept
from coeval.engine.work import MIN_STARTED, Done, Flow, Work, iterate_works


class Note(Kept, frozen=True, kw_only=True):
    """The record of a test's work."""

    id: str

    @property
    def value(self) -> str:
        return self.id


@dataclass
class Task:
    """A work that waits for ``gate``, then ends as ``outcome`` says; ``children`` follow. ``at_once``:
    it waits for nothing."""

    key: str
    gate: asyncio.Event | None = None
    outcome: Exception | None = None
    children: tuple[Task, ...] = ()
    began: Callable[[Task], None] = lambda _: None
    log: list[str] = field(default_factory=list)
    at_once: bool = False

    phase = "evaluation"
    model = "m"
    calls = 1

    @property
    def weight(self) -> int:
        return 1 + sum(child.weight for child in self.children)

    async def do(self) -> Note:
        self.began(self)
        if not self.at_once:
            await asyncio.sleep(0)
        if self.gate is not None:
            await self.gate.wait()
        if self.outcome is not None:
            raise self.outcome
        return Note(id=self.key)

    def make_failed_record(self, error: Exception) -> Note:
        return Note(id=self.key, status="failed", error=Failure("test", str(error)))


def children(work: Work, record: Kept) -> Iterable[Work]:
    assert isinstance(work, Task)
    return work.children if record.status == "ok" else ()


class Ran:
    """A flow that was run to its end: what was kept, and what it yielded."""

    def __init__(self, room: int = 100) -> None:
        self.kept: list[Kept] = []
        self.done: list[Done] = []
        self.flow = Flow(lambda _, record: self.kept.append(record), children, room=room)

    async def run(self, works: Iterable[Work]) -> Ran:
        async for done in self.flow.run(iterate_works(works)):
            self.done.append(done)
        return self

    @property
    def ids(self) -> list[str]:
        return [record.id for record in self.kept if isinstance(record, Note)]


async def turns(number: int) -> None:
    """Let everything that can go on go on, so many times."""
    for _ in range(number):
        await asyncio.sleep(0)


trees = st.recursive(st.just(()), lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=40)


def planted(shape: tuple[object, ...], names: Iterator[int]) -> Task:
    assert all(isinstance(child, tuple) for child in shape)
    inner = tuple(planted(child, names) for child in shape if isinstance(child, tuple))
    number = next(names)
    return Task(f"{number}", children=inner, at_once=number % 3 == 0)


def all_keys(task: Task) -> Iterator[str]:
    yield task.key
    for child in task.children:
        yield from all_keys(child)


@pytest.mark.process
@given(shapes=st.lists(trees, max_size=12), room=st.integers(1, 50))
def test_every_work_is_done_exactly_once(shapes: list[tuple[object, ...]], room: int) -> None:
    names = count()
    works = [planted(shape, names) for shape in shapes]
    ran = asyncio.run(Ran(room).run(works))
    expected = Counter(key for work in works for key in all_keys(work))
    assert Counter(ran.ids) == expected
    assert Counter(done.work.key for done in ran.done) == expected
    assert ran.flow.in_flight == 0


async def test_no_more_works_are_begun_than_there_is_room_for() -> None:
    gate, begun = asyncio.Event(), list[str]()
    drawn = 0

    def works() -> Iterator[Work]:
        nonlocal drawn
        for drawn in count(1):
            yield Task(f"{drawn}", gate, began=lambda task: begun.append(task.key))
            if drawn == 10_000:
                return

    ran = Ran(room=50)
    running = asyncio.create_task(ran.run(works()))
    await turns(600)
    assert drawn == len(begun) == ran.flow.in_flight == 50
    gate.set()
    await running
    assert drawn == len(ran.kept) == 10_000


async def test_room_is_counted_in_what_a_work_may_bring_about() -> None:
    gate, begun = asyncio.Event(), list[str]()
    leaves = tuple(Task(f"leaf {n}") for n in range(9))
    works = [Task(f"{n}", gate, children=leaves, began=lambda t: begun.append(t.key)) for n in range(100)]
    ran = Ran(room=200)
    running = asyncio.create_task(ran.run(works))
    await turns(600)
    assert len(begun) == 200 / 10
    gate.set()
    await running
    assert len(ran.kept) == 1_000


async def test_a_huge_fan_out_does_not_starve_the_first_stage() -> None:
    gate, begun = asyncio.Event(), list[str]()
    leaves = tuple(Task(f"leaf {n}") for n in range(99))
    works = [Task(f"{n}", gate, children=leaves, began=lambda t: begun.append(t.key)) for n in range(20)]
    ran = Ran(room=1)
    running = asyncio.create_task(ran.run(works))
    await turns(600)
    assert len(begun) == MIN_STARTED
    gate.set()
    await running


async def test_what_follows_begins_while_its_siblings_still_run() -> None:
    gate, reached = asyncio.Event(), asyncio.Event()
    child = Task("child", began=lambda _: reached.set())
    ran = Ran()
    running = asyncio.create_task(ran.run([Task("stuck", gate), Task("parent", children=(child,))]))
    await reached.wait()
    assert "stuck" not in ran.ids
    gate.set()
    assert set((await running).ids) == {"stuck", "parent", "child"}


@pytest.mark.parametrize("at_once", [False, True])
async def test_failures_are_records_and_end_nobody_else(at_once: bool) -> None:
    works = [
        Task("good"),
        Task("bad", outcome=Unparsable("no JSON"), at_once=at_once),
        Task(
            "bug", outcome=ZeroDivisionError("division by zero"), children=(Task("never"),), at_once=at_once
        ),
        Task("left", outcome=QuotaExhausted("no calls left"), at_once=at_once),
    ]
    ran = await Ran().run(works)
    assert {record.id: record.status for record in ran.kept if isinstance(record, Note)} == {
        "good": "ok",
        "bad": "failed",
        "bug": "failed",
    }
    ends = {done.work.key: done for done in ran.done}
    assert ends.keys() == {"good", "bad", "bug", "left"}
    assert isinstance(ends["bad"].error, Unparsable)
    assert "ZeroDivisionError" in str(ends["bug"].error)
    assert isinstance(ends["left"].gap, QuotaExhausted)
    assert ends["left"].record is None


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("follows", [False, True])
async def test_a_record_that_cannot_be_kept_ends_the_flow(at_once: bool, follows: bool) -> None:
    gate = asyncio.Event()
    kept: list[Kept] = []

    def keep(work: Work, record: Kept) -> None:
        if work.key == "3":
            raise StoreError("the disk is full")
        kept.append(record)

    flow = Flow(keep, children)
    works = [Task(f"{n}", at_once=at_once) for n in range(6)]
    works[3:4] = [Task("parent", children=(works[3],))] if follows else [works[3]]
    works.insert(0, Task("stuck", gate))
    with pytest.raises(StoreError, match="the disk is full"):
        async for _ in flow.run(iterate_works(works)):
            pass
    assert flow.in_flight == 0, "what still ran was ended"
    assert {record.id for record in kept if isinstance(record, Note)} >= {"0", "1", "2"}
    assert not gate.is_set()


async def test_draining_finishes_what_runs_and_begins_nothing() -> None:
    gate, begun = asyncio.Event(), asyncio.Event()
    ran = Ran(room=2)
    first = Task("first", gate, children=(Task("child"),), began=lambda _: begun.set())
    works = [first, *(Task(f"{n}", gate) for n in range(50))]
    running = asyncio.create_task(ran.run(works))
    await begun.wait()
    drawn = ran.flow.in_flight
    ran.flow.drain()
    gate.set()
    await running
    assert len(ran.ids) == drawn < len(works)
    assert "child" not in ran.ids


async def test_cancelling_gives_up_what_runs() -> None:
    never, begun = asyncio.Event(), asyncio.Event()
    ran = Ran()
    running = asyncio.create_task(ran.run([Task("stuck", never, began=lambda _: begun.set()), Task("quick")]))
    await begun.wait()
    await turns(10)
    ran.flow.cancel()
    await running
    assert ran.ids == ["quick"]
    [given_up] = [done for done in ran.done if done.work.key == "stuck"]
    assert isinstance(given_up.gap, Draining)


async def test_the_caller_may_stop_looking() -> None:
    """Whoever leaves the iteration leaves nothing running behind."""
    never = asyncio.Event()
    ran = Ran()
    ends = ran.flow.run(iterate_works([Task("quick"), Task("stuck", never)]))
    async for _ in ends:
        break
    assert isinstance(ends, AsyncGenerator)
    await ends.aclose()
    assert ran.flow.in_flight == 0


async def test_a_source_that_fails_ends_the_flow() -> None:
    def works() -> Iterator[Work]:
        yield Task("one")
        raise StoreError("cannot read the next item")

    ran = Ran()
    with pytest.raises(StoreError, match="cannot read"):
        await ran.run(works())
    assert ran.flow.in_flight == 0


async def test_an_empty_source_ends_at_once() -> None:
    assert (await Ran().run([])).done == []
