"""The flags that tasks bring to the command, and its help, which shows them task by task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from coeval.benchmarks.task_registry import TASKS, TaskOption
from coeval.cli.command_names import telling_no_key
from coeval.core.errors import UsageError

__all__ = ["GroupedByTask", "with_task_options"]


class GroupedByTask(TyperCommand):
    """A command whose help has a section for each task's options."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        with telling_no_key():
            return super().make_context(*arguments, **more)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            shown = parameter.get_help_record(ctx)
            if shown is not None:
                group = getattr(parameter, "rich_help_panel", None) or "Options"
                sections.setdefault(group, []).append(shown)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def with_task_options(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` as Typer reads it: in the place of its ``**`` stand the options of all tasks.

    Raises
    ------
    UsageError
        another package's benchmark cannot be used, or brings an option that is there already.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters = {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind is not Parameter.VAR_KEYWORD
    }
    for task, option in _declared():
        if option.parameter in parameters:
            raise UsageError(
                f"the task {task} brings the option {option.flag}, which is there already; rename it in the "
                f"package of {TASKS[task].place}, or remove that package"
            )
        parameters[option.parameter] = _parameter(task, option)

    @wraps(command)
    def with_all(**flags: Any) -> None:
        command(**flags)

    read_by_typer: Any = with_all
    read_by_typer.__signature__ = signature.replace(parameters=list(parameters.values()))
    return with_all


def _declared() -> Iterator[tuple[str, TaskOption]]:
    return ((task, option) for task, row in TASKS.items() for option in row.options)


def _parameter(task: str, option: TaskOption) -> Parameter:
    kind: Any = option.kind if option.default is not None else option.kind | None
    shown = typer.Option(
        option.flag,
        help=option.help,
        metavar=option.metavar,
        show_default=option.shown_default or True,
        rich_help_panel=f"Options of {task}",
    )
    return Parameter(
        option.parameter, Parameter.KEYWORD_ONLY, default=option.default, annotation=Annotated[kind, shown]
    )
