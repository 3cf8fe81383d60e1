"""A task as the command knows it before any of its code is loaded: a row, with the flags that it brings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from coeval.core.errors import UsageError

__all__ = ["RESPONSES", "TaskOption", "TaskRow"]

RESPONSES = "responses"
"""What an option fills whose file holds the answers to score, so that nobody is asked."""


class TaskOption(msgspec.Struct, frozen=True, kw_only=True):
    """The flag ``--{name}``; a name begins with that of its task, so that no other task has it.

    ``kind`` is ``Path``, ``str``, ``int``, ``float`` or ``bool`` (a switch). ``fills`` is the asset that the
    file is read in place of, or `RESPONSES`; empty: the task finds the value in ``TaskSettings.options``.
    ``shown_default`` says in words what happens without it; ``metavar`` stands for the value in ``--help``.
    """

    name: str
    kind: type
    help: str
    default: Any = None
    fills: str = ""
    shown_default: str | None = None
    metavar: str | None = None

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def parameter(self) -> str:
        """Its name among the parameters of the command."""
        return self.name.replace("-", "_")

    def existing(self, path: Path) -> Path:
        """The file that the user named for it.

        Raises
        ------
        UsageError
            it is not there.
        """
        if not path.is_file():
            raise UsageError(
                f"{self.flag}: there is no file {path}; correct it, or leave it out to use the fetched one"
            )
        return path


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """A task's name, its ``options``, and the ``place`` of its `Benchmark`, as ``package.module:Class``."""

    name: str
    place: str
    options: tuple[TaskOption, ...] = ()

    @property
    def responses(self) -> TaskOption | None:
        """Its option for answers that are there already."""
        return next((option for option in self.options if option.fills == RESPONSES), None)

    def given_files(self, values: Mapping[str, Any]) -> dict[str, Path]:
        """The user's own files by asset, from the options' values by name.

        Raises
        ------
        UsageError
            one is not there.
        """
        return {
            option.fills: option.existing(path)
            for option in self.options
            if option.fills not in ("", RESPONSES) and (path := values[option.name]) is not None
        }
