"""Built-in prompt templates, how a task's own replace them, and schemas of replies.

A template is a text file beside this module, filled by `coeval.core.text.fill_template`. Its text is part of
the recipe of every record made with it, so ``--continue`` notices a changed template.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

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
def read_builtin_template(template_id: str) -> str:
    """Read the built-in template of this id, without its final line break."""
    return files(__name__).joinpath(f"{template_id}.txt").read_text("utf-8").rstrip("\n")


_HEADING = "What the answer should look like: {output_description}\n\n"


def find_template(
    library: Mapping[str, str], template_id: str, model_name: str, *, has_output_description: bool = True
) -> str:
    """Return the template for a model: the task's own for this variant, for this model, for all, else the
    built-in one, whose heading of an output description goes if the task has none."""
    for key in (f"{template_id}.{model_name}", f"{template_id}.{model_of(model_name)}", template_id):
        if key in library:
            return library[key]
    template = read_builtin_template(template_id)
    return template if has_output_description else template.replace(_HEADING, "")


def render_rubric(rubric: Mapping[str, str]) -> str:
    """Render a rubric as judges see it: a line ``- factor: criterion`` for each factor."""
    return "\n".join(f"- {factor}: {' '.join(criterion.split())}" for factor, criterion in rubric.items())


def render_attributes(attributes: Mapping[str, str]) -> str:
    """Render attributes as ``name: value; name: value``, or ``none``, which reads well in a sentence."""
    return "; ".join(f"{name}: {value}" for name, value in attributes.items()) or "none"


JsonSchema: TypeAlias = dict[str, Any]
"""A JSON schema of a reply, as hosts take it."""


def object_schema(**properties: JsonSchema) -> JsonSchema:
    """Return the schema of an object with exactly these properties, as strict structured output requires."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_STRING: JsonSchema = {"type": "string"}


def _list_schema(entry: JsonSchema) -> JsonSchema:
    return {"type": "array", "items": entry}


# Lists of named entries: strict structured output allows no open keys.
_ATTRIBUTES = _list_schema(object_schema(name=_STRING, values=_list_schema(_STRING)))
TARGET_ATTRIBUTES = Schema("target_attributes", object_schema(attributes=_ATTRIBUTES))
NUANCED_ATTRIBUTES = Schema("nuanced_attributes", object_schema(attributes=_ATTRIBUTES))
_FACTORS = _list_schema(object_schema(name=_STRING, criterion=_STRING))
RUBRIC = Schema("rubric", object_schema(factors=_FACTORS))
BENCHMARK_ITEM = Schema("benchmark_item", object_schema(prompt=_STRING, response=_STRING))
_QUOTED_ITEM = object_schema(prompt=_STRING, response=_STRING, evidence=_list_schema(_STRING))
QUOTED_ITEM = Schema("benchmark_item", _QUOTED_ITEM)
