"""Trackers hold a folder's figures as its files do, and once, whatever is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
from cli.invoked import Command
from pipeline import experiments
from pipeline.experiments import Lab, model
from written_run import Run

from coeval import __version__, import_results, log_results, open_run
from coeval.core.errors import UsageError
from coeval.exchange.headlines import TrackedFolder
from coeval.exchange.trackers import TRACKERS, parse_destinations

STUDENTS = {'Qwen/Qwen2.5-72B "x" <b>\u202e|..': "Qwen_Qwen2.5-72B _x_ _b___", "gpt-4o-mini": "gpt-4o-mini"}
"""By what they are called in names of figures."""
ENDS = ("", "_low", "_high", "_n", "_failed")
EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
SECRET = "sk-proj-9f8e7d6c5b4a39281706f5e4d3c2b1a0"
READERS = {
    "mlflow": """
from mlflow import MlflowClient
client = MlflowClient()
experiment = client.get_experiment_by_name("mine").experiment_id
(run,) = client.search_runs([experiment])
found = [m for name in run.data.metrics for m in client.get_metric_history(run.info.run_id, name)]
rows = [(m.step, m.key, m.value) for m in found]
files = [file.path for file in client.list_artifacts(run.info.run_id)]
""",
    "wandb": """
import os
from pathlib import Path
from coeval.exchange.trackers import _read_wandb_history
folders = sorted((Path(os.environ["WANDB_DIR"]) / "wandb").glob("offline-run-*"))
assert len({folder.name.rpartition("-")[2] for folder in folders}) == 1
paths = [path for folder in folders for path in folder.glob("*.wandb")]
logged = [row for path in paths for row in _read_wandb_history(path.read_bytes())]
rows = [(row["checkpoint"], *each) for row in logged for each in row.items() if each[0][0] != "_"]
rows = [row for row in rows if row[1] != "checkpoint"]
files = sorted({path.name for folder in folders for path in (folder / "files").iterdir()})
""",
    "trackio": """
from trackio import Api
from trackio.sqlite_storage import SQLiteStorage
(run,) = Api().runs("mine")
logs = SQLiteStorage.get_logs("mine", run.name)
rows = [(row["step"], *each) for row in logs for each in row.items() if each[0] not in ("step", "timestamp")]
files = [one["name"].rpartition("-")[2] for one in SQLiteStorage.list_artifacts("mine")]
""",
}
KILLED = {
    ("mlflow", "mlflow.MlflowClient.log_batch", 3): "before a step",
    ("mlflow", "mlflow.MlflowClient.log_artifact", 2): "between files",
    ("wandb", "wandb.Run.log", 3): "before a step",
    ("wandb", "wandb.Run.save", 2): "between files",
    ("trackio", "trackio.run.Run.log", 3): "before a step",
    ("trackio", "trackio.run.Run.log_artifact", 2): "between files",
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two students in two tasks; in one a failed answer, in the other a failed judgment."""
    folder = tmp_path / "runs" / "own run"
    for name in ("haiku", "sonnet"):
        made = Run(folder, name)
        for n in range(1, 8):
            for s, student in enumerate(STUDENTS):
                made.judged(n, student, "gpt-4o", {"style": ("Low", "Medium", "High")[(n + s) % 3]})
        made.datapoint(8)
        made.response(
            8, "gpt-4o-mini", status="failed", response=None, error={"kind": "Timeout", "message": ""}
        )
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    for step in (10, 20, 30, 40):
        lines = [f"{n},m,{k},{(n * step // 10 + k) % 3 / 2}" for n in range(6) for k in (0, 1)]
        (tmp_path / "t.csv").write_text("\n".join(["item,model,sample,score", *lines]) + "\n")
        import_results(tmp_path / "t.csv", out=tmp_path / f"sweep/step_{step}")
    return tmp_path / "sweep"


def places(tmp_path: Path) -> dict[str, str]:
    """Every tracker keeps to this folder."""
    (tmp_path / "w").mkdir(exist_ok=True)
    return {
        **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
        "HOME": str(tmp_path),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_TRACKING_URI": (tmp_path / "ml").as_uri(),
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path / "w"),
        "TRACKIO_DIR": str(tmp_path / "t"),
        "OPENAI_API_KEY": SECRET,
    }


def python(code: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=environment["HOME"], capture_output=True, text=True
    )


def logged(tracker: str, environment: Mapping[str, str]) -> tuple[list[tuple[int, str, float]], list[str]]:
    """What the tracker has by its own reader: figures at their steps, and files."""
    ended = python(READERS[tracker] + "import json; print(json.dumps([rows, files]))", environment)
    assert ended.returncode == 0, ended.stderr
    rows, files = json.loads(ended.stdout.splitlines()[-1])
    return [tuple(row) for row in rows], sorted(files)


def log(folder: Path, tracker: str, environment: Mapping[str, str], *more: str) -> str:
    command = [sys.executable, "-m", "coeval", "log", str(folder), "--to", f"{tracker}:mine", *more]
    ended = subprocess.run(command, env=environment, cwd=environment["HOME"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout.strip()


@pytest.fixture(params=TRACKERS)
def tracker(request: pytest.FixtureRequest) -> str:
    return installed(request.param)


def installed(name: str) -> str:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install '.[{name}]', or make local")
    return name


@pytest.mark.process
def test_a_tracker_holds_the_figures_of_the_measures(run: Path, tracker: str, tmp_path: Path) -> None:
    environment = places(tmp_path)
    assert log(run, tracker, environment) == f"{tracker}:mine: 30 figures logged"
    rows, files = logged(tracker, environment)
    assert files == ["measures.json", "report.html"]
    found = {name: value for step, name, value in rows if step == 0}
    assert len(found) == len(rows) == 30
    for student, name in STUDENTS.items():
        whole = open_run(run).measures()["students"][student]
        expected = {"overall": (whole["score"], *whole["ci95"]["score"], whole["n"]["score"])}
        for task in ("haiku", "sonnet"):
            bounds, n = (whole[part]["score_by_task"][task] for part in ("ci95", "n"))
            expected[task] = (whole["score_by_task"][task], *bounds, n)
        for task, figures in expected.items():
            assert tuple(found[f"{task}/{name}/score{end}"] for end in ENDS[:4]) == figures
    for score in open_run(run).results().students:
        assert found[f"{score.task or 'overall'}/{STUDENTS[score.student]}/score_failed"] == score.failed
    assert {value for name, value in found.items() if name.endswith("_failed")} == {0, 1, 2}
    assert log(run, tracker, environment) == f"{tracker}:mine: up to date"
    assert logged(tracker, environment) == (rows, files)
    kept = [path for place in ("ml", "w", "t") for path in (tmp_path / place).rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in path.read_bytes() for path in kept)


@pytest.mark.system
@pytest.mark.parametrize(("tracker", "at", "call"), KILLED, ids=lambda given: str(given).rpartition(".")[2])
def test_what_was_killed_is_sent_once(sweep: Path, tmp_path: Path, tracker: str, at: str, call: int) -> None:
    installed(tracker)
    environment = places(tmp_path)
    owner, _, method = at.rpartition(".")
    ended = python(
        f"""
import importlib, os, pkgutil, signal, coeval
owner = pkgutil.resolve_name({owner!r})
whole, calls = owner.{method}, [0]
def counted(*given, **named):
    calls[0] += 1
    if calls[0] == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(*given, **named)
owner.{method} = counted
coeval.log_results({str(sweep)!r}, "{tracker}:mine")
""",
        environment,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    log(sweep, tracker, environment)
    rows, files = logged(tracker, environment)
    assert files == ["curves.html", "figures.json"]
    expected = {
        (step, name): value for step, row in TrackedFolder(sweep).rows.items() for name, value in row.items()
    }
    assert {(step, name): value for step, name, value in rows} == expected
    assert len(expected) == 4 * 5
    assert set(Counter((step, name) for step, name, _ in rows).values()) == {1}
    assert log(sweep, tracker, environment) == f"{tracker}:mine: up to date"


@pytest.mark.process
def test_new_figures_join_the_same_run(sweep: Path, tracker: str, tmp_path: Path) -> None:
    environment = places(tmp_path)
    late = sweep / "step_20"
    late.rename(tmp_path / "later")
    assert log(sweep, tracker, environment) == f"{tracker}:mine: 15 figures logged"
    (tmp_path / "later").rename(late)
    assert log(sweep, tracker, environment) == f"{tracker}:mine: 5 figures logged"
    rows, _ = logged(tracker, environment)
    assert sorted({step for step, _, _ in rows}) == [10, 20, 30, 40]
    assert len(rows) == 20


@pytest.mark.process
def test_a_trainers_own_run_goes_on(sweep: Path, tmp_path: Path) -> None:
    installed("wandb")
    installed("trackio")
    environment = places(tmp_path)
    ended = python(
        f"""
import sys, trackio, wandb, coeval
own, leave = wandb.init(project="mine", settings=wandb.Settings(silent=True)), sys.exit
trackio.init("train", name="own", embed=False, auto_log_cpu=False, auto_log_gpu=False)
for loss in (2, 1):
    own.log({{"loss": loss}})
    trackio.log({{"loss": loss}})
    print(coeval.log_results({str(sweep)!r}, ["wandb:mine", "wandb:other", "trackio:mine"]))
assert wandb.run is own and sys.exit is leave and sys.stdin is sys.__stdin__
trackio.finish()
from trackio.sqlite_storage import SQLiteStorage
assert [row["loss"] for row in SQLiteStorage.get_logs("train", "own")] == [2, 1]
""",
        environment,
    )
    assert ended.returncode == 0, ended.stderr
    said = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    counts = dict.fromkeys(("wandb:mine", "wandb:other", "trackio:mine"), 20)
    assert said == [str(counts), str(dict.fromkeys(counts, 0))]
    assert len(logged("trackio", environment)[0]) == 20


def test_what_cannot_be_logged_is_refused(
    run: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="unknown tracker; there are mlflow, wandb, trackio"):
        parse_destinations("neptune")
    monkeypatch.setattr("coeval.exchange.trackers.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'wandb>="):
        log_results(run, "wandb:mine")
    assert not (run / "tracked.json").exists()
    with pytest.raises(UsageError, match="name a tracker: mlflow, wandb, trackio"):
        log_results(run, ",")
    monkeypatch.chdir(run)  # `make demo` leaves the example's run in the repository
    ended = coeval("run", "--config", EXAMPLE, "--dry-run", "--log-to", "mlflow")
    assert (ended.code, "pip install 'mlflow-skinny>=" in ended.err) == (1, True)


@pytest.mark.process
def test_a_tracker_that_is_away_costs_a_warning(run: Path, tmp_path: Path) -> None:
    installed("mlflow")
    environment = places(tmp_path) | {"MLFLOW_TRACKING_URI": f"http://me:{SECRET}@127.0.0.1:9"}
    code = f"""
import sys
from pathlib import Path
from coeval.exchange.trackers import parse_destinations, log_after_command
log_after_command(Path({str(run)!r}), parse_destinations("mlflow"), lambda said: print("warning:", said))
"""
    ended = python(code, environment)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("warning: logging to mlflow:coeval failed: ")
    assert "Connection refused" in ended.stdout
    assert ended.stdout.rstrip().endswith("--to mlflow:coeval")
    assert SECRET not in ended.stdout + ended.stderr


PARAMETERS = {
    "mlflow": """
from mlflow import MlflowClient
client = MlflowClient()
(run,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
found, summary = run.data.params, run.data.metrics
""",
    "wandb": """
import json, os
from pathlib import Path
from wandb.proto.wandb_internal_pb2 import Record
import coeval.exchange.trackers as trackers
found, summary, records = {}, {}, []
whole = Record.FromString
class Kept:
    @staticmethod
    def FromString(data):
        records.append(whole(data))
        return records[-1]
import wandb.proto.wandb_internal_pb2 as sent
sent.Record = Kept
for path in sorted(Path(os.environ["WANDB_DIR"]).glob("wandb/offline-run-*/*.wandb")):
    list(trackers._read_wandb_history(path.read_bytes()))
for record in records:
    updates = record.run.config.update if record.WhichOneof("record_type") == "run" else ()
    found |= {item.key or item.nested_key[0]: json.loads(item.value_json) for item in updates}
    if record.WhichOneof("record_type") == "summary":
        items = record.summary.update
        summary |= {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
""",
    "trackio": """
from trackio import Api
(run,) = Api().runs("mine")
found, summary = run.config, {}
""",
}


@pytest.mark.process
def test_a_run_of_a_tracker_has_its_parameters(tracker: str, tmp_path: Path) -> None:
    """And they can be filtered by; what grows stays one run."""
    environment = places(tmp_path)
    lab = Lab(
        tmp_path,
        [
            model("ann", "student", temperature=0.5),
            model("joe", "judge", max_tokens=2000),
            model("tea", "teacher"),
        ],
        [experiments.task(total=3)],
    )
    lab.run()
    log(lab.path, tracker, environment)
    lab.models.append(model("ben", "student"))
    lab.run(continue_run=True)
    assert log(lab.path, tracker, environment).endswith(" figures logged")
    ended = python(PARAMETERS[tracker] + "import json; print(json.dumps(found))", environment)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    expected = {"judges": "joe", "tasks": "story", "samples": "1", "temperature": "0.5", "max_tokens": "2000"}
    assert {name: found[name] for name in expected} == expected
    assert found["coeval_version"] == __version__
    assert found["models"] in ("ann", "ann, ben")
    assert len(found["items"]) > 5


@pytest.mark.process
@pytest.mark.parametrize("judged", [False, True], ids=["copied", "judged otherwise"])
def test_another_folder_or_recipe_is_another_run(tracker: str, tmp_path: Path, judged: bool) -> None:
    """The copy has the original's ``tracked.json`` and, as a backup has, its name; the original may move."""
    environment = places(tmp_path)
    lab = Lab(
        tmp_path,
        [model("ann", "student"), model("joe", "judge", skill=0.9), model("tea", "teacher")],
        [experiments.task(total=4)],
    )
    lab.run()
    log(lab.path, tracker, environment)
    before = Counter(logged_runs(tracker, environment))
    if judged:
        other = lab.path
        lab.models[1]["parameters"]["skill"] = 0.2
        lab.run(continue_run=True, changed="redo")
        reason = "starts a new run: since the last log, the judging has changed: story/joe"
    else:
        other = tmp_path / "backup/exp"
        shutil.copytree(lab.path, other)
        reason = "exp starts a new run: the folder is a copy of one that was already logged"
    command = [sys.executable, "-m", "coeval", "log", str(other), "--to", f"{tracker}:mine"]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.count(reason)) == (0, 1), ended.stderr
    assert log(other, tracker, environment).endswith("up to date")
    after = Counter(logged_runs(tracker, environment))
    assert len(after) == 2
    assert after | before == after
    if not judged:
        moved = lab.path.rename(tmp_path / "runs/moved")
        assert log(moved, tracker, environment).endswith("up to date")


def logged_runs(tracker: str, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """The runs of the project, each with its figures."""
    ended = python(RUNS[tracker] + "import json; print(json.dumps(runs))", environment)
    assert ended.returncode == 0, ended.stderr
    return [tuple(run) for run in json.loads(ended.stdout.splitlines()[-1])]


RUNS = {
    "mlflow": """
from mlflow import MlflowClient
client = MlflowClient()
found = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
runs = [(run.info.run_id, str(sorted(run.data.metrics.items()))) for run in found]
""",
    "wandb": """
import os
from pathlib import Path
found = {path.name.rpartition("-")[2] for path in Path(os.environ["WANDB_DIR"]).glob("wandb/offline-run-*")}
runs = [(name, "") for name in found]
""",
    "trackio": """
from trackio import Api
from trackio.sqlite_storage import SQLiteStorage
runs = [(run.name, str(SQLiteStorage.get_logs("mine", run.name))) for run in Api().runs("mine")]
""",
}


@pytest.mark.process
def test_after_a_late_checkpoint_the_summary_is_the_highest_steps(sweep: Path, tmp_path: Path) -> None:
    installed("wandb")
    environment = places(tmp_path)
    (sweep / "step_20").rename(tmp_path / "later")
    log(sweep, "wandb", environment)
    (tmp_path / "later").rename(sweep / "step_20")
    log(sweep, "wandb", environment)
    ended = python(PARAMETERS["wandb"] + "print(json.dumps(summary))", environment)
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout.splitlines()[-1])
    highest = TrackedFolder(sweep).rows[40]
    assert {name: summary[name] for name in highest} == highest


@pytest.mark.parametrize(
    ("variable", "given", "expected"),
    [
        ("MLFLOW_EXPERIMENT_NAME", "mlflow", "mlflow:ours"),
        ("MLFLOW_EXPERIMENT_NAME", "mlflow:mine", "mlflow:mine"),
        ("WANDB_PROJECT", "wandb", "wandb:ours"),
        ("WANDB_PROJECT", "mlflow", "mlflow:coeval"),
    ],
)
def test_projects_are_named_as_elsewhere(
    variable: str, given: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MLFLOW_EXPERIMENT_NAME", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "ours")
    installed(given.partition(":")[0])
    assert [str(one) for one in parse_destinations(given)] == [expected]


def test_wandb_that_is_disabled_gets_nothing(
    run: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("wandb")
    monkeypatch.setenv("WANDB_MODE", "disabled")
    ended = coeval("log", run, "--to", "wandb:mine")
    assert (ended.code, ended.out) == (0, "")
    assert "WANDB_MODE=disabled: nothing was logged." in ended.err
    assert not (run / "tracked.json").exists()


@pytest.mark.process
def test_no_name_of_the_machine_is_logged(run: Path, tracker: str, tmp_path: Path) -> None:
    environment = places(tmp_path)
    ended = python(
        f"""
import getpass, os, platform, socket
socket.gethostname = platform.node = lambda: "our-own-machine"
os.getlogin = getpass.getuser = lambda: "one-of-our-people"
import coeval
coeval.log_results({str(run)!r}, "{tracker}:mine")
""",
        environment,
    )
    assert ended.returncode == 0, ended.stderr
    kept = [path for place in ("ml", "w", "t") for path in (tmp_path / place).rglob("*") if path.is_file()]
    assert kept
    for name in (b"our-own-machine", b"one-of-our-people"):
        assert not any(name in path.read_bytes() for path in kept if not path.name.endswith(".log"))


@pytest.mark.process
@pytest.mark.parametrize("place", ["", "file", "plain", "sqlite"])
def test_mlflow_as_its_extra_installs_it(run: Path, tmp_path: Path, place: str) -> None:
    """A folder is written, by default one here; a database needs the whole package, as the message says."""
    installed("mlflow")
    environment = places(tmp_path)
    del environment["MLFLOW_ALLOW_FILE_STORE"], environment["MLFLOW_TRACKING_URI"]
    if place:
        addresses = {
            "file": (tmp_path / "ml").as_uri(),
            "plain": "ml",
            "sqlite": f"sqlite:///{tmp_path}/m.db",
        }
        environment["MLFLOW_TRACKING_URI"] = addresses[place]
    command = [sys.executable, "-m", "coeval", "log", str(run), "--to", "mlflow:mine"]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    if place == "sqlite":
        assert ended.returncode == 1
        assert "m.db is a database, which needs the full package: pip install mlflow. Or set" in ended.stderr
        return
    assert (ended.returncode, ended.stderr) == (0, "")
    assert list((tmp_path / ((place and "ml") or "mlruns")).glob("*/*/metrics"))
