"""From a sweep's settings to the sweep: checkpoints found, tasks and judge named, slots counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.benchmarks.task_registry import PREFIX, TASKS, kind_of
from coeval.cli.commands.sweep.checkpoint_choice import places_of, watch_of
from coeval.cli.commands.sweep.sweep_flags import counts, names
from coeval.cli.eval_framework.spec_of_flags import evaluation_of, task_names
from coeval.cli.start_options import OnFail, ProbeMode
from coeval.core.errors import UsageError
from coeval.models.keys import Keys
from coeval.pipeline.config.findings import closest
from coeval.sweeps.checkpoint_places import CheckpointPlaces, CheckpointWatch
from coeval.sweeps.checkpoints import STEP
from coeval.sweeps.leg import Server
from coeval.sweeps.servers.server_command import DEFAULT, ServerCommand
from coeval.sweeps.sweep import PATH, Sweep, SweepPhases
from coeval.sweeps.sweep_settings import SweepSettings

__all__ = ["KEY_VARIABLE", "AskedFor", "asked_for"]

KEY_VARIABLE = "COEVAL_SWEEP_API_KEY"
"""The environment variable that takes ``--api-key`` to the legs, since it may stand in no file."""
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
"""What goes to `eval-framework`'s own reading as it is; the values are its defaults."""


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
        passed=tuple(passed.split(",")) if isinstance(passed, str) else tuple(passed),
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
