"""From settings to an evaluation: look up tasks, place models, refuse mistakes."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from yarl import URL

from coeval.benchmarks.benchmark import OptionValues
from coeval.benchmarks.run.eval_settings import EvalSettings, SharedSettings, split_names
from coeval.benchmarks.run.eval_spec import EvalSpec, TaskRequest
from coeval.benchmarks.task_registry import PREFIX, TASKS, TaskOption, benchmark_class
from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec, judge_name
from coeval.core.options import TASK_OPTION, spell
from coeval.core.records import Purpose, SamplingParameters
from coeval.core.settings import values_for_none
from coeval.engine.probing import Probing
from coeval.models.batch.job_list import BatchMode
from coeval.models.catalog import HOSTS
from coeval.models.keys import Keys
from coeval.models.local.local_transformers import ENGINE_OPTIONS
from coeval.pipeline.config.findings import closest_word

LOCAL = "huggingface"
_BATCHED: Mapping[Purpose, str] = {"response_collection": "batch", "evaluation": "judge_batch"}
_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")
_TAKES_TOP_K = frozenset({"vllm", LOCAL, "simulated", "openrouter", "deepinfra"})


class Address(NamedTuple):
    """Server of a model."""

    interface: str
    base_url: str | None


def make_evaluation(settings: EvalSettings, keys: Keys) -> EvalSpec:
    """Make the evaluation that the settings describe. Raises UsageError: settings contradict each other, or
    name an unknown task or an absent file."""
    options = read_task_options_by_name(settings)
    names = normalise_and_check_task_names(split_names(settings.tasks) or _response_files_by_task(options))
    for problem in _find_problems(settings, names, options):
        raise UsageError(problem)
    tested = _tested_spec(settings)
    return EvalSpec(
        output=Path(settings.output_dir),
        tasks=tuple(_make_request(name, settings, options) for name in names),
        tested=tested,
        judge=_separate_judge_spec(settings, tested, keys),
        sampling=_choose_sampling(settings, tested),
        droppable=tuple(name for name in values_for_none(EvalSettings) if getattr(settings, name) is None),
        judge_sampling=SamplingParameters.of(
            {name: getattr(settings, f"judge_{name}") for name in _SAMPLING}
        ),
        mode="inference" if settings.inference_only else "judge" if settings.judge_only else "all",
        seed=None if settings.seed == "none" else settings.seed,
        checkpoint=settings.checkpoint,
        max_calls=settings.max_calls,
        budget_usd=settings.budget_usd,
        batched=frozenset(phase for phase, flag in _BATCHED.items() if getattr(settings, flag)),
        batch_mode=BatchMode.SUBMIT if settings.no_wait else BatchMode.WAIT,
        probing=Probing(settings.probe, settings.probe_on_fail),
    )


# --- Tasks and their options


def normalise_task_name(name: str) -> str:
    """Normalise a task's name: ``arena_hard`` to ``arena-hard``; paths of runs are unchanged."""
    return name if name.startswith(PREFIX) else name.replace("_", "-")


def normalise_and_check_task_names(requested: Iterable[str]) -> tuple[str, ...]:
    """Return the tasks' normalised names, each once. Raises UsageError: one is unknown, or none is named."""
    names = tuple(dict.fromkeys(map(normalise_task_name, requested)))
    if not names:
        raise UsageError(
            f"name the tasks: {spell('tasks')} {','.join(TASKS)} (or some of them, or {PREFIX}PATH)"
        )
    for name in names:
        if name not in TASKS and not name.startswith(PREFIX):
            close = difflib.get_close_matches(name, TASKS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"tasks are {', '.join(TASKS)}, {PREFIX}PATH"
            raise UsageError(f"{spell('tasks')}: there is no task {name!r}; {hint}")
    return names


def read_task_options_by_name(settings: SharedSettings) -> OptionValues:
    """Return every task option's value by name; raises UsageError: one is unknown, or of another kind."""
    options = {option.name: option for row in TASKS.values() for option in row.options}
    texts = settings.task_options or {}
    if not isinstance(texts, Mapping):
        texts = dict(part.partition("=")[::2] for part in texts)
    values = {name: option.default for name, option in options.items()}
    for name, value in texts.items():
        option = options.get(name.replace("_", "-").removeprefix("--"))
        if option is None:
            near = closest_word(name, options)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(options)}"
            raise UsageError(f"{TASK_OPTION} {name}: no task has such an option; {hint}")
        values[option.name] = _convert_option(option, value)
    return values


def _convert_option(option: TaskOption, value: Any) -> Any:
    if option.kind is bool and not isinstance(value, bool):
        switch = {"true": True, "": True, "false": False}.get(str(value).lower())
        if switch is None:
            raise UsageError(f"{TASK_OPTION} {option.name}={value}: give true or false")
        return switch
    try:
        return value if value is None else option.kind(value)
    except (TypeError, ValueError):
        kind = option.kind.__name__
        raise UsageError(f"{TASK_OPTION} {option.name}={value}: give {kind}") from None


def describe_idle_options(settings: EvalSettings, names: Iterable[str]) -> str | None:
    """Describe options of tasks that are not among ``names``, if any are set."""
    values = read_task_options_by_name(settings)
    options = (option for task, row in TASKS.items() if task not in names for option in row.options)
    idle = [option.flag for option in options if values[option.name] != option.default]
    if not idle:
        return None
    return f"without effect, since their tasks are not among {spell('tasks')}: {', '.join(idle)}"


def _response_options_by_task() -> dict[str, TaskOption]:
    return {task: option for task, row in TASKS.items() if (option := row.responses) is not None}


def _response_files_by_task(options: OptionValues) -> dict[str, Path]:
    return {
        task: options[option.name]
        for task, option in _response_options_by_task().items()
        if options[option.name] is not None
    }


def _make_request(name: str, settings: EvalSettings, options: OptionValues) -> TaskRequest:
    runs = tuple(range(settings.num_runs)) if settings.num_runs > 1 else (None,)
    request = TaskRequest(name=name, runs=runs, max_examples=settings.max_examples)
    if name.startswith(PREFIX):
        return request
    row = TASKS[name]
    values = {option.name: options[option.name] for option in row.options}
    responses = _response_files_by_task(options).get(name)
    if responses is not None and not responses.is_file():
        raise UsageError(f"{_response_options_by_task()[name].flag}: there is no file {responses}")
    files = benchmark_class(name).find_checkout_or_dataset_files(values) | row.own_files(values)
    return msgspec.structs.replace(request, given=files, options=values, responses=responses)


def _find_problems(settings: EvalSettings, names: Sequence[str], options: OptionValues) -> Iterator[str]:
    """Yield what in the settings contradicts itself or is missing, with the way out."""
    response_files = _response_files_by_task(options)
    if settings.inference_only and settings.judge_only:
        yield f"{spell('inference_only')} and {spell('judge_only')} exclude each other; give one of them"
    if settings.local and settings.base_url is not None:
        yield (
            f"{spell('local')} loads the model in this process and {spell('base_url')} names a server; "
            "give one of them"
        )
    ruled = [name for name in names if name in TASKS and not benchmark_class(name).needs_judge]
    if settings.judge_only and ruled:
        yield (
            f"{spell('judge_only')}: {', '.join(ruled)} are scored by rules, without a judge; leave them "
            f"out (given answers:  {' and '.join(o.flag for o in _response_options_by_task().values())})"
        )
    asking = [name for name in names if name not in response_files]
    if settings.model is None and asking and not (settings.judge_only and settings.judge_model):
        yield f"{spell('model')} is needed for {', '.join(asking)}"
    for task in response_files.keys() - set(names):
        flag = _response_options_by_task()[task].flag
        yield f"{flag} is given, and {task} is not among {spell('tasks')}; add it"
    if settings.checkpoint is not None and settings.model is None:
        yield f"{spell('checkpoint')} says which checkpoint is served as {spell('model')}; give that too"
    if response_files and settings.num_runs > 1:
        yield (
            f"{spell('num_runs')} asks for several samples, and given responses are one; leave one of them "
            "out"
        )


# --- Models, keys and sampling


def _tested_spec(settings: EvalSettings) -> ModelSpec | None:
    if settings.model is None:
        return None
    spec = _model_spec(settings, settings.model, _tested_address(settings), settings.api_key)
    threads = settings.num_threads
    return msgspec.structs.replace(spec, max_concurrency=threads, start_concurrency=threads)


def _separate_judge_spec(settings: EvalSettings, tested: ModelSpec | None, keys: Keys) -> ModelSpec | None:
    """Return the judge, if it is not the tested model; settings left out are the tested model's."""
    url, key = settings.judge_base_url, settings.judge_api_key
    if settings.judge_model is None and url is None and key is None:
        return None
    model = settings.judge_model or settings.model
    if model is None:
        raise UsageError(f"{spell('judge_model')} is needed, as no {spell('model')} could judge")
    theirs = _tested_address(settings)
    at = theirs if url is None else _find_address(url)
    if key is None and (at == theirs or keys.credential(at.interface, None) is None):
        key = settings.api_key
    spec = _model_spec(settings, model, at, key)
    if tested is None or tested.name != spec.name:
        return spec
    same = (spec.base_url, spec.access_key) == (tested.base_url, tested.access_key)
    return None if same else msgspec.structs.replace(spec, name=judge_name(spec.name))


def _model_spec(settings: EvalSettings, model: str, at: Address, key: str | None) -> ModelSpec:
    if at.interface == LOCAL and Path(model).is_dir():
        model = os.path.normpath(model)  # a folder is one model in any spelling
    local = {name: getattr(settings, name) for name in ("device", *ENGINE_OPTIONS)}
    return ModelSpec(
        name=model,
        interface=at.interface,
        model=model,
        base_url=at.base_url,
        access_key=key,
        timeout_s=settings.timeout,
        wait_s=settings.wait_for_server,
        options={name: value for name, value in local.items() if value is not None and at.interface == LOCAL},
    )


def _tested_address(settings: EvalSettings) -> Address:
    return Address(LOCAL, None) if settings.local else _find_address(settings.base_url)


def _find_address(url: str | None) -> Address:
    """Look up the known host of a URL, for its key; any other is an OpenAI-compatible server."""
    if url is None:
        return Address("vllm", HOSTS["vllm"].url)
    try:
        needed = URL(url).host
    except ValueError:
        needed = None  # what is wrong with it is said when it is opened
    for host in HOSTS.values():
        if host.needs_key and "{" not in host.url and URL(host.url).host == needed is not None:
            # Without an address of its own the host's key is asked for before anything is sent.
            return Address(host.name, None if url.rstrip("/") == host.url else url)
    return Address("vllm", url)


def _choose_sampling(settings: EvalSettings, tested: ModelSpec | None) -> SamplingParameters:
    assumed = dict(values_for_none(EvalSettings))
    if tested is None or tested.interface not in _TAKES_TOP_K:
        del assumed["top_k"]
    chosen = {name: getattr(settings, name) for name in _SAMPLING if getattr(settings, name) is not None}
    return SamplingParameters.of(assumed | chosen)
