"""What the measures of a panel take from a run, beside its scores: lengths of answers, families of models,
and what a judge was asked more than once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.agreement import BY_DEFAULT, LevelScale, Reweighting
from coeval.analysis.measures.judge_measures import (
    PairAgreement,
    PairTables,
    judge_pair,
    level_scale,
    measures_of_pair,
)
from coeval.analysis.measures.score_grid import Codes, ScoreGrid
from coeval.analysis.panel.bias_ledger import Bias, JudgeBiases, judge_biases, severities
from coeval.analysis.panel.kin_favour import kin_favours
from coeval.analysis.panel.length_contrasts import LengthContrast, length_contrasts
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.records import CHECK

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
    scale: LevelScale = BY_DEFAULT,
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
    return measures_of_pair(judge_pair((judge, judge), PairTables(tables, shared, 0), scale, reweighting))


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


def family_of_one(judge: str, first: str, second: str, families: Mapping[str, str]) -> str | None:
    """The one of two models that is the judge, or alone is of its family: such a judge's scores are left out
    where the two are compared without families. None where it is of neither family, or of both."""
    if first == second:
        return None
    if judge in (first, second):
        return judge
    related = [model for model in (first, second) if families.get(model, "") == families[judge]]
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
    """Of students and judges, as the configuration tells them or their names do."""
    reported = reader.planned.families if reader.planned is not None else {}
    return model_families((*grid.students, *grid.judges), reported)


def _lengths(reader: RunReader, grid: ScoreGrid) -> Floats:
    """(C,): characters of the answer of each row; NaN where it is not known."""
    columns = reader.columns(_LENGTHS, [list(grid.tasks), list(grid.students)])
    samples = int(grid.times.max(initial=1))
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
