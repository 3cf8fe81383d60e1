"""From a sweep's settings to the sweep: checkpoints, tasks, judge, and the engine that runs its workers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from coeval.benchmarks.benchmark import OptionValues
from coeval.benchmarks.run.eval_choice import (
    make_evaluation,
    normalise_and_check_task_names,
    normalise_task_name,
    read_task_options_by_name,
)
from coeval.benchmarks.run.eval_settings import EvalSettings, SharedSettings, split_names
from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.benchmarks.task_registry import TASKS, benchmark_class
from coeval.core.errors import UsageError
from coeval.core.options import NO_JUDGE, TASK_OPTION, spell
from coeval.core.settings import read_settings
from coeval.models.keys import Keys
from coeval.sweeps.checkpoints import (
    STEP,
    Checkpoint,
    CheckpointPlaces,
    CheckpointWatch,
    refuse_duplicate_steps,
)
from coeval.sweeps.engine import LocalEngine, SweepEngine, join_or_start_ray, make_slots, open_slurm
from coeval.sweeps.server_command import FOR_ADAPTERS, MergeCommand, ServerCommand
from coeval.sweeps.sweep import PATH, JobPlan, Sweep, make_plan_without_checkpoints, queue_folder
from coeval.sweeps.sweep_settings import SweepSettings, parse_counts, parse_steps
from coeval.sweeps.worker_files import Server

# --- Checkpoint places and servers


def locate_checkpoints(settings: SweepSettings) -> CheckpointPlaces:
    """Return where the checkpoints are; raise UsageError if none is named."""
    checkpoints = settings.checkpoints
    listed: list[Checkpoint] = []
    folder: Path | None = None
    if isinstance(checkpoints, str | Path):
        folder = Path(checkpoints).absolute()
    else:
        listed += [_make_checkpoint(entry["step"], entry["path"]) for entry in checkpoints or ()]
    if settings.base_model is not None:
        listed.append(_make_checkpoint(0, settings.base_model))
    queue = None if settings.out is None else queue_folder(Path(settings.out))
    is_queued = settings.watch or (queue is not None and any(queue.glob("step_*.json")))
    if folder is None and not listed and not is_queued:
        raise UsageError(
            f"no checkpoint is named; give their folder ({spell('checkpoints')} DIR), or a list of step "
            "and path in a file (--config)"
        )
    only, to_merge = tuple(parse_steps(settings.steps) or ()), bool(settings.merge_command)
    return CheckpointPlaces(tuple(listed), folder, settings.name_pattern, only, queue, to_merge)


def _make_checkpoint(step: int, path: str) -> Checkpoint:
    """Make a checkpoint; a folder's path becomes absolute, any other is a name at a hub."""
    return Checkpoint(step=step, path=str(Path(path).absolute()) if Path(path).is_dir() else path)


def make_watch_if_asked(settings: SweepSettings, places: CheckpointPlaces) -> CheckpointWatch | None:
    if not settings.watch:
        if settings.until_step is not None:
            raise UsageError(f"{spell('until_step')} says when {spell('watch')} ends; give that too")
        return None
    if places.steps:
        watch, only = spell("watch"), spell("steps")
        raise UsageError(f"{watch} takes every step that appears; leave {only} out, or {watch}")
    return CheckpointWatch(places, settings.watch_interval, settings.until_step)


def refuse_unclear_servers(sweep: Sweep, checkpoints: Sequence[Checkpoint], *, watched: bool = False) -> None:
    """Raise UsageError if checkpoints share a step, or it is unclear which of the user's servers has which.
    ``watched``: further checkpoints may come."""
    refuse_duplicate_steps(checkpoints)
    if not sweep.external:
        return
    open_steps = [checkpoint.step for checkpoint in checkpoints if checkpoint.step not in sweep.external]
    external, served_name, watch = map(spell, ("external", "served_name", "watch"))
    if None not in sweep.external:
        for step in open_steps:
            raise UsageError(f"{external}: no server has step {step}; add {external} {step}=URL")
        if watched:
            raise UsageError(
                f"{external}: no server has the steps to come; add {external} URL, or leave out {watch}"
            )
    one_name = f"would be served under one name, {sweep.served_name}"
    if STEP in sweep.served_name or PATH in sweep.served_name:
        return
    if watched:
        raise UsageError(
            f"{external}: all checkpoints to come {one_name}; give {served_name} with {STEP}, or leave out "
            f"{watch}"
        )
    if len(open_steps) > 1:
        raise UsageError(
            f"{external}: {len(open_steps)} checkpoints {one_name}; say which server has which ({external} "
            f"{open_steps[0]}=URL), or give {served_name} with {STEP}"
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
    """What a start of a sweep is to do, derived from its ``settings``: the ``sweep`` with the ``plan`` of its
    jobs, and where its checkpoints are; ``watch``: new ones too."""

    settings: SweepSettings
    keys: Keys
    sweep: Sweep
    plan: JobPlan
    places: CheckpointPlaces
    watch: CheckpointWatch | None


def make_sweep_request(settings: SweepSettings, keys: Keys) -> SweepRequest:
    """Derive a sweep from its settings; raise UsageError if they lack or contradict something."""
    if settings.out is None:
        out = spell("out")
        raise UsageError(f"{out} is missing: the folder that takes the results, such as {out} outputs/run_a")
    external = _parse_server_urls(settings)
    served = spell("external")
    if external and settings.swap:
        raise UsageError(f"{spell('swap')} is for servers that the sweep starts; leave out {served}")
    if settings.merge_command and external:
        merge = f"{spell('merge_command')} merges what the sweep serves"
        raise UsageError(f"{merge}, and {served} serves by itself; leave one out")
    if settings.merge_command:
        MergeCommand(settings.merge_command)
    command = ServerCommand(settings.server_command)
    evaluation = _make_evaluation(settings, external, keys)
    _refuse_lacking_judge(evaluation, settings)
    sweep = Sweep(
        evaluation=evaluation,
        served_name=settings.served_name or (PATH if command.serves_path and not external else _SERVED_NAME),
        shards=settings.shards,
        server=None if external else _make_server(settings, command),
        external=external,
        key_variable=KEY_VARIABLE if settings.api_key else "",
        logs=None if settings.log_dir is None else Path(settings.log_dir),
        vouched=bool(external and settings.served_name and STEP not in settings.served_name),
    )
    places, plan = locate_checkpoints(settings), make_plan_without_checkpoints(sweep, judges=settings.judge)
    return SweepRequest(settings, keys, sweep, plan, places, make_watch_if_asked(settings, places))


def _make_evaluation(
    settings: SweepSettings, server_urls_by_step: Mapping[int | None, Sequence[str]], keys: Keys
) -> EvalSpec:
    """Make what every checkpoint is asked; its servers' key is passed by the environment."""
    samples = count_samples_by_task(settings)
    shared = {name: getattr(settings, name) for name in read_settings(SharedSettings)}
    requested = EvalSettings(
        **{**shared, "api_key": None, "task_options": _read_options_or_refuse_answers(settings)},
        tasks=list(samples),
        model=_SERVED_NAME,
        output_dir=settings.out or "",
        base_url=next((url for urls in server_urls_by_step.values() for url in urls), None),
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


def _read_options_or_refuse_answers(settings: SweepSettings) -> OptionValues:
    """Read the tasks' options; refuse those that name existing answers: a sweep asks its checkpoints."""
    values = read_task_options_by_name(settings)
    for name in (row.responses.name for row in TASKS.values() if row.responses is not None):
        if values[name] is not None:
            raise UsageError(f"{TASK_OPTION} {name}: a sweep asks its checkpoints; leave it out")
    return values


def count_samples_by_task(settings: SweepSettings) -> dict[str, int]:
    """Count the samples by task. Raises UsageError: there is no such task, or a number is below 1."""
    requested = settings.tasks
    numbers = dict(requested) if isinstance(requested, Mapping) else {}
    tasks = normalise_and_check_task_names(SAMPLES if requested is None else split_names(requested))
    more = settings.n_samples or {}
    if isinstance(more, str) and more.strip().isdecimal():
        more = int(more)
    if isinstance(more, int):
        more = dict.fromkeys(tasks, more)
    numbers |= parse_counts(more) if isinstance(more, str) else more
    numbers = {normalise_task_name(name): number for name, number in numbers.items()}
    flag = spell("n_samples")
    for name, number in numbers.items():
        if name not in tasks:
            raise UsageError(f"{flag} names {name}, which is not among the tasks: {', '.join(tasks)}")
        if number < 1:
            raise UsageError(f"{flag} {name}={number}: give a number above 0")
    return {name: numbers.get(name, SAMPLES.get(name, 1)) for name in tasks}


def _parse_server_urls(settings: SweepSettings) -> dict[int | None, tuple[str, ...]]:
    """Parse the URLs of the user's servers by step, or by None for any."""
    texts, urls = settings.external, dict[int | None, tuple[str, ...]]()
    for text in [texts] if isinstance(texts, str) else texts:
        number, sign, url = text.partition("=")
        step = int(number) if sign and number.isascii() and number.isdigit() else None
        urls[step] = (*urls.get(step, ()), url if step is not None else text)
    return urls


def _make_server(settings: SweepSettings, command: ServerCommand) -> Server:
    """Make the server's settings; raise UsageError if it is to swap adapters and cannot."""
    serves_adapters = settings.swap is not None
    if serves_adapters and settings.engine != "local":
        swap, engine = spell("swap"), spell("engine")
        raise UsageError(
            f"{swap} lora needs {engine} local: with {engine} {settings.engine}, each checkpoint is a job "
            f"that starts its own server; leave {swap} out"
        )
    if serves_adapters and command.loads_any_model:
        raise UsageError(f"{spell('swap')} lora: `transformers serve` cannot do that; vllm and sglang can")
    return Server(
        template=command.text + (FOR_ADAPTERS.get(command.text, "") if serves_adapters else ""),
        checkpoint="",
        name="",
        tp_size=settings.tp_size,
        passed=tuple(split_names(settings.server_env)),
        serves_adapters=serves_adapters,
        start_timeout_s=settings.start_timeout,
    )


def _refuse_lacking_judge(evaluation: EvalSpec, settings: SweepSettings) -> None:
    """Raise UsageError if a judged task has no judge, or the judge no server."""
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


def open_engine(request: SweepRequest, environment: Mapping[str, str]) -> SweepEngine:
    """Open the engine; raise UsageError if it is absent, or a slot has more GPUs than there are."""
    settings, sweep = request.settings, request.sweep
    tp_size = sweep.server.tp_size if sweep.server is not None else 0
    match settings.engine:
        case "ray":
            return join_or_start_ray(tp_size, settings.slots, environment)
        case "slurm":
            folder = sweep.own_folder / "slurm"
            return open_slurm(tp_size, settings.slots, environment, folder, settings.slurm or {})
        case "local":
            return _open_local_engine(settings, sweep, environment)


def explain_absent_program(request: SweepRequest) -> str:
    """Explain which program is absent that is to start servers on this machine; else empty."""
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


def _open_local_engine(settings: SweepSettings, sweep: Sweep, environment: Mapping[str, str]) -> LocalEngine:
    if sweep.server is None:
        servers = sum(map(len, sweep.external.values()))
        return LocalEngine(make_slots((), 1, settings.slots or servers), environment)
    gpus, size = list_gpus(settings), sweep.server.tp_size
    slots = make_slots(gpus, size, settings.slots)
    if not slots:
        raise UsageError(f"{spell('tp_size')} {size} is more than the GPUs there are: {', '.join(gpus)}")
    return LocalEngine(slots, environment, keeps=sweep.server.serves_adapters)


def list_gpus(settings: SweepSettings) -> list[str]:
    """List the GPUs that the user names; else those visible to this process; else all of this machine."""
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") if settings.gpus is None else settings.gpus
    if gpus is None:
        return _query_gpus()
    if isinstance(gpus, str):
        return split_names(gpus)
    return list(map(str, [gpus] if isinstance(gpus, int) else gpus))


def _query_gpus() -> list[str]:
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
