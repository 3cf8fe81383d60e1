"""`coeval wizard`: an experiment file, made by questions."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from coeval.cli.command_names import KeyFile


def wizard(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The file to write; without it you are asked. Example: --out my.yaml",
            metavar="FILE",
        ),
    ] = None,
    keys: KeyFile = None,
) -> None:
    """Make an experiment file by answering questions.

    Each question has an answer that Return takes. Nobody is asked anything but you, and nothing is spent: the
    file says what comes next. Answers may come from a pipe, one a line.

    \b
    Examples:
      coeval wizard
      coeval wizard --out my.yaml

    \b
    Exit codes: 0 written, 1 wrong request, 130 interrupted (nothing is written).
    """
    from coeval.api import find_keys
    from coeval.cli import streams
    from coeval.cli.commands.interview import Questions, experiment_text, interview, place_of
    from coeval.cli.streams import say
    from coeval.store.jsonl import write_bytes_atomic

    console = streams.messages()
    questions = Questions(console)
    needed = interview(questions, find_keys(keys))
    place = place_of(questions, out, needed.name)
    write_bytes_atomic(place, experiment_text(needed).encode())
    say(console, f"Written: {place}. It can be edited; docs/configuration.md explains every key.")
    say(console, "What comes next:")
    for command, what in (
        ("describe", "the prompts, as they will be sent"),
        ("plan", "how many calls, and what they cost"),
        ("run", "the experiment"),
    ):
        say(console, f"  coeval {command} --config {quote(str(place))}   {what}")
