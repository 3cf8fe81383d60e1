"""The ledger: no interleaving of permits, crashes and restarts passes a ceiling."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coeval.core.errors import QuotaExhausted, StoreError
from coeval.core.records import Usage
from coeval.models import quota
from coeval.models.quota import Permits, UsageLedger


def content(path: Path) -> dict[str, Any]:
    models: dict[str, Any] = json.loads(path.read_text())["models"]
    return models


STEPS = st.lists(
    st.sampled_from(
        ["permit", "permit", "permit", "many", "unsent", "flush", "crash", "restart", "full disk"]
    ),
    max_size=60,
)


@settings(max_examples=150)
@given(STEPS, st.integers(0, 70), st.integers(1, 32))
def test_never_more_than_max_calls_over_any_crashes(steps: list[str], ceiling: int, block: int) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)  # nothing pulls the plug here
        path = Path(folder, "usage.json")
        sent = crashes = 0
        ledger = UsageLedger(path, {"m": ceiling}, block)
        for step in steps:
            if step in ("permit", "many"):
                count = 1 if step == "permit" else 5
                try:
                    ledger.permits("m").permit(count)
                except QuotaExhausted:
                    assert sent + crashes * block + count > ceiling, "refused while some were left"
                else:
                    sent += count
            elif step == "unsent":
                on_the_way = [permits for _ in range(40) if (permits := permitted(ledger)) is not None]
                for permits in on_the_way:
                    permits.give_back()
                assert len(on_the_way) == 40 or sent + len(on_the_way) + crashes * block >= ceiling
            elif step == "flush":
                ledger.flush()
            elif step == "full disk":
                with pytest.MonkeyPatch.context() as full:
                    full.setattr(quota, "write_json_atomic", no_space)
                    try:
                        ledger.permits("m").permit()
                    except (StoreError, QuotaExhausted):
                        pass
                    else:
                        sent += 1
            else:
                if step == "crash":
                    crashes += 1
                else:
                    ledger.close()
                ledger = UsageLedger(path, {"m": ceiling}, block)
            assert sent <= ceiling
            assert ledger.sent("m") >= sent
        ledger.close()
        assert sent <= UsageLedger(path, {"m": ceiling}).sent("m") <= sent + crashes * block


def permitted(ledger: UsageLedger) -> Permits | None:
    permits = ledger.permits("m")
    try:
        permits.permit()
    except QuotaExhausted:
        return None
    return permits


def no_space(path: Path, _: object) -> None:
    raise StoreError(f"cannot write {path}: the disk is full")


def test_the_ceiling_holds_and_its_error_names_the_way_out(tmp_path: Path) -> None:
    ledger = UsageLedger(tmp_path / "usage.json", {"gpt-4o": 3})
    permits = ledger.permits("gpt-4o")
    for _ in range(3):
        permits.permit()
    with pytest.raises(QuotaExhausted) as caught:
        permits.permit()
    message = str(caught.value)
    assert "model gpt-4o has used 3 of the 3" in message
    assert "Raise experiment.quota.gpt-4o.max_calls and run again with continue_run=True." in message
    assert permits.remaining == 0
    assert ledger.sent("gpt-4o") == 3


def test_a_raised_ceiling_gives_exactly_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    for ceiling, left in ((5, 5), (12, 7)):
        ledger = UsageLedger(path, {"m": ceiling})
        permits = ledger.permits("m")
        assert permits.remaining == left
        for _ in range(left):
            permits.permit()
        with pytest.raises(QuotaExhausted):
            permits.permit()
        ledger.close()
        assert content(path)["m"]["requests"] == ceiling
        assert content(path)["m"]["reserved"] == 0


def test_permits_are_on_disk_before_they_are_used_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    permits = UsageLedger(path, {"m": 40}).permits("m")
    for sent in range(1, 41):
        permits.permit()
        row = content(path)["m"]
        assert sent <= row["requests"] + row["reserved"] <= 40
        assert row["reserved"] <= 32
    assert row == {"requests": 32, "reserved": 8, "input_tokens": 0, "output_tokens": 0}


def test_a_batch_takes_all_its_permits_or_none(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    permits = UsageLedger(path, {"m": 100}).permits("m")
    permits.permit(90)
    with pytest.raises(QuotaExhausted, match="11 more were asked for at once"):
        permits.permit(11)
    assert permits.remaining == 10
    permits.permit(10)
    assert UsageLedger(path, {"m": 100}).sent("m") == 100


def test_permits_that_come_back_are_not_left_to_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    permits = UsageLedger(path, {"m": 1000}).permits("m")
    for _ in range(300):
        permits.permit()
    for left in range(299, -1, -1):
        permits.give_back()
        row = content(path)["m"]
        assert left <= row["requests"] + row["reserved"]
    assert permits.remaining == 1000
    assert row["requests"] + row["reserved"] <= 32
    assert row["reserved"] <= 32


def test_models_without_a_ceiling_are_counted_and_written_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    ledger = UsageLedger(path, {"free": None})
    for _ in range(100):
        ledger.permits("free").permit()
    ledger.permits("other").permit()
    ledger.add_tokens("free", Usage(10, 2))
    ledger.add_tokens("free", Usage(5, 1))
    assert not path.exists()
    assert ledger.permits("free").remaining is None
    ledger.flush()
    assert content(path) == {
        "free": {"requests": 100, "reserved": 0, "input_tokens": 15, "output_tokens": 3},
        "other": {"requests": 1, "reserved": 0, "input_tokens": 0, "output_tokens": 0},
    }


def test_what_earlier_runs_left_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    gone = {"requests": 7, "reserved": 0, "input_tokens": 70, "output_tokens": 7, "note": "kept"}
    path.write_text(json.dumps({"models": {"gone": gone}, "since": "2025"}))
    ledger = UsageLedger(path, {"m": 10})
    ledger.permits("m").permit()
    ledger.close()
    assert content(path)["gone"] == gone
    assert json.loads(path.read_text())["since"] == "2025"


DAMAGED = [
    "",
    "{",
    "[]",
    '{"models": 3}',
    '{"models": {"m": {"requests": -1}}}',
    '{"models": {"m": {"requests": "x"}}}',
]


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_damaged_file_is_never_silently_zero(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "usage.json"
    path.write_text(damaged)
    with pytest.raises(StoreError, match="Restore it from a copy, or move it away") as caught:
        UsageLedger(path, {"m": 10})
    assert str(path) in str(caught.value)
    assert path.read_text() == damaged


def test_a_damaged_file_without_ceilings_is_set_aside_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    path.write_text("{")
    ledger = UsageLedger(path, {"m": None})
    ledger.permits("m").permit()
    assert path.read_text() == "{"
    ledger.close()
    assert content(path)["m"]["requests"] == 1
    assert (tmp_path / "usage.json.damaged").read_text() == "{"


def test_nothing_is_permitted_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = UsageLedger(tmp_path / "usage.json", {"m": 10})
    with monkeypatch.context() as full:
        full.setattr(quota, "write_json_atomic", no_space)
        with pytest.raises(StoreError):
            ledger.permits("m").permit()
    assert ledger.sent("m") == 0
    ledger.permits("m").permit()
    assert ledger.sent("m") == 1
    assert UsageLedger(tmp_path / "usage.json", {"m": 10}).sent("m") >= 1
