"""`coeval view` beside a run that goes on, is killed and continued: it shows what is on disk."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline.experiments import Lab, model, task
from reports.view_process import viewing

pytestmark = pytest.mark.slow


def test_it_shows_a_run_that_goes_on_is_killed_and_continued(tmp_path: Path) -> None:
    models = [model("ann", latency_s=0.3, max_concurrency=1), model("ben", skill=0.3)]
    lab = Lab(tmp_path, models, [task(total=8)])
    words = [sys.executable, "-m", "coeval", "run", "--config", str(lab.file)]
    first = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not lab.path.joinpath("meta.json").exists():
            assert first.poll() is None
        with viewing(lab.path, folder=tmp_path) as server:
            state = "/f/0/api/state"
            server.wait_for(
                state, lambda told: (told["status"] or {}).get("state", {}).get("pid") == first.pid
            )
            server.wait_for(state, lambda told: told["results"] and told["results"]["students"])
            before = server.wait_for("/f/0/api/items", lambda page: page["total"])
            first.send_signal(signal.SIGKILL)
            first.wait()
            stopped = server.wait_for(
                state,
                lambda told: told["status"]["state"]["status"] == "stopped" and told["status"],
            )
            assert 0 < stopped["phases"]["evaluation"]["good"] < 64
            lab.models[0]["parameters"]["max_concurrency"] = 64  # the rest need not take as long
            assert lab.file.exists()
            again = subprocess.run(
                [*words, "--continue"], cwd=tmp_path, capture_output=True, text=True, timeout=120
            )
            assert (again.returncode, "in use" in again.stderr) == (0, False)
            server.wait_for(state, lambda told: told["status"]["phases"]["evaluation"]["good"] == 64)
            server.wait_for("/f/0/api/items", lambda page: page["total"] == 16)
            assert before <= 16
            told = server.ask(state).value
            assert (told["error"], told["status"]["state"]) == (None, {"status": "completed", "pid": None})
            assert server.interrupt() == (0, "exp; Ctrl-C ends it\n")
    finally:
        first.kill()
        first.wait()
