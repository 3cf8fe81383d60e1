"""Flags of the commands of `coeval sweep` that give a name to a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from coeval.core.errors import UsageError


def folders(texts: Sequence[str], flag: str) -> dict[str, Path]:
    """``NAME=DIR`` of each, by name in order.

    Raises
    ------
    UsageError
        one has another form, a name stands twice, or there is no such folder.
    """
    found: dict[str, Path] = {}
    for text in texts:
        name, sign, folder = text.partition("=")
        if not (name and sign and folder):
            raise UsageError(f"{flag} {text}: give a name and a folder, for example {flag} a=outputs/a")
        if name in found:
            raise UsageError(f"{flag} {text}: the name {name} already refers to {found[name]}")
        if not Path(folder).is_dir():
            raise UsageError(f"{flag} {text}: there is no folder {folder}")
        found[name] = Path(folder)
    return found


def patterns(texts: Sequence[str], runs: Mapping[str, Path]) -> dict[str, str]:
    """``NAME=step_{step}`` of each, by name.

    Raises
    ------
    UsageError
        one has another form, or names a run that is not given.
    """
    found = {}
    for text in texts:
        name, sign, pattern = text.partition("=")
        if not (sign and "{step}" in pattern):
            example = "--name-pattern run_a=step_{step}"
            raise UsageError(f"--name-pattern {text}: give a run and a pattern, for example {example}")
        if name not in runs:
            raise UsageError(f"--name-pattern {text}: there is no --runs {name}=…; given: {', '.join(runs)}")
        found[name] = pattern
    return found
