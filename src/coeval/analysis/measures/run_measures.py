"""All measures of a folder, in the shape of ``measures.json``.

``units`` counts the valid (response, factor, judge) scores. ``agreement`` (keyed ``"a|b"``, a before b),
``judges``, ``teachers`` and ``students`` hold numbers, and beside them, with the same nested keys, ``n``
(datapoints), ``missing`` (scores that are not there) and ``ci95`` (``[low, high]``). What is not defined is
null. ``labels``, by task and attribute, holds the same of students' labels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from coeval.analysis.measures.agreement import Reweighting
from coeval.analysis.measures.benchmark_measures import benchmark_measures
from coeval.analysis.measures.conclusions import Conclusion, conclusions, task_leaders
from coeval.analysis.measures.judge_measures import judge_measures, judge_pairs, pair_measures, panel_measures
from coeval.analysis.measures.label_measures import label_measures
from coeval.analysis.measures.measured import Branch, Measured, as_plain, levels_by_judge
from coeval.analysis.measures.ranking import Ranking, ranking, ranking_measures
from coeval.analysis.measures.robust_set import RobustOptions, RobustSet, robust_measures, robust_set
from coeval.analysis.measures.score_grid import ScoreGrid, score_grid
from coeval.analysis.measures.student_measures import student_measures
from coeval.analysis.measures.teacher_measures import teacher_measures
from coeval.analysis.panel.output_judges import output_judges
from coeval.analysis.panel.own_judgments import without_own_measures
from coeval.analysis.panel.panel_findings import family_judges, panel_findings
from coeval.analysis.panel.panel_reading import biases_of, consistency_of, families_of
from coeval.analysis.panel.panel_worth import panel_worth
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.run_results import answer_findings
from coeval.analysis.scores import label_task_notes, student_scores
from coeval.analysis.training.sample_figures import SampleFigure, sample_figures

__all__ = ["MeasuredRun", "measure_run", "measure_tree", "plain_measures", "selected"]

# What of the measures each analysis shows.
_PARTS: dict[str, tuple[str, ...]] = {
    "students": ("students", "ranking", "without_own"),
    "teachers": ("teachers",),
    "judges": ("judges", "panel", "variance", "next"),
    "agreement": ("agreement", "panel"),
    "robust": ("robust",),
    "labels": ("labels",),
    "coverage": ("coverage", "leak"),
    "items": ("coverage", "items"),
}


class MeasuredRun(NamedTuple):
    """All measures of a run, with the scores and the ranking that they come of, and what they come to."""

    tree: Branch
    grid: ScoreGrid
    ranks: Ranking
    robust: RobustSet | None
    conclusions: tuple[Conclusion, ...]


def measure_tree(reader: Reader, options: RobustOptions | None = None) -> Branch:
    """All measures of what is read, as `Measured` leaves; ``options`` are those of the robust filter."""
    match reader:
        case RunReader():
            return measure_run(reader, options).tree
        case OutputReader():
            return _of_output(reader)
        case _:
            raise TypeError(f"nobody measures what a {type(reader).__name__} reads")


def selected(tree: Branch, analysis: str) -> Branch:
    """What one analysis shows of them; ``all``, all but the single datapoints."""
    wanted = _PARTS.get(analysis)
    if wanted is None:
        return {name: part for name, part in tree.items() if name != "items"}
    return {name: tree[name] for name in ("simulated", "units", *wanted) if name in tree}


def measure_run(reader: RunReader, options: RobustOptions | None = None) -> MeasuredRun:
    """``options`` are those of the robust filter."""
    grid = score_grid(reader)
    reweighting = Reweighting(len(grid.items.ids), cluster=grid.items.alike)
    pairs = judge_pairs(grid, reweighting)
    judges = judge_measures(grid, pairs)
    biases, worth = biases_of(reader, grid), panel_worth(reader, grid)
    itself = consistency_of(reader, grid, reweighting)
    students, levels = student_measures(grid), levels_by_judge(grid)
    ranks = ranking(grid, students)
    options = options or RobustOptions()
    robust = robust_set(grid, judges, options)
    tree: Branch = {
        "units": int(grid.valid.sum()),
        "agreement": pair_measures(pairs),
        "panel": panel_measures(grid, reweighting),
        "judges": {
            name: {
                **judge,
                "levels": levels[name],
                "bias": biases[name],
                "consistency": itself[name],
            }
            for name, judge in judges.items()
        },
        "variance": worth.variance,
        "next": worth.next,
        "teachers": teacher_measures(grid, reweighting),
        "students": students,
        "ranking": ranking_measures(ranks),
        "labels": label_measures(reader, grid.students),
        "without_own": without_own_measures(grid),
        "robust": robust_measures(grid, robust, options),
        **benchmark_measures(reader, grid),
    }
    related = family_judges(grid, tree["judges"], ranks, families_of(reader, grid))
    place = {name: at for at, name in enumerate(ranks.order)}
    scores = sorted(student_scores(reader), key=lambda score: place.get(score.student, len(place)))
    doubts = (Conclusion("leads", text) for text in answer_findings(scores))
    beside = label_task_notes(reader)
    found = (*conclusions(tree, ranks, beside, related, task_leaders(grid, ranks)), *doubts)
    texts = [conclusion.text for conclusion in found]
    return MeasuredRun({"findings": texts, "simulated": reader.simulated, **tree}, grid, ranks, robust, found)


def _of_output(reader: OutputReader) -> Branch:
    """``metrics`` of ``eval-framework`` by model and task, in their own units; of a task with several samples
    of each prompt, over these, with what else is to be known of them in ``samples``; and what its judgments
    say of its judges."""
    sampled = sample_figures(reader)
    found: Branch = {}
    for metric in reader.metrics:
        if metric.task not in sampled.get(metric.model, {}):
            measured = Measured(metric.value, metric.low, metric.high, metric.n, metric.failed)
            found.setdefault(metric.model, {}).setdefault(metric.task, {})[metric.metric] = measured
    samples: Branch = {}
    for model, tasks in sampled.items():
        for task, figures in tasks.items():
            found.setdefault(model, {})[task] = {name: _of_samples(one) for name, one in figures.items()}
            samples.setdefault(model, {})[task] = {
                name: {part: getattr(figure, part) for part in _OF_SAMPLES}
                for name, figure in figures.items()
            }
    [(units,)] = reader.rows("SELECT count(*) FROM scores WHERE value IS NOT NULL")
    judged = output_judges(reader)
    findings = list(panel_findings(judged["judges"]))
    nobody: Branch = {"teachers": {}, "students": {}}
    return {"findings": findings, "units": units, **judged, **nobody, "metrics": found, "samples": samples}


_OF_SAMPLES = ("unit", "std", "sem", "n_runs", "per_run", "item_se")


def _of_samples(figure: SampleFigure) -> Measured:
    low, high = figure.ci95 or (None, None)
    return Measured(figure.mean, low, high, figure.n, figure.failed)


# The parts that hold an object for each name.
_EACH = ("agreement", "judges", "teachers", "students", "metrics", "coverage", "items")


def plain_measures(tree: Branch) -> dict[str, Any]:
    """As JSON has it."""
    plain: dict[str, Any] = {}
    for name, part in tree.items():
        if name in _EACH:
            plain[name] = _each(part)
        elif name == "ranking":
            plain[name] = _plain_ranking(part)
        elif name == "labels":
            plain[name] = {
                task: {
                    label: {"students": _each(found["students"]), "ranking": _plain_ranking(found["ranking"])}
                    for label, found in labels.items()
                }
                for task, labels in part.items()
            }
        elif name in ("robust", "without_own"):
            plain[name] = {
                **part,
                "students": _each(part["students"]),
                "ranking": _plain_ranking(part["ranking"]),
            }
        else:
            plain[name] = as_plain(part) if isinstance(part, dict) else part
    return plain


def _each(part: Branch) -> dict[str, Any]:
    return {name: as_plain(found) for name, found in part.items()}


def _plain_ranking(part: Branch) -> dict[str, Any]:
    return {**part, "scores": _each(part["scores"]), "differences": _each(part["differences"])}
