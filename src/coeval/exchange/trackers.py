"""Experiment trackers. An adapter reads what its tracker already has of a folder, and sends only the new
figures."""

from __future__ import annotations

import io
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from contextvars import copy_context
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from struct import unpack_from
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from coeval import __version__
from coeval.benchmarks.run.eval_settings import split_names
from coeval.core.entry_points import extra_pip_command
from coeval.core.errors import CoevalError, UsageError
from coeval.core.foreign import decode
from coeval.core.redaction import Redactor
from coeval.core.text import canonical_json, digest

if TYPE_CHECKING:
    from coeval.exchange.headlines import TrackedFolder

Rows: TypeAlias = dict[int, dict[str, float]]
"""By step: figures by name."""
_Sent: TypeAlias = dict[tuple[int, str], float]

_PROJECT = "coeval"
_PROJECT_OF = {"mlflow": "MLFLOW_EXPERIMENT_NAME", "wandb": "WANDB_PROJECT"}
"""What names the project where the user does not, as in the trackers' own programs."""
_MARK = "coeval.folder"
_STEP = "checkpoint"
"""W&B drops steps that come late, so checkpoints are an axis of their own there."""
# Characters of what a package says of itself: MLflow's longest has 1,100.
_LONGEST_REASON = 2_000
_TIMEOUT_S = 20
"""Seconds that a finished command waits for a tracker; their own defaults are minutes."""


class TrackedRun(NamedTuple):
    """A folder as a run of a tracker: ``id`` is the folder's in the project, ``name`` the displayed one,
    ``latest`` the figures of the highest step."""

    project: str
    id: str
    name: str
    parameters: Mapping[str, str]
    latest: Mapping[str, float]


class _Tracker(Protocol):
    def read_logged_figures(self) -> _Sent: ...

    def send(self, rows: Rows, files: Sequence[Path]) -> None: ...


class Destination(NamedTuple):
    tracker: str
    project: str

    def __str__(self) -> str:
        return f"{self.tracker}:{self.project}"

    @property
    def is_disabled(self) -> bool:
        """Check whether the user disabled the tracker by its own variable (W&B: ``WANDB_MODE=disabled``)."""
        return self.tracker == "wandb" and os.environ.get("WANDB_MODE", "").lower() == "disabled"


def parse_destinations(texts: Iterable[str] | str) -> list[Destination]:
    """Parse ``wandb:my-project`` and such. Raises UsageError: the tracker is unknown or not installed."""
    destinations = []
    for text in split_names(texts):
        tracker, _, project = text.partition(":")
        if tracker not in TRACKERS:
            raise UsageError(
                f"{text}: unknown tracker; there are {', '.join(TRACKERS)}, for example wandb:my-project"
            )
        if find_spec(tracker) is None:
            raise UsageError(f"logging to {tracker} needs its package: {extra_pip_command(tracker)}")
        usual = os.environ.get(_PROJECT_OF.get(tracker, ""), "") or _PROJECT
        destinations.append(Destination(tracker, project or usual))
    return destinations


def log_results(
    folder: str | Path, to: Iterable[str] | str, tell: Callable[[str], None] = lambda _: None
) -> dict[str, int]:
    """Log the figures of a run, an output folder or a sweep, with its page and JSON; return by tracker how
    many figures were new. What a tracker has already is not sent again; ``WANDB_MODE=disabled`` is respected.

    ``folder``: a sweep's checkpoints are its steps. ``to``: ``mlflow``, ``wandb`` or ``trackio``, or
    several; ``wandb:my-project`` names the project. ``tell`` is called with a sentence where the folder
    begins a new run in the trackers.

    Raises UsageError: the folder holds no results, or a tracker is not installed or did not take them;
    StoreError: a file cannot be read or written.

    >>> list(coeval.log_results("runs/quickstart", to="mlflow"))
    ['mlflow:coeval']
    """
    from coeval.exchange.headlines import TrackedFolder

    if not (trackers := parse_destinations(to)):
        raise UsageError(f"name a tracker: {', '.join(TRACKERS)}")
    if not (trackers := [tracker for tracker in trackers if not tracker.is_disabled]):
        return {}
    source = TrackedFolder(Path(folder))
    if source.notice:
        tell(source.notice)
    return {str(tracker): _send_new_figures(source, tracker) for tracker in trackers}


def log_after_command(folder: Path, to: Iterable[Destination], warn: Callable[[str], None]) -> None:
    """Call `log_results` once a command ended; a tracker that cannot be reached is a warning."""
    for destination in to:
        try:
            log_results(folder, str(destination), warn)
        except CoevalError as error:
            warn(f"{error}. Send them later: coeval log {quote(str(folder))} --to {quote(str(destination))}")


def _send_new_figures(source: TrackedFolder, to: Destination) -> int:
    """Send the figures and files that the tracker lacks; return how many figures. Its package runs without
    standard input, output and hooks, and whatever it raises becomes a UsageError."""
    seal = digest(__version__, canonical_json(source.rows))
    kept = sys.exit, sys.excepthook, sys.stdin  # W&B replaces the first two as soon as it is imported
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), TemporaryDirectory() as scratch:
        warnings.simplefilter("ignore")
        sys.stdin = io.StringIO()  # a package that prompts for a key fails instead of waiting
        try:
            key, last = digest(source.key, to.project)[:16], max(source.rows)
            latest = source.rows[last]
            run = TrackedRun(to.project, key, source.name, source.parameters, latest)
            tracker = TRACKERS[to.tracker](run)
            sent = tracker.read_logged_figures()
            owed = {
                step: new
                for step, row in sorted(source.rows.items())
                if (new := {name: value for name, value in row.items() if sent.get((step, name)) != value})
            }
            if owed or source.content_hash_by_tracker.get(str(to)) != seal:
                tracker.send(owed, source.write_page_and_figures(Path(scratch)))
                source.mark_sent(str(to), seal)
        except CoevalError:
            raise
        except Exception as error:
            raise UsageError(f"logging to {to} failed: {_describe_failure(error)}") from error
        finally:
            sys.exit, sys.excepthook, sys.stdin = kept
    return sum(map(len, owed.values()))


def _describe_failure(error: BaseException) -> str:
    """Quote a package's error, with its root cause if the message lacks it."""
    cause = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    reasons = [
        " ".join(Redactor().redact_message(f"{type(failure).__name__}: {failure}").split())[:_LONGEST_REASON]
        for failure in (error, cause)
    ]
    return reasons[0] if f"{cause}" in f"{error}" else " – ".join(reasons)


class _Mlflow:
    """A run tagged with our mark, on the server or in the folder that ``MLFLOW_TRACKING_URI`` names."""

    def __init__(self, run: TrackedRun) -> None:
        """Open the experiment, and find our run in it or create it."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(_TIMEOUT_S))
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else it refuses the folder it is given
        from mlflow import MlflowClient

        uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        if find_spec("sqlalchemy") is None:  # what mlflow-skinny leaves out
            if uri.partition(":")[0] in ("sqlite", "mysql", "postgresql", "mssql"):
                raise UsageError(
                    f"{Redactor().redact_message(uri)} is a database, which needs the full package: "
                    "pip install mlflow. Or set MLFLOW_TRACKING_URI to a server (http://…) or a folder (file:///…)"
                )
            uri = uri or (Path.cwd() / "mlruns").as_uri()
        self._client = client = MlflowClient(uri or None)
        existing = client.get_experiment_by_name(run.project)
        experiment = existing.experiment_id if existing else client.create_experiment(run.project)
        runs = client.search_runs([experiment], f"tags.`{_MARK}` = '{run.id}'")
        tags = {_MARK: run.id, "coeval.version": __version__}
        self._run = runs[0] if runs else client.create_run(experiment, tags=tags, run_name=run.name)
        self._id = self._run.info.run_id
        self._parameters = run.parameters

    def read_logged_figures(self) -> _Sent:
        history = (self._client.get_metric_history(self._id, name) for name in self._run.data.metrics)
        metrics = sorted((point for metric in history for point in metric), key=lambda point: point.timestamp)
        return {(point.step, point.key): point.value for point in metrics}

    def send(self, rows: Rows, files: Sequence[Path]) -> None:
        """Log parameters, figures in batches, and files; a parameter that has changed becomes a tag."""
        from mlflow.entities import Metric

        logged = self._run.data.params
        for name, value in self._parameters.items():
            if name not in logged:
                self._client.log_param(self._id, name, value)
            elif logged[name] != value:  # a parameter never changes there, and a folder may grow
                self._client.set_tag(self._id, f"coeval.{name}", value)
        at = time.time_ns() // 1_000_000
        for step, row in rows.items():
            metrics = [Metric(name, value, at, step) for name, value in row.items()]
            for start in range(0, len(metrics), 1000):  # what its servers take at a time
                self._client.log_batch(self._id, metrics[start : start + 1000])
        for file in files:
            self._client.log_artifact(self._id, str(file))
        self._client.set_terminated(self._id)


class _Wandb:
    """A run with our id, which later logs resume; records nothing about this machine or the command line."""

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._run, self._wandb = run, wandb
        hidden = {"silent": True, "console": "off", "disable_git": True, "disable_job_creation": True}
        hidden |= {f"x_disable_{what}": True for what in ("meta", "stats", "machine_info")}
        hidden |= {"host": "-", "save_code": False, "x_save_requirements": False}
        self._settings = wandb.Settings(init_timeout=_TIMEOUT_S, login_timeout=_TIMEOUT_S, **hidden)
        self._defaults = wandb.setup().settings
        self._rows: list[dict[str, Any]] = []

    def read_logged_figures(self) -> _Sent:
        if self._defaults.mode in ("offline", "dryrun"):
            paths = Path(self._defaults.wandb_dir).glob(f"offline-run-*-{self._run.id}/*.wandb")
            self._rows = [row for path in sorted(paths) for row in _read_wandb_history(path.read_bytes())]
        else:
            api = self._wandb.Api(timeout=_TIMEOUT_S)
            project_path = "/".join(filter(None, (self._defaults.entity, self._run.project)))
            projects = {project.name for project in api.projects(self._defaults.entity)}
            if self._run.project in projects:
                runs = api.runs(project_path, filters={"name": self._run.id})
                self._rows = [row for run in runs for row in run.scan_history()]
        return {(row.get(_STEP, 0), name): value for row in self._rows for name, value in row.items()}

    def send(self, rows: Rows, files: Sequence[Path]) -> None:
        """Log rows after those that are there, the latest figures as the summary, and files."""
        with self._wandb.init(
            reinit="create_new",  # a trainer's own run may be under way
            project=self._run.project,
            id=self._run.id,
            name=self._run.name,
            resume="allow",
            config=dict(self._run.parameters),
            settings=self._settings,
        ) as run:
            run.define_metric(_STEP)
            run.define_metric("*", step_metric=_STEP)
            for number, (step, row) in enumerate(rows.items(), len(self._rows)):
                run.log({_STEP: step, **row}, step=number)
            run.summary.update(dict(self._run.latest))  # else it is of the row that came last
            for file in files:
                copy = Path(run.dir) / file.name
                copy.write_bytes(file.read_bytes())
                run.save(str(copy), base_path=run.dir, policy="now")


def _read_wandb_history(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the logged rows of a run's file: LevelDB's log format behind a header of seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    at, parts = 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left  # a record's header lies in one block
            continue
        _, length, kind = unpack_from("<IHB", data, at)
        parts, at = parts + data[at + 7 : at + 7 + length], at + 7 + length
        if at > len(data):
            return  # cut off where its writer was killed
        if kind in (1, 4):
            record, parts = Record.FromString(parts), b""
            if record.WhichOneof("record_type") == "history":
                yield {
                    item.key or "/".join(item.nested_key): decode(item.value_json)
                    for item in record.history.item
                }


class _Trackio:
    """A run of that name, on this machine or at TRACKIO_SPACE_ID or TRACKIO_SERVER_URL."""

    def __init__(self, run: TrackedRun) -> None:
        import trackio

        self._trackio = trackio
        self._project, self._id, self._name = run.project, run.id, f"{run.name}-{run.id}"
        self._parameters = run.parameters

    def read_logged_figures(self) -> _Sent:
        from trackio import remote_client, sqlite_storage, utils

        space, server = utils.resolve_space_id_and_server_url(None, None)
        which: dict[str, str] = {"project": self._project, "run": self._name}
        if space or server:
            logs = remote_client.RemoteClient(space or server).predict(api_name="/get_logs", **which)
        else:
            logs = sqlite_storage.SQLiteStorage.get_logs(**which)
        return {(row["step"], name): value for row in logs for name, value in row.items() if name != "step"}

    def send(self, rows: Rows, files: Sequence[Path]) -> None:
        copy_context().run(self._send, rows, files)
        sent = self.read_logged_figures()  # it drops what it cannot send
        if lost := sum(sent.get((step, name)) != row[name] for step, row in rows.items() for name in row):
            raise UsageError(f"{lost} figures did not reach {self._project}")

    def _send(self, rows: Rows, files: Sequence[Path]) -> None:
        self._trackio.context_vars.current_run.set(None)  # a trainer's own run may be under way
        config = dict(self._parameters)
        how: dict[str, Any] = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        run = self._trackio.init(self._project, name=self._name, resume="allow", config=config, **how)
        for step, row in rows.items():
            run.log(row, step=step)
        for file in files:
            artifact = self._trackio.Artifact(name=f"{self._id}-{file.name}", type="report")
            artifact.add_file(str(file))
            run.log_artifact(artifact)
        self._trackio.finish()


TRACKERS: dict[str, Callable[[TrackedRun], _Tracker]] = {
    "mlflow": _Mlflow,
    "wandb": _Wandb,
    "trackio": _Trackio,
}
"""By the name of its package, which is that of the extra too."""
