"""What `perf.training_coverage` measures, on a few cells; and that its page is what it measures."""

from __future__ import annotations

import pytest

from perf.training_coverage import (
    DESIGNS,
    JUDGE,
    PAGE,
    REPEATS,
    RULE,
    TRAININGS,
    Design,
    Scoring,
    alarms,
    bands,
    best,
    firsts,
    of_best,
    stops,
    stops_at_the_detectable,
    sweeps,
)

FEW, SOME = Design(100, 1), Design(300, 2)


@pytest.mark.slow
def test_bands_and_the_corrected_best_hold_their_truths() -> None:
    held, won = [], []
    for scoring in (RULE, JUDGE):
        for shape in ("flat", "near the end, a step at 400"):
            runs = list(sweeps(scoring, shape, FEW, repeats=60))
            held.append(bands(runs).simultaneous)
            won.append(found := best(runs))
            assert abs(found.bias) < found.usual_bias, (scoring, shape)
    assert sum(held) / 4 >= 0.93
    assert sum(found.usual for found in won) / 4 < 0.95 <= sum(found.corrected for found in won) / 4
    assert all(found.width < 1.7 * found.usual_width for found in won)


@pytest.mark.slow
@pytest.mark.parametrize("scoring", [RULE, JUDGE], ids=lambda scoring: scoring.said)
def test_the_first_better_step_is_seldom_too_early(scoring: Scoring) -> None:
    found = firsts(list(sweeps(scoring, "a step at 400", SOME, repeats=100)))
    assert found.ours.too_early <= 0.05
    assert found.ours.found >= found.holm.found
    assert found.ours.exact > (0.1 if scoring is RULE else 0.4)


@pytest.mark.slow
def test_stop_signals_are_seldom_false_and_mostly_given() -> None:
    assert stops_at_the_detectable(RULE, SOME, repeats=100).given <= 0.08
    assert stops(list(sweeps(RULE, "flat", SOME, repeats=100))).given > 0.5
    assert stops(list(sweeps(JUDGE, "rising, then falling", SOME, repeats=50))).given > 0.7


@pytest.mark.slow
def test_alarms_are_given_where_both_halves_are_there() -> None:
    rates = {training.said: alarms(training, SOME, repeats=40) for training in TRAININGS}
    assert rates["judged rises, rules fall"].rules_fall > 0.9
    assert rates["judged rises, answers grow by 30 %"].answers_grow > 0.9
    assert rates["judged rises, answers grow by 5 %"].answers_grow <= 0.1
    for said in ("nothing changes", "both get better", "judged flat, answers grow by 30 %"):
        assert max(rates[said]) <= 0.1, said


@pytest.mark.slow
def test_the_page_is_what_is_measured() -> None:
    found = best(list(sweeps(JUDGE, "rising", DESIGNS[0], repeats=REPEATS)))
    row = f"| {JUDGE.said} | {DESIGNS[0]} | rising | {of_best(found)} |"
    assert row in PAGE.read_text(encoding="utf-8"), "write it again: python -m perf.training_coverage"
