"""From a sweep's settings to the sweep: checkpoints, tasks, judge, and the engine that runs its workers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.benchmarks.task_registry import PREFIX, TASKS, kind_of
from coeval.cli.command_names import OnFail, ProbeMode
from coeval.cli.commands.sweep.sweep_flags import counts, names, steps
from coeval.cli.eval_framework.spec_of_flags import evaluation_of, task_names
from coeval.core.errors import UsageError
from coeval.models.keys import Keys
from coeval.pipeline.config.findings import closest
from coeval.sweeps.checkpoints import (
    STEP,
    WATCH_S,
    Checkpoint,
    CheckpointPlaces,
    CheckpointWatch,
    refuse_doubles,
)
from coeval.sweeps.engine import LocalEngine, SweepEngine, local_slots
from coeval.sweeps.ray_engine import open_ray
from coeval.sweeps.server_command import DEFAULT, ServerCommand
from coeval.sweeps.slurm_engine import open_slurm
from coeval.sweeps.sweep import PATH, Sweep, SweepPhases
from coeval.sweeps.sweep_settings import CheckpointFolder, SweepSettings
from coeval.sweeps.worker_files import Server

# --- Which checkpoints a sweep is about: from its settings to where they are, and who serves them


def places_of(settings: SweepSettings) -> CheckpointPlaces:
    """
    Raises
    ------
    UsageError
        no checkpoint is named.
    """
    given = settings.checkpoints
    pattern, steps_named = settings.name_pattern, steps_of(settings.steps)
    listed: list[Checkpoint] = []
    folder: Path | None = None
    match given:
        case str():
            folder = Path(given).absolute()
        case CheckpointFolder():
            folder = None if given.folder is None else Path(given.folder).absolute()
            pattern = pattern or given.name_pattern
            steps_named = steps_named if steps_named is not None else steps_of(given.steps)
            listed += [_checkpoint(each.step, each.path) for each in given.more]
        case tuple():
            listed += [_checkpoint(each.step, each.path) for each in given]
        case None:
            pass
    if settings.base_model is not None:
        listed.append(_checkpoint(0, settings.base_model))
    if folder is None and not listed:
        raise UsageError(
            "no checkpoint is named; give their folder (--checkpoints DIR), or a list of step and path in a "
            "file (--config)"
        )
    return CheckpointPlaces(tuple(listed), folder, pattern, tuple(steps_named or ()))


def _checkpoint(step: int, path: str) -> Checkpoint:
    """A folder is one checkpoint wherever the sweep is started; else it is a name at a hub."""
    return Checkpoint(step=step, path=str(Path(path).absolute()) if Path(path).is_dir() else path)


def watch_of(settings: SweepSettings, places: CheckpointPlaces) -> CheckpointWatch | None:
    if not settings.watch:
        if settings.until_step is not None:
            raise UsageError("--until-step says when --watch ends; give that too")
        return None
    if places.folder is None:
        raise UsageError("--watch watches a folder of checkpoints; name it with --checkpoints")
    if places.steps:
        raise UsageError("--watch takes every step that appears; leave --steps out, or --watch")
    return CheckpointWatch(places, settings.until_step, settings.watch_interval or WATCH_S)


def steps_of(given: object) -> list[int] | None:
    """``120,240``, a list of numbers, or a number."""
    match given:
        case str():
            return steps(given)
        case int():
            return [given]
        case list() | tuple():
            return sorted({int(step) for step in given})
        case _:
            return None


def refuse_ambiguous(sweep: Sweep, checkpoints: Sequence[Checkpoint], *, watched: bool = False) -> None:
    """``watched``: further checkpoints may come.

    Raises
    ------
    UsageError
        checkpoints share a step, or it cannot be told which of the user's servers has which.
    """
    refuse_doubles(checkpoints)
    if not sweep.external:
        return
    open_steps = [each.step for each in checkpoints if each.step not in sweep.external]
    if open_steps and None not in sweep.external:
        step = open_steps[0]
        raise UsageError(f"--external: no server has step {step}; add --external {step}=URL")
    if watched and None not in sweep.external:
        raise UsageError(
            "--external: no server has the steps to come; add --external URL, or leave out --watch"
        )
    names_them = STEP in sweep.served_name or PATH in sweep.served_name
    if watched and not names_them:
        raise UsageError(
            f"--external: all checkpoints to come would be asked for under one name, {sweep.served_name}; "
            f"give --served-name with {STEP}, or leave out --watch"
        )
    if len(open_steps) > 1 and not names_them:
        raise UsageError(
            f"--external: {len(open_steps)} checkpoints would be asked for under one name, "
            f"{sweep.served_name}; say which server has which (--external {open_steps[0]}=URL), or give "
            f"--served-name with {STEP}"
        )


# --- From a sweep's settings to the sweep: checkpoints found, tasks and judge named, slots counted

KEY_VARIABLE = "COEVAL_SWEEP_API_KEY"
"""The environment variable that takes ``--api-key`` to the workers, since it may stand in no file."""
SAMPLES: Mapping[str, int] = {
    "ifeval": 8,
    "ifbench": 8,
    "healthbench": 8,
    "writingbench": 4,
    "arena-hard": 1,
    "alpaca-eval": 1,
}
"""Where nobody says how many; 1 of any other task. Arena-Hard and AlpacaEval have intervals of their own."""
_SERVED_NAME = f"step_{STEP}"
_FIXED: Mapping[str, Any] = {
    "model": _SERVED_NAME,
    "checkpoint": None,
    "api_key": None,
    "local": False,
    "device": "auto",
    "max_calls": None,
    "budget_usd": None,
    "probe": ProbeMode.RESUME,
    "probe_on_fail": OnFail.ABORT,
    "num_runs": 1,
    "inference_only": False,
    "judge_only": False,
    "batch": False,
    "no_wait": False,
}
# What goes to `eval-framework`'s own reading as it is; the values are its defaults.
_AS_SET = {
    "max_examples": None,
    "num_threads": 64,
    "temperature": None,
    "top_p": None,
    "top_k": None,
    "max_tokens": 2048,
    "timeout": 600.0,
    "seed": 0,
    "judge_model": None,
    "judge_base_url": None,
    "judge_api_key": None,
    "judge_temperature": None,
    "judge_top_p": None,
    "judge_top_k": None,
    "judge_max_tokens": None,
    "judge_batch": False,
}


class AskedFor(NamedTuple):
    """A sweep, what this start of it is to do, and where its checkpoints are; ``watch``: new ones too."""

    sweep: Sweep
    phases: SweepPhases
    places: CheckpointPlaces
    watch: CheckpointWatch | None


def asked_for(settings: SweepSettings, keys: Keys) -> AskedFor:
    """
    Raises
    ------
    UsageError
        something is lacking, contradicts something else, or is not there.
    """
    if settings.out is None:
        raise UsageError("--out is missing: the folder that takes the results, such as --out outputs/run_a")
    phases = SweepPhases(
        settings.inference is not False, settings.judge is not False, settings.plot is not False
    )
    external = _external(settings)
    command = ServerCommand(settings.server_command or DEFAULT)
    evaluation = _evaluation(settings, external, keys)
    _refuse_lacking_judge(evaluation, settings, phases)
    sweep = Sweep(
        evaluation=evaluation,
        served_name=settings.served_name or (PATH if command.serves_path and not external else _SERVED_NAME),
        shards=_positive(settings.shards, "shards"),
        server=None if external else _server(settings, command),
        external=external,
        judge_jobs=_positive(settings.judge_jobs, "judge_jobs", 4),
        key_variable=KEY_VARIABLE if settings.api_key else "",
        logs=settings.log_dir,
        vouched=bool(external and settings.served_name and STEP not in settings.served_name),
    )
    places = places_of(settings)
    return AskedFor(sweep, phases, places, watch_of(settings, places))


def _positive(number: int | None, name: str, otherwise: int = 1) -> int:
    if number is not None and number < 1:
        raise UsageError(f"--{name.replace('_', '-')} {number}: give a number above 0")
    return otherwise if number is None else number


def _evaluation(
    settings: SweepSettings, external: Mapping[int | None, Sequence[str]], keys: Keys
) -> EvalSpec:
    samples = samples_of(settings)
    urls = [url for group in external.values() for url in group]
    wanted = {name: getattr(settings, name) for name in _AS_SET}
    flags = {
        **_FIXED,
        **{name: _AS_SET[name] if value is None else value for name, value in wanted.items()},
        **_task_options(settings),
        "tasks": list(samples),
        "output_dir": settings.out,
        "base_url": urls[0] if urls else None,
    }
    evaluation = evaluation_of(flags, keys)
    tasks = tuple(
        msgspec.structs.replace(request, runs=tuple(range(samples[request.name])))
        for request in evaluation.tasks
    )
    return msgspec.structs.replace(evaluation, tasks=tasks)


def samples_of(settings: SweepSettings) -> dict[str, int]:
    """The tasks, each with the number of its samples.

    Raises
    ------
    UsageError
        there is no such task, or no such number.
    """
    given = settings.tasks
    numbers: dict[str, int] = {}
    if isinstance(given, Mapping):
        numbers = dict(given)
        listed = list(given)
    elif given is None:
        listed = list(SAMPLES)
    else:
        listed = names(given if isinstance(given, str) else ",".join(given)) or []
    flags: dict[str, Any] = {"tasks": listed, **_no_task_options()}
    tasks = task_names(flags)
    more = settings.n_samples or {}
    if isinstance(more, int) or (isinstance(more, str) and more.strip().isdecimal()):
        more = dict.fromkeys(tasks, int(more))
    numbers |= counts(more, "--n-samples") if isinstance(more, str) else more
    numbers = {_hyphened(name): number for name, number in numbers.items()}
    for name, number in numbers.items():
        if name not in tasks:
            raise UsageError(f"--n-samples names {name}, which is not among the tasks: {', '.join(tasks)}")
        if number < 1:
            raise UsageError(f"--n-samples {name}={number}: give a number above 0")
    return {name: numbers.get(name, SAMPLES.get(name, 1)) for name in tasks}


def _hyphened(name: str) -> str:
    return name if name.startswith(PREFIX) else name.replace("_", "-")


def _no_task_options() -> dict[str, Any]:
    return {option.parameter: option.default for row in TASKS.values() for option in row.options}


def _task_options(settings: SweepSettings) -> dict[str, Any]:
    """The options of tasks, by the names of eval-framework's flags."""
    known = {option.name: option for row in TASKS.values() for option in row.options}
    given = settings.task_options or {}
    if not isinstance(given, Mapping):
        given = dict(part.partition("=")[::2] for part in given)
    values = _no_task_options()
    for name, value in given.items():
        option = known.get(name.replace("_", "-").removeprefix("--"))
        if option is None or option.fills == "responses":
            near = closest(name, known)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
            raise UsageError(f"--task-option {name}: no task has such an option; {hint}")
        if option.kind is bool:
            values[option.parameter] = _switch(name, value)
        else:
            values[option.parameter] = option.kind(value)
    return values


def _switch(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    said = {"true": True, "": True, "false": False}.get(str(value).lower())
    if said is None:
        raise UsageError(f"--task-option {name}={value}: give true or false")
    return said


def _external(settings: SweepSettings) -> dict[int | None, tuple[str, ...]]:
    """URLs of the user's servers by step, or by None for any."""
    given = settings.external or ()
    found: dict[int | None, tuple[str, ...]] = {}
    for text in [given] if isinstance(given, str) else given:
        step, sign, url = text.partition("=")
        at = int(step) if sign and step.isascii() and step.isdigit() else None
        found[at] = (*found.get(at, ()), url if at is not None else text)
    return found


def _server(settings: SweepSettings, command: ServerCommand) -> Server:
    passed = settings.server_env or ()
    server = Server(
        template=command.text,
        checkpoint="",
        name="",
        tp_size=_positive(settings.tp_size, "tp_size"),
        passed=tuple(names(passed) or ()) if isinstance(passed, str) else tuple(passed),
    )
    if settings.start_timeout is None:
        return server
    return msgspec.structs.replace(server, start_timeout_s=settings.start_timeout)


def _refuse_lacking_judge(evaluation: EvalSpec, settings: SweepSettings, phases: SweepPhases) -> None:
    judged = [request.name for request in evaluation.tasks if kind_of(request.name).needs_judge]
    if not judged or not phases.judge:
        return
    way = (
        "name one with --judge-model and --judge-base-url, leave them out of --tasks, or judge later: "
        "--no-judge"
    )
    if evaluation.judge is None or settings.judge_model is None:
        raise UsageError(
            f"{', '.join(judged)}: a judge is needed, and the server of a checkpoint is not there any more "
            f"when its answers are judged; {way}"
        )
    if settings.judge_base_url is None:
        raise UsageError(
            f"--judge-base-url is missing: where {settings.judge_model} is served, such as "
            "--judge-base-url https://api.openai.com/v1"
        )


_LISTED_WITHIN_S = 20.0


def engine_of(settings: SweepSettings, sweep: Sweep, environment: Mapping[str, str]) -> SweepEngine:
    """
    Raises
    ------
    UsageError
        a slot has more GPUs than there are, or the engine is not there.
    """
    tp_size = sweep.server.tp_size if sweep.server is not None else 0
    match settings.engine:
        case "ray":
            return open_ray(tp_size, settings.slots, environment)
        case "slurm":
            folder = sweep.own_folder / "slurm"
            return open_slurm(tp_size, settings.slots, environment, folder, settings.slurm or {})
        case "local" | None:
            return _local(settings, sweep, environment)


def refuse_absent_program(sweep: Sweep, settings: SweepSettings) -> None:
    """
    Raises
    ------
    UsageError
        servers are to be started on this machine by a program that is not there.
    """
    if said := absent_program(sweep, settings):
        raise UsageError(said)


def absent_program(sweep: Sweep, settings: SweepSettings) -> str:
    """What to say where servers are to be started on this machine by a program that is not there; else
    empty."""
    if sweep.server is None or settings.engine not in (None, "local"):
        return ""
    program = ServerCommand(sweep.server.template).words[0]
    if "{" in program or shutil.which(program) is not None:
        return ""
    return (
        f"{program}, which is to start the servers, is not there; install it, or name another command: "
        "--server-command"
    )


def _local(settings: SweepSettings, sweep: Sweep, environment: Mapping[str, str]) -> LocalEngine:
    if sweep.server is None:
        servers = sum(map(len, sweep.external.values()))
        return LocalEngine(local_slots((), 1, settings.slots or servers), environment)
    gpus, size = gpus_of(settings), sweep.server.tp_size
    slots = local_slots(gpus, size, settings.slots)
    if not slots:
        raise UsageError(f"--tp-size {size} is more than the GPUs there are: {', '.join(gpus)}")
    return LocalEngine(slots, environment)


def gpus_of(settings: SweepSettings) -> list[str]:
    """Those that the user names; else those that this process may see; else all of this machine."""
    match settings.gpus:
        case None:
            pass
        case str() as text:
            return names(text) or []
        case int() as number:
            return [str(number)]
        case several:
            return [str(gpu) for gpu in several]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return names(visible) or []
    return _listed()


def _listed() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        told = subprocess.run(  # noqa: S603  found in the path, without anything of the user's
            [program, "--query-gpu=index", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LISTED_WITHIN_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return told.stdout.split() if told.returncode == 0 else []
