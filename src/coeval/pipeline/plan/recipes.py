"""What a task adds to a recipe, and what records are made from, as short hashes.

Rubric text counts per factor, in `criterion_hash`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from coeval.core.records import PAIR, Role
from coeval.core.text import canonical_json, digest, placeholders
from coeval.pipeline.config.schema import TaskConfig
from coeval.pipeline.prompts import COMPARE_PAIR, render_rubric

_PER_FACTOR = frozenset({"rubric", "factor", "criterion"})


def template_parts(
    task: str, template_id: str, template: str, fields: Mapping[str, str], role: Role
) -> dict[str, str]:
    """A template, and those of a task's ``fields`` that it uses, as parts of a recipe by path in the file."""
    parts = {f"tasks.{task}.prompt_library.{template_id}": digest(template)}
    for name in sorted(fields.keys() & placeholders(template)):
        if role != "judge" or name not in _PER_FACTOR or template_id == COMPARE_PAIR:
            parts[f"tasks.{task}.{_FIELD_PATH[name]}"] = digest(fields[name])
    return parts


_SHOWN = "sees the passages above your input: do not repeat them in it"
_NOT_SHOWN = (
    "does not see the passages, and your input must make sense without them: name what it is about, and "
    "never refer to a passage or document"
)
_FIELD_PATH = {
    "task_name": "name",
    "task_description": "description",
    "output_description": "output_description",
    "rubric": "rubric",
    "student_sees": "documents.show",
}


def task_fields(task: TaskConfig) -> dict[str, str]:
    """The variables of a task that every template may use and that no item changes."""
    rubric = task.declared_rubric
    shown = task.documents is not None and task.documents.show
    return {
        "task_name": task.name,
        "task_description": task.description.strip(),
        "output_description": task.output_description.strip(),
        "rubric": render_rubric(rubric) if isinstance(rubric, dict) else "",
        "student_sees": _SHOWN if shown else _NOT_SHOWN,
    }


def item_recipe(base: str, target: Mapping[str, str], nuance: Mapping[str, str]) -> str:
    """Phase 3: the teacher's recipe and the sampled attributes."""
    return f"{base}-{digest(canonical_json([dict(target), dict(nuance)]))[:6]}"


def base_recipe(recorded: str) -> str:
    """The part of a recorded recipe that `Recipe.hash` gave."""
    return recorded.partition("-")[0]


def label_recipe(labels: Mapping[str, Sequence[str]]) -> str:
    """Of a comparison of labels: its version (which changes when its rules do), and the labels' values."""
    return f"labels-3.{digest(canonical_json(labels))[:6]}"


CHECK_RECIPE = "checks-1"
"""Of checks as a whole: their version, which changes when any kind scores otherwise."""


def answer_input(prompt: str) -> str:
    """``input_hash`` of a response: what the student was given."""
    return digest(prompt)


def item_content(prompt: str, reference: str, attributes: Mapping[str, str]) -> str:
    """All of an item that a judge may see or a label be held against."""
    return digest(prompt, reference, _spelled(tuple(attributes.items())))


@lru_cache(maxsize=4096)  # many items share their attributes
def _spelled(attributes: tuple[tuple[str, str], ...]) -> str:
    return canonical_json(dict(attributes))


def judged_input(item: str, response: str) -> str:
    """``input_hash`` of an evaluation: the `item_content` and the answer that were judged."""
    return digest(item, response)


def compared_input(first: str, second: str) -> str:
    """``input_hash`` of a comparison: the `judged_input` of the answer shown first, and of the other."""
    return f"{first}{PAIR}{second}"
