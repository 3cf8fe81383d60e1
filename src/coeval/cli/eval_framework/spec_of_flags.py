"""From the command line's flags to the evaluation that they ask for."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from yarl import URL

from coeval.benchmarks.run.eval_spec import EvalSpec, TaskRequest
from coeval.benchmarks.task_registry import PREFIX, TASKS, TaskOption, kind_of
from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.core.records import Purpose, SamplingParameters
from coeval.engine.probing import Probing
from coeval.models.batch.waiting.job_list import BatchMode
from coeval.models.catalog import HOSTS
from coeval.models.keys import Keys

Flags = Mapping[str, Any]
"""Option → value, by the names of the command's parameters."""

LOCAL = "huggingface"
USUAL: Mapping[str, Any] = {"temperature": 0.7, "top_p": 0.8, "top_k": 20}
"""What the tested model is sampled with where nobody says; it goes where its host refuses it."""
_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")
_TAKES_TOP_K = frozenset({"vllm", LOCAL, "simulated", "openrouter", "deepinfra"})


class Address(NamedTuple):
    """Who serves a model, and where."""

    interface: str
    base_url: str | None


def evaluation_of(flags: Flags, keys: Keys) -> EvalSpec:
    """What is asked for.

    Raises
    ------
    UsageError
        flags that contradict each other, an unknown task, a file that is not there.
    """
    names = task_names(flags)
    _check(flags, names)
    tested = _tested(flags)
    return EvalSpec(
        output=flags["output_dir"],
        tasks=tuple(_request(name, flags) for name in names),
        tested=tested,
        judge=_judge(flags, tested, keys),
        sampling=_sampling(flags, tested),
        droppable=tuple(name for name in USUAL if flags[name] is None),
        judge_sampling=SamplingParameters.of({name: flags[f"judge_{name}"] for name in _SAMPLING}),
        mode="inference" if flags["inference_only"] else "judge" if flags["judge_only"] else "all",
        seed=flags["seed"],
        checkpoint=flags["checkpoint"],
        max_calls=flags["max_calls"],
        budget_usd=flags["budget_usd"],
        batched=_batched(flags),
        batch_mode=BatchMode.SUBMIT if flags["no_wait"] else BatchMode.WAIT,
        probing=Probing(flags["probe"].value, flags["probe_on_fail"].value),
    )


def task_names(flags: Flags) -> tuple[str, ...]:
    """The tasks by name, each once; those with given responses where none is named."""
    given = [name.strip() for part in flags["tasks"] or () for name in part.split(",") if name.strip()]
    names = [name if name.startswith(PREFIX) else name.replace("_", "-") for name in given]
    names = names or list(_given_responses(flags))
    if not names:
        raise UsageError(f"name the tasks: --tasks {','.join(TASKS)} (or some of them, or {PREFIX}PATH)")
    for name in names:
        if name not in TASKS and not name.startswith(PREFIX):
            close = difflib.get_close_matches(name, TASKS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"tasks are {', '.join(TASKS)}, {PREFIX}PATH"
            raise UsageError(f"--tasks: there is no task {name!r}; {hint}")
    return tuple(dict.fromkeys(names))


def idle_options(flags: Flags, names: Iterable[str]) -> str | None:
    """A sentence about options of tasks that are not among ``names``, if there are any."""
    options = (option for task, row in TASKS.items() if task not in names for option in row.options)
    idle = [option.flag for option in options if flags[option.parameter] != option.default]
    return f"without effect, since their tasks are not among --tasks: {', '.join(idle)}" if idle else None


def _check(flags: Flags, names: Sequence[str]) -> None:
    for problem in _problems(flags, names):
        raise UsageError(problem)


def _problems(flags: Flags, names: Sequence[str]) -> Iterator[str]:
    given = _given_responses(flags)
    if flags["inference_only"] and flags["judge_only"]:
        yield "--inference-only and --judge-only exclude each other; give one of them"
    if flags["local"] and flags["base_url"] is not None:
        yield "--local loads the model in this process and --base-url names a server; give one of them"
    ruled = [name for name in names if name in TASKS and not kind_of(name).needs_judge]
    if flags["judge_only"] and ruled:
        yield (
            f"--judge-only: {', '.join(ruled)} are scored by rules, without a judge; leave them out "
            f"(given answers are scored with {' and '.join(o.flag for o in _taking_responses().values())})"
        )
    asking = [name for name in names if name not in given]
    if flags["model"] is None and asking and not (flags["judge_only"] and flags["judge_model"]):
        yield f"--model is needed for {', '.join(asking)}"
    for task in given.keys() - set(names):
        yield f"{_taking_responses()[task].flag} is given, and {task} is not among --tasks; add it"
    if flags["checkpoint"] is not None and flags["model"] is None:
        yield "--checkpoint says which one is served as --model; give that too"
    if given and flags["num_runs"] > 1:
        yield "--num-runs asks for several samples, and given responses are one; leave one of them out"


def _batched(flags: Flags) -> frozenset[Purpose]:
    wanted: dict[str, Purpose] = {"batch": "response_collection", "judge_batch": "evaluation"}
    return frozenset(phase for flag, phase in wanted.items() if flags[flag])


def _tested(flags: Flags) -> ModelSpec | None:
    model = flags["model"]
    if model is None:
        return None
    spec = _spec(flags, model, _served(flags, flags["base_url"]), flags["api_key"])
    threads = flags["num_threads"]
    return msgspec.structs.replace(spec, max_concurrency=threads, start_concurrency=threads)


def _judge(flags: Flags, tested: ModelSpec | None, keys: Keys) -> ModelSpec | None:
    """The judge, if it is another than the tested model; what is not said is as the model's."""
    url, key = flags["judge_base_url"], flags["judge_api_key"]
    if flags["judge_model"] is None and url is None and key is None:
        return None
    model = flags["judge_model"] or flags["model"]
    if model is None:
        raise UsageError("--judge-model is needed, since there is no --model that could judge")
    theirs = _served(flags, flags["base_url"])
    at = theirs if url is None else _address(url)
    if key is None and (at == theirs or keys.credential(at.interface, None) is None):
        key = flags["api_key"]
    spec = _spec(flags, model, at, key)
    if tested is None or tested.name != spec.name:
        return spec
    same = (spec.base_url, spec.access_key) == (tested.base_url, tested.access_key)
    return None if same else msgspec.structs.replace(spec, name=f"{spec.name} (judge)")


def _spec(flags: Flags, model: str, at: Address, key: str | None) -> ModelSpec:
    if at.interface == LOCAL and Path(model).is_dir():
        model = os.path.normpath(model)  # a folder is one model in any spelling
    return ModelSpec(
        name=model,
        interface=at.interface,
        model=model,
        base_url=at.base_url,
        access_key=key,
        timeout_s=flags["timeout"],
        options={"device": flags["device"]} if at.interface == LOCAL else {},
    )


def _served(flags: Flags, url: str | None) -> Address:
    return Address(LOCAL, None) if flags["local"] else _address(url)


def _address(url: str | None) -> Address:
    """The host that a URL is of, so that its key is found and its manners are known; else any server."""
    if url is None:
        return Address("vllm", HOSTS["vllm"].url)
    try:
        wanted = URL(url).host
    except ValueError:
        wanted = None  # what is wrong with it is said when it is opened
    for host in HOSTS.values():
        if host.needs_key and "{" not in host.url and URL(host.url).host == wanted is not None:
            # Without an address of its own the host's key is asked for before anything is sent.
            return Address(host.name, None if url.rstrip("/") == host.url else url)
    return Address("vllm", url)


def _sampling(flags: Flags, tested: ModelSpec | None) -> SamplingParameters:
    takes_top_k = tested is not None and tested.interface in _TAKES_TOP_K
    usual = {name: value for name, value in USUAL.items() if takes_top_k or name != "top_k"}
    wished = {name: flags[name] for name in _SAMPLING if flags[name] is not None}
    return SamplingParameters.of(usual | wished)


def _request(name: str, flags: Flags) -> TaskRequest:
    wanted = TaskRequest(name=name, runs=_runs(flags["num_runs"]), max_examples=flags["max_examples"])
    if name.startswith(PREFIX):
        return wanted
    row = TASKS[name]
    values = {option.name: flags[option.parameter] for option in row.options}
    responses = _given_responses(flags).get(name)
    if responses is not None and not responses.is_file():
        raise UsageError(f"{_taking_responses()[name].flag}: there is no file {responses}")
    given = kind_of(name).found_files(values) | row.given_files(values)
    return msgspec.structs.replace(wanted, given=given, options=values, responses=responses)


def _runs(count: int) -> tuple[int | None, ...]:
    return tuple(range(count)) if count > 1 else (None,)


def _taking_responses() -> dict[str, TaskOption]:
    """Task → its option for answers that are there already."""
    return {task: option for task, row in TASKS.items() if (option := row.responses) is not None}


def _given_responses(flags: Flags) -> dict[str, Path]:
    return {
        task: path
        for task, option in _taking_responses().items()
        if (path := flags[option.parameter]) is not None
    }
