"""Options that several commands have, with the same words."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["ExperimentFile", "KeyFile", "OnFail", "OnlyModels", "ProbeMode"]

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
