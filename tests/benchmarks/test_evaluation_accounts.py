"""The account of an evaluation over its starts: what was asked once is paid once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.coeval_process import called
from fakes.invented_task import Bench, spec
from fakes.openai_chat import fake
from test_runner import said

from coeval.models.metering.account_file import read_accounts

PRICES = {"overrides": {"m": {"input_usd_per_mtok": 100.0, "output_usd_per_mtok": 100.0}}}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    (tmp_path / "Config").mkdir()
    (tmp_path / "Config" / "provider_pricing.yaml").write_text(json.dumps(PRICES))
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path / "out", monkeypatch)


@pytest.mark.parametrize("checkpoint", [None, "step-100"])
@pytest.mark.parametrize("apart", [True, False])
async def test_no_start_and_no_settling_books_what_is_booked_already(
    bench: Bench, apart: bool, checkpoint: str | None
) -> None:
    """A judge of the same model elsewhere has an account of its own, and a checkpoint has none."""
    async with fake(reply=said) as server, fake(reply=said) as elsewhere:
        judge = spec("m", elsewhere.url, name="m (judge)") if apart else None
        given: dict[str, Any] = {"tested": spec("m", server.url), "judge": judge, "checkpoint": checkpoint}
        assert (await bench.run(server.url, **given)).exit_code == 0
        usage = bench.output / "usage.json"
        first = {name: row.spent_usd for name, row in read_accounts(usage).items()}
        assert all(first.values())
        assert len(first) == 1 + apart
        await bench.run(server.url, **given)
        assert {name: row.spent_usd for name, row in read_accounts(usage).items()} == pytest.approx(first)
    bill = f"m={first['m']}"
    settled = await called(bench.output.parent, "status", "--run", bench.output, "--settle", bill)
    assert settled.code == 0, settled.err
    assert {name: row.spent_usd for name, row in read_accounts(usage).items()} == pytest.approx(first)
