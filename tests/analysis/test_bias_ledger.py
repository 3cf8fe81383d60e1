"""Judges with a planted bias are the ones that are named; honest ones, however strict, are not."""

from __future__ import annotations

import numpy as np
import pytest

from coeval.analysis.panel.bias_ledger import Bias, bias_ledger, plain_ledger
from coeval.analysis.panel.panel_reading import model_families, model_family
from perf.judge_bias import HONEST, KIND, LONG, STRICT, VAIN, Planted, World, named, places_named, simulate

REPEATS = 12
"""Few: docs/judges.md has the shares of a thousand."""


@pytest.mark.parametrize(("world", "bias"), [(KIND, "family"), (LONG, "length"), (VAIN, "self")])
def test_a_judge_that_leans_is_named_and_honest_ones_beside_it_are_not(world: World, bias: str) -> None:
    found = named(world, 50, REPEATS)[bias]
    assert found.leaning is not None
    assert found.leaning >= 0.75
    assert found.honest_named <= 0.25


@pytest.mark.parametrize("world", [HONEST, STRICT])
def test_honest_judges_lean_on_nothing_however_strict_they_are(world: World) -> None:
    """Where all give full marks a strict judge looks as kind as the others: that is no leaning."""
    for bias, found in named(world, 50, REPEATS).items():
        assert found.leaning is None
        assert found.honest_sure <= 0.2, bias
        assert found.honest_named <= 0.25, bias


def test_no_interval_is_a_failed_fit_s() -> None:
    """In these runs the likelihood had tops between the nodes of a coarse quadrature, and errors of 50 times
    their size."""
    families = model_families((*KIND.students, *KIND.judges), {})
    for seed in (13, 18, 36, 39):
        grid, lengths = simulate(KIND.judges, 50, seed)
        found = bias_ledger(grid, lengths, families)["kin-judge"]["family"]
        assert found.low is not None
        assert found.high is not None
        assert 0.04 < found.high - found.low < 0.2
        assert found.is_sure


def test_p_values_are_adjusted_for_the_judges_of_whom_a_bias_can_be_told() -> None:
    ledger = {
        name: dict.fromkeys(("severity", "family", "self", "length", "position"), bias)
        for name, bias in (
            ("a", Bias(0.1, 0.01, 0.19, 0.03)),
            ("b", Bias(0.0, -0.1, 0.1, 0.8)),
            ("c", Bias(None, None, None, None)),
        )
    }
    found = plain_ledger(ledger)
    assert found["a"]["length"] == {"value": 0.1, "ci95": [0.01, 0.19], "p_adjusted": 0.06}
    assert found["b"]["length"]["p_adjusted"] == 0.8
    assert found["c"]["length"] == {"value": None, "ci95": None, "p_adjusted": None}


@pytest.mark.parametrize(("both", "items"), [(True, 100), (False, 250)])
def test_a_judge_that_likes_what_stands_first_is_named_and_an_honest_one_is_not(
    both: bool, items: int
) -> None:
    assert places_named(0.1, items, 100, both=both) >= 0.9
    assert places_named(0.0, items, 100, both=both) <= 0.1


def test_severity_is_what_the_others_give_more() -> None:
    grid, lengths = simulate({"a": Planted(0.2), "b": Planted(), "c": Planted()}, 60, 1)
    ledger = bias_ledger(grid, lengths, {})
    scores = grid.levels / 2
    expected = scores[:, 1:].mean() - scores[:, 0].mean()
    found = ledger["a"]["severity"]
    assert found.value == pytest.approx(expected, abs=1e-12)
    models = pytest.importorskip("statsmodels.api")
    difference = scores[:, 1:].mean(axis=1) - scores[:, 0]
    fit = models.OLS(difference, np.ones(len(difference))).fit(
        cov_type="cluster", cov_kwds={"groups": grid.item, "use_correction": False}, use_t=True
    )
    error = fit.bse[0] * np.sqrt(60 / 59)
    assert found.low is not None
    assert found.value is not None
    stats = pytest.importorskip("scipy.stats")
    assert found.value - found.low == pytest.approx(stats.t.ppf(0.975, 59) * error, rel=1e-9)
    assert found.is_sure
    assert found.value > 0


def test_what_the_scores_cannot_tell_is_not_told() -> None:
    alone = simulate({"a": Planted()}, 30, 1)
    assert not any(bias.value for bias in bias_ledger(*alone, {})["a"].values())
    related = {"one": 0.5, "two": 0.7}
    all_family = simulate({"a": Planted(), "b": Planted()}, 30, 1, related)
    ledger = bias_ledger(*all_family, dict.fromkeys(("one", "two", "a", "b"), "same"))
    assert ledger["a"]["family"].value is None
    assert ledger["a"]["self"].value is None
    assert ledger["a"]["length"].value is not None
    grid, lengths = simulate({"a": Planted(), "b": Planted()}, 30, 1, related)
    assert bias_ledger(grid, np.full_like(lengths, 100.0), {})["a"]["length"].value is None
    assert bias_ledger(grid, np.full_like(lengths, np.nan), {})["a"]["length"].value is None


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("gpt-4o-mini", "gpt"),
        ("openai/o3-mini", "gpt"),
        ("us.anthropic.claude-sonnet-4-v1:0", "claude"),
        ("meta-llama/Llama-3.1-8B", "llama"),
        ("Qwen/Qwen3-4B", "qwen"),
        ("sim-large", "sim"),
        ("mine:7b", "mine"),
        ("7b", "7b"),
    ],
)
def test_families_are_told_by_names(name: str, family: str) -> None:
    assert model_family(name) == family


@pytest.mark.parametrize(("items", "known"), [(2, False), (5, False), (6, True)])
def test_of_too_few_datapoints_nobody_is_strict(items: int, known: bool) -> None:
    grid, lengths = simulate({"a": Planted(0.3), "b": Planted(), "c": Planted()}, items, 1)
    found = plain_ledger(bias_ledger(grid, lengths, {}))["a"]["severity"]
    assert (found["value"] is not None) == (found["ci95"] is not None) == known
    assert (found["p_adjusted"] is not None) == known


def test_judges_apart_by_the_same_everywhere_leave_no_spread_to_be_sure_by() -> None:
    grid, lengths = simulate({"a": Planted(), "b": Planted()}, 12, 1)
    grid.levels[:] = [0, 1]
    found = plain_ledger(bias_ledger(grid, lengths, {}))["a"]["severity"]
    assert found == {"value": None, "ci95": None, "p_adjusted": None}
