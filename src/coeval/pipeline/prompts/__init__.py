"""What models are told: the built-in templates, how a task's own take their place, answer schemas.

A template is a text file beside this module, filled by `coeval.core.text.fill_template`. Its text is part
of the recipe of every record made with it, so a changed template is noticed on ``--continue``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from coeval.core.errors import UsageError
from coeval.core.records import Schema, model_of

_TASK = frozenset(
    {
        "task_name",
        "task_description",
        "output_description",
        "target_attributes",
        "nuanced_attributes",
        "rubric",
    }
)

_JUDGED = frozenset({"input", "response", "reference", "scale", "answer_format"})

COMPARE_PAIR = "compare_pair"
FROM_DOCUMENTS = "sample_documents"

VARIABLES: dict[str, frozenset[str]] = {
    "map_target_attrs": frozenset({"task_description"}),
    "map_nuanced_attrs": frozenset({"task_description"}),
    "autorubric": frozenset({"task_description", "output_description"}),
    "sample": _TASK,
    FROM_DOCUMENTS: _TASK | {"passages", "student_sees"},
    "test": _TASK | {"input"},
    "evaluate_single": _TASK | _JUDGED,
    "evaluate_per_factor": _TASK | _JUDGED | {"factor", "criterion"},
    COMPARE_PAIR: _TASK | {"input", "reference", "answer_a", "answer_b", "answer_format"},
}
"""Template id → the variables that a template of this id may use."""

TEMPLATE_IDS: tuple[str, ...] = tuple(VARIABLES)

NEEDS: dict[str, tuple[frozenset[str], ...]] = {
    "sample": (frozenset({"target_attributes"}),),
    FROM_DOCUMENTS: (frozenset({"passages"}),),
    "test": (frozenset({"input"}),),
    "evaluate_single": (frozenset({"response"}), frozenset({"rubric"})),
    "evaluate_per_factor": (frozenset({"response"}), frozenset({"factor", "criterion"})),
    COMPARE_PAIR: (frozenset({"answer_a"}), frozenset({"answer_b"})),
}
"""Template id → sets of variables, of each of which a template has to use one: they change from request to
request, so that their values cannot stand in its text."""


@cache
def builtin(template_id: str) -> str:
    """The built-in template of this id, without its final line break.

    Raises UsageError: there is no such template.
    """
    if template_id not in VARIABLES:
        raise UsageError(f"there is no prompt template {template_id!r}; there are {', '.join(TEMPLATE_IDS)}")
    return files(__name__).joinpath(f"{template_id}.txt").read_text("utf-8").rstrip("\n")


_HEADING = "What the answer should look like: {output_description}\n\n"


def find_template(
    library: Mapping[str, str], template_id: str, model_name: str, *, described: bool = True
) -> str:
    """The template for one model: the task's own for this variant of it, for this model, the task's own, the
    built-in; this without the heading of an output description where the task has none (``described``)."""
    for key in (f"{template_id}.{model_name}", f"{template_id}.{model_of(model_name)}", template_id):
        if key in library:
            return library[key]
    template = builtin(template_id)
    return template if described else template.replace(_HEADING, "")


def render_rubric(rubric: Mapping[str, str]) -> str:
    """One line ``- factor: criterion`` for each factor, as judges see it."""
    return "\n".join(f"- {factor}: {' '.join(criterion.split())}" for factor, criterion in rubric.items())


def render_attributes(attributes: Mapping[str, str]) -> str:
    """``name: value; name: value``, or ``none``: reads well within a sentence and on a line of its own."""
    return "; ".join(f"{name}: {value}" for name, value in attributes.items()) or "none"


def object_schema(**properties: dict[str, Any]) -> dict[str, Any]:
    """An object with exactly these properties, which is all that strict structured output admits."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_STRING: dict[str, Any] = {"type": "string"}


def _attribute_list() -> dict[str, Any]:
    """A list of named entries, because strict structured output admits no open keys."""
    entry = object_schema(name=_STRING, values={"type": "array", "items": _STRING})
    return object_schema(attributes={"type": "array", "items": entry})


TARGET_ATTRIBUTES = Schema("target_attributes", _attribute_list())
NUANCED_ATTRIBUTES = Schema("nuanced_attributes", _attribute_list())
RUBRIC = Schema(
    "rubric",
    object_schema(factors={"type": "array", "items": object_schema(name=_STRING, criterion=_STRING)}),
)
BENCHMARK_ITEM = Schema("benchmark_item", object_schema(prompt=_STRING, response=_STRING))
QUOTED_ITEM = Schema(
    "benchmark_item",
    object_schema(prompt=_STRING, response=_STRING, evidence={"type": "array", "items": _STRING}),
)
