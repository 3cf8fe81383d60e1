"""A run folder: one writer at a time, snapshots that hold no secret, nothing ever deleted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coeval.core.errors import StoreError, UsageError
from coeval.store.rundir import RunDir

HOLD = """
import sys
from coeval.store.rundir import RunDir
with RunDir(sys.argv[1]).hold_lock():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[bytes]:
    """Another process that holds the lock of ``tmp_path/run``."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def end(process: subprocess.Popen[bytes], *, kill: bool) -> None:
    if kill:
        process.kill()
    process.communicate()


@pytest.mark.process
def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    folder = RunDir(tmp_path / "run")
    assert folder.writer_pid() == holder.pid
    with pytest.raises(UsageError, match=rf"in use by process {holder.pid} on .*; wait for it or stop it"):
        folder.hold_lock().__enter__()
    end(holder, kill=False)
    with folder.hold_lock():
        pass


@pytest.mark.process
def test_a_killed_holder_leaves_no_lock(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    end(holder, kill=True)
    folder = RunDir(tmp_path / "run")
    assert folder.writer_pid() is None
    with folder.hold_lock():
        assert folder.writer_pid() == os.getpid()
    assert folder.writer_pid() is None


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot lock .*file/run"):
        RunDir(tmp_path / "file" / "run").hold_lock().__enter__()


def test_every_older_configuration_is_kept(tmp_path: Path) -> None:
    folder = RunDir(tmp_path)
    for number in (1, 2, 3, 3):
        folder.write_config_and_keep_older({"experiment": {"id": f"run{number}"}})
    texts = sorted(path.read_text().strip() for path in tmp_path.glob("config*.yaml"))
    assert texts == [f"experiment:\n  id: run{number}" for number in (1, 2, 3)]
    assert "run3" in folder.config.read_text()


def test_no_credential_reaches_the_snapshot(tmp_path: Path) -> None:
    parameters = {
        "api_key": "sk-1",
        "max_tokens": 5,
        "base_url": "http://user:sk-2@host/v1",
        "extra_body": {"auth_token": "sk-3", "password": None},
    }
    RunDir(tmp_path).write_config_and_keep_older(
        {"models": [{"name": "m", "access_key": "sk-4", "parameters": parameters}]}
    )
    text = (tmp_path / "config.yaml").read_text()
    assert "sk-" not in text
    assert "max_tokens: 5" in text
    assert "***@host" in text


def test_a_damaged_meta_file_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    folder = RunDir(tmp_path)
    folder.meta.write_text('{"experiment_id": 3}')
    with pytest.raises(StoreError, match=r"meta\.json is damaged.*restore it from a copy"):
        folder.read_meta()
