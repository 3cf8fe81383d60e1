"""Commands by name, with suggestions for misspelt ones, and options that several commands share.

Messages about wrong arguments are redacted: a key may have been typed in the place of a name.
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

from coeval.cli.ending import redact_key_like_words
from coeval.core.errors import UsageError
from coeval.core.options import ProbeMode
from coeval.core.plain import escape_lines

if TYPE_CHECKING:
    from typer._click.core import Command, Context, Parameter

LogLevel: TypeAlias = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


@contextmanager
def redact_parser_errors() -> Iterator[None]:
    """Redact keys in the argument parser's messages while entered."""
    try:
        yield
    except TyperException as error:
        error.message = escape_lines(redact_key_like_words(error.message.replace("Value error, ", "")))
        raise


def _refuse_word_for_missing_option(path: str, command: Command, words: Sequence[str]) -> None:
    """Raise UsageError if a bare word is in the place of the only required option."""
    if any(parameter.param_type_name == "argument" for parameter in command.params):
        return
    required = [parameter.opts[0] for parameter in command.params if parameter.required]
    if len(required) != 1 or not words or words[0].startswith("-"):
        return
    [option] = required
    if not any(word == option or word.startswith(f"{option}=") for word in words):
        raise UsageError(f"{option} is missing; did you mean {path} {option} {quote(words[0])}?")


def _set_log_level(level: LogLevel | None) -> None:
    if level is not None:
        logging.getLogger("coeval").setLevel(level)


@cache
def _make_hidden_log_level_option() -> Parameter:
    """Make a hidden ``--log-level`` for commands without a log: messages about internal errors name it."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def has_only_the_flag(
        log_level: Annotated[
            LogLevel | None, typer.Option(hidden=True, expose_value=False, callback=_set_log_level)
        ] = None,
    ) -> None: ...

    [option] = typer.main.get_command(app).params
    return option


class Commands(TyperGroup):
    """A group that suggests similar commands, subcommands included (``list`` for ``datasets list``). Hidden
    commands, which only say what to use instead, are never suggested."""

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is None or command.hidden or isinstance(command, TyperGroup):
            return command
        if not any("--log-level" in parameter.opts for parameter in command.params):
            command.params.append(_make_hidden_log_level_option())
        return command

    def make_context(self, *arguments: Any, **more: Any) -> Context:
        with redact_parser_errors():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Context) -> Any:
        with redact_parser_errors():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Find the command; raises UsageError if there is none, or if a value lacks its option."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            more = f"{ctx.command_path} --help lists them"
            raise UsageError(
                f"there is no command {args[0]}; {self._suggest_or_list_commands(args[0])} ({more})"
            )
        name, command, words = super().resolve_command(ctx, args)
        if name is not None and command is not None:
            _refuse_word_for_missing_option(f"{ctx.command_path} {name}", command, words)
        return name, command, words

    def _suggest_or_list_commands(self, name: str) -> str:
        paths = dict(self._pair_words_with_command_paths())
        if near := get_close_matches(name, paths, n=1):
            return f"did you mean {paths[near[0]]}?"
        return f"there are {', '.join(path for word, path in paths.items() if word == path)}"

    def _pair_words_with_command_paths(self) -> Iterator[tuple[str, str]]:
        """Yield each word that names a command, with the full command; this group's own commands win."""
        visible = {name: command for name, command in self.commands.items() if not command.hidden}
        for name, command in visible.items():
            if isinstance(command, TyperGroup):
                yield from ((below, f"{name} {below}") for below in command.commands if below not in visible)
        yield from ((name, name) for name in visible)


# --- Options that several commands share

RunWord = Annotated[
    Path | None, typer.Argument(metavar="RUN", help="The run folder, or --run. Example: ./runs/quickstart")
]
RunFolder = Annotated[Path | None, typer.Option("--run", help="The same as RUN.")]
"""Commands about one folder take both, so that nobody has to remember which: see `require_folder`."""


def require_folder(word: Path | None, run: Path | None, command: str) -> Path:
    """Return the one folder given to a command, as a word or by ``--run``. Raises UsageError: none is given,
    or two are."""
    if word is not None and run is not None and word != run:
        raise UsageError(f"coeval {command} takes one folder, not two; leave out RUN or --run")
    folder = run or word
    if folder is None:
        raise UsageError(f"name a folder: coeval {command} RUN, such as ./runs/quickstart")
    return folder


def split_names(text: str | None) -> tuple[str, ...]:
    """Split a list at its commas; None is the empty list."""
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
        "--only-models", help="Only work that involves these models. Example: --only-models gpt-4o,llama"
    ),
]
Probe = Annotated[
    ProbeMode | None,
    typer.Option("--probe", help="Models to probe first; answer: all, with a one-token request each."),
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
        help="For one run, the students to compare, base first; for several folders, one student each, or "
        "one for all.",
    ),
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one. Example: --port 8080")
]
OpenIt = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
NoToken = Annotated[
    bool, typer.Option("--no-token", help="Let all users of this machine in, without a token.")
]
