"""What findings say where intervals are lopsided, and where two judges differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.invoked import Command
from written_run import Run

import coeval as api
from coeval.analysis.measures.judge_measures import JudgeMeasures
from coeval.analysis.measures.measure_tree import NOT_MEASURED
from coeval.analysis.panel.bias_ledger import AdjustedBias, FamilyBias, JudgeBiases
from coeval.analysis.panel.panel_findings import judge_bias_sentences
from coeval.core.figures import plus_minus_or_bracketed


@pytest.mark.parametrize(
    ("bounds", "shown"),
    [
        ((29.2, -4.9, 49.7), "29.2 [−4.9, 49.7]"),
        ((7.9, 3.6, 12.2), "7.9 ± 4.3"),
        ((-0.01, -5, 4.98), "0.0 ± 5.0"),
    ],
)
def test_a_lopsided_interval_is_shown_with_both_bounds(
    bounds: tuple[float, float, float], shown: str
) -> None:
    assert plus_minus_or_bracketed(*bounds) == shown


def judged(**favours: float) -> dict[str, JudgeMeasures]:
    """Judges that favour their family, by name."""
    unknown, own = AdjustedBias(None, None, None), FamilyBias(None, None, None, None)
    return {
        name: JudgeMeasures(
            NOT_MEASURED,
            NOT_MEASURED,
            NOT_MEASURED,
            NOT_MEASURED,
            NOT_MEASURED,
            NOT_MEASURED,
            degenerate=False,
            count=30,
            levels={},
            bias=JudgeBiases(unknown, FamilyBias(by, (by - 0.03, by + 0.03), 0.001, 0.04), own, unknown),
            consistency=None,
        )
        for name, by in favours.items()
    }


def test_of_two_judges_a_leaning_is_laid_to_neither() -> None:
    assert list(judge_bias_sentences(judged(strict=-0.1, lenient=0.1))) == [
        "Of the two judges, lenient scores answers of its own family higher than strict by 10.0 [7.0, 13.0] "
        "points: either may be the biased one."
    ]


def test_what_is_favoured_is_said_beside_what_is_usual() -> None:
    said = list(judge_bias_sentences(judged(a=-0.1, b=0.1, c=0.1)))
    assert len(said) == 3
    assert said[0] == (
        "a scores answers of its own family 10.0 [7.0, 13.0] points lower than expected from the other "
        "judges; judges differ about a family by 4.0 (sd)."
    )


# What speaks against a score stands among the findings, with its number.


@pytest.mark.process
def test_cut_off_empty_and_partly_covered_students_are_findings(tmp_path: Path, coeval: Command) -> None:
    run = Run(tmp_path / "run")
    for n in range(1, 5):
        for student in ("whole", "flaky"):
            run.judged(n, student, "j", {"a": "High"})
    run.response(1, "flaky", truncated=True)
    run.response(2, "flaky", truncated=True, response="")
    other = Run(run.folder, task="ode")
    other.judged(1, "whole", "j", {"a": "Low"})
    found = api.open_run(run.folder).measures()["findings"]
    cut, empty, *notes = found[-4:]
    assert cut == (
        "More than 1% of the answers cut off: flaky. Raise max_tokens (of your own code: "
        "max_answer_bytes) before trusting these scores."
    )
    assert empty.startswith("Empty, and counted like all others: 1 of 4 answers of flaky.")
    assert notes == [
        "Without a score in some task, so overall is over the other tasks only: flaky.",
        "Cut off at max_tokens: 2 of 4 answers of flaky.",
    ]
    shown = " ".join(coeval("analyze", "--run", run.folder).out.split())
    assert all(" ".join(said.split()) in shown for said in found[-4:])
