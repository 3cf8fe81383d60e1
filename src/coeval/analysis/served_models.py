"""Whose answers a model's are: a gateway or host may answer with another model than the requested one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from coeval.analysis.incomparable import OTHER_MODELS, Incomparable
from coeval.core.text import listed

# Of a name's words, those that say which edition it is: dates, builds, "v1", words for moving ones.
_EDITION = re.compile(r"\d{2,}|0|v\d|latest|preview|exp|experimental|beta|stable")
_MOVING = frozenset({"latest", "0"})
# What servers of a single model document as its name.
_ANY_MODEL = frozenset({"tgi", "default", "local", "local-model"})
# Who serves or made it: up to the last slash, Bedrock's "us.anthropic.", Hugging Face's ":novita",
# OpenRouter's ":free" and " (DeepInfra)".
_AROUND = re.compile(r"^.*/(?=.)|^(?:[a-z]+(?:-gov)?\.)+(?=[a-z])|:[a-z][a-z-]*$| \(.*\)$")
_MOST_NAMED = 3


def is_same_model(requested: str, reported: str) -> bool:
    """Check whether a reply's name means the requested model: itself, with or without its provider, or an
    edition where the requested name leaves that open ("gpt-4o" for "openai/gpt-4o-2024-08-06")."""
    if requested == reported or requested.lower() in _ANY_MODEL:
        return True
    wanted, given = _words(requested), _words(reported)
    missing, extra = wanted - given, given - wanted
    if missing.keys() > _MOVING or not wanted & given:
        return False
    if missing.keys() <= _MOVING:  # "gemini-flash-latest" is "gemini-2.5-flash-preview-09-2025" today
        moves = "latest" in wanted
        return all(_EDITION.fullmatch(word) or (moves and word.isdigit()) for word in extra)
    return not extra and all(map(_EDITION.fullmatch, missing))


def _words(name: str) -> Counter[str]:
    bare = name.lower().rstrip("/")
    while (shorter := _AROUND.sub("", bare)) != bare:
        bare = shorter
    return Counter(word for word in re.split(r"[^a-z0-9]+", bare) if word)


class ServedModel(msgspec.Struct, frozen=True):
    """The models behind a student's answers, or a judge's judgments, of a task (None: of all).

    ``total`` are the good ones; ``others`` those that another model gave than the requested one, ``several``
    those of the models that a host serves under the one name, if there are some: by model, most first.
    """

    role: Literal["student", "judge"]
    model: str
    task: str | None
    total: int
    others: dict[str, int] = {}
    several: dict[str, int] = {}

    @property
    def clause(self) -> str:
        """``6 of 6 answers came from ok``."""
        return (
            f"{sum(self.others.values()):,} of {self.total:,} {self._what} came from {_counted(self.others)}"
        )

    @property
    def note(self) -> str:
        """What is to be known of it, in a sentence."""
        if self.others:
            return Incomparable(self.model, OTHER_MODELS, self.clause).sentence
        return (
            f"the {self._what} of {self.model} are a mixture: its name stands for several models or "
            f"providers, {_counted(self.several)}"
        )

    @property
    def warning(self) -> str:
        """The note as a warning; empty of a mixture."""
        if not self.others:
            return ""
        return f"{self.model}: {self.clause}, not from the requested model (docs/gateways.md)"

    @property
    def _what(self) -> str:
        return "answers" if self.role == "student" else "judgments"


def marked_labels(served: Iterable[ServedModel], labels: Mapping[str, str]) -> dict[str, str]:
    """Add to the labels of students (see `short_names`) those of the ones that another model stood in for."""
    marked = dict(labels)
    for one in served:
        if one.others and one.role == "student":
            mark = f" (from {listed(one.others, 1)})"
            marked[one.model] = labels.get(one.model, one.model).removesuffix(mark) + mark
    return marked


def _counted(models: Mapping[str, int]) -> str:
    named = [f"{name} ({count:,})" if len(models) > 1 else name for name, count in models.items()]
    return listed(named, _MOST_NAMED)


def served_models(
    rows: Iterable[tuple[Any, ...]], requested: Mapping[str, Sequence[str]], *, by_task: bool = False
) -> Iterator[ServedModel]:
    """Sum up rows of role, task, model, the model that replies name, how it stands to the requested name
    (`Kept.served_as`) and the number of records. ``requested``: the names of each model; default: its own.
    Only what another model gave, or several did, is returned."""
    groups: dict[tuple[Any, ...], tuple[Counter[str], Counter[str]]] = {}
    for role, task, model, reported, served_as, count in rows:
        key = (role, model, task if by_task else None)
        every, others = groups.setdefault(key, (Counter(), Counter()))
        names = requested.get(model, (model,))
        every[reported or names[0]] += count
        if reported and served_as != "alias" and not any(is_same_model(name, reported) for name in names):
            others[reported] += count
    for key, (every, others) in groups.items():
        several = {} if others or len(every) == 1 else dict(every.most_common())
        if others or several:
            yield ServedModel(*key, every.total(), dict(others.most_common()), several)
