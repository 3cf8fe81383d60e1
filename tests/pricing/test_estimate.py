"""The arithmetic of estimates: means correct rules of thumb, calls are priced and timed with their ranges."""

from __future__ import annotations

from typing import Any

import pytest

from coeval.core.records import Message, Request, Usage
from coeval.pricing.estimate import (
    CallShape,
    EndpointPace,
    Estimate,
    EstimateLine,
    PricedModel,
    estimate_calls,
)
from coeval.pricing.lengths import (
    RULE_OF_THUMB,
    SEEN_NEARBY,
    Cell,
    Lengths,
    Span,
    estimate_tokens,
    exact,
    mean_range,
    measure_prompts,
)
from coeval.pricing.tariff import Rates, Tariff, Tier

CELLS = [Cell(task, model) for task in ("one", "two") for model in ("ann", "ben")]
OWN, SAME_TASK, SAME_MODEL, OTHER = CELLS


def expected(seen: dict[Cell, list[float]]) -> dict[Cell, Span]:
    lengths = Lengths()
    for cell, values in seen.items():
        for value in values:
            lengths.add_value("answer", cell, value)
    return lengths.predict("answer", {cell: RULE_OF_THUMB.span_around(100) for cell in CELLS})


def test_a_rule_of_thumb_is_expected_where_nothing_was_seen() -> None:
    assert expected({}) == dict.fromkeys(CELLS, RULE_OF_THUMB.span_around(100))


def test_what_is_seen_of_a_cell_is_its_mean_and_corrects_the_others() -> None:
    found = expected({OWN: [40, 60]})
    assert found[OWN].central == pytest.approx(50)
    assert {found[cell] for cell in CELLS[1:]} == {SEEN_NEARBY.span_around(50)}
    found = expected({OWN: [50], SAME_TASK: [100], SAME_MODEL: [200]})
    assert found[OTHER].central == pytest.approx(150), "the mean of the same task and the same model"


def test_a_range_narrows_with_what_is_seen() -> None:
    widths = [each.high / each.low for each in (RULE_OF_THUMB, SEEN_NEARBY, *map(mean_range, (2, 20, 2000)))]
    assert widths == sorted(widths, reverse=True)
    many, few = (expected({OWN: [50.0] * number})[OWN] for number in (200, 2))
    assert many.high / many.low < 1.1 < few.high / few.low < 1.5


def test_calls_of_damaged_usage_show_no_tokens() -> None:
    lengths = Lengths()
    lengths.add_call_usage("student", OWN, Usage(100, 20), 1.0, 2)
    lengths.add_call_usage("student", OWN, Usage(900, 1, uncounted=True), 3.0, 1)
    lengths.add_call_usage("student", OWN, None, None, 1)
    rules = {OWN: RULE_OF_THUMB.span_around(80)}
    figures = [
        lengths.predict(f"student {what}", rules)[OWN].central for what in ("input", "output", "seconds")
    ]
    assert figures == pytest.approx([50, 10, 2])


def test_one_call_is_not_called_several() -> None:
    lengths = Lengths()
    assert lengths.describe_basis("ann") == "rules of thumb"
    lengths.count_call("ann", "sample")
    assert lengths.describe_basis("ann") == "1 sample"
    lengths.count_call("ann", "sample")
    assert lengths.describe_basis("ann") == "2 samples"


def test_a_prompt_is_measured_without_the_texts_that_are_to_come() -> None:
    text = "known " * 10 + "\ue000" + "known " * 10 + "\ue000"
    request = Request((Message("user", text),), shared=60)
    size = measure_prompts([request, request], {"answer": "\ue000"})
    assert (size.tokens, size.per_character, size.times) == (120 / 4 + 4, 0.25, {"answer": 2})
    assert size.prompt_tokens({"answer": exact(400)}).central == 34 + 200
    assert size.head_tokens({"answer": exact(400)}) == exact(15)
    assert measure_prompts([], {"answer": "\ue000"}).prompt_tokens({"answer": exact(400)}) == exact(0)


def test_scripts_differ_in_the_tokens_that_they_take() -> None:
    latin, cyrillic, chinese = (estimate_tokens(text * 40) for text in ("word ", "слово", "五個字的詞"))
    assert latin < cyrillic < chinese


def shape(phase: str, model: str, calls: float, seconds: float, **more: Any) -> CallShape:
    rates = Rates(input_usd_per_mtok=2.0, output_usd_per_mtok=8.0, cached_usd_per_mtok=0.5)
    dearer = Tier(above=10_000, input_usd_per_mtok=4.0, output_usd_per_mtok=16.0)
    share = more.get("share", 1.0)
    endpoint = EndpointPace(model, exact(10), more.get("requests"), more.get("tokens"))
    tariff = Tariff(rates=rates, source="ours", tiers=(dearer,))
    requested = PricedModel(model, "student", "host", endpoint, tariff, share, share < 1, first_s=seconds)
    head, together = exact(more.get("head", 0)), more.get("together", 1.0)
    known = exact(more.get("taken", 1000)), exact(100)
    return CallShape(phase, "t", requested, exact(calls), exact(calls), *known, head, together)


def estimated(*shapes: CallShape, stages: tuple[str, ...] = ("a b",)) -> Estimate:
    return estimate_calls(shapes, Lengths(), [stage.split() for stage in stages])


def usd(of: CallShape) -> float:
    cost = estimated(of).total.cost_usd
    assert cost is not None
    return cost.central


def test_calls_cost_what_their_tokens_do() -> None:
    assert usd(shape("a", "m", 10, 1)) == pytest.approx(10 * (1000 * 2 + 100 * 8) / 1e6)
    assert usd(shape("a", "m", 10, 1, taken=20_000)) == pytest.approx(10 * (20_000 * 4 + 100 * 16) / 1e6)
    assert usd(shape("a", "m", 10, 1, share=0.5)) == usd(shape("a", "m", 10, 1)) / 2


def test_what_prompts_begin_with_alike_is_read_from_a_cache() -> None:
    alike = {"taken": 4000, "head": 2000, "together": 5.0}
    read = 2000 * 0.8 * 0.85
    paid = (4000 - read) * 2 + read * 0.5 + 100 * 8
    assert usd(shape("a", "m", 10, 1, **alike)) == pytest.approx(10 * paid / 1e6)
    span = estimated(shape("a", "m", 10, 1, **alike)).total.cost_usd
    assert span is not None
    assert span.low < span.central < span.high
    short = alike | {"head": 1000}
    assert usd(shape("a", "m", 10, 1, **short)) == usd(shape("a", "m", 10, 1, taken=4000))


def test_models_without_a_price_are_named_and_left_out_of_the_sum() -> None:
    free = shape("a", "own", 10, 1)
    free = free._replace(model=free.model._replace(tariff=None))
    found = estimated(free, shape("a", "m", 10, 1))
    assert (found.unpriced, found.by_model["own"].cost_usd) == (("own",), None)
    assert found.total.cost_usd == found.by_model["m"].cost_usd
    assert estimated(free._replace(counted=exact(0), calls=exact(0))).unpriced == ()


def test_lines_add_up() -> None:
    line = EstimateLine(exact(2), exact(20), exact(4), Span(2, 1, 3))
    assert line + line == line * 2
    assert (line + EstimateLine(exact(0), exact(0), exact(0), None)).cost_usd == line.cost_usd


def seconds(*shapes: CallShape, stages: tuple[str, ...] = ("a b",)) -> float:
    return estimated(*shapes, stages=stages).hours.central * 3600


def test_phases_that_overlap_take_as_long_as_the_slowest_model() -> None:
    shapes = shape("a", "quick", 100, 1), shape("b", "slow", 100, 20)
    assert seconds(*shapes) == pytest.approx(200 + 1 + 20)  # its work, and the first and last call
    assert seconds(*shapes, stages=("a", "b")) == pytest.approx(10 + 200)
    assert seconds(shapes[0], shape("b", "quick", 100, 1)) == pytest.approx(22)


def test_limits_and_batches_take_their_time() -> None:
    assert seconds(shape("a", "m", 120, 1, requests=60), stages=("a",)) == pytest.approx(120)
    assert seconds(shape("a", "m", 120, 1, tokens=13_200), stages=("a",)) == pytest.approx(600)
    assert seconds(shape("a", "m", 120, 1, share=0.5), shape("b", "slow", 10, 1)) > 3600
