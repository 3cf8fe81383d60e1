"""The flags that the commands of `coeval sweep` share: lists with commas, and names with values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from coeval.core.errors import UsageError


def names(text: str | None) -> list[str] | None:
    """``a,b`` as a list, each once; None without the flag."""
    if text is None:
        return None
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def steps(text: str | None) -> list[int] | None:
    """``120,240`` likewise.

    Raises
    ------
    UsageError
        one is no number.
    """
    found = names(text)
    if found is None:
        return None
    if wrong := [step for step in found if not (step.isascii() and step.isdigit())]:
        raise UsageError(f"--steps {wrong[0]}: steps are whole numbers, for example --steps 120,240,360")
    return sorted({int(step) for step in found})


def counts(text: str | None, flag: str) -> dict[str, int]:
    """``ifeval=8,arena-hard=1`` as numbers by name.

    Raises
    ------
    UsageError
        it is no such list.
    """
    found = {}
    for part in names(text) or ():
        name, sign, number = part.partition("=")
        if not (name and sign and number.isascii() and number.isdigit() and int(number)):
            raise UsageError(f"{flag} {part}: give a task and a number above 0, for example {flag} ifeval=8")
        found[name] = int(number)
    return found


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
            raise UsageError(f"{flag} {text}: the name {name} stands for {found[name]} already")
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
