"""Whose answers a model's are: a gateway or host may answer with another model than the requested one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from coeval.analysis.incomparable import OTHER_MODELS, Incomparable
from coeval.core.text import listed

_NOUNS = {"student": "answers", "judge": "judgments"}
# Of a name's words, those that say which edition it is: dates, builds, "v1", words for moving ones.
_EDITION = re.compile(r"\d{2,}|0|v\d|latest|preview|exp|experimental|beta|stable")
_MOVING = frozenset({"latest", "0"})
# What servers of a single model document as its name.
_ANY_MODEL = frozenset({"tgi", "default", "local", "local-model"})
_MAKER = re.compile(r"^(?:[a-z]+(?:-gov)?\.)+(?=[a-z])")  # Bedrock's "us.anthropic.claude-…"
_PROVIDER = re.compile(
    r":[a-z][a-z-]*$"
)  # Hugging Face's ":novita", OpenRouter's ":free", Ollama's ":latest"
_MOST_NAMED = 3


def is_same_model(requested: str, reported: str) -> bool:
    """Check whether a reply's name means the requested model: itself, with or without its provider, or an
    edition where the requested name leaves that open ("gpt-4o" for "openai/gpt-4o-2024-08-06")."""
    if requested == reported or requested.lower() in _ANY_MODEL:
        return True
    wanted, given = _words(requested), _words(reported)
    common = 0
    while common < min(len(wanted), len(given)) and wanted[common] == given[common]:
        common += 1
    open_rest = all(word in _MOVING for word in wanted[common:])
    if common and all(map(_EDITION.fullmatch, given[common:])):
        return open_rest or (common == len(given) and all(map(_EDITION.fullmatch, wanted[common:])))
    if "latest" not in wanted:
        return False
    extra = Counter(given) - Counter(
        wanted
    )  # "gemini-flash-latest" is "gemini-2.5-flash-preview-09-2025" today
    named = Counter(word for word in wanted if word not in _MOVING)
    return not named - Counter(given) and all(word.isdigit() or _EDITION.fullmatch(word) for word in extra)


def _words(name: str) -> list[str]:
    """The words of a name, without those before its last slash and who serves it."""
    name = name.lower()
    bare = _PROVIDER.sub("", _MAKER.sub("", name.rstrip("/").rpartition("/")[2]))
    return [word for word in re.split(r"[^a-z0-9]+", bare) if word]


class ServedModel(msgspec.Struct, frozen=True):
    """The models behind a student's answers, or a judge's judgments, of a task (None: of all).

    ``total`` are the good ones; ``others`` those that another model gave than the requested one, ``several``
    those of the models that a gateway or host serves under the one name, if there is more than one: by model,
    most first.
    """

    role: Literal["student", "judge"]
    model: str
    task: str | None
    total: int
    others: dict[str, int] = {}
    several: dict[str, int] = {}

    @property
    def clause(self) -> str:
        """``6 of 6 answers came from ok``; empty where none did."""
        if not self.others:
            return ""
        count = sum(self.others.values())
        return f"{count:,} of {self.total:,} {_NOUNS[self.role]} came from {_with_counts(self.others)}"

    @property
    def mark(self) -> str:
        """What its name has behind it in tables and pages."""
        return f"from {next(iter(self.others))}" if len(self.others) == 1 else "from other models"

    @property
    def warning(self) -> str:
        """The clause as a sentence on the model, with the way out."""
        return f"{self.model}: {self.clause}, not from the requested model. {_REMEDY}"

    @property
    def note(self) -> str:
        """What is to be known of it; empty where nothing is."""
        if self.others:
            return Incomparable(self.model, OTHER_MODELS, self.clause).sentence
        if not self.several:
            return ""
        nouns = _NOUNS[self.role]
        return (
            f"the {nouns} of {self.model} are a mixture: its name stands for several models or providers, "
            f"{_with_counts(self.several)}"
        )


def marked_labels(served: Iterable[ServedModel], labels: Mapping[str, str]) -> dict[str, str]:
    """Add to the labels of students (see `short_names`) those of the ones that another model stood in for."""
    marks = {one.model: f" ({one.mark})" for one in served if one.others and one.role == "student"}
    marked = {name: labels.get(name, name).removesuffix(mark) + mark for name, mark in marks.items()}
    return {**labels, **marked}


_REMEDY = (
    "Turn fallbacks off at the gateway and repeat them; if both names mean one model, set `base_model` to "
    "the other."
)


def _with_counts(models: Mapping[str, int]) -> str:
    if len(models) == 1:
        return next(iter(models))
    return listed([f"{name} ({count:,})" for name, count in models.items()], _MOST_NAMED)


def served_models(
    rows: Iterable[tuple[Any, ...]], requested: Mapping[str, Sequence[str]], *, by_task: bool = False
) -> Iterator[ServedModel]:
    """Sum up rows of role, task, model, the model that replies name, how it stands to the requested name
    (`Kept.served_as`) and the number of records. ``requested``: the names of each model; default: its own.
    Only what another model gave, or several did, is returned."""
    groups: dict[tuple[Any, ...], list[tuple[str, str, int]]] = {}
    for role, task, model, reported, served_as, count in rows:
        groups.setdefault((role, model, task if by_task else None), []).append((reported, served_as, count))
    for (role, model, task), found in groups.items():
        names = requested.get(model, (model,))
        others, every = Counter[str](), Counter[str]()
        for reported, served_as, count in found:
            every[reported or names[0]] += count
            if reported and served_as != "alias" and not any(is_same_model(name, reported) for name in names):
                others[reported] += count
        several = every if len(every) > 1 and not others else Counter[str]()
        if others or several:
            yield ServedModel(
                role, model, task, every.total(), dict(others.most_common()), dict(several.most_common())
            )
