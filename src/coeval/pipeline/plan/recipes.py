"""What produced a record, as a short hash: so that nothing is ever relabelled.

A recipe names everything that shapes an answer (interface, model id, the role's sampling
parameters, template text, the task fields that the template uses) and nothing that does not
(URL, keys, timeouts, limits, batch). Its parts are kept in ``recipes.json`` by hash, so that a
later start can say what changed. Rubric text counts per factor, in `criterion_hash`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from coeval.core.records import Role
from coeval.core.text import canonical, digest, placeholders
from coeval.pipeline.config.schema import ModelConfig, TaskConfig
from coeval.pipeline.prompts import render_rubric

_NO_PART = frozenset({"latency_s", "device"})
_PER_FACTOR = frozenset({"rubric", "factor", "criterion"})


class Recipe(NamedTuple):
    """``hash`` (12 hex digits) and the parts it stands for, keyed by their path in the experiment file."""

    hash: str
    parts: dict[str, str]


def recipe(model: ModelConfig, role: Role, task: TaskConfig, template_id: str, template: str) -> Recipe:
    """The recipe of what ``model`` makes in ``role`` at ``task``."""
    spec = model.spec()
    where = f"models.{model.name}"
    parts: dict[str, Any] = {
        f"{where}.interface": spec.interface,
        f"{where}.parameters.model": spec.model,
        f"tasks.{task.name}.prompt_library.{template_id}": digest(template),
    }
    for name, value in model.sampling(role).items():
        parts[f"{where}.parameters.{name} ({role})"] = value
    for name, value in spec.options.items():
        if name not in _NO_PART:
            parts[f"{where}.parameters.{name}"] = value
    if spec.extra_body:
        parts[f"{where}.parameters.extra_body"] = spec.extra_body
    if system := model.system_prompt(role):
        parts[f"{where}.parameters.system_prompt ({role})"] = digest(system)
    used = set(placeholders(template))
    fields = task_fields(task)
    for name in sorted(used & fields.keys()):
        if role == "judge" and name in _PER_FACTOR:
            continue
        parts[f"tasks.{task.name}.{_FIELD_PATH[name]}"] = digest(fields[name])
    shown = {name: value if isinstance(value, str) else canonical(value) for name, value in parts.items()}
    return Recipe(digest(canonical(shown))[:12], shown)


_FIELD_PATH = {
    "task_name": "name",
    "task_description": "description",
    "output_description": "output_description",
    "rubric": "rubric",
}


def task_fields(task: TaskConfig) -> dict[str, str]:
    """The variables of a task that every template may use and that no item changes."""
    return {
        "task_name": task.name,
        "task_description": task.description.strip(),
        "output_description": task.output_description.strip(),
        "rubric": render_rubric(task.rubric) if isinstance(task.rubric, dict) else "",
    }


def item_recipe(base: str, target: Mapping[str, str], nuance: Mapping[str, str]) -> str:
    """Phase 3: the teacher's recipe and the sampled attributes."""
    return f"{base}-{digest(canonical([dict(target), dict(nuance)]))[:6]}"


def base_recipe(recorded: str) -> str:
    """The part of a recorded recipe that `recipe` gave."""
    return recorded.partition("-")[0]


def label_recipe(labels: Mapping[str, Sequence[str]]) -> str:
    """Of a comparison of labels: its version (which changes when its rules do), and the labels' values."""
    return f"labels-2.{digest(canonical(labels))[:6]}"


def answer_input(prompt: str) -> str:
    """``input_hash`` of a response: what the student was given."""
    return digest(prompt)


def item_content(prompt: str, reference: str, attributes: Mapping[str, str]) -> str:
    """All of an item that a judge may see or a label be held against."""
    return digest(prompt, reference, _spelled(tuple(attributes.items())))


@lru_cache(maxsize=4096)  # many items share their attributes
def _spelled(attributes: tuple[tuple[str, str], ...]) -> str:
    return canonical(dict(attributes))


def judged_input(item: str, response: str) -> str:
    """``input_hash`` of an evaluation: the `item_content` and the answer that were judged."""
    return digest(item, response)


def differences(old: Mapping[str, str] | None, new: Mapping[str, str]) -> list[str]:
    """The paths whose values differ between two recipes' parts; one sentence if the old is unknown."""
    if old is None:
        return ["made by a configuration that recipes.json does not know"]
    names = list(new) + [name for name in old if name not in new]
    return [name for name in names if old.get(name) != new.get(name)]
