"""Why? The items on which the two best students differ most, each way, in a few words."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

from coeval.analysis.measures.ranking import SAME, SharedScores
from coeval.core.figures import points
from coeval.core.plain import plain
from coeval.reports.content import Example
from coeval.reports.experiment.run_evidence import RunEvidence

# Of a quotation; one word of a language without spaces, or of a model gone astray, may be a page.
_WORDS, _CHARACTERS = 20, 160


def examples(evidence: RunEvidence) -> Iterator[Example]:
    """The item that speaks most for the leader, then the one most for the next; of equal gaps, the first
    by its id."""
    order = evidence.measured.measures.ranking.order
    if len(order) < 2:
        return
    first, second = order[:2]
    shared = SharedScores(evidence.measured.grid).by_item(first, second)
    for ahead, behind, turned in ((first, second, False), (second, first, True)):
        gaps = {item: (b - a if turned else a - b) for item, (a, b) in shared.items()}
        item = min(gaps, key=lambda one: (-round(gaps[one], 9), one), default=None)
        if item is None or gaps[item] <= SAME:
            continue
        own, other = reversed(shared[item]) if turned else shared[item]
        title = f"For {ahead}: {points(own)}, {behind} {points(other)}"
        yield Example(plain(title), tuple(_quotes(evidence, item, behind)), urlencode({"item": item}))


def _quotes(evidence: RunEvidence, item: str, student: str) -> Iterator[str]:
    """The prompt, and why the student that is behind lost points."""
    text = evidence.reader.texts([item]).get(item)
    if text is not None and text.prompt:
        yield f"Prompt: {quoted(text.prompt)}"
    # In hexadecimal, an id can end no text of the query and hold no brace of its template.
    sql = _REASONS.format(item=item.encode().hex(), student=student.encode().hex(), lines="{lines}")
    for judge, factor, reason in evidence.reader.of_lines("evaluation", _COLUMNS, sql):
        yield f"{plain(judge)} on {plain(student)}, {plain(factor)}: {quoted(reason)}"


_COLUMNS = {
    "datapoint_id": "VARCHAR",
    "student_model_id": "VARCHAR",
    "judge_model_id": "VARCHAR",
    "reasons": "MAP(VARCHAR, VARCHAR)",
}
_REASONS = """
SELECT judge, reason.key, reason.value FROM (
    SELECT judge_model_id AS judge, unnest(map_entries(reasons)) AS reason FROM {lines}
    WHERE lower(hex(datapoint_id)) = '{item}' AND lower(hex(student_model_id)) = '{student}'
) WHERE trim(reason.value) <> '' ORDER BY ALL LIMIT 1
"""


def quoted(text: str) -> str:
    """Quote the first words of a text, in one line."""
    words = text.split()
    shown = " ".join(words[:_WORDS])
    cut = len(words) > _WORDS or len(shown) > _CHARACTERS
    return f"“{plain(shown[:_CHARACTERS]).rstrip()}{'…' if cut else ''}”"
