"""The flags of a command, made from a record of settings and from the options of tasks; help in groups."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial, wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from typer.core import TyperCommand

from coeval.benchmarks.task_registry import TASKS, TaskOption
from coeval.cli.command_names import Commands, telling_no_key
from coeval.core.errors import UsageError
from coeval.core.settings import Declared, Setting, list_by_group, read_settings, strip_range

OTHERS = "Options"
"""The section of ``--help`` for what belongs to the command line alone."""


class GroupedHelp:
    """Shows the options of a command in sections: by their group, and the rest last."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        parameters: list[Any] = self.get_params(ctx)  # type: ignore[attr-defined]
        for parameter in parameters:
            shown = parameter.get_help_record(ctx)
            if shown is not None:
                rest = "Arguments" if parameter.param_type_name == "argument" else OTHERS
                group = getattr(parameter, "rich_help_panel", None) or rest
                sections.setdefault(group, []).append(shown)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


class GroupedCommand(GroupedHelp, TyperCommand):
    """A command of its own."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        with telling_no_key():
            return super().make_context(*arguments, **more)


class GroupedCommands(GroupedHelp, Commands):
    """A group that is a command too."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def with_settings(
    record: type[msgspec.Struct], *, of_tasks: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command whose ``**`` stands for the flags of all fields of ``record``, in the order of their
    groups. With ``of_tasks`` the options of all tasks stand in the place of ``--task-option``.

    Raises UsageError: another package's benchmark cannot be used, or brings an option that is there already.
    """

    def made(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [part for part in signature.parameters.values() if part.kind is not Parameter.VAR_KEYWORD]
        shown = [field for field in list_by_group(record) if not field.setting.only_key]
        made_of = [_parameter(field) for field in shown if not (of_tasks and field.name == "task_options")]
        only_here = [part.replace(kind=Parameter.KEYWORD_ONLY) for part in own]
        parameters = {part.name: part for part in (*made_of, *only_here)}
        for task, option in _options() if of_tasks else ():
            if option.parameter in parameters:
                raise UsageError(
                    f"the task {task} brings the option {option.flag}, which is there already; rename it in "
                    f"the package of {TASKS[task].place}, or remove that package"
                )
            parameters[option.parameter] = _parameter_of_task(task, option)

        @wraps(command)
        def with_all(**flags: Any) -> None:
            command(**flags)

        read_by_typer: Any = with_all
        read_by_typer.__signature__ = signature.replace(parameters=list(parameters.values()))
        return with_all

    return made


def set_flags(context: typer.Context, record: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the settings that the user gave as flags, by the record's names."""
    values: Mapping[str, Any] = {
        name: value for name, value in context.params.items() if _is_given(context, name)
    }
    found = {name: value for name, value in values.items() if name in read_settings(record)}
    of_tasks = {
        option.name: values[option.parameter] for _, option in _options() if option.parameter in values
    }
    return found | ({"task_options": of_tasks} if of_tasks else {})


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _options() -> Iterator[tuple[str, TaskOption]]:
    return ((task, option) for task, row in TASKS.items() for option in row.options)


def _parameter(field: Declared) -> Parameter:
    kind, setting = _kind(field), field.setting
    bounds = field.bounds if kind in (int, float) else msgspec.Meta()
    default = None if isinstance(field.default, tuple) else field.default
    names = field.flags
    if kind is bool and default:
        names = ("/".join((names[0], names[0].replace("--", "--" + "no-", 1))),)
    usual = None if setting.usual is None else f"{setting.usual}"
    option = typer.Option(
        *names,
        help=setting.help.format(tasks=", ".join(TASKS)) if "{tasks}" in setting.help else setting.help,
        metavar=setting.metavar,
        min=bounds.ge,
        max=bounds.le,
        parser=partial(_number_or_word, field.words) if field.words else None,
        show_default=setting.shown or usual or (default is not None and default is not False),
        rich_help_panel=setting.group,
    )
    return Parameter(
        field.name,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind if default is not None else kind | None, option],
    )


def _kind(field: Declared) -> Any:
    """The type of a flag: text with commas may stand for any list, and for a mapping."""
    kinds = [strip_range(kind) for kind in field.kinds]
    if field.words:
        return int
    if field.setting.repeated:
        return list[str]
    for kind in (Path, str):
        if kind in kinds:
            return kind
    [kind] = kinds
    return kind


def _number_or_word(words: Collection[str], text: str) -> int | str:
    try:
        return text if text in words else int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no whole number and not {' or '.join(words)}") from None


def _parameter_of_task(task: str, option: TaskOption) -> Parameter:
    said = Setting(
        option.help, f"Options of {task}", option.shown_default, None, option.metavar, (option.flag,)
    )
    return _parameter(Declared(option.parameter, option.default, said, (option.kind,)))
