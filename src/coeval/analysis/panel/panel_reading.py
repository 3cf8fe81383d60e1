"""Measures of a panel that need more of a run than its scores: lengths of answers, families of models, and
judgments that a judge gave more than once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.agreement import DEFAULT_LEVELS, LevelScale, Reweighting
from coeval.analysis.measures.judge_measures import (
    PairAgreement,
    compare_two_judges,
    level_scale,
    measure_judge_pair,
)
from coeval.analysis.measures.score_grid import Codes, ScoreGrid
from coeval.analysis.panel.bias_ledger import (
    FEWEST_ITEMS,
    NEARLY,
    Bias,
    JudgeBiases,
    LengthContrast,
    adjust_biases_by_judge,
    bias_from_error,
    estimate_severities,
    judge_pair_contrasts,
)
from coeval.analysis.panel.mean_squares import is_well_covered, jackknife_error
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.special import ndtri
from coeval.core.records import CHECK, model_of

# --- Favour for a judge's family
#
# How much more a judge gives to answers of its own family, or its own, than is usual between these judges.
#
# Every judge likes some students more than the other judges do: that is no favour yet. Of each task,
# student and judge the mean score is taken, over the answers and factors that all judges of the task
# scored, as a quantile of the normal distribution: on a bounded scale a strict judge and a mild one differ
# little about the best answers, and on this one as much as elsewhere (Thurstone 1927). A student's
# quantiles less their mean over judges, averaged over tasks and over the students of a family, are fitted
# by
#
# view of family g by judge j = family_g + judge_j + favour_j · [g is the family of j] + scatter_gj.
#
# A favour is tested against the scatter of all these cells, by t with the degrees of freedom that they
# leave, and against other items, by a jackknife; the larger p-value counts. Families are the units, since a
# judge that likes one model's style may like its relatives'. With fewer than three families nothing says
# what is usual, and there is no verdict.

# Of two families one is the judge's own, and the other alone would have to show what is usual.
FEWEST_FAMILIES = 3
# Three families leave it to three judges of theirs: t allows for how little it says (evidence/leaning.py: an
# honest one of them is named in at most 5% of runs, one that gives 15 points more in 17%).
_FEWEST_DEGREES = 1
# Of items, left out one after the other: more only take longer.
_MOST_BLOCKS = 50
# Of a score, added to a mean at either end: or else the quantile of nothing but full marks were infinite.
_HALF = 0.5

_Units = NDArray[np.int64]


class JudgeResiduals(NamedTuple):
    """How judges see each student, in quantiles. ``values`` (B + 1, S, J): a student's mean quantile by each
    judge less the mean over judges, NaN if a judge scored none; first over all items, then without each of B
    blocks of them. ``slopes`` (S, J): what a step of one quantile is worth in score."""

    values: Floats
    slopes: Floats


def family_and_self_biases(grid: ScoreGrid, families: Mapping[str, str]) -> dict[str, dict[str, Bias]]:
    """Estimate by judge the biases ``family`` and ``self``; ``families``: of students and judges."""
    biases: dict[str, dict[str, Bias]] = {judge: {} for judge in grid.judges}
    shape = len(grid.students), len(grid.judges)
    pairs = list(product(grid.students, grid.judges))
    family = {name: families.get(name, name) for name in (*grid.students, *grid.judges)}
    own = np.array([model_of(student) == judge for student, judge in pairs], bool).reshape(shape)
    same_family = [family[student] == family[judge] for student, judge in pairs]
    related = own | np.array(same_family, bool).reshape(shape)
    if not related.any() or (residuals := estimate_judge_residuals(grid)) is None:
        return biases
    names = sorted({family[student] for student in grid.students})
    units = np.array([names.index(family[student]) for student in grid.students], np.int64)
    for code, judge in enumerate(grid.judges):
        if (bias := _estimate_bias(residuals, units, related, code)) is not None:
            biases[judge]["family"] = bias
        if own[:, code].any() and (bias := _estimate_self_bias(residuals, units, related, own, code)):
            biases[judge]["self"] = bias
    return biases


def _estimate_self_bias(
    residuals: JudgeResiduals,
    units: _Units,
    related: NDArray[np.bool_],
    own: NDArray[np.bool_],
    judge_index: int,
) -> Bias | None:
    """Estimate a judge's bias for its own answers against students of other families; if all students are of
    its family, against each of the others."""
    mine, relatives = own[:, judge_index], related[:, judge_index] & ~own[:, judge_index]
    if related[:, judge_index].all():
        separate = np.where(mine, 0, 1 + np.arange(len(units)))
        bias = _estimate_bias(residuals, separate, own, judge_index)
        return None if bias is None else Bias(bias.value, None, None, None, bias.usual)
    related_or_own = related.copy()
    related_or_own[:, judge_index] = mine
    return _estimate_bias(residuals, np.where(relatives, -1, units), related_or_own, judge_index)


# --- Residuals of judges


def estimate_judge_residuals(grid: ScoreGrid) -> JudgeResiduals | None:
    """Estimate the residuals; None if no two judges scored the same answers to `FEWEST_ITEMS` items."""
    common = _mark_common_scores(grid)
    several = common.sum(axis=1) > 1
    clusters, cluster = np.unique(grid.cluster[several], return_inverse=True)
    if len(clusters) < FEWEST_ITEMS:
        return None
    blocks = min(len(clusters), _MOST_BLOCKS)
    block = np.random.default_rng(0).permutation(np.arange(len(clusters)) % blocks)[cluster]
    students, judges = len(grid.students), len(grid.judges)
    shape = (blocks, len(grid.tasks), students)
    cell = np.ravel_multi_index((block, grid.task[several], grid.student[several]), shape)
    size, valid, values = int(np.prod(shape)), common[several], grid.values[grid.levels[several]]
    count, total = (
        np.stack([np.bincount(cell, column, size).reshape(shape) for column in weights.T], axis=-1)
        for weights in (valid.astype(np.float64), valid * values)
    )
    count, total = (
        np.concatenate([by_block.sum(axis=0)[None], by_block.sum(axis=0) - by_block])
        for by_block in (count, total)
    )
    means = (total + _HALF) / (count + 2 * _HALF)
    scored = (count > 0).all(axis=0)
    scored &= scored.sum(axis=2, keepdims=True) > 1
    residuals = np.full((blocks + 1, students, judges), np.nan)
    for student in range(students):
        quantiles = ndtri(means[:, :, student])
        residuals[:, student] = _judge_effects_on_student(quantiles, scored[:, student], count[0, :, student])
    density = np.exp(-(ndtri(means[0]) ** 2) / 2) / np.sqrt(2 * np.pi) * scored
    return JudgeResiduals(residuals, density.sum(axis=0) / np.maximum(scored.sum(axis=0), 1))


def _mark_common_scores(grid: ScoreGrid) -> NDArray[np.bool_]:
    """Mark the scores (C, J) of rows that all well covered judges of a task scored."""
    common = np.zeros_like(grid.valid)
    for task in range(len(grid.tasks)):
        rows = np.flatnonzero(grid.task == task)
        valid = grid.valid[rows]
        judges = is_well_covered(valid.sum(axis=0))
        common[rows] = valid & judges & valid[:, judges].all(axis=1, keepdims=True)
    return common


def _judge_effects_on_student(y: Floats, scored: NDArray[np.bool_], count: Codes) -> Floats:
    """Estimate what each judge adds to a student's quantiles ``y`` (B, T, J), given each task's own level.
    Returns (B, J), with mean 0. ``scored`` and ``count`` are (T, J)."""
    weight = scored * count.max(axis=1, keepdims=True)
    shares = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1)
    level = (y * shares).sum(axis=2, keepdims=True)
    normal = np.diag(weight.sum(axis=0)) - weight.T @ shares
    effects = ((y - level) * weight).sum(axis=1) @ np.linalg.pinv(normal, hermitian=True)
    effects[:, ~scored.any(axis=0)] = np.nan
    return np.asarray(effects, np.float64)


# --- Biases by family


def _estimate_bias(
    residuals: JudgeResiduals, units: _Units, related: NDArray[np.bool_], judge_index: int
) -> Bias | None:
    """Estimate how much more a judge gives to its relatives than the other judges do.

    ``related`` (S, J): the answers that may be favoured; ``units`` (S,): students with one number are one
    unit, and those with −1 are left out.
    """
    used = np.unique(units[units >= 0])
    means = np.stack([_mean_over_students(residuals.values[:, units == unit]) for unit in used], axis=1)
    is_related = np.stack([related[units == unit].any(axis=0) for unit in used])
    scored = np.isfinite(means[0])
    mine = is_related[:, judge_index] & scored[:, judge_index]
    if not mine.any() or not (scored[:, judge_index] & ~mine).any():
        return None
    others = (j for j in range(related.shape[1]) if j != judge_index and (is_related & scored)[:, j].any())
    judges = [judge_index, *others]
    # The others' biases are estimated as well, or else an honest judge would seem to have the opposite of
    # them; if that leaves too few cells, they are assumed to have none, and there is no verdict.
    for favoured in (judges, [judge_index]):
        fit = _fit_jointly_for_first_bias(means, scored, [is_related[:, j] for j in favoured], favoured)
        if fit is not None:
            break
    else:
        return None
    slope = float(residuals.slopes[related[:, judge_index] & (units >= 0), judge_index].mean())
    value, usual = fit.value * slope, None if fit.scatter is None else fit.scatter * slope
    figure = Bias(value, None, None, None, usual)
    alone = len(favoured) < len(judges)
    if fit.scatter is None or fit.scatter * slope < NEARLY or len(used) < FEWEST_FAMILIES or alone:
        return figure
    over_cells = bias_from_error(value, fit.scatter * fit.leverage * slope, fit.degrees)
    over_items = bias_from_error(value, fit.item_error * slope, len(residuals.values) - 2)
    return max((over_cells, over_items), key=lambda bias: bias.p or 0.0)._replace(usual=usual)


def _mean_over_students(residuals: Floats) -> Floats:
    """Average (B, students, J) over the students that a judge scored: (B, J)."""
    scored = np.isfinite(residuals)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(scored, residuals, 0.0).sum(axis=1) / scored.sum(axis=1), np.float64)


class _CellFit(NamedTuple):
    """A bias in quantiles. ``scatter``: the standard deviation of a cell, None if too few degrees of freedom
    are left; ``leverage``: the standard error of the bias in units of it."""

    value: float
    scatter: float | None
    leverage: float
    degrees: int
    item_error: float


def _fit_jointly_for_first_bias(
    residuals: Floats, scored: NDArray[np.bool_], related: Sequence[NDArray[np.bool_]], judges: Sequence[int]
) -> _CellFit | None:
    """Fit the biases of ``judges`` to their ``related`` units (a mask each) and return the first; None
    if the ``scored`` cells do not separate it from the others'."""
    unit, judge = np.nonzero(scored)
    families, panel = scored.shape
    columns = [np.eye(families)[unit], np.eye(panel)[judge]]
    columns += [((judge == j) & own[unit])[:, None] * 1.0 for j, own in zip(judges, related, strict=True)]
    x = np.concatenate(columns, axis=1)
    at = families + panel
    rank = int(np.linalg.matrix_rank(x))
    if rank == int(np.linalg.matrix_rank(np.delete(x, at, axis=1))):
        return None
    inverse = np.linalg.pinv(x)
    y = residuals[:, unit, judge]
    values = y @ inverse[at]
    degrees = len(unit) - rank
    rest = y[0] - x @ (inverse @ y[0])
    scatter = float(np.sqrt(rest @ rest / degrees)) if degrees >= _FEWEST_DEGREES else None
    leverage = float(np.sqrt(inverse[at] @ inverse[at]))
    return _CellFit(float(values[0]), scatter, leverage, degrees, jackknife_error(values[1:]))


# --- Agreement of a judge with itself
#
# A judgment is a repeat of another one where the same judge was shown the same words. Nobody need ask twice
# for that: students often give the same answer to an item, samples of one do, judgments of earlier settings
# are kept, and a model may be listed as a judge under two names.


class RepeatedJudgments(NamedTuple):
    """E levels (indices in a scale), with the indices of ``judge`` and ``item``, and the number of the
    ``question``: equal numbers are the same words put to the same model."""

    item: Codes
    judge: Codes
    question: Codes
    level: Codes


def measure_consistency(
    judges: Sequence[str],
    repeated: RepeatedJudgments,
    reweighting: Reweighting,
    scale: LevelScale = DEFAULT_LEVELS,
) -> dict[str, PairAgreement | None]:
    """Measure each judge's agreement with itself over the pairs of repeats: N(N − 1)/2 for a question put N
    times. None for a judge that was asked nothing twice."""
    agreements: dict[str, PairAgreement | None] = {}
    for code, judge in enumerate(judges):
        mine = np.isin(repeated.question, repeated.question[repeated.judge == code])
        own = RepeatedJudgments(*(column[mine] for column in repeated))
        agreements[judge] = _judge_consistency(judge, own, reweighting, scale) if len(own.item) else None
    return agreements


def _judge_consistency(
    judge: str, repeated: RepeatedJudgments, reweighting: Reweighting, scale: LevelScale
) -> PairAgreement | None:
    """Measure the agreement of one judge's ``repeated`` levels; None if no question was put twice."""
    levels = len(scale.values)
    _, first, question = np.unique(repeated.question, return_index=True, return_inverse=True)
    counts = np.zeros((len(first), levels))
    np.add.at(counts, (question, repeated.level), 1)
    pairs: Floats = (counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(levels)) / 2
    several = counts.sum(axis=1) > 1
    if not several.any():
        return None
    item = repeated.item[first]
    tables = np.zeros((reweighting.blocks, levels, levels))
    np.add.at(tables, reweighting.block[item], pairs)
    shared = np.zeros(reweighting.items, bool)
    shared[item[several]] = True
    return measure_judge_pair(compare_two_judges((judge, judge), tables, shared, 0, scale, reweighting))


# --- Model families, by name

# Of names like ``us.anthropic.claude-sonnet-4``, in which the family does not stand first.
_KNOWN = {
    "gpt": r"gpt|chatgpt|davinci|(?:^|[/.-])o[134](?:$|[^a-z0-9])",
    "claude": r"claude",
    "gemini": r"gemini|gemma",
    "llama": r"llama",
    "qwen": r"qwen|qwq",
    "mistral": r"mistral|mixtral|ministral|magistral|codestral|pixtral",
    "deepseek": r"deepseek",
    "command": r"command|(?:^|/)c4ai",
    "phi": r"(?:^|/)phi[-\d]",
    "nova": r"amazon\.nova|(?:^|/)nova-",
    "grok": r"grok",
    "glm": r"(?:^|/)(?:chat)?glm",
    "kimi": r"kimi|moonshot",
}


def model_family(name: str) -> str:
    """Return the family of a model by its name.

    >>> model_family("meta-llama/Llama-3.1-8B"), model_family("gpt-4o-mini"), model_family("sim-large")
    ('llama', 'gpt', 'sim')
    """
    folded = name.casefold()
    for family, pattern in _KNOWN.items():
        if re.search(pattern, folded):
            return family
    last = folded.rstrip("/").rpartition("/")[2]
    match = re.match(r"[^-:_.\d]+", last)
    return match[0] if match else last


def model_families(names: Iterable[str], reported: Mapping[str, str]) -> dict[str, str]:
    """Return model families by name; ``reported``: those that a configuration declares."""
    return {name: model_family(reported.get(name, name)) for name in names}


def related_model(name: str, first: str, second: str, families: Mapping[str, str]) -> str | None:
    """Return the one of two models that is the judge or teacher ``name``, or alone is of its family: such a
    judge is left out when the two are compared without families. None if it is of neither family, or both."""
    if first == second:
        return None
    if name in (first, second):
        return name
    related = [model for model in (first, second) if families.get(model, "") == families[name]]
    return related[0] if len(related) == 1 else None


def read_judge_biases(reader: RunReader, grid: ScoreGrid) -> dict[str, JudgeBiases]:
    """Estimate the biases of each judge of a run, with adjusted p-values."""
    return adjust_biases_by_judge(estimate_biases_by_judge(grid, read_model_families(reader, grid)))


def estimate_biases_by_judge(grid: ScoreGrid, families: Mapping[str, str]) -> dict[str, dict[str, Bias]]:
    """Estimate the biases of each judge, by name; ``families``: of students and judges."""
    by_family = family_and_self_biases(grid, families)
    return {
        judge: {"severity": bias, **by_family[judge]} for judge, bias in estimate_severities(grid).items()
    }


def read_model_families(reader: RunReader, grid: ScoreGrid) -> dict[str, str]:
    """Return the families of teachers, students and judges, as declared in the configuration or by name."""
    reported = reader.planned.families if reader.planned is not None else {}
    return model_families((*grid.teachers, *grid.students, *grid.judges), reported)


def read_judge_pair_contrasts(reader: RunReader, grid: ScoreGrid) -> dict[tuple[str, str], LengthContrast]:
    """Estimate the length contrast of each pair of judges of a run, by the lengths of answers on record."""
    columns = reader.columns(_LENGTHS, [list(grid.tasks), list(grid.students)])
    samples = int(grid.answers_per_item.max(initial=1))
    lengths = np.full((len(grid.items.ids), len(grid.students), samples), np.nan)
    in_grid = columns["sample"] < samples
    cells = tuple(columns[name][in_grid] for name in ("item", "student", "sample"))
    lengths[cells] = columns["length"][in_grid]
    sample = np.zeros(1, np.int64) if grid.sample is None else grid.sample
    return judge_pair_contrasts(grid, lengths[grid.item, grid.student, sample])


def read_judge_consistency(
    reader: RunReader, grid: ScoreGrid, reweighting: Reweighting
) -> dict[str, PairAgreement | None]:
    """Measure how far each judge agrees with itself if it was asked the same more than once, else None."""
    [(again,)] = reader.rows(f"SELECT count(*) FROM ({_AGAIN})")  # noqa: S608
    if not again:
        return dict.fromkeys(grid.judges)
    columns = reader.columns(_REPEATED, [list(grid.tasks), list(grid.judges), grid.scale.tolist()])
    repeated = RepeatedJudgments(*(columns[name] for name in RepeatedJudgments._fields))
    return measure_consistency(grid.judges, repeated, reweighting, level_scale(grid))


# Datapoints are numbered as in the grid: by their ids.
_LENGTHS = """
WITH item AS (
    SELECT key, row_number() OVER (ORDER BY id) - 1 AS item
    FROM planned WHERE NOT failed AND list_contains(?::VARCHAR[], task::VARCHAR)
)
SELECT item, list_position(?::VARCHAR[], r.student::VARCHAR) - 1 AS student, r.sample, r.length
FROM response r JOIN item ON r.datapoint = item.key
WHERE r.length IS NOT NULL AND student IS NOT NULL
"""

_AGAIN = (
    f"SELECT question FROM coded_judgments WHERE NOT failed AND judge <> '{CHECK}' "  # noqa: S608
    "GROUP BY ALL HAVING count(question) > 1"
)
# Equal questions are the same recipe, item, answer and criteria.
_REPEATED = f"""
WITH item AS (
    SELECT place, row_number() OVER (ORDER BY id) - 1 AS item
    FROM planned WHERE NOT failed AND list_contains(?::VARCHAR[], task::VARCHAR)
), one AS (
    SELECT i.item, c.judge, c.question, unnest(c.factors) AS factor, unnest(c.given) AS value
    FROM coded_judgments c JOIN ({_AGAIN}) USING (question) JOIN item i ON c.item = i.place
    WHERE NOT c.failed
)
SELECT item, list_position(?::VARCHAR[], judge::VARCHAR) - 1 AS judge,
       list_position(?::DOUBLE[], value) - 1 AS level,
       dense_rank() OVER (ORDER BY question, factor) - 1 AS question
FROM one WHERE factor IS NOT NULL AND level IS NOT NULL
"""  # noqa: S608
