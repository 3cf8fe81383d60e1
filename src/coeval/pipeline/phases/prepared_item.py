"""An item as it is put to students and judges, worked out once for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coeval.core.records import Datapoint
from coeval.pipeline.plan.recipes import answer_input, item_content
from coeval.pipeline.prompts import render_attributes


@dataclass(frozen=True, slots=True)
class PreparedItem:
    """A datapoint, the template variables it fills, and what its answers and judgments are made from.

    ``asked`` is the ``input_hash`` of its responses; ``content`` goes into that of its evaluations.
    """

    item: Datapoint
    values: Mapping[str, str]
    asked: str
    content: str


def prepared_item(item: Datapoint, nuance: Mapping[str, str]) -> PreparedItem:
    """``nuance`` is what the teacher was given, whether the item stores it or not."""
    prompt, reference = item.prompt or "", item.reference_response or ""
    return PreparedItem(
        item,
        {
            "input": prompt,
            "reference": reference,
            "target_attributes": render_attributes(item.sampled_target_attributes),
            "nuanced_attributes": render_attributes(nuance),
        },
        answer_input(prompt),
        item_content(prompt, reference, item.sampled_target_attributes),
    )
