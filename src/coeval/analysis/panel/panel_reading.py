"""What the measures of a panel take from a run, beside its scores: lengths of answers, families of models,
and what a judge was asked more than once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.agreement import DEFAULT_LEVELS, LevelScale, Reweighting
from coeval.analysis.measures.judge_measures import (
    PairAgreement,
    PairTables,
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
    bias_of,
    judge_biases,
    length_contrasts,
    severities,
)
from coeval.analysis.panel.mean_squares import COVERED
from coeval.analysis.readers.run_reader import RunReader
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
# As three families leave three judges of theirs: t allows for how little it says (evidence/leaning.py: an
# honest one of them is named in at most 5% of runs, one that gives 15 points more in 17%).
_FEWEST_DEGREES = 1
# Of items, left out one after the other: more only take longer.
_MOST_BLOCKS = 50
# Lent to a mean on either side, of a score: or else those of nothing but full marks were infinite.
_HALF = 0.5

_Units = NDArray[np.int64]


class JudgeViews(NamedTuple):
    """``views`` (B + 1, S, J): quantiles of a student's scores less their mean over judges, NaN where a judge
    scored none; the first of all items, then without one block of them after the other. ``slopes`` (S, J):
    what a step of one is worth in score."""

    views: Floats
    slopes: Floats


def kin_favours(grid: ScoreGrid, families: Mapping[str, str]) -> dict[str, dict[str, Bias]]:
    """By judge and name, ``family`` and ``self``; what cannot be estimated is left out.

    ``families`` are those of students and judges.
    """
    found: dict[str, dict[str, Bias]] = {judge: {} for judge in grid.judges}
    shape = len(grid.students), len(grid.judges)
    pairs = list(product(grid.students, grid.judges))
    family = {name: families.get(name, name) for name in (*grid.students, *grid.judges)}
    own = np.array([model_of(student) == judge for student, judge in pairs], bool).reshape(shape)
    related = own | np.array([family[one] == family[other] for one, other in pairs], bool).reshape(shape)
    if not related.any() or (seen := judge_views(grid)) is None:
        return found
    names = sorted({family[student] for student in grid.students})
    units = np.array([names.index(family[student]) for student in grid.students], np.int64)
    for place, judge in enumerate(grid.judges):
        if (favour := _favour(seen, units, related, place)) is not None:
            found[judge]["family"] = favour
        if own[:, place].any() and (favour := _of_own(seen, units, related, own, place)) is not None:
            found[judge]["self"] = favour
    return found


def _of_own(
    seen: JudgeViews, units: _Units, related: NDArray[np.bool_], own: NDArray[np.bool_], place: int
) -> Bias | None:
    """Against strangers, without the judge's relatives; where all are relatives, against each of these."""
    mine, kin = own[:, place], related[:, place] & ~own[:, place]
    if related[:, place].all():
        apart = np.where(mine, 0, 1 + np.arange(len(units)))
        found = _favour(seen, apart, own, place)
        return None if found is None else Bias(found.value, None, None, None, found.usual)
    judged = related.copy()
    judged[:, place] = mine
    return _favour(seen, np.where(kin, -1, units), judged, place)


# --- Views


def judge_views(grid: ScoreGrid) -> JudgeViews | None:
    """None where no two judges scored the same answers to `FEWEST_ITEMS` items."""
    common = _common(grid)
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
        np.stack([np.bincount(cell, of, size).reshape(shape) for of in weights.T], axis=-1)
        for weights in (valid.astype(np.float64), valid * values)
    )
    count, total = (np.concatenate([of.sum(axis=0)[None], of.sum(axis=0) - of]) for of in (count, total))
    means = (total + _HALF) / (count + 2 * _HALF)
    there = (count > 0).all(axis=0)
    there &= there.sum(axis=2, keepdims=True) > 1
    views = np.full((blocks + 1, students, judges), np.nan)
    for student in range(students):
        views[:, student] = _between(ndtri(means[:, :, student]), there[:, student], count[0, :, student])
    return JudgeViews(views, _slopes(means[0], there))


def _slopes(means: Floats, there: NDArray[np.bool_]) -> Floats:
    density = np.exp(-(ndtri(means) ** 2) / 2) / np.sqrt(2 * np.pi) * there
    return np.asarray(density.sum(axis=0) / np.maximum(there.sum(axis=0), 1), np.float64)


def _common(grid: ScoreGrid) -> NDArray[np.bool_]:
    """(C, J): the scores of rows that all judges of a task scored, but those who scored few."""
    found = np.zeros_like(grid.valid)
    for task in range(len(grid.tasks)):
        rows = np.flatnonzero(grid.task == task)
        valid = grid.valid[rows]
        counts = valid.sum(axis=0)
        judges = (counts > 0) & (counts >= COVERED * counts.max(initial=0))
        found[rows] = valid & judges & valid[:, judges].all(axis=1, keepdims=True)
    return found


def _between(y: Floats, there: NDArray[np.bool_], count: Codes) -> Floats:
    """(B, J), mean 0: what judges add to a student over its tasks, each of which has a level of its own.

    Parameters
    ----------
    y : (B, T, J)
    there, count : (T, J)
    """
    weight = there * count.max(axis=1, keepdims=True)
    shares = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1)
    level = (y * shares).sum(axis=2, keepdims=True)
    normal = np.diag(weight.sum(axis=0)) - weight.T @ shares
    found = ((y - level) * weight).sum(axis=1) @ np.linalg.pinv(normal, hermitian=True)
    found[:, ~there.any(axis=0)] = np.nan
    return np.asarray(found, np.float64)


# --- Favours


def _favour(seen: JudgeViews, units: _Units, kin: NDArray[np.bool_], place: int) -> Bias | None:
    """Of a judge's ``place``; ``kin`` (S, J) says whose answers are whose, ``units`` (S,) which students are
    one, -1 those that are left out."""
    used = np.unique(units[units >= 0])
    views = np.stack([_mean(seen.views[:, units == unit]) for unit in used], axis=1)
    is_kin = np.stack([kin[units == unit].any(axis=0) for unit in used])
    there = np.isfinite(views[0])
    mine = is_kin[:, place] & there[:, place]
    if not mine.any() or not (there[:, place] & ~mine).any():
        return None
    judges = [place, *(j for j in range(kin.shape[1]) if j != place and (is_kin & there)[:, j].any())]
    # The others' favours are estimated as well, or else an honest judge would have the opposite of them;
    # where that leaves nothing to tell, they are taken not to favour anybody, and there is no verdict.
    for favoured in (judges, [place]):
        fit = _fit(views, there, [is_kin[:, j] for j in favoured], favoured)
        if fit is not None:
            break
    else:
        return None
    slope = float(seen.slopes[kin[:, place] & (units >= 0), place].mean())
    value, usual = fit.value * slope, None if fit.scatter is None else fit.scatter * slope
    figure = Bias(value, None, None, None, usual)
    alone = len(favoured) < len(judges)
    if fit.scatter is None or fit.scatter * slope < NEARLY or len(used) < FEWEST_FAMILIES or alone:
        return figure
    of_cells = bias_of(value, fit.scatter * fit.leverage * slope, fit.degrees)
    of_items = bias_of(value, fit.item_error * slope, len(seen.views) - 2)
    return max((of_cells, of_items), key=lambda one: one.p or 0.0)._replace(usual=usual)


def _mean(views: Floats) -> Floats:
    """(B, J) of (B, students, J), over the students that a judge scored."""
    there = np.isfinite(views)
    counts = there.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(there, views, 0.0).sum(axis=1) / counts, np.float64)


class _CellFit(NamedTuple):
    """A favour in quantiles. ``scatter``: the standard deviation of a cell, None where too few degrees of
    freedom are left; ``leverage``: the favour's standard error in units of it."""

    value: float
    scatter: float | None
    leverage: float
    degrees: int
    item_error: float


def _fit(
    views: Floats, there: NDArray[np.bool_], kin: Sequence[NDArray[np.bool_]], judges: Sequence[int]
) -> _CellFit | None:
    """The favour of the first of ``judges``; None where the cells do not tell it from the others'."""
    unit, judge = np.nonzero(there)
    families, panel = there.shape
    columns = [np.eye(families)[unit], np.eye(panel)[judge]]
    columns += [((judge == j) & of[unit])[:, None] * 1.0 for j, of in zip(judges, kin, strict=True)]
    x = np.concatenate(columns, axis=1)
    at = families + panel
    rank = int(np.linalg.matrix_rank(x))
    if rank == int(np.linalg.matrix_rank(np.delete(x, at, axis=1))):
        return None
    inverse = np.linalg.pinv(x)
    y = views[:, unit, judge]
    values = y @ inverse[at]
    degrees = len(unit) - rank
    rest = y[0] - x @ (inverse @ y[0])
    scatter = float(np.sqrt(rest @ rest / degrees)) if degrees >= _FEWEST_DEGREES else None
    blocks = len(values) - 1
    error = float(np.sqrt(((values[1:] - values[1:].mean()) ** 2).sum() * (blocks - 1) / blocks))
    return _CellFit(float(values[0]), scatter, float(np.sqrt(inverse[at] @ inverse[at])), degrees, error)


# --- Agreement of a judge with itself
#
# A judgment is a repeat of another one where the same judge was shown the same words. Nobody need ask twice
# for that: students often give the same answer to an item, samples of one do, judgments of earlier settings
# are kept, and a model may be listed as a judge under two names.


class RequestedTwice(NamedTuple):
    """E levels (places in a scale), each of a ``judge`` (its place), about a datapoint (``item``), in answer
    to a ``question``: equal numbers are the same words put to the same model."""

    item: Codes
    judge: Codes
    question: Codes
    level: Codes


def consistency(
    judges: Sequence[str],
    requested: RequestedTwice,
    reweighting: Reweighting,
    scale: LevelScale = DEFAULT_LEVELS,
) -> dict[str, PairAgreement | None]:
    """By judge, over the pairs of repeats; of a question that was put N times these are N(N − 1)/2. None
    where nothing was asked twice."""
    found: dict[str, PairAgreement | None] = {}
    for place, judge in enumerate(judges):
        mine = np.isin(requested.question, requested.question[requested.judge == place])
        of_judge = RequestedTwice(*(column[mine] for column in requested))
        found[judge] = _of_judge(judge, of_judge, reweighting, scale) if len(of_judge.item) else None
    return found


def _of_judge(
    judge: str, requested: RequestedTwice, reweighting: Reweighting, scale: LevelScale
) -> PairAgreement | None:
    levels = len(scale.values)
    _, first, question = np.unique(requested.question, return_index=True, return_inverse=True)
    counts = np.zeros((len(first), levels))
    np.add.at(counts, (question, requested.level), 1)
    of_questions: Floats = (counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(levels)) / 2
    several = counts.sum(axis=1) > 1
    if not several.any():
        return None
    item = requested.item[first]
    tables = np.zeros((reweighting.blocks, levels, levels))
    np.add.at(tables, reweighting.block[item], of_questions)
    shared = np.zeros(reweighting.items, bool)
    shared[item[several]] = True
    return measure_judge_pair(
        compare_two_judges((judge, judge), PairTables(tables, shared, 0), scale, reweighting)
    )


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
    """
    >>> model_family("meta-llama/Llama-3.1-8B"), model_family("gpt-4o-mini"), model_family("sim-large")
    ('llama', 'gpt', 'sim')
    """
    folded = name.casefold()
    for family, pattern in _KNOWN.items():
        if re.search(pattern, folded):
            return family
    last = folded.rstrip("/").rpartition("/")[2]
    found = re.match(r"[^-:_.\d]+", last)
    return found[0] if found else last


def model_families(names: Iterable[str], reported: Mapping[str, str]) -> dict[str, str]:
    """By name; ``reported``: what a configuration says of some of them."""
    return {name: model_family(reported.get(name, name)) for name in names}


def family_of_one(name: str, first: str, second: str, families: Mapping[str, str]) -> str | None:
    """The one of two models that is the judge or teacher ``name``, or alone is of its family: such a judge's
    scores are left out where the two are compared without families. None where it is of neither family, or
    of both."""
    if first == second:
        return None
    if name in (first, second):
        return name
    related = [model for model in (first, second) if families.get(model, "") == families[name]]
    return related[0] if len(related) == 1 else None


def biases_of(reader: RunReader, grid: ScoreGrid) -> dict[str, JudgeBiases]:
    """By judge."""
    return judge_biases(bias_ledger(grid, families_of(reader, grid)))


def bias_ledger(grid: ScoreGrid, families: Mapping[str, str]) -> dict[str, dict[str, Bias]]:
    """By judge and name of a bias; ``families`` are those of students and judges."""
    favours = kin_favours(grid, families)
    return {judge: {"severity": bias, **favours[judge]} for judge, bias in severities(grid).items()}


def contrasts_of(reader: RunReader, grid: ScoreGrid) -> dict[tuple[str, str], LengthContrast]:
    """By pair of judges."""
    return length_contrasts(grid, _lengths(reader, grid))


def families_of(reader: RunReader, grid: ScoreGrid) -> dict[str, str]:
    """Of teachers, students and judges, as the configuration tells them or their names do."""
    reported = reader.planned.families if reader.planned is not None else {}
    return model_families((*grid.teachers, *grid.students, *grid.judges), reported)


def _lengths(reader: RunReader, grid: ScoreGrid) -> Floats:
    """(C,): characters of the answer of each row; NaN where it is not known."""
    columns = reader.columns(_LENGTHS, [list(grid.tasks), list(grid.students)])
    samples = int(grid.answers_per_item.max(initial=1))
    found = np.full((len(grid.items.ids), len(grid.students), samples), np.nan)
    counts = columns["sample"] < samples
    found[tuple(columns[name][counts] for name in ("item", "student", "sample"))] = columns["length"][counts]
    sample = np.zeros(1, np.int64) if grid.sample is None else grid.sample
    return np.asarray(found[grid.item, grid.student, sample], np.float64)


def consistency_of(
    reader: RunReader, grid: ScoreGrid, reweighting: Reweighting
) -> dict[str, PairAgreement | None]:
    """By judge: how far it agrees with itself, where it was asked the same more than once."""
    [(again,)] = reader.rows(f"SELECT count(*) FROM ({_AGAIN})")  # noqa: S608
    if not again:
        return dict.fromkeys(grid.judges)
    columns = reader.columns(_REPEATED, [list(grid.tasks), list(grid.judges), grid.scale.tolist()])
    requested = RequestedTwice(*(columns[name] for name in RequestedTwice._fields))
    return consistency(grid.judges, requested, reweighting, level_scale(grid))


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
