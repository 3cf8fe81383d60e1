"""Can the judges be trusted that ``eval-framework`` asked?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from coeval.analysis.measures.measured import Branch
from coeval.core.plain import plain
from coeval.reports.content.report_content import Picture, ReportSection, Sentence
from coeval.reports.experiment.judge_tables import (
    agreement_map,
    agreement_table,
    bias_picture,
    bias_table,
    itself_table,
    judge_table,
)

__all__ = ["output_judges_section"]


def output_judges_section(tree: Branch, models: Sequence[str]) -> Iterator[ReportSection]:
    """Nothing where no judgment can be held against another; ``models`` were judged."""
    judges = list(tree["judges"])
    if not judges:
        return
    agreement, biases = agreement_table(tree["agreement"]), bias_table(tree["judges"])
    pictures: list[Picture] = [agreement_map(agreement, judges)] if agreement.rows else []
    if (leanings := bias_picture(biases, judges, [*models, *judges])) is not None:
        pictures.append(leanings)
    said = tree["findings"] or _unsure(judges)
    each = [judge_table(tree["judges"])] if len(judges) > 1 else []  # of one there is nothing to compare
    tables = (*each, agreement, itself_table(tree["judges"]), biases)
    yield ReportSection(
        "judges",
        "Can the judges be trusted?",
        tuple(Sentence(plain(text), "judges") for text in said),
        tuple(pictures),
        # Not every judgment is a score that an item is chosen by.
        tuple(msgspec.structs.replace(table, links={}) for table in tables if table.rows),
    )


def _unsure(judges: Sequence[str]) -> list[str]:
    if len(judges) == 1:
        return ["One judge was asked: whether others would agree with it, nobody can tell."]
    return ["No judge is surely stricter than the others, or surely leans on anything that was looked for."]
