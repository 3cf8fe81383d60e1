"""What stands is moved in one step, wherever a kill cuts it; nothing is deleted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coeval.core.errors import StoreError, UsageError
from coeval.store.rundir import RunDir, finish_move_to_replaced, move_to_replaced

OLD = {
    "phase3_datapoints/a.jsonl": "1\n",
    "phase3_datapoints/b.jsonl": "2\n",
    "phase5_evaluations/c.jsonl": "3\n",
    "meta.json": "{}",
}
STAYS = {"recipes.json": "{}", "usage.json": "[]", "phase3_datapoints/own.jsonl": "mine\n"}

KILLED = """
import os, signal, sys
from pathlib import Path
from coeval.store.rundir import move_to_replaced
from coeval.store.rundir import RunDir

left = int(sys.argv[2])

def dying(name):
    original = getattr(Path, name)
    def call(self, *args, **how):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, *args, **how)
    return call

for name in ("mkdir", "rename", "replace", "unlink"):
    setattr(Path, name, dying(name))
folder = RunDir(sys.argv[1])
gone = ["phase3_datapoints/a.jsonl", "phase3_datapoints/b.jsonl", "phase5_evaluations", "meta.json", "absent"]
move_to_replaced(folder, [folder.path / name for name in gone], [folder.recipes])
"""


def tree(folder: Path) -> dict[str, str]:
    """What lies there, but for what a kill left half-written under another name."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def written(folder: Path) -> RunDir:
    for name, text in (OLD | STAYS).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return RunDir(folder)


def killed_after(steps: int, folder: RunDir) -> bool:
    done = subprocess.run([sys.executable, "-c", KILLED, folder.path, str(steps)], check=False, timeout=60)
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode != 0


@pytest.mark.process
def test_a_kill_at_any_step_leaves_the_old_run_whole_in_one_place(tmp_path: Path) -> None:
    ends = set()
    for steps in range(100):
        folder = written(tmp_path / str(steps))
        if not killed_after(steps, folder):
            break
        finish_move_to_replaced(folder)
        moved = [tree(path) for path in folder.path.glob("replaced/*")]
        there = {name: text for name, text in tree(folder.path).items() if not name.startswith("replaced")}
        if there == OLD | STAYS:
            assert moved == []
            ends.add("in place")
        else:
            assert there == STAYS
            assert moved == [OLD | {"recipes.json": "{}"}]
            ends.add("replaced")
    else:
        pytest.fail("it never ended")
    assert ends == {"in place", "replaced"}


def test_two_moves_lie_side_by_side_and_none_is_left_to_finish(tmp_path: Path) -> None:
    for _ in range(2):
        folder = written(tmp_path)
        moved = move_to_replaced(folder, [folder.meta])
        assert (moved / "meta.json").exists()
        assert not folder.meta.exists()
        finish_move_to_replaced(folder)
    assert len(list((tmp_path / "replaced").iterdir())) == 2


def test_what_another_process_moves_is_left_to_it(tmp_path: Path) -> None:
    folder = written(tmp_path)
    folder.replacing.write_text("{}")
    with folder.hold_lock(), pytest.raises(UsageError, match="in use by process"):
        finish_move_to_replaced(folder)
    with pytest.raises(StoreError, match=r"\.replacing\.json is damaged"):
        finish_move_to_replaced(folder)


def test_who_looks_while_a_move_ends_sees_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path)
    folder.replacing.write_text('{"move": []}')

    def ends(self: RunDir) -> None:
        self.replacing.unlink(missing_ok=True)

    monkeypatch.setattr(RunDir, "writer_pid", ends)
    assert folder.describe_half_replaced() == ""


def test_the_command_that_mends_a_half_moved_run_can_be_copied(tmp_path: Path) -> None:
    folder = written(tmp_path / "my runs")
    folder.replacing.write_text('{"move": []}')
    assert f"(coeval repair --run '{folder.path}')" in folder.describe_half_replaced()
