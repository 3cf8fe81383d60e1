"""What a task adds to recipes, and the input hashes of records.

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


def hash_template_parts(
    task: str, template_id: str, template: str, fields: Mapping[str, str], role: Role
) -> dict[str, str]:
    """Hash a template, and the task variables that it uses, as recipe parts by path in the file."""
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


def build_task_variables(task: TaskConfig) -> dict[str, str]:
    """Return the template variables of a task that do not change from item to item."""
    rubric = task.rubric_texts_or_word
    shows_passages = task.documents is not None and task.documents.show
    return {
        "task_name": task.name,
        "task_description": task.description.strip(),
        "output_description": task.output_description.strip(),
        "rubric": render_rubric(rubric) if isinstance(rubric, dict) else "",
        "student_sees": _SHOWN if shows_passages else _NOT_SHOWN,
    }


def hash_item_recipe(base: str, target: Mapping[str, str], nuance: Mapping[str, str]) -> str:
    """Return the recipe of an item: the teacher's, and a hash of the sampled attributes."""
    return f"{base}-{digest(canonical_json([dict(target), dict(nuance)]))[:6]}"


def strip_item_part(recorded: str) -> str:
    """Return the teacher's part of a recorded item's recipe."""
    return recorded.partition("-")[0]


def hash_label_recipe(labels: Mapping[str, Sequence[str]]) -> str:
    """Return the recipe of label scores: the version of their rules, and the labels' values."""
    return f"labels-3.{digest(canonical_json(labels))[:6]}"


CHECK_RECIPE = "checks-1"
"""Of checks as a whole: their version, which changes when any kind scores otherwise."""


def hash_answer_input(prompt: str) -> str:
    return digest(prompt)


def hash_item_content(prompt: str, reference: str, attributes: Mapping[str, str]) -> str:
    """Hash all of an item that a judge may see or a label be compared with."""
    return digest(prompt, reference, _serialise_attributes(tuple(attributes.items())))


@lru_cache(maxsize=4096)  # many items share their attributes
def _serialise_attributes(attributes: tuple[tuple[str, str], ...]) -> str:
    return canonical_json(dict(attributes))


def hash_judged_input(item: str, response: str) -> str:
    """Return the ``input_hash`` of an evaluation, from `hash_item_content` and the answer."""
    return digest(item, response)


def join_judged_inputs(first: str, second: str) -> str:
    """Return the ``input_hash`` of a comparison, from those of the answers, the one shown first leading."""
    return f"{first}{PAIR}{second}"
