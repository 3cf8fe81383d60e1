"""The arithmetic of estimates: what was seen corrects guesses, what overlaps takes as long as the slowest."""

from __future__ import annotations

import numpy as np
import pytest

from coeval.pricing.call_shape import CallGroup, Pricing, cost_of, size_of, surely
from coeval.pricing.estimate import EndpointPace, duration_s
from coeval.pricing.tariff import Rates, Tariff, Tier
from coeval.pricing.unknowns import (
    CENTRAL,
    Cell,
    ErrorSpread,
    Evidence,
    Guess,
    ScenarioDraws,
    Seen,
    draw,
    span_of,
)

SPREAD = ErrorSpread(shared=0.3, task=0.2, model=0.2, cell=0.1, item=0.3)
CELLS = [Cell(task, model) for task in ("one", "two") for model in ("ann", "ben")]


def drawn(seen: dict[Cell, Seen]) -> dict[Cell, float]:
    guesses = {cell: Guess(100.0, 1000) for cell in CELLS}
    found = draw(guesses, SPREAD, seen, np.random.default_rng(0))
    return {cell: float(figures[CENTRAL]) for cell, figures in found.items()}


def test_without_anything_seen_a_guess_is_what_is_expected() -> None:
    assert drawn({}) == dict.fromkeys(CELLS, pytest.approx(100))


def test_what_is_seen_of_one_cell_corrects_those_that_err_with_it() -> None:
    found = drawn({Cell("one", "ann"): Seen(50.0, 400)})
    own, same_task, other = found[Cell("one", "ann")], found[Cell("one", "ben")], found[Cell("two", "ben")]
    assert own == pytest.approx(50, rel=0.02)
    assert own < same_task < other < 100


def test_two_tasks_tell_whether_others_differ_as_guessed() -> None:
    """Where a long and a short text were told of and are equally long, so is what is told of a third."""
    sizes = {"long": 2000.0, "short": 200.0, "longest": 4000.0}
    guesses = {Cell(name, "ann"): Guess(size, 1000) for name, size in sizes.items()}
    seen = {Cell(name, "ann"): Seen(300.0, 20) for name in ("long", "short")}

    def longest(spread: ErrorSpread) -> float:
        found = draw(guesses, spread, seen, np.random.default_rng(0))
        return float(found[Cell("longest", "ann")][CENTRAL])

    assert longest(SPREAD._replace(slope=0.2)) < 500
    assert longest(SPREAD) > 700


def test_texts_are_terse_together_and_may_be_far_below_their_guesses() -> None:
    draws, guesses = ScenarioDraws(Evidence()), {CELLS[0]: Guess(100, 1000)}
    spread = ErrorSpread(shared=0.3, task=0.0, model=0.0, cell=0.0, item=0.0)
    items = draws.lengths("item characters", guesses, spread)[CELLS[0]]
    answers = draws.lengths("answer characters", guesses, spread)[CELLS[0]]
    others = draws.means("slowness", guesses, spread)[CELLS[0]]
    assert np.corrcoef(items, answers)[0, 1] > 0.99
    assert abs(np.corrcoef(items, others)[0, 1]) < 0.3
    found = span_of(items)
    assert found.central / found.low > 2 > found.high / found.central


def test_one_call_is_not_called_several() -> None:
    evidence = Evidence()
    evidence.count("ann", "sample")
    assert evidence.basis("ann") == "1 sample"
    evidence.count("ann", "sample")
    assert evidence.basis("ann") == "2 samples"


def width(items: int, seen: Seen) -> float:
    """How many times the low end the high one is, of the mean of so many items of a cell."""
    cell, random = CELLS[0], np.random.default_rng(0)
    found = span_of(draw({cell: Guess(100, items)}, SPREAD, {cell: seen}, random)[cell])
    return found.high / found.low


def test_many_items_of_a_cell_leave_little_to_guess() -> None:
    assert width(1000, Seen(50, 200)) < 1.2 < width(1000, Seen(50, 2))


def test_items_that_are_seen_to_be_alike_are_taken_to_be() -> None:
    scattered, alike = (width(4, Seen(100, 20, 20 * off**2)) for off in (60, 3))
    assert alike < 0.7 * scattered


def group(phase: str, model: str, calls: float, seconds: float, **more: float) -> CallGroup:
    rates = Rates(input_usd_per_mtok=2.0, output_usd_per_mtok=8.0, cached_usd_per_mtok=0.5)
    dearer = Tier(above=10_000, input_usd_per_mtok=4.0, output_usd_per_mtok=16.0)
    share = more.get("share", 1.0)
    pricing = Pricing("host", Tariff(rates=rates, source="ours", tiers=(dearer,)), share, share < 1)
    return CallGroup(
        phase, "t", model, pricing, surely(calls), surely(more.get("taken", 1000)), surely(100),
        surely(more.get("read", 0)), surely(0), surely(seconds),
    )  # fmt: skip


def usd(of: CallGroup) -> float:
    cost = cost_of(of)
    assert cost is not None
    return float(cost[CENTRAL])


def test_calls_cost_what_their_tokens_do() -> None:
    assert usd(group("a", "m", 10, 1)) == pytest.approx(10 * (1000 * 2 + 100 * 8) / 1e6)
    assert usd(group("a", "m", 10, 1, read=600)) == pytest.approx(10 * (400 * 2 + 600 * 0.5 + 100 * 8) / 1e6)
    assert usd(group("a", "m", 10, 1, taken=20_000)) == pytest.approx(10 * (20_000 * 4 + 100 * 16) / 1e6)
    assert usd(group("a", "m", 10, 1, share=0.5)) == usd(group("a", "m", 10, 1)) / 2


def seconds(groups: list[CallGroup], *stages: list[str], **limits: float) -> float:
    paces = {name: EndpointPace(name, surely(10), **limits) for name in ("quick", "slow")}
    batch = {phase: surely(3600) for phase in ("a", "b")}
    return float(duration_s(list(stages), groups, paces, batch)[CENTRAL])


def test_phases_that_overlap_take_as_long_as_the_slowest_model() -> None:
    groups = [group("a", "quick", 100, 1), group("b", "slow", 100, 20)]
    assert seconds(groups, ["a", "b"]) == pytest.approx(200 + 1 + 20)  # its work, and the first and last call
    assert seconds(groups, ["a"], ["b"]) == pytest.approx(10 + 200)
    assert seconds([group("a", "quick", 100, 1), group("b", "quick", 100, 1)], ["a", "b"]) == pytest.approx(
        22
    )


def test_limits_and_batches_take_their_time() -> None:
    groups = [group("a", "quick", 120, 1)]
    assert seconds(groups, ["a"], requests_per_minute=60) == pytest.approx(120)
    assert seconds(groups, ["a"], tokens_per_minute=13_200) == pytest.approx(600)
    assert seconds([group("a", "quick", 120, 1, share=0.5), group("b", "slow", 10, 1)], ["a", "b"]) > 3600


def test_scripts_differ_in_the_tokens_that_they_take() -> None:
    latin, cyrillic, chinese = (size_of(text * 40).tokens for text in ("word ", "слово", "五個字的詞"))
    assert latin < cyrillic < chinese
