"""What speaks against a score stands among the findings, with its number."""

from __future__ import annotations

from pathlib import Path

from cli.invoked import Command
from written_run import Run

import coeval as api


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
    assert found[-4:-1] == [
        "Without a score in some task, so overall is over the other tasks only: flaky.",
        "Cut off at max_tokens: 2 of 4 answers of flaky.",
        "More than 1 % of the answers cut off: flaky. Raise max_tokens before trusting these scores.",
    ]
    assert found[-1].startswith("Empty, and counted like all others: 1 of 4 answers of flaky.")
    shown = " ".join(coeval("analyze", "--run", run.folder).out.split())
    assert all(" ".join(said.split()) in shown for said in found[-4:])
