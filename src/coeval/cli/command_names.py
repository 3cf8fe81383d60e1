"""Commands by name; for a misspelt one, those that this version has are suggested. What is typed wrongly is
told without what looks like a key.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from coeval.cli.ending import without_keys
from coeval.core.errors import UsageError
from coeval.core.options import ProbeMode
from coeval.core.plain import escape_lines

if TYPE_CHECKING:
    from typer._click.core import Command, Context, Parameter


# --- Log levels


LogLevel: TypeAlias = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


@contextmanager
def telling_no_key() -> Iterator[None]:
    """What the argument parser says of the words it was given loses what looks like a key."""
    try:
        yield
    except TyperException as error:
        said = error.message.replace("Value error, ", "")
        error.message = escape_lines(without_keys(said))
        raise


def _refuse_bare_word(path: str, command: Command, words: Sequence[str]) -> None:
    """Where the one option that a command cannot do without is lacking, and a word stands in its place, say
    how that is written."""
    if any(parameter.param_type_name == "argument" for parameter in command.params):
        return
    needed = [parameter.opts[0] for parameter in command.params if parameter.required]
    if len(needed) != 1 or not words or words[0].startswith("-"):
        return
    [option] = needed
    if not any(word == option or word.startswith(f"{option}=") for word in words):
        raise UsageError(f"{option} is missing; did you mean {path} {option} {quote(words[0])}?")


def _show_traces(level: LogLevel | None) -> None:
    if level is not None:
        logging.getLogger("coeval").setLevel(level)


def _bare(
    log_level: Annotated[
        LogLevel | None, typer.Option(hidden=True, expose_value=False, callback=_show_traces)
    ] = None,
) -> None:
    """A command that has nothing but the option."""


@cache
def _log_level() -> Parameter:
    """``--log-level``, which the message of a bug of ours recommends: for commands that write no log, whose
    help leaves it out."""
    app = typer.Typer(add_completion=False)
    app.command()(_bare)
    [option] = typer.main.get_command(app).params
    return option


class Commands(TyperGroup):
    """A group that leaves hidden commands, which are understood only to say what to use instead, out of
    its suggestions, and knows the commands of its own groups (``list`` for ``datasets list``)."""

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is None or command.hidden or isinstance(command, TyperGroup):
            return command
        if not any("--log-level" in parameter.opts for parameter in command.params):
            command.params.append(_log_level())
        return command

    def make_context(self, *arguments: Any, **more: Any) -> Context:
        with telling_no_key():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Context) -> Any:
        with telling_no_key():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """
        Raises UsageError: there is no such command, or it is given a value without its option.
        """
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            more = f"{ctx.command_path} --help lists them"
            raise UsageError(f"there is no command {args[0]}; {self._hint(args[0])} ({more})")
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None:
            _refuse_bare_word(f"{ctx.command_path} {name}", command, rest)
        return name, command, rest

    def _hint(self, name: str) -> str:
        known = dict(self._known())
        if near := get_close_matches(name, known, n=1):
            return f"did you mean {known[near[0]]}?"
        return f"there are {', '.join(path for word, path in known.items() if word == path)}"

    def _known(self) -> Iterator[tuple[str, str]]:
        """Each word that names a command, with the command in full; those of this group win."""
        shown = {name: command for name, command in self.commands.items() if not command.hidden}
        for name, command in shown.items():
            if isinstance(command, TyperGroup):
                yield from ((below, f"{name} {below}") for below in command.commands if below not in shown)
        yield from ((name, name) for name in shown)


# --- Options that several commands share

RunWord = Annotated[
    Path | None,
    typer.Argument(metavar="RUN", help="The run folder, or --run. Example: ./runs/quickstart"),
]
RunFolder = Annotated[Path | None, typer.Option("--run", help="The same as RUN.")]
"""A command that is about one folder takes both, so that nobody has to remember which: see `the_folder`."""


def the_folder(word: Path | None, run: Path | None, command: str) -> Path:
    """Return the one folder that a command was given, as a word or by ``--run``.

    Raises UsageError: there is none, or there are two.
    """
    if word is not None and run is not None and word != run:
        raise UsageError(f"coeval {command} is about one folder, and was given two: leave out RUN or --run")
    folder = run or word
    if folder is None:
        raise UsageError(f"no folder is given: coeval {command} RUN, such as ./runs/quickstart")
    return folder


def names_in(text: str | None) -> tuple[str, ...]:
    """The names of a list with commas; none where there is no list."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


ExperimentFile = Annotated[
    Path, typer.Option("--config", help="The experiment file. Example: --config my.yaml")
]
KeyFile = Annotated[
    Path | None, typer.Option("--keys", help="Key file, read first. Example: --keys ~/work.keys.yaml")
]
OnlyModels = Annotated[
    str | None,
    typer.Option(
        "--only-models", help="Only work that these models take part in. Example: --only-models gpt-4o,llama"
    ),
]
Probe = Annotated[
    ProbeMode | None,
    typer.Option("--probe", help="Which models to probe first; answer: all, by a one-token request each."),
]
ProbeOnFail = Annotated[
    Literal["abort", "warn"] | None,
    typer.Option("--probe-on-fail", help="What to do if a probed model does not answer."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document.")]
ComparedStudents = Annotated[
    str | None,
    typer.Option(
        "--students",
        metavar="X,Y",
        help="Of one run, these students, the base first; of several folders, the student of each, or one "
        "for all.",
    ),
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one. Example: --port 8080")
]
OpenIt = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
NoToken = Annotated[
    bool,
    typer.Option("--no-token", help="Let every user of this machine in, without a token."),
]
