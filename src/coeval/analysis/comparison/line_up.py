"""Who is compared with whom: students of one run, or the models and students of several folders."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from coeval.analysis.comparison.side import Side, models_of, read_side
from coeval.analysis.readers.reader import Reader
from coeval.core.errors import UsageError
from coeval.core.options import STUDENTS
from coeval.core.text import listed

__all__ = ["line_up"]


def line_up(readers: Sequence[Reader], named: Sequence[str] = ()) -> list[list[Side]]:
    """The groups within which every two are compared, in the order of the folders and names.

    Of one folder, its students, or those that are ``named``. Of several, who answered in each: the one that
    is named for it (one name stands for all folders); without names, its only one, or else each student that
    is in all of them, against itself.

    Raises
    ------
    UsageError
        there are no two, or it is not clear which two; the message says who there is.
    """
    models = [models_of(reader) for reader in readers]
    if len(readers) == 1:
        [reader], [there] = readers, models
        if not there:
            raise UsageError(f"{reader.folder} holds no answers yet: there is nobody to compare")
        chosen = [_known(name, reader, there) for name in named] or list(there)
        if len(there) == 1:
            raise UsageError(
                f"{reader.folder} holds answers of {there[0] or 'one model'} alone: name a second folder to "
                "compare it with"
            )
        if len(set(chosen)) < 2:
            raise UsageError(
                f"{reader.folder} holds answers of {listed(there)}: name two students of it with "
                f"{STUDENTS}, or a second folder"
            )
        return [[read_side(reader, model, model) for model in dict.fromkeys(chosen)]]
    groups = _across(readers, models, named)
    return [
        [
            read_side(reader, model, label)
            for reader, model, label in zip(readers, group, _labels(readers, group, len(groups)), strict=True)
        ]
        for group in groups
    ]


def _across(
    readers: Sequence[Reader], models: Sequence[Sequence[str]], named: Sequence[str]
) -> list[list[str]]:
    """Of each group, the model in each folder."""
    if named:
        if len(named) not in (1, len(readers)):
            raise UsageError(
                f"{STUDENTS} names {len(named)} for {len(readers)} folders; name one for each, or one for all"
            )
        wanted = named if len(named) > 1 else list(named) * len(readers)
        each = zip(wanted, readers, models, strict=True)
        return [[_known(name, reader, there) for name, reader, there in each]]
    if all(len(there) == 1 for there in models):
        return [[there[0] for there in models]]
    everywhere = [name for name in models[0] if all(name in there for there in models)]
    if not everywhere:
        held = "; ".join(
            f"{r.folder}: {listed(there) or 'nobody'}" for r, there in zip(readers, models, strict=True)
        )
        raise UsageError(f"no student is in all folders ({held}); name one for each with {STUDENTS}")
    return [[name] * len(readers) for name in everywhere]


def _known(name: str, reader: Reader, there: Sequence[str]) -> str:
    if name in there:
        return name
    close = get_close_matches(name, there, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {listed(there) or 'none yet'}"
    raise UsageError(f"{STUDENTS}: {name}: {reader.folder} holds no answers of it; {hint}")


def _labels(readers: Sequence[Reader], group: Sequence[str], groups: int) -> list[str]:
    """The models' names where these tell them apart, else the folders' names, or both."""
    if len(set(group)) == len(group) and all(group):
        return list(group)
    names = [reader.folder.resolve().name for reader in readers]
    if len(set(names)) < len(names):
        names = [str(reader.folder) for reader in readers]
    if groups == 1 and len(set(names)) == len(names):
        return names
    labels = [f"{name}:{model}" if model else name for name, model in zip(names, group, strict=True)]
    if len(set(labels)) < len(labels):
        raise UsageError(f"the same folder is named twice: {listed(names)}; give another one")
    return labels
