"""Options and arguments that several commands have, with the same words."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from coeval.core.errors import UsageError

__all__ = [
    "ExperimentFile",
    "KeyFile",
    "OnFail",
    "OnlyModels",
    "ProbeMode",
    "RunFolder",
    "RunWord",
    "the_folder",
]

RunWord = Annotated[
    Path | None,
    typer.Argument(metavar="RUN", help="The run folder, or --run. Example: ./runs/quickstart"),
]
RunFolder = Annotated[Path | None, typer.Option("--run", help="The same as RUN.")]
"""A command that is about one folder takes both, so that nobody has to remember which: see `the_folder`."""


def the_folder(word: Path | None, run: Path | None, command: str) -> Path:
    """Return the one folder that a command was given, as a word or by ``--run``.

    Raises
    ------
    UsageError
        there is none, or there are two.
    """
    if word is not None and run is not None and word != run:
        raise UsageError(f"coeval {command} is about one folder, and was given two: leave out RUN or --run")
    folder = run or word
    if folder is None:
        raise UsageError(f"no folder is given: coeval {command} RUN, such as ./runs/quickstart")
    return folder


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


class ProbeMode(StrEnum):
    """Which models are tried before anything is asked of them."""

    FULL = "full"
    RESUME = "resume"
    DISABLE = "disable"


class OnFail(StrEnum):
    """What a model that does not answer its probe does."""

    ABORT = "abort"
    WARN = "warn"
