"""A start that was cut short can be repeated, wherever it was cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_runs import content, experiment, folder_of, run

from coeval.core.errors import StoreError, UsageError
from coeval.store.rundir import Meta, RunDir

KEPT = {"data_generation": "Keep", "response_collection": "Keep"}


def no_space(_: RunDir, __: Meta) -> None:
    raise StoreError("the disk is full")


async def cut_short(file: Path) -> None:
    """Start, and end where ``meta.json`` would be written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDir, "write_meta", no_space)
        with pytest.raises(StoreError):
            await run(file)
    assert not folder_of(file).meta.exists()


async def test_a_first_start_is_repeated(tmp_path: Path) -> None:
    file = experiment(tmp_path, total=2)
    await cut_short(file)
    assert (await run(file)).exit_code == 0


async def test_a_start_from_another_run_is_repeated(tmp_path: Path) -> None:
    for name in ("older", "newer"):
        (tmp_path / name).mkdir()
    older = experiment(tmp_path / "older", total=2)
    await run(older)
    source = {"resume_from": str(folder_of(older).path), "phases": KEPT}
    file = experiment(tmp_path / "newer", total=2, settings=source)
    await cut_short(file)
    assert folder_of(file).files("data_generation"), "taking over came before"
    assert (await run(file)).exit_code == 0
    assert content(folder_of(file)) == content(folder_of(older))


async def test_what_stands_without_being_a_run_is_never_overwritten(tmp_path: Path) -> None:
    file = experiment(tmp_path, total=2)
    await run(file)
    folder_of(file).meta.unlink()
    before = content(folder_of(file))
    with pytest.raises(UsageError, match="another id, or overwrite=True to move it"):
        await run(file)
    assert content(folder_of(file)) == before
