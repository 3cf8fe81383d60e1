"""From a sweep's settings to the sweep: checkpoints, tasks, judge, and the engine that runs its workers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from coeval.benchmarks.run.eval_choice import (
    check_task_names,
    make_evaluation,
    normalise_task_name,
    read_task_options,
)
from coeval.benchmarks.run.eval_settings import EvalSettings, SharedSettings, split_names
from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.benchmarks.task_registry import TASKS, benchmark_class
from coeval.core.errors import UsageError
from coeval.core.options import NO_JUDGE, TASK_OPTION, spell
from coeval.core.settings import read_settings
from coeval.models.keys import Keys
from coeval.sweeps.checkpoints import STEP, Checkpoint, CheckpointPlaces, CheckpointWatch, refuse_doubles
from coeval.sweeps.engine import LocalEngine, SweepEngine, local_slots, open_ray, open_slurm
from coeval.sweeps.server_command import MergeCommand, ServerCommand
from coeval.sweeps.sweep import PATH, JobPlan, Sweep, job_plan, queue_of
from coeval.sweeps.sweep_settings import SweepSettings, counts, steps
from coeval.sweeps.worker_files import Server

# --- Checkpoint places and servers


def places_of(settings: SweepSettings) -> CheckpointPlaces:
    """
    Raises UsageError: no checkpoint is named.
    """
    given = settings.checkpoints
    listed: list[Checkpoint] = []
    folder: Path | None = None
    if isinstance(given, str | Path):
        folder = Path(given).absolute()
    else:
        listed += [_checkpoint(each["step"], each["path"]) for each in given or ()]
    if settings.base_model is not None:
        listed.append(_checkpoint(0, settings.base_model))
    queue = None if settings.out is None else queue_of(Path(settings.out))
    is_queued = settings.watch or (queue is not None and any(queue.glob("step_*.json")))
    if folder is None and not listed and not is_queued:
        raise UsageError(
            f"no checkpoint is named; give their folder ({spell('checkpoints')} DIR), or a list of step "
            "and path in a file (--config)"
        )
    only, merged = tuple(steps(settings.steps) or ()), bool(settings.merge_command)
    return CheckpointPlaces(tuple(listed), folder, settings.name_pattern, only, queue, merged)


def _checkpoint(step: int, path: str) -> Checkpoint:
    """A folder is one checkpoint wherever the sweep is started; else it is a name at a hub."""
    return Checkpoint(step=step, path=str(Path(path).absolute()) if Path(path).is_dir() else path)


def watch_of(settings: SweepSettings, places: CheckpointPlaces) -> CheckpointWatch | None:
    if not settings.watch:
        if settings.until_step is not None:
            raise UsageError(f"{spell('until_step')} says when {spell('watch')} ends; give that too")
        return None
    if places.steps:
        watch, only = spell("watch"), spell("steps")
        raise UsageError(f"{watch} takes every step that appears; leave {only} out, or {watch}")
    return CheckpointWatch(places, settings.watch_interval, settings.until_step)


def refuse_ambiguous(sweep: Sweep, checkpoints: Sequence[Checkpoint], *, watched: bool = False) -> None:
    """``watched``: further checkpoints may come.

    Raises UsageError: checkpoints share a step, or it cannot be told which of the user's servers has which.
    """
    refuse_doubles(checkpoints)
    if not sweep.external:
        return
    open_steps = [each.step for each in checkpoints if each.step not in sweep.external]
    for_any = None in sweep.external
    external, served_name, watch = map(spell, ("external", "served_name", "watch"))
    if open_steps and not for_any:
        step = open_steps[0]
        raise UsageError(f"{external}: no server has step {step}; add {external} {step}=URL")
    if watched and not for_any:
        raise UsageError(
            f"{external}: no server has the steps to come; add {external} URL, or leave out {watch}"
        )
    if STEP in sweep.served_name or PATH in sweep.served_name:
        return
    if watched:
        raise UsageError(
            f"{external}: all checkpoints to come would be asked for under one name, {sweep.served_name}; "
            f"give {served_name} with {STEP}, or leave out {watch}"
        )
    if len(open_steps) > 1:
        raise UsageError(
            f"{external}: {len(open_steps)} checkpoints would be asked for under one name, "
            f"{sweep.served_name}; say which server has which ({external} {open_steps[0]}=URL), or give "
            f"{served_name} with {STEP}"
        )


# --- From settings to a sweep

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


class SweepRequest(NamedTuple):
    """What a start of a sweep is to do, made once of its ``settings``: the ``sweep`` with the ``plan`` of its
    jobs, and where its checkpoints are; ``watch``: new ones too."""

    settings: SweepSettings
    keys: Keys
    sweep: Sweep
    plan: JobPlan
    places: CheckpointPlaces
    watch: CheckpointWatch | None


def sweep_request(settings: SweepSettings, keys: Keys) -> SweepRequest:
    """
    Raises UsageError: something is lacking, contradicts something else, or is not there.
    """
    if settings.out is None:
        out = spell("out")
        raise UsageError(f"{out} is missing: the folder that takes the results, such as {out} outputs/run_a")
    external = _external(settings)
    if external and settings.swap:
        raise UsageError(
            f"{spell('swap')} is for servers that the sweep starts; leave out {spell('external')}"
        )
    if settings.merge_command and external:
        merge, served = spell("merge_command"), spell("external")
        raise UsageError(
            f"{merge} merges what the sweep serves, and {served} serves by itself; leave one out"
        )
    if settings.merge_command:
        MergeCommand(settings.merge_command)
    command = ServerCommand(settings.server_command)
    evaluation = _evaluation(settings, external, keys)
    _refuse_lacking_judge(evaluation, settings)
    sweep = Sweep(
        evaluation=evaluation,
        served_name=settings.served_name or (PATH if command.serves_path and not external else _SERVED_NAME),
        shards=settings.shards,
        server=None if external else _server(settings, command),
        external=external,
        key_variable=KEY_VARIABLE if settings.api_key else "",
        logs=None if settings.log_dir is None else Path(settings.log_dir),
        vouched=bool(external and settings.served_name and STEP not in settings.served_name),
    )
    places, plan = places_of(settings), job_plan(sweep, judges=settings.judge)
    return SweepRequest(settings, keys, sweep, plan, places, watch_of(settings, places))


def _evaluation(
    settings: SweepSettings, external: Mapping[int | None, Sequence[str]], keys: Keys
) -> EvalSpec:
    """What every checkpoint is asked; the key of its servers goes by the environment."""
    samples = samples_of(settings)
    shared = {name: getattr(settings, name) for name in read_settings(SharedSettings)}
    requested = EvalSettings(
        **{**shared, "api_key": None, "task_options": _options(settings)},
        tasks=list(samples),
        model=_SERVED_NAME,
        output_dir=settings.out or "",
        base_url=next((url for urls in external.values() for url in urls), None),
        judge_model=settings.judge_model,
        judge_base_url=settings.judge_base_url,
        judge_api_key=settings.judge_api_key,
    )
    evaluation = make_evaluation(requested, keys)
    tasks = tuple(
        msgspec.structs.replace(request, runs=tuple(range(samples[request.name])))
        for request in evaluation.tasks
    )
    return msgspec.structs.replace(evaluation, tasks=tasks)


def _options(settings: SweepSettings) -> dict[str, object]:
    """The options of tasks, but for answers that are there already: a sweep asks its checkpoints."""
    values = read_task_options(settings)
    for row in TASKS.values():
        if row.responses is not None and values[row.responses.name] is not None:
            name = row.responses.name
            raise UsageError(f"{TASK_OPTION} {name}: a sweep asks its checkpoints; leave it out")
    return values


def samples_of(settings: SweepSettings) -> dict[str, int]:
    """The tasks, each with the number of its samples.

    Raises UsageError: there is no such task, or no such number.
    """
    given = settings.tasks
    numbers: dict[str, int] = {}
    if isinstance(given, Mapping):
        numbers = dict(given)
    tasks = check_task_names(SAMPLES if given is None else split_names(given))
    more = settings.n_samples or {}
    if isinstance(more, str) and more.strip().isdecimal():
        more = int(more)
    if isinstance(more, int):
        more = dict.fromkeys(tasks, more)
    numbers |= counts(more) if isinstance(more, str) else more
    numbers = {normalise_task_name(name): number for name, number in numbers.items()}
    flag = spell("n_samples")
    for name, number in numbers.items():
        if name not in tasks:
            raise UsageError(f"{flag} names {name}, which is not among the tasks: {', '.join(tasks)}")
        if number < 1:
            raise UsageError(f"{flag} {name}={number}: give a number above 0")
    return {name: numbers.get(name, SAMPLES.get(name, 1)) for name in tasks}


def _external(settings: SweepSettings) -> dict[int | None, tuple[str, ...]]:
    """URLs of the user's servers by step, or by None for any."""
    given, found = settings.external, dict[int | None, tuple[str, ...]]()
    for text in [given] if isinstance(given, str) else given:
        step, sign, url = text.partition("=")
        at = int(step) if sign and step.isascii() and step.isdigit() else None
        found[at] = (*found.get(at, ()), url if at is not None else text)
    return found


def _server(settings: SweepSettings, command: ServerCommand) -> Server:
    """
    Raises UsageError: it is to load adapters where it cannot do that, or each checkpoint is a job.
    """
    serves_adapters = settings.swap is not None
    if serves_adapters and settings.engine != "local":
        swap, engine = spell("swap"), spell("engine")
        raise UsageError(
            f"{swap} lora needs {engine} local: with {engine} {settings.engine}, each checkpoint is a job "
            f"that starts its own server; leave {swap} out"
        )
    if serves_adapters and command.loads_at_will:
        raise UsageError(f"{spell('swap')} lora: `transformers serve` cannot do that; vllm and sglang can")
    return Server(
        template=command.for_adapters if serves_adapters else command.text,
        checkpoint="",
        name="",
        tp_size=settings.tp_size,
        passed=tuple(split_names(settings.server_env)),
        serves_adapters=serves_adapters,
        start_timeout_s=settings.start_timeout,
    )


def _refuse_lacking_judge(evaluation: EvalSpec, settings: SweepSettings) -> None:
    judged = [request.name for request in evaluation.tasks if benchmark_class(request.name).needs_judge]
    if not judged or not settings.judge:
        return
    model, url = spell("judge_model"), spell("judge_base_url")
    if settings.judge_model is None:
        raise UsageError(
            f"{', '.join(judged)}: a judge is needed, and the server of a checkpoint is not there any more "
            f"when its answers are judged; name one with {model} and {url}, leave them out of "
            f"{spell('tasks')}, or judge later: {NO_JUDGE}"
        )
    if settings.judge_base_url is None:
        raise UsageError(
            f"{url} is missing: where {settings.judge_model} is served, such as {url} https://api.openai.com/v1"
        )


# `nvidia-smi` takes seconds where the driver has to wake; one that hangs counts as absent.
_LISTED_WITHIN_S = 20.0


def engine_of(request: SweepRequest, environment: Mapping[str, str]) -> SweepEngine:
    """
    Raises UsageError: a slot has more GPUs than there are, or the engine is not there.
    """
    settings, sweep = request.settings, request.sweep
    tp_size = sweep.server.tp_size if sweep.server is not None else 0
    match settings.engine:
        case "ray":
            return open_ray(tp_size, settings.slots, environment)
        case "slurm":
            folder = sweep.own_folder / "slurm"
            return open_slurm(tp_size, settings.slots, environment, folder, settings.slurm or {})
        case "local":
            return _local(settings, sweep, environment)


def absent_program(request: SweepRequest) -> str:
    """What to say where servers are to be started on this machine by a program that is not there; else
    empty."""
    server = request.sweep.server
    if server is None or request.settings.engine != "local":
        return ""
    program = ServerCommand(server.template).words[0]
    if "{" in program or shutil.which(program) is not None:
        return ""
    return (
        f"{program}, which is to start the servers, is not there; install it, or name another command: "
        f"{spell('server_command')}"
    )


def _local(settings: SweepSettings, sweep: Sweep, environment: Mapping[str, str]) -> LocalEngine:
    if sweep.server is None:
        servers = sum(map(len, sweep.external.values()))
        return LocalEngine(local_slots((), 1, settings.slots or servers), environment)
    gpus, size = gpus_of(settings), sweep.server.tp_size
    slots = local_slots(gpus, size, settings.slots)
    if not slots:
        raise UsageError(f"{spell('tp_size')} {size} is more than the GPUs there are: {', '.join(gpus)}")
    return LocalEngine(slots, environment, keeps=sweep.server.serves_adapters)


def gpus_of(settings: SweepSettings) -> list[str]:
    """Those that the user names; else those that this process may see; else all of this machine."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES") if settings.gpus is None else settings.gpus
    if given is None:
        return _listed()
    if isinstance(given, str):
        return split_names(given)
    return list(map(str, [given] if isinstance(given, int) else given))


def _listed() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        reported = subprocess.run(  # noqa: S603  found in the path, without anything of the user's
            [program, "--query-gpu=index", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LISTED_WITHIN_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return reported.stdout.split() if reported.returncode == 0 else []
