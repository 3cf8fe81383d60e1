"""Makes a command's flags from a record of settings and from task options, with help in groups."""

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
from coeval.cli.command_names import Commands, redact_parser_errors
from coeval.core.errors import UsageError
from coeval.core.settings import Declared, Setting, list_settings_by_group, read_settings, strip_range

OTHERS = "Options"
"""The section of ``--help`` for what belongs to the command line alone."""


class GroupedHelp:
    """Lists the options of a command in sections: by their group, ungrouped ones last."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        parameters: list[Any] = self.get_params(ctx)  # type: ignore[attr-defined]
        for parameter in parameters:
            help_row = parameter.get_help_record(ctx)
            if help_row is not None:
                default_group = "Arguments" if parameter.param_type_name == "argument" else OTHERS
                group = getattr(parameter, "rich_help_panel", None) or default_group
                sections.setdefault(group, []).append(help_row)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


class GroupedCommand(GroupedHelp, TyperCommand):
    """A command with grouped help."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        with redact_parser_errors():
            return super().make_context(*arguments, **more)


class GroupedCommands(GroupedHelp, Commands):
    """A group that is itself a command."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def with_settings_flags(
    record: type[msgspec.Struct], *, task_flags: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces a command's ``**`` by flags for all fields of ``record``, by group.
    With ``task_flags`` the options of all tasks replace ``--task-option``. Raises UsageError: another
    package's benchmark cannot be used, or brings an option that exists already."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        """Give the command a signature with all flags, which Typer reads."""
        signature = inspect.signature(command, eval_str=True)
        own = [part for part in signature.parameters.values() if part.kind is not Parameter.VAR_KEYWORD]
        fields = [field for field in list_settings_by_group(record) if not field.setting.only_key]
        from_record = [
            _make_parameter(field) for field in fields if not (task_flags and field.name == "task_options")
        ]
        keyword_only = [part.replace(kind=Parameter.KEYWORD_ONLY) for part in own]
        parameters = {part.name: part for part in (*from_record, *keyword_only)}
        for task, option in _list_task_options() if task_flags else ():
            if option.parameter in parameters:
                raise UsageError(
                    f"the task {task} brings the option {option.flag}, which exists already; rename it in "
                    f"the package of {TASKS[task].place}, or remove that package"
                )
            parameters[option.parameter] = _make_task_parameter(task, option)

        @wraps(command)
        def call(**flags: Any) -> None:
            command(**flags)

        read_by_typer: Any = call
        read_by_typer.__signature__ = signature.replace(parameters=list(parameters.values()))
        return call

    return decorate


def read_set_flags(context: typer.Context, record: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the settings that the user gave as flags, by the record's names."""
    values: Mapping[str, Any] = {
        name: value for name, value in context.params.items() if _is_given(context, name)
    }
    settings = {name: value for name, value in values.items() if name in read_settings(record)}
    of_tasks = {
        option.name: values[option.parameter]
        for _, option in _list_task_options()
        if option.parameter in values
    }
    return settings | ({"task_options": of_tasks} if of_tasks else {})


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _list_task_options() -> Iterator[tuple[str, TaskOption]]:
    return ((task, option) for task, row in TASKS.items() for option in row.options)


def _make_parameter(field: Declared) -> Parameter:
    """Make a Typer parameter of a setting, with its bounds, help and default."""
    kind, setting = _flag_type(field), field.setting
    bounds = field.bounds if kind in (int, float) else msgspec.Meta()
    default = None if isinstance(field.default, tuple) else field.default
    names = field.flags
    if kind is bool and default:
        names = ("/".join((names[0], names[0].replace("--", "--" + "no-", 1))),)
    default_text = None if setting.usual is None else f"{setting.usual}"
    option = typer.Option(
        *names,
        help=setting.help.format(tasks=", ".join(TASKS)) if "{tasks}" in setting.help else setting.help,
        metavar=setting.metavar,
        min=bounds.ge,
        max=bounds.le,
        parser=partial(_parse_number_or_word, field.words_for_integer) if field.words_for_integer else None,
        show_default=setting.shown or default_text or (default is not None and default is not False),
        rich_help_panel=setting.group,
    )
    return Parameter(
        field.name,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind if default is not None else kind | None, option],
    )


def _flag_type(field: Declared) -> Any:
    """Return the type of a flag: text with commas may be any list, and a mapping."""
    kinds = [strip_range(kind) for kind in field.kinds]
    if field.words_for_integer:
        return int
    if field.setting.repeated:
        return list[str]
    for kind in (Path, str):
        if kind in kinds:
            return kind
    [kind] = kinds
    return kind


def _parse_number_or_word(words: Collection[str], text: str) -> int | str:
    try:
        return text if text in words else int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number and not {' or '.join(words)}") from None


def _make_task_parameter(task: str, option: TaskOption) -> Parameter:
    setting = Setting(
        option.help, f"Options of {task}", option.shown_default, None, option.metavar, (option.flag,)
    )
    return _make_parameter(Declared(option.parameter, option.default, setting, (option.kind,)))
