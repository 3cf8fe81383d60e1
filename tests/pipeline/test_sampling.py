from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from math import prod

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coeval.pipeline.samples import ItemSpace, Sample, Samples, describe_coverage_shortfall


def attributes(*sizes: int) -> dict[str, list[str]]:
    """Attributes ``a``, ``b``, … of the given numbers of values ``a0``, ``a1``, …"""
    return {name: [f"{name}{i}" for i in range(size)] for name, size in zip("abcdefgh", sizes, strict=False)}


def plan(
    space: ItemSpace, total: int, *, seed: int = 0, recorded: dict[int, dict[str, str]] | None = None
) -> list[Sample]:
    samples = Samples(space, seed=seed, task="task", teacher="teacher", recorded=recorded)
    return [samples.draw_sample(n) for n in range(1, total + 1)]


def lacks(what: str, space: ItemSpace, total: int) -> bool:
    """Whether `describe_coverage_shortfall` says that not all ``what`` (values, pairs) can be covered."""
    return any(re.search(rf"all \d+ {what} ", line) for line in describe_coverage_shortfall(space, total))


def pairs_in(samples: list[Sample]) -> set[tuple[tuple[str, str], ...]]:
    return {pair for sample in samples for pair in combinations(sample.target.items(), 2)}


def imbalance(samples: list[Sample], space: dict[str, list[str]]) -> int:
    """The largest difference between the uses of two values of one attribute."""
    uses = Counter(pair for sample in samples for pair in sample.target.items())
    counts = ([uses[name, value] for value in values] for name, values in space.items())
    return max((max(times) - min(times) for times in counts), default=0)


@st.composite
def spaces(draw: st.DrawFn) -> ItemSpace:
    target = attributes(*draw(st.lists(st.integers(1, 5), max_size=5)))
    nuance = attributes(*draw(st.lists(st.integers(1, 4), max_size=3)))
    ends = st.tuples(st.integers(0, 4), st.integers(0, 2)).map(lambda ends: (ends[0], sum(ends)))
    return ItemSpace(
        target=target,
        nuance=nuance,
        target_range="all" if draw(st.booleans()) else draw(ends),
        nuance_range=draw(ends),
        labels=tuple(
            draw(st.lists(st.sampled_from(sorted(target)), unique=True, max_size=2)) if target else ()
        ),
        walk_product=draw(st.booleans()),
    )


@pytest.mark.process
@given(spaces(), st.integers(0, 30), st.integers(0, 30), st.integers())
def test_every_plan_is_a_prefix_of_a_longer_one(space: ItemSpace, short: int, more: int, seed: int) -> None:
    assert plan(space, short + more, seed=seed)[:short] == plan(space, short, seed=seed)


@pytest.mark.process
@given(spaces(), st.integers(0, 40))
def test_items_have_as_many_attributes_as_asked_and_always_the_labels(space: ItemSpace, total: int) -> None:
    others = len(space.target) - len(space.labels)
    for n, sample in enumerate(plan(space, total), start=1):
        assert sample.n == n
        assert [name for name in space.target if name in sample.target] == list(sample.target)
        assert all(value in space.target[name] for name, value in sample.target.items())
        assert set(space.labels) <= sample.target.keys()
        if space.chosen_range is None:
            assert sample.target.keys() == space.target.keys()
        else:
            lo, hi = space.chosen_range
            assert min(lo, others) <= len(sample.target) - len(space.labels) <= min(hi, others)
        lo, hi = space.nuance_range
        assert min(lo, len(space.nuance)) <= len(sample.nuance) <= min(hi, len(space.nuance))
        assert all(value in space.nuance[name] for name, value in sample.nuance.items())


@pytest.mark.process
@given(spaces(), st.integers(0, 60), st.integers())
def test_the_values_of_an_attribute_are_used_equally_often(space: ItemSpace, total: int, seed: int) -> None:
    samples = plan(space, total, seed=seed)
    assert imbalance(samples, space.target) <= 1
    nuances = [Sample(sample.n, sample.nuance, {}) for sample in samples]
    assert imbalance(nuances, space.nuance) <= 1


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans(), st.integers())
@settings(max_examples=60)
def test_the_cross_product_is_walked_in_full_before_it_repeats(
    sizes: list[int], twice: bool, seed: int
) -> None:
    space = ItemSpace(target=attributes(*sizes), walk_product=True)
    product = prod(sizes)
    seen = Counter(tuple(sample.target.items()) for sample in plan(space, product * (1 + twice), seed=seed))
    assert len(seen) == product
    assert set(seen.values()) == {1 + twice}


def test_a_cross_product_of_any_size_is_walked_at_once() -> None:
    space = ItemSpace(
        target={f"attribute{i}": [str(j) for j in range(50)] for i in range(40)}, target_range="all"
    )
    assert len({tuple(sample.target.items()) for sample in plan(space, 500)}) == 500


def test_all_and_complete_are_the_same_walk() -> None:
    target = attributes(2, 3)
    assert plan(ItemSpace(target=target, target_range="all"), 9) == plan(
        ItemSpace(target=target, walk_product=True), 9
    )


@pytest.mark.parametrize(
    ("sizes", "per_item", "total"),
    [((5, 3, 2), 1, 10), ((5, 2, 2), 2, 5), ((3, 3, 3), 2, 5), ((4, 4, 4, 4, 4), 2, 10), ((9, 2, 2), 2, 9)],
)
@pytest.mark.parametrize("seed", range(5))
def test_all_values_occur_in_the_fewest_items_possible(
    sizes: tuple[int, ...], per_item: int, total: int, seed: int
) -> None:
    space = ItemSpace(target=attributes(*sizes), target_range=(per_item, per_item))
    used = {pair for sample in plan(space, total, seed=seed) for pair in sample.target.items()}
    assert len(used) == sum(sizes)
    assert not lacks("values", space, total)
    assert lacks("values", space, total - 1)


@pytest.mark.parametrize("sizes", [(3, 3), (4, 4), (5, 4), (6, 4), (2, 3), (1, 4)])
@pytest.mark.parametrize("seed", range(5))
def test_all_pairs_of_two_attributes_occur_in_the_fewest_items_possible(
    sizes: tuple[int, int], seed: int
) -> None:
    space = ItemSpace(target=attributes(*sizes), target_range=(2, 2))
    assert len(pairs_in(plan(space, prod(sizes), seed=seed))) == prod(sizes)
    assert describe_coverage_shortfall(space, prod(sizes)) == []
    assert lacks("pairs", space, prod(sizes) - 1)


@pytest.mark.parametrize(
    ("sizes", "lo", "hi"), [((9, 2, 2), 2, 2), ((5, 4, 3), 2, 2), ((4, 3, 4), 1, 2), ((4, 4, 4, 4), 4, 4)]
)
def test_small_attributes_beside_large_ones_meet_too(sizes: tuple[int, ...], lo: int, hi: int) -> None:
    space = ItemSpace(target=attributes(*sizes), target_range=(lo, hi))
    pairs = sum(one * other for one, other in combinations(sizes, 2))
    assert len(pairs_in(plan(space, 4 * pairs))) == pairs


def test_labels_meet_every_value_of_the_others() -> None:
    space = ItemSpace(target=attributes(2, 3, 4), labels=("a",), target_range=(1, 1))
    samples = plan(space, 28)
    assert {len(sample.target) for sample in samples} == {2}
    assert len(pairs_in(samples)) == 2 * 3 + 2 * 4


@pytest.mark.parametrize("changed", ["seed", "task", "teacher"])
def test_plans_differ_by_seed_task_and_teacher(changed: str) -> None:
    space = ItemSpace(
        target=attributes(4, 4, 4), nuance=attributes(4, 4), target_range=(1, 2), nuance_range=(1, 1)
    )
    names = {"seed": 0, "task": "t", "teacher": "m"}
    other = names | {changed: 1 if changed == "seed" else "other"}
    samples = Samples(space, **names), Samples(space, **other)  # type: ignore[arg-type]
    one, two = ([of.draw_sample(n) for n in range(1, 13)] for of in samples)
    assert [sample.target for sample in one] != [sample.target for sample in two]
    assert [sample.nuance for sample in one] != [sample.nuance for sample in two]


def test_a_plan_is_the_same_on_every_machine_and_in_every_version() -> None:
    """A run that is continued after an upgrade must meet its own items again."""
    space = ItemSpace(
        target=attributes(3, 2), nuance=attributes(2, 2), target_range=(1, 2), nuance_range=(0, 1)
    )
    assert [(sample.target, sample.nuance) for sample in plan(space, 3)] == [
        ({"a": "a1"}, {"a": "a0"}),
        ({"a": "a0", "b": "b1"}, {}),
        ({"b": "b0"}, {"b": "b1"}),
    ]
    walked = plan(ItemSpace(target=attributes(2, 2), target_range="all"), 4)
    assert ["".join(sample.target.values()) for sample in walked] == ["a0b1", "a1b0", "a0b0", "a1b1"]


@pytest.mark.process
@given(spaces(), st.integers(1, 40), st.data())
def test_recorded_items_that_are_as_planned_change_nothing(
    space: ItemSpace, total: int, data: st.DataObject
) -> None:
    planned = plan(space, total)
    kept = data.draw(st.sets(st.integers(1, total)))
    recorded = {n: planned[n - 1].target for n in kept}
    assert plan(space, total, recorded=recorded) == planned


@pytest.mark.process
@given(spaces(), st.integers(1, 25), st.data())
def test_a_plan_asked_for_in_part_is_the_same_plan(space: ItemSpace, total: int, data: st.DataObject) -> None:
    words = st.sampled_from([*(word for values in space.target.values() for word in values), "of old"])
    items = st.dictionaries(st.sampled_from([*space.target, "gone"]), words, max_size=3)
    recorded = data.draw(st.dictionaries(st.integers(1, total), items))
    needed = sorted(data.draw(st.sets(st.integers(1, total + 5))))
    samples = Samples(space, seed=0, task="task", teacher="teacher", recorded=recorded)
    whole = plan(space, total + 5, recorded=recorded)
    assert [samples.draw_sample(n) for n in needed] == [whole[n - 1] for n in needed]


def test_a_plan_goes_forward() -> None:
    samples = Samples(ItemSpace(target=attributes(2)), seed=0, task="task", teacher="teacher")
    samples.draw_sample(3)
    with pytest.raises(ValueError, match="item 3 was asked for after item 3"):
        samples.draw_sample(3)


@pytest.mark.process
@given(spaces(), st.integers(1, 20))
def test_other_recorded_items_are_given_as_they_are_and_come_again_as_such(
    space: ItemSpace, total: int
) -> None:
    assume(space.target)
    recorded = {n: {"of_old": "x", "a": "a0"} for n in range(1, total + 1, 2)}
    samples = plan(space, 2 * total, recorded=recorded)
    assert all(samples[n - 1].target == target for n, target in recorded.items())
    on_disk = {sample.n: sample.target for sample in samples}
    assert plan(space, 2 * total, recorded=on_disk) == samples


def test_a_value_added_later_is_made_up_for() -> None:
    old = plan(ItemSpace(target={"a": ["a0", "a1"]}), 10)
    recorded = {sample.n: sample.target for sample in old}
    new = plan(ItemSpace(target={"a": ["a0", "a1", "a2"]}), 15, recorded=recorded)
    assert Counter(sample.target["a"] for sample in new) == {"a0": 5, "a1": 5, "a2": 5}


def test_a_walk_leaves_out_what_recorded_items_had_already() -> None:
    old = plan(ItemSpace(target=attributes(2, 2), target_range="all"), 4)
    recorded = {sample.n: sample.target for sample in old}
    new = plan(ItemSpace(target=attributes(2, 3), target_range="all"), 6, recorded=recorded)
    assert len({tuple(sample.target.items()) for sample in new}) == 6


def test_repeated_values_and_attributes_without_any_count_for_nothing() -> None:
    space = ItemSpace(target={"a": ["x", "x", "y"], "b": []}, target_range=(1, 1))
    assert Counter(sample.target["a"] for sample in plan(space, 4)) == {"x": 2, "y": 2}
    assert [sample.target for sample in plan(ItemSpace(target={}, target_range="all"), 2)] == [{}, {}]


@pytest.mark.process
@given(spaces(), st.integers(1, 60), st.integers())
def test_what_is_said_to_be_uncoverable_is_not_covered(space: ItemSpace, total: int, seed: int) -> None:
    sizes = [len(values) for values in space.target.values()]
    samples = plan(space, total, seed=seed)
    if lacks("values", space, total):
        assert len({pair for sample in samples for pair in sample.target.items()}) < sum(sizes)
    if lacks("pairs", space, total):
        assert len(pairs_in(samples)) < sum(one * other for one, other in combinations(sizes, 2))


def test_shortfalls_are_told_in_sentences() -> None:
    target = attributes(5, 4)
    assert describe_coverage_shortfall(ItemSpace(target=target, target_range=(2, 2)), 4) == [
        "4 items cannot hold all 9 values of the target attributes; that takes at least 5.",
        "4 items cannot hold all 20 pairs of values of the target attributes; that takes at least 20.",
    ]
    assert describe_coverage_shortfall(ItemSpace(target=target, target_range=(1, 1)), 9) == [
        "sampling.target [1, 1] puts no two of a, b into one item, so pairs of their values are not covered; "
        "an upper end of 2 or more covers them."
    ]
    assert describe_coverage_shortfall(ItemSpace(target=target, target_range=(0, 0)), 9) == [
        "sampling.target [0, 0] samples no value of a, b."
    ]
    assert describe_coverage_shortfall(ItemSpace(target=attributes(2, 2, 2), target_range="all"), 6) == [
        "6 items hold 6 of the 8 combinations of the full cross product."
    ]
    assert describe_coverage_shortfall(ItemSpace(target=target, target_range="all"), 20) == []
    assert describe_coverage_shortfall(ItemSpace(target={}), 5) == []


def test_a_mixed_range_counts_what_its_sizes_can_hold() -> None:
    """Of [1, 2] every second item holds a pair, so 20 pairs take 39 items at the least."""
    space = ItemSpace(target=attributes(5, 4), target_range=(1, 2))
    assert "at least 39" in describe_coverage_shortfall(space, 38)[0]
    assert describe_coverage_shortfall(space, 39) == []
