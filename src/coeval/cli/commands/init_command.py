"""`coeval init`: writes a new experiment file for what the user has, checked and priced first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, cast

import typer

from coeval.benchmarks.run.eval_settings import split_names
from coeval.benchmarks.task_registry import benchmark_class as kind_of_task
from coeval.cli import streams
from coeval.cli.command_names import KeyFile
from coeval.cli.commands.ingest_command import preview_and_import_items
from coeval.cli.commands.sweep.sweep_report import print_sweep_plan
from coeval.cli.ingest_flags import INIT_GROUPS, IngestFlags, InitFlags, InitKind
from coeval.cli.settings_flags import GroupedCommand, read_set_flags, with_settings_flags
from coeval.cli.streams import say, warn
from coeval.cli.views.description_view import preview_experiment
from coeval.core.errors import UsageError
from coeval.core.settings import read_settings
from coeval.core.text import join_names
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.models.keys import Keys, load_keys
from coeval.models.local.callables import require_callable_file
from coeval.pipeline.config.document import parse_document
from coeval.pipeline.config.load_file import read_config
from coeval.pipeline.config.names import find_name_problem
from coeval.pipeline.plan.estimate.run_estimate import summarise_estimate
from coeval.pipeline.upkeep.new_experiment import (
    FUNCTION,
    SIMULATED,
    NewExperiment,
    NewItems,
    NewModel,
    clean_task_name,
    experiment_from_table,
    simulated_models,
    write_experiment_text,
    write_sweep_text,
)
from coeval.store.jsonl import write_bytes_atomic
from coeval.sweeps.sweep_settings import SweepSettings
from coeval.tables.item_map import FieldPath, is_template
from coeval.tables.table_source import SourceChoice, find_source

KIND = GroupedCommand

ROLES = ("teacher", "student", "judge")
YAML_ENDINGS = (".yaml", ".yml")
# What a run of hosted models may spend until its owner says otherwise.
_BUDGET_USD = 5.0
_ANSWER_COLUMNS = ("response", "answer", "output", "completion")


def write_experiment_or_sweep_file(
    kind: InitKind, source: str | None, file: Path | None, flags: InitFlags, keys: Keys
) -> None:
    """Write the file of an experiment or a sweep, and print the next commands. Raises UsageError or
    ConfigError: the flags contradict each other or ``source``; nothing is written."""
    if source is None and kind is not InitKind.DESCRIPTION:
        raise UsageError(f"name your {kind}: coeval init {kind} SOURCE (--help has examples)")
    target = file or Path(f"{_default_file_stem(kind, source or '')}.yaml")
    if target.suffix not in YAML_ENDINGS:
        raise UsageError(f"FILE must end in .yaml, unlike {target}: coeval init {kind} SOURCE FILE")
    if target.exists():
        raise UsageError(f"{target} already exists; name another file: coeval init {kind} SOURCE FILE")
    if kind is InitKind.CHECKPOINTS:
        settings = _make_sweep_settings(source or "", flags)
        print_sweep_plan(SweepSettings(**settings))
        commands = {"sweep": "serves and evaluates each checkpoint; --dry-run counts again"}
        _write_file_and_print_commands(target, write_sweep_text(settings), commands)
        return
    if kind is InitKind.DESCRIPTION:
        new = _make_experiment_from_description(clean_task_name(target.stem) or "my-benchmark", source, flags)
    else:
        new = _make_experiment_from_items(kind, source or "", flags, target)
    hosted = any(model.interface not in (SIMULATED, FUNCTION) for model in new.models)
    text = write_experiment_text(replace(new, budget_usd=_BUDGET_USD if hosted else None))
    description = preview_experiment(read_config(parse_document(text, target)).config, keys)
    for sentence in description.warnings:
        if not sentence.startswith(f"{flags.items or source}:"):  # about the items: printed before
            warn(streams.messages(), sentence)
    for sentence in summarise_estimate(description.estimate):
        say(streams.results(), sentence)
    commands = {"describe": "the prompts, as they will be sent", "run": "the experiment"}
    _write_file_and_print_commands(target, text, commands)


def _default_file_stem(kind: InitKind, source: str) -> str:
    match kind:
        case InitKind.DESCRIPTION:
            return "my-benchmark"
        case InitKind.CHECKPOINTS:
            return "sweep"
        case InitKind.FUNCTION:
            source = source.rpartition(":")[0]
    return clean_task_name(Path(source).stem) or "items"


def _make_experiment_from_description(name: str, description: str | None, flags: InitFlags) -> NewExperiment:
    return NewExperiment(
        by="coeval init",
        name=name,
        task=name,
        description=description or "Answer a customer's message.",
        output="A short, complete answer in plain prose.",
        models=_parse_models_or_simulate(flags.model, ROLES),
    )


def _make_experiment_from_items(kind: InitKind, source: str, flags: InitFlags, target: Path) -> NewExperiment:
    """Read the table of items, and return the experiment with its student and models."""
    items = flags.items or source
    student = flags.student or ("mine" if kind is InitKind.ANSWERS else _default_file_stem(kind, source))
    if (problem := find_name_problem(student, is_model=True)) is not None:
        raise UsageError(f"--student: {problem}")
    roles = [*(["student"] if kind is InitKind.TABLE else []), *([] if flags.label else ["judge"])]
    models = _parse_models_or_simulate(flags.model, roles) if roles or flags.model else ()
    response = ""
    if kind is InitKind.ANSWERS:
        response = flags.response or _find_usual_answer_column(source, flags.encoding)
    elif kind is InitKind.FUNCTION:
        file, _, function = source.rpartition(":")
        if not file or not function:
            raise UsageError(f"{source}: name the function too, as in app.py:answer")
        if file.endswith(".py"):
            require_callable_file(source)  # which loads nothing
        if flags.items is None:
            raise UsageError("--items is missing: the table with the prompts that the function answers")
        models = (*models, NewModel(student, FUNCTION, student, None, ("student",), {"callable": source}))
    new_items = preview_and_import_items(
        items,
        IngestFlags(
            prompt=_as_flag_values(flags.prompt),
            reference=_as_flag_values(flags.reference),
            label=_as_flag_values(flags.label),
            id=_as_flag_values(flags.id),
            response=[f"{student}={response}"] if response and items == source else (),
            encoding=flags.encoding,
            skip_bad=flags.skip_bad,
            new=target,
            yes=True,
        ),
    )
    table = cast("NewItems", new_items)  # None of a dry run, or of a file that is there
    new = experiment_from_table("coeval init", target.stem, table, models)
    if not response or items == source:
        return new
    prompt = flags.answers_prompt or table.map.prompt
    columns = _read_table_columns(source, flags.encoding)
    if not is_template(prompt) and FieldPath.parse(prompt, columns).root not in columns:
        raise UsageError(
            f"which column of {source} holds the prompts? Name it with --answers-prompt COLUMN; there are "
            f"{join_names(columns, 30)}"
        )
    answers = {"path": source, "prompt": prompt, "response": response}
    encoding = {"encoding": flags.encoding} if flags.encoding else {}
    return replace(new, answered={student: {**answers, **encoding}})


def _as_flag_values(name: str | None) -> tuple[str, ...]:
    return () if name is None else (name,)


def _find_usual_answer_column(path: str, encoding: str | None) -> str:
    columns = _read_table_columns(path, encoding)
    for name in _ANSWER_COLUMNS:
        if name in columns:
            return name
    names = join_names(columns, 30)
    raise UsageError(f"which column holds the answers? Name it with --response COLUMN; {path} has {names}")


def _read_table_columns(path: str, encoding: str | None) -> Sequence[str]:
    table = next(find_source(SourceChoice(name=path, encoding=encoding)).open_tables())
    table.close()
    return table.columns


def _make_sweep_settings(checkpoints: str, flags: InitFlags) -> dict[str, Any]:
    tasks = flags.tasks or "ifeval"
    settings = {"checkpoints": checkpoints, "tasks": tasks, "out": f"outputs/{Path(checkpoints).name}"}
    if any(kind_of_task(name).needs_judge for name in split_names(tasks)):
        settings |= {"judge_model": "gpt-4.1", "judge_base_url": "https://api.openai.com/v1"}
    return settings


# --- Models

_MODEL = re.compile(r"([a-z_]+)/(.+?)(?:@(https?://[^\s=]+))?(?:=([a-z, ]+))?")


def _parse_models_or_simulate(texts: Sequence[str], roles: Sequence[str]) -> tuple[NewModel, ...]:
    """Parse models; without any, use simulated ones. The first model gets the ``roles`` that no other has."""
    if not texts:
        return simulated_models(roles)
    names: dict[str, int] = {}
    models = []
    for model in map(_parse_model, texts):
        count = names[model.name] = names.get(model.name, 0) + 1
        own = model.name if count == 1 else f"{model.name}-{count}"
        models.append(model._replace(name=own, roles=model.roles or tuple(roles) or ROLES[1:]))
    unfilled = {role for role in roles if not any(role in model.roles for model in models)}
    first = tuple(role for role in ROLES if role in {*models[0].roles, *unfilled})
    return (models[0]._replace(roles=first), *models[1:])


def _parse_model(text: str) -> NewModel:
    """Parse ``INTERFACE/MODEL[@URL][=ROLES]``; roles are empty if not named."""
    match = _MODEL.fullmatch(text)
    hosts = [name for name, host in HOSTS.items() if host.dialect not in ("benchmark", OWN_CODE)]
    if not match or match[1] not in hosts:
        interfaces = ", ".join(sorted(hosts))
        raise UsageError(
            f"--model {text}: write INTERFACE/MODEL, as in openai/gpt-4o-mini; interfaces: {interfaces}"
        )
    roles = {part.strip().rstrip("s") for part in (match[4] or "").split(",") if part.strip()}
    if not roles <= {*ROLES}:
        raise UsageError(f"--model {text}: the roles are {', '.join(ROLES)}, with commas between them")
    plain = re.sub(r"[^A-Za-z0-9.-]+", "-", match[2].rpartition("/")[2]).strip("-.")
    return NewModel(
        plain or match[1], match[1], match[2], match[3], tuple(role for role in ROLES if role in roles)
    )


# --- The file


def _write_file_and_print_commands(target: Path, text: str, purpose_by_command: dict[str, str]) -> None:
    write_bytes_atomic(target, text.encode())
    messages = streams.messages()
    say(messages, f"Written: {target}. Edit it as you like; docs/configuration.md explains every key.")
    say(messages, "Next:")
    for command, purpose in purpose_by_command.items():
        say(messages, f"  coeval {command} --config {quote(str(target))}   {purpose}")


@with_settings_flags(InitFlags)
def init(
    context: typer.Context,
    kind: Annotated[InitKind, typer.Argument(metavar="KIND", help="What you have.")],
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="The description, the table, the table of answers, the function (FILE.py:NAME), or the "
            "folder of checkpoints.",
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The file to write. Default: named after SOURCE.")
    ] = None,
    keys: KeyFile = None,
    **flags: Any,  # noqa: ARG001  the context has them, and which of them were given
) -> None:
    """Write an experiment file for your data, and price it.

    KIND is description, table, answers, function or checkpoints. The file has
    comments and is meant to be edited. No model is called; the file is checked
    and priced before it is written. `coeval wizard` is another name for this
    command.

    \b
    Examples:
      coeval init description "Answer a customer's message." my.yaml
      coeval init table tickets.csv --prompt text --label team
      coeval init answers log.csv --prompt question --response answer --student prod-v7
      coeval init function app.py:answer --items tickets.csv --prompt text
      coeval init checkpoints ckpts/run_a sweep.yaml --tasks ifeval,coeval:runs/quickstart

    \b
    Exit codes: 0 written, 1 usage error, 130 interrupted (nothing is written).
    """
    flags_given = read_set_flags(context, InitFlags)
    for name in flags_given:
        if (field := read_settings(InitFlags)[name]).setting.group not in INIT_GROUPS[kind]:
            raise UsageError(f"{field.flags[0]} does not apply to {kind}; see --help")
    if file is None and source is not None and Path(source).suffix in YAML_ENDINGS:
        file, source = Path(source), None
    write_experiment_or_sweep_file(kind, source, file, InitFlags(**flags_given), load_keys(keys))
