"""What `evidence.paired` measures, on a few cells; and that its page is what it measures."""

from __future__ import annotations

import pytest

from evidence.paired import (
    KINDS,
    PAGE,
    REPEATS,
    TESTED,
    Kind,
    coverage,
    false_families,
    false_positives,
    power,
    repeated,
    shown_share,
)

JUDGED, VERDICTS, GRADED = KINDS


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.said)
@pytest.mark.parametrize("items", [20, 50])
def test_in_the_middle_95_in_100_intervals_hold_the_difference(kind: Kind, items: int) -> None:
    found = coverage(kind, (0.5, 0.6), items, repeats=500)["ours"]
    assert 0.92 < found.coverage < 0.98


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.said)
@pytest.mark.parametrize("items", [6, 20])
def test_at_the_end_they_hold_it_where_t_intervals_do_not(kind: Kind, items: int) -> None:
    found = coverage(kind, (0.99, 0.97), items, repeats=400)
    assert found["ours"].coverage > 0.9
    assert found["t"].coverage < 0.9


@pytest.mark.process
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.said)
def test_equal_models_are_seldom_called_different(kind: Kind) -> None:
    assert 0.015 < false_positives(kind, 0.5, 200, repeats=500) < 0.075
    assert false_positives(kind, 0.99, 20, repeats=300) < 0.05
    assert false_families(kind, 0.5, 100, repeats=300) < 0.085


@pytest.mark.process
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.said)
def test_what_a_comparison_promises_to_find_it_finds_four_times_in_five(kind: Kind) -> None:
    """Chance leaves ± 3.5 of 78 to 85 in a hundred."""
    for mean in TESTED:
        assert 0.745 < power(kind, mean, 100, repeats=500).found < 0.885, mean


@pytest.mark.process
def test_the_page_is_what_is_measured() -> None:
    written = PAGE.read_text(encoding="utf-8")
    for found in coverage(JUDGED, (0.9, 0.95), 20, repeats=REPEATS).values():
        assert shown_share(found) in written, "write it again: python -m evidence.paired"


@pytest.mark.process
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.said)
def test_items_that_repeat_each_other_are_one_piece_of_evidence(kind: Kind) -> None:
    found = repeated(kind, 0.8, 200, repeats=500)
    assert found.alone > 0.18
    assert found.grouped < 0.075, "of 500: docs/evidence/paired-coverage.md has those of 5,000"
    assert found.interval < 0.075
