"""Why? The items on which the two best students differ most, each way, in a few words."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from urllib.parse import urlencode

from coeval.analysis.measures.ranking import SAME, SharedScores
from coeval.analysis.measures.score_grid import UNSCORED, ScoreGrid
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
    """The prompt, and why the student that is behind lost points: by the judge who is nearest the mean."""
    text = evidence.reader.texts([item]).get(item)
    if text is not None and text.prompt:
        yield f"Prompt: {quoted(text.prompt)}"
    # In hexadecimal, an id can end no text of the query and hold no brace of its template.
    sql = _REASONS.format(item=item.encode().hex(), student=student.encode().hex(), lines="{lines}")
    typical = _typical(evidence.measured.grid, item, student)
    given = [
        (typical[judge, factor], judge, factor, reason)
        for judge, factor, reason in evidence.reader.of_lines("evaluation", _COLUMNS, sql)
        if (judge, factor) in typical
    ]
    if given:
        _, judge, factor, reason = min(given)
        yield f"{plain(judge)} on {plain(student)}, {plain(factor)}: {quoted(reason)}"


def _typical(grid: ScoreGrid, item: str, student: str) -> dict[tuple[str, str], tuple[float, float]]:
    """By judge and factor, how little a score speaks for the answer's mean: how far the judge's own mean is
    from it, and among the judge's scores the lowest first, as they cost the points."""
    mine = (grid.item == grid.items.ids.index(item)) & (grid.student == grid.students.index(student))
    scores: dict[str, dict[str, float]] = {}
    for factor, levels in zip(grid.factor[mine], grid.levels[mine], strict=True):
        for judge, level in zip(grid.judges, levels, strict=True):
            if level != UNSCORED:
                scores.setdefault(judge, {})[grid.factors[factor]] = float(grid.scale[level])
    if not scores:
        return {}
    mean = fmean(score for of in scores.values() for score in of.values())
    return {
        (judge, factor): (round(abs(fmean(of.values()) - mean), 9), score)
        for judge, of in scores.items()
        for factor, score in of.items()
    }


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
) WHERE trim(reason.value) <> '' ORDER BY ALL
"""


def quoted(text: str) -> str:
    """Quote the first words of a text, in one line."""
    words = text.split()
    shown = " ".join(words[:_WORDS])
    cut = len(words) > _WORDS or len(shown) > _CHARACTERS
    return f"“{plain(shown[:_CHARACTERS]).rstrip()}{'…' if cut else ''}”"
