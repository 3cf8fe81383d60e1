"""The measures of the invented run of the older layout, through the command line and from Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command
from older_run import unlike
from written_run import REFERENCE, WHY_SKIPPED

import coeval as api

LEGACY = REFERENCE / "legacy_run"
pytestmark = [pytest.mark.process, pytest.mark.skipif(not LEGACY.is_dir(), reason=WHY_SKIPPED)]


def test_the_older_layout_gives_the_published_measures(tmp_path: Path, coeval: Command) -> None:
    expected = json.loads((REFERENCE / "legacy_run_expected.json").read_text())
    ended = coeval("analyze", "all", "--run", LEGACY, "--format", "json", "--out", tmp_path / "report")
    assert ended.code == 0
    found = json.loads((tmp_path / "report" / "measures.json").read_text())
    assert unlike(expected, found) == []
    assert found["agreement"].keys() == expected["agreement"].keys()
    assert found["students"].keys() == expected["students"].keys()
    assert json.loads((tmp_path / "report" / "all.json").read_text()) == found
    assert json.loads(coeval("analyze", "--run", LEGACY, "--format", "json").out) == found
    assert api.open_run(LEGACY).measures() == found


def test_every_number_has_an_interval_an_n_and_what_is_missing(coeval: Command) -> None:
    found = json.loads(coeval("analyze", "--run", LEGACY, "--format", "json").out)
    student = found["students"]["gamma.small"]
    assert (student["missing"]["overall"], student["n"]["overall"]) == (20, 20), "96 scores were possible"
    for part in ("students", "teachers", "judges", "agreement"):
        for each in found[part].values():
            assert inside(each, each["ci95"]) == []


def inside(values: dict[str, Any], bounds: dict[str, Any], path: str = "") -> list[str]:
    """Numbers outside their intervals, or intervals without a width."""
    wrong: list[str] = []
    for name, pair in bounds.items():
        if isinstance(pair, dict):
            wrong += inside(values[name], pair, f"{path}/{name}")
        elif pair is not None and not (pair[0] <= values[name] <= pair[1] and pair[0] < pair[1]):
            wrong.append(f"{path}/{name}: {values[name]} {pair}")
    return wrong
