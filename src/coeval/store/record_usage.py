"""Token usage of a folder's records, by model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from coeval.core.errors import Undecodable
from coeval.core.foreign import lines_decoder
from coeval.core.records import Usage, model_of
from coeval.store.jsonl import groups_of_lines


class _Took(msgspec.Struct):
    """A line of a run's phases 3–5, of answers or of judgments: who was asked, and what that took."""

    judge_model_id: str = ""
    student_model_id: str = ""
    teacher_model_id: str = ""
    judge: str = ""
    model: str = ""
    source: str = ""
    usage: Usage | None = None

    @property
    def requested(self) -> str:
        run = self.judge_model_id or model_of(self.student_model_id) or self.teacher_model_id
        return run or self.judge or self.model


def usage_on_record(files: Iterable[Path]) -> dict[str, Usage]:
    """Sum the usage of every whole line, repeats included, since those were paid too. Damaged lines are
    skipped; an answer of unknown cost adds its tokens.

    Raises StoreError: a file cannot be read.
    """
    read = lines_decoder(_Took)
    sums: dict[str, tuple[int, int, float]] = {}
    for path in files:
        for lines in groups_of_lines(path):
            for took in read([text for text in lines.texts if not text.isspace()]):
                if isinstance(took, Undecodable) or took.usage is None or took.source:
                    continue  # nobody was asked for an answer that has a source
                if took.usage.stored:
                    continue  # nor, at least for a part, for one from the store
                into, made, usd = sums.get(took.requested, (0, 0, 0.0))
                usage = took.usage
                sums[took.requested] = (
                    into + usage.input_tokens,
                    made + usage.output_tokens,
                    usd + (usage.cost_usd or 0.0),
                )
    return {name: Usage(*figures) for name, figures in sums.items()}


def less(whole: Mapping[str, Usage], part: Mapping[str, Usage]) -> dict[str, Usage]:
    """Subtract ``part`` from ``whole``."""
    return {
        name: Usage(
            max(0, usage.input_tokens - part[name].input_tokens),
            max(0, usage.output_tokens - part[name].output_tokens),
            max(0.0, (usage.cost_usd or 0.0) - (part[name].cost_usd or 0.0)),
        )
        if name in part
        else usage
        for name, usage in whole.items()
    }
