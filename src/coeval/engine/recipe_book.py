"""``recipes.json``: the parts of every recipe that made something in a folder, so that a later start can say
what changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coeval.engine.role_model import Recipe
from coeval.store.jsonl import read_json, write_json_atomic
from coeval.store.rundir import RunDir


def known_recipes(folder: RunDir) -> dict[str, dict[str, str]]:
    """Parts by hash."""
    try:
        return read_json(folder.recipes, dict[str, dict[str, str]])
    except FileNotFoundError:
        return {}


def remember_recipes(folder: RunDir, recipes: Iterable[Recipe]) -> None:
    """Add the recipes of this start."""
    known = known_recipes(folder)
    wanted = known | {recipe.hash: recipe.parts for recipe in recipes}
    if wanted != known:
        write_json_atomic(folder.recipes, wanted)


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """The names of the parts that differ between two recipes."""
    names = list(new) + [name for name in old if name not in new]
    return [name for name in names if old.get(name) != new.get(name)]
