"""Scores as a paper's table, in Markdown and LaTeX: models in rows, tasks in columns, the best in bold where
it is significantly ahead of all others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from coeval.cli.views.comparison_view import escaped
from coeval.cli.views.result_table import NOTHING, names_of
from coeval.core.figures import metric_text
from coeval.core.plain import plain

if TYPE_CHECKING:  # the analysis loads numpy, scipy and duckdb, which a table does not need
    from collections.abc import Mapping

    from coeval.analysis.comparison.comparison_report import Comparison
    from coeval.analysis.run_results import MetricScore, Results
    from coeval.analysis.training.training_curves import TrainingRun


class PaperCell(NamedTuple):
    """A score and its interval, in the ``unit`` of its metric."""

    value: float | None
    low: float | None = None
    high: float | None = None
    unit: str = "share"
    bold: bool = False

    @property
    def score(self) -> str:
        return NOTHING if self.value is None else metric_text(self.value, self.unit)

    @property
    def interval(self) -> str:
        if self.low is None or self.high is None:
            return ""
        return f" [{metric_text(self.low, self.unit)}, {metric_text(self.high, self.unit)}]"


_EMPTY = PaperCell(None)


class PaperTable(NamedTuple):
    """``rows``: a name and a cell for each column; ``notes``: the sentences of its caption."""

    heading: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[PaperCell]]]
    notes: Sequence[str]

    def markdown(self) -> str:
        lines = [
            f"| {' | '.join(escaped(name) for name in (self.heading, *self.columns))} |",
            f"| --- |{' ---: |' * len(self.columns)}",
        ]
        for name, cells in self.rows:
            shown = [
                f"**{cell.score}**{cell.interval}" if cell.bold else cell.score + cell.interval
                for cell in cells
            ]
            lines.append(f"| {' | '.join((escaped(name), *shown))} |")
        return "\n".join([*lines, "", escaped(" ".join(self.notes))]) + "\n"

    def latex(self) -> str:
        """For ``booktabs``, with a caption and the label ``tab:scores``."""
        lines = [r"% \usepackage{booktabs}", r"\begin{table}", r"\centering"]
        lines += [rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}", r"\toprule"]
        lines += [
            rf"{' & '.join(map(in_latex, (self.heading, *self.columns)))} \\",
            r"\midrule",
        ]
        for name, cells in self.rows:
            shown = (
                (rf"\textbf{{{cell.score}}}" if cell.bold else cell.score) + cell.interval for cell in cells
            )
            figures = " & ".join(shown).replace("−", "$-$").replace(NOTHING, "--")
            lines.append(rf"{in_latex(name)} & {figures} \\")
        lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{in_latex(' '.join(self.notes))}}}"]
        return "\n".join([*lines, r"\label{tab:scores}", r"\end{table}"]) + "\n"


# What begins a command, a group, a comment or the like. Brackets and stars behind ``\\`` are its arguments;
# other signs are missing from TeX's usual fonts, or stand for something else in them.
_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"{{{sign}}}" for sign in "[]*\"'`-"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "−": "$-$",
    "–": "--",
    "×": r"$\times$",
}


def in_latex(text: str) -> str:
    """Foreign text that is no command of LaTeX, in one line."""
    shown = "".join(_LATEX.get(sign, sign) for sign in plain(text))
    return re.sub(r"(?<=\w)\{-\}(?=\w)", "-", shown)  # a hyphen within a word may end a line


_POINTS = "In points, 0 to 100, with 95% intervals."
_BOLD = "Bold: significantly ahead of every other row (p < 0.05, adjusted for all comparisons)."


def results_table(
    results: Results, comparisons: Sequence[Comparison], labels: Mapping[str, str] | None = None
) -> PaperTable:
    """Of a run, students by tasks and by labels that have no other score; of eval-framework, models by the
    headline metric of each task. ``labels`` as in `short_names`."""
    names = names_of(results, labels)
    if results.metrics:
        return _of_metrics(results.metrics, names.key)
    scored = [one for one in results.students if not one.removed and one.task not in results.only_labelled]
    tasks = list(dict.fromkeys(one.task for one in scored if one.score is not None))
    if len(tasks) == 2 and not results.only_labelled:
        tasks.remove(None)  # which is the same as the only task
    columns: dict[str, dict[str, PaperCell]] = {}
    for task in tasks:
        found = {one.student: PaperCell(one.score, one.low, one.high) for one in scored if one.task == task}
        columns["overall" if task is None else task] = _with_best(found, comparisons, task, None)
    for task, attribute in dict.fromkeys(
        (one.task, one.attribute) for one in results.labels if not one.removed
    ):
        cells = {
            one.student: PaperCell(one.accuracy, one.low, one.high)
            for one in results.labels
            if (one.task, one.attribute) == (task, attribute)
        }
        columns[f"{task}: {attribute}"] = _with_best(cells, comparisons, task, attribute)
    if results.pairs:
        strengths = {one.student: PaperCell(one.strength, one.low, one.high) for one in results.pairs}
        if len(results.pairs) > 1 and (first := results.pairs[0]).ranks == (1, 1):
            strengths[first.student] = strengths[first.student]._replace(bold=True)
        columns["pairwise strength"] = strengths
    students = dict.fromkeys(name for found in columns.values() for name in found)
    rows = [
        (names.key.get(name, name), [found.get(name, _EMPTY) for found in columns.values()])
        for name in students
    ]
    return _table("student", list(columns), rows)


def _table(
    heading: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[PaperCell]]], *more: str
) -> PaperTable:
    bold = any(cell.bold for _, cells in rows for cell in cells)
    return PaperTable(heading, columns, rows, (_POINTS, *more, *([_BOLD] * bold)))


def _with_best(
    cells: dict[str, PaperCell], comparisons: Sequence[Comparison], task: str | None, label: str | None
) -> dict[str, PaperCell]:
    """The cells of a column, the highest one bold if it is significantly better than every other."""
    scores = {name: cell.value for name, cell in cells.items() if cell.value is not None}
    best = max(scores, key=scores.__getitem__, default=None)
    beaten = {
        one.a if one.difference > 0 else one.b
        for one in comparisons
        if one.task == task
        and (one.metric == label if label is not None else one.family in ("overall", "task"))
        and one.significant
        and best == (one.b if one.difference > 0 else one.a)
    }
    if best is None or len(scores) < 2 or beaten < scores.keys() - {best}:
        return cells
    return {**cells, best: cells[best]._replace(bold=True)}


def _of_metrics(metrics: Sequence[MetricScore], short: Mapping[str, str]) -> PaperTable:
    """A row for each model and sample."""
    headlines: dict[tuple[str, int, str], MetricScore] = {}
    for one in metrics:
        headlines.setdefault((one.model, one.sample, one.task), one)
    tasks = list(dict.fromkeys(one.task for one in metrics))
    several = len({one.sample for one in metrics}) > 1
    rows = []
    for model, sample in dict.fromkeys((one.model, one.sample) for one in metrics):
        found = [headlines.get((model, sample, task)) for task in tasks]
        cells = [
            _EMPTY if one is None else PaperCell(one.value, one.low, one.high, one.unit) for one in found
        ]
        rows.append((short.get(model, model) + (f", sample {sample}" if several else ""), cells))
    metric = {one.task: one.metric for one in reversed(list(headlines.values()))}
    return _table("model", tasks, rows, *(f"{task}: {metric[task]}." for task in tasks))


def sweep_table(run: TrainingRun) -> PaperTable:
    """A row for each checkpoint: its mean over the tasks, where there are several, and headline metrics."""
    # Here, because it loads numpy.
    from coeval.analysis.training.sweep_comparison import compare_runs

    found = compare_runs([run])
    sure = {one.task: one.best.step for one in found.choices if not one.peers}
    columns: dict[str, dict[int, PaperCell]] = {}
    for one in found.overall:
        columns.setdefault("overall", {})[one.step] = PaperCell(one.mean, *one.ci95)
    for task, curve in run.curves.items():
        columns[task] = {}
        for at in curve.points:
            low, high = at.ci95 or (None, None)
            columns[task][at.step] = PaperCell(at.mean, low, high, curve.unit)
    for place, step in sure.items():
        cells = columns["overall" if place is None else place]
        cells[step] = cells[step]._replace(bold=True)
    steps = sorted({step for cells in columns.values() for step in cells})
    rows = [(str(step), [cells.get(step, _EMPTY) for cells in columns.values()]) for step in steps]
    notes = [f"{task}: {curve.metric}." for task, curve in run.curves.items()]
    return _table("step", list(columns), rows, *notes)
