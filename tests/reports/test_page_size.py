"""How large a page is."""

from __future__ import annotations

from pathlib import Path

import pytest

from coeval.reports.site.report_file import write_report
from perf.analysis import FACTORS, JUDGES, STUDENTS, write_judged_run

pytestmark = pytest.mark.slow

EVALUATIONS = 10_000


def test_a_page_of_ten_thousand_evaluations_can_be_mailed(tmp_path: Path) -> None:
    write_judged_run(tmp_path / "run", EVALUATIONS // STUDENTS // JUDGES)
    write_report(tmp_path / "run", tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"{EVALUATIONS // STUDENTS // JUDGES // 4 * 4 * STUDENTS * JUDGES * FACTORS:,} scores" in page
    assert len(page.encode()) <= 2_000_000
