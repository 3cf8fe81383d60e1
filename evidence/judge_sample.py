"""``python -m evidence.judge_sample``: how often "leads" is false.

Leads: students who are equal over all judges of a population, scored by a panel drawn from it, each judge
with a leaning of its own to each student; items are drawn too. Comparisons: pages of differences overall, by
task and by factor, of sides of which some are equal. Leaders: picked from equal students. Writes
``docs/evidence/judge-sample.md``; seeded, so that it is the same every time (twelve minutes).

    python -m evidence.judge_sample                 the page as it is kept
    python -m evidence.judge_sample --repeats 100   a quick look, on the terminal
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from coeval.analysis.comparison.family import gatekeep_p_values
from coeval.analysis.comparison.paired_difference import PairedScores, holm_adjust
from coeval.analysis.intervals import ALPHA
from coeval.analysis.measures.ranking import Ranking, StudentMean, leader_and_rival, rank_by_shared_scores
from coeval.analysis.panel.mean_squares import JudgeValues
from evidence.page import write_page

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "judge-sample.md"
REPEATS = 4000
# Pages and picked leaders to a run: they take no ranking.
PAGES = 10
NULLS = 4
# Students of whom one is picked as the leader.
COMPETITORS = (2, 3, 5, 8)
ITEMS = 100
JUDGES = (2, 3, 5, 8)
LEANINGS = (0.04, 0.07)
STUDENTS = (2, 4)
# Points of a true lead, whose power is told.
GAP = 0.1
# Of single scores: students by item, judges' severity, and the rest.
STUDENT_ITEM, SEVERITY, REST = 0.15, 0.05, 0.2


class Leads(NamedTuple):
    """Shares of runs: a false lead over items and over items and judges, a true one found by either; and how
    often each interval of a pair holds the truth."""

    false_items: float
    false_judges: float
    found_items: float
    found_judges: float
    holds_items: float
    holds_judges: float


def panel_ranking(
    random: np.random.Generator, students: int, judges: int, leaning: float, gap: float
) -> Ranking:
    """Of one run; the first student is ahead by ``gap`` for all judges."""
    shape = (ITEMS, students, judges)
    scores = 0.5 + leaning * random.normal(size=shape[1:]) + SEVERITY * random.normal(size=judges)
    scores = scores + STUDENT_ITEM * random.normal(size=(*shape[:2], 1)) + REST * random.normal(size=shape)
    scores[:, 0] += gap
    scores = np.clip(scores, -1, 2)  # within reach of no end: what is told is of the middle of the scale
    means, names = scores.mean(axis=2), [f"s{at}" for at in range(students)]
    once = np.ones(ITEMS)
    pairs = [*combinations(range(students), 2)]
    common = {(names[a], names[b]): {"": PairedScores(means[:, a], means[:, b], once)} for a, b in pairs}
    judged = {(names[a], names[b]): [JudgeValues(scores[:, b] - scores[:, a])] for a, b in pairs}
    levels = {name: StudentMean(float(means[:, at].mean()), ITEMS) for at, name in enumerate(names)}
    return rank_by_shared_scores(levels, common, (), judged)


def leads(students: int, judges: int, leaning: float, repeats: int) -> Leads:
    random = np.random.default_rng([students, judges, round(100 * leaning)])
    counts = np.zeros(6)
    for _ in range(repeats):
        found = panel_ranking(random, students, judges, leaning, 0.0)
        first = found.difference(*leader_and_rival(found))
        pair = found.differences["s0", "s1"]
        assert first is not None
        assert pair.ci95_over_judges is not None
        (low, high), wide = pair.ci95, pair.ci95_over_judges
        true = panel_ranking(random, students, judges, leaning, GAP)
        ahead = true.difference(*leader_and_rival(true))
        assert ahead is not None
        right = true.order[0] == "s0"
        counts += (
            first.significant,
            first.verdict == "leads",
            right and ahead.significant,
            right and ahead.verdict == "leads",
            low <= 0 <= high,
            wide[0] <= 0 <= wide[1],
        )
    return Leads(*(counts / repeats).tolist())


# --- Pages of a comparison

TASKS, FACTORS, OF_TASK = 3, 4, 60


class World(NamedTuple):
    """``ahead`` (sides, tasks, factors): how far each side is ahead, in standard deviations of a score."""

    said: str
    ahead: NDArray[np.float64]


def _worlds() -> Iterator[World]:
    equal = np.zeros((2, TASKS, FACTORS))
    yield World("two equal sides", equal)
    one = equal.copy()
    one[1, 0] = 0.5
    yield World("two sides, one task of three differs", one)
    some = equal.copy()
    some[1, :, 0] = 1.0
    yield World("two sides, one factor of each task differs", some)
    single = equal.copy()
    single[1, 0, 0] = 1.5
    yield World("two sides, one factor of one task differs", single)
    third = np.zeros((3, TASKS, FACTORS))
    third[2] = 0.5
    yield World("three sides, one ahead in everything", third)
    mixed = np.zeros((3, TASKS, FACTORS))
    mixed[2, :2, :2] = 0.7
    yield World("three sides, one ahead in half of two tasks", mixed)


class Pages(NamedTuple):
    """Shares of pages with any false "leads", by Holm in each kind of row and gatekept: overall, and in tasks
    and factors; and the share of the true differences that are found by either."""

    said: str
    false_families: float
    false_overall: float
    false_below: float
    found_families: float
    found_gatekept: float


def pages(world: World, repeats: int) -> Pages:
    random = np.random.default_rng([TASKS, len(world.said)])
    counts = np.zeros(5)
    pairs = [*combinations(range(len(world.ahead)), 2)]
    for _ in range(repeats):
        p, above, family, truth = page_of(world, pairs, random)
        by_family = np.ones(len(p))
        for name in set(family):
            places = [at for at, one in enumerate(family) if one == name]
            by_family[places] = holm_adjust([p[at] for at in places])
        kept = np.array([0.0 if one is None else one.p for one in gatekeep_p_values(p, above)])
        differs, first = np.array(truth), np.array([at is None for at in above])
        counts[0] += (by_family[~differs] < ALPHA).any()
        for at, question in enumerate((first, ~first), 1):
            counts[at] += (kept[~differs & question] < ALPHA).any()
        for at, adjusted in enumerate((by_family, kept), 3):
            counts[at] += (adjusted[differs] < ALPHA).mean() if differs.any() else np.nan
    return Pages(world.said, *(counts / repeats).tolist())


def page_of(
    world: World, pairs: Sequence[tuple[int, int]], random: np.random.Generator
) -> tuple[list[float], list[int | None], list[str], list[bool]]:
    """Of each row its p-value, the row above it, its family, and whether there is a difference."""
    sides = len(world.ahead)
    scores = random.normal(size=(sides, TASKS, FACTORS, OF_TASK)) + world.ahead[..., None]
    scores += 0.7 * random.normal(size=(sides, TASKS, 1, OF_TASK))  # factors of one answer go together
    p: list[float] = []
    above: list[int | None] = []
    family: list[str] = []
    truth: list[bool] = []
    for a, b in pairs:
        apart, ahead = scores[b] - scores[a], world.ahead[b] - world.ahead[a]
        of_tasks = apart.mean(axis=1)
        overall = len(p)
        p.append(_p(of_tasks.mean(axis=0)))
        above.append(None)
        family.append("overall")
        truth.append(bool(abs(ahead.mean()) > 0))
        for task in range(TASKS):
            place = len(p)
            p.append(_p(of_tasks[task]))
            above.append(overall)
            family.append("task")
            truth.append(bool(abs(ahead[task].mean()) > 0))
            for factor in range(FACTORS):
                p.append(_p(apart[task, factor]))
                above.append(place)
                family.append("part")
                truth.append(bool(abs(ahead[task, factor]) > 0))
    return p, above, family, truth


def exact_share(differences: int = 1_000_000, at_once: int = 50_000) -> float:
    """How often the test of an overall difference that is none is below 5%."""
    random, called = np.random.default_rng(1), 0
    for _ in range(differences // at_once):
        apart = random.normal(size=(at_once, OF_TASK))
        t = apart.mean(axis=1) / (apart.std(axis=1, ddof=1) / OF_TASK**0.5)
        called += int((2 * stdtr(OF_TASK - 1, -abs(t)) < ALPHA).sum())
    return called / differences


# --- A leader that is picked from the data


def picked_leaders(students: int, repeats: int) -> tuple[float, float]:
    """Of equal students: the share of runs in which the one with the highest mean is called better than any
    other, by Holm over it against the others and by Holm over all pairs."""
    random = np.random.default_rng([students, ITEMS])
    counts = np.zeros(2)
    for _ in range(repeats):
        scores = random.normal(size=(students, ITEMS)) + random.normal(size=ITEMS)
        leader = int(scores.mean(axis=1).argmax())
        pairs = {pair: _p(scores[pair[0]] - scores[pair[1]]) for pair in combinations(range(students), 2)}
        own = holm_adjust([p for pair, p in pairs.items() if leader in pair])
        every = dict(zip(pairs, holm_adjust(list(pairs.values())), strict=True))
        counts += min(own) < ALPHA, min(p for pair, p in every.items() if leader in pair) < ALPHA
    share_own, share_all = (counts / repeats).tolist()
    return share_own, share_all


def _p(differences: NDArray[np.float64]) -> float:
    n = len(differences)
    return 2 * float(stdtr(n - 1, -abs(differences.mean()) / (differences.std(ddof=1) / n**0.5)))


# --- The page

INTRODUCTION = """\
# Leads that are false

    python -m evidence.judge_sample

## Who leads, where judges are a sample

Students that are equal over a population of judges, each judge with its own leaning to each student
(standard deviation 4 or 7 points), {items} items, {repeats} runs a row. "by these judges": a lead over
items, which is said with these words. "leads": the word alone, for a lead over items and judges, of three
judges or more. Found: the same of a student who is ahead by {gap:g} points. Holds: how often a pair's own
95% interval holds the true difference. The goal is at most 6% false *leads* in each row.
"""
COMPARED = """\
## Any false "leads" on a page

Pages of a comparison over {tasks} tasks of {of} items, with {factors} factors each, {repeats} pages a row.
"by kinds": Holm's adjustment among the overall differences, among tasks, and among factors, by itself. As
it is: two questions with 5% each, who is ahead *overall* (Holm over all pairs), and *where* (tasks are tested
where the overall difference of their pair is significant, factors where their task is). Found: the share of
true differences called so. The goal is at most 5% for each question; of two equal sides the test is exact, so
what differs from 5% is chance (standard error {chance}): of a million
overall differences, {exact} are called so.
"""
PICKED = """\
## A leader that is picked from the data

Equal students, {items} items, {repeats} runs a row: how often the one with the highest mean is called better
than any other by Holm over its own pairs, as if it had been named before, and by Holm over all pairs.
"""


def _percent(share: float) -> str:
    return "–" if np.isnan(share) else f"{100 * share:.1f}%"


def page(repeats: int) -> str:
    """Markdown."""
    highest = 0.0
    head = "| students | judges | leaning | false, by these judges | false, leads | found | found, leads |"
    lines = [f"{head} holds | holds, judges too |", "|" + "---|" * 9]
    for students in STUDENTS:
        for judges in JUDGES:
            for leaning in LEANINGS:
                of_runs = leads(students, judges, leaning, repeats)
                highest = max(highest, of_runs.false_judges)
                cells = map(_percent, of_runs)
                lines.append(f"| {students} | {judges} | {100 * leaning:.0f} | {' | '.join(cells)} |")
    lines += ["", f"The highest share of false *leads* is {_percent(highest)}."]
    of_pages = [
        "| world | false, by kinds | false, overall | false, where | found, by kinds | found |",
        "|" + "---|" * 6,
    ]
    for world in _worlds():
        said, *shares = pages(world, PAGES * repeats)
        of_pages.append(f"| {said} | {' | '.join(map(_percent, shares))} |")
    picked = ["| students | its own pairs | all pairs |", "|" + "---|" * 3]
    for students in COMPETITORS:
        shares = list(picked_leaders(students, NULLS * repeats))
        picked.append(f"| {students} | {' | '.join(map(_percent, shares))} |")
    told = INTRODUCTION.format(items=ITEMS, repeats=f"{repeats:,}", gap=100 * GAP)
    compared = COMPARED.format(
        tasks=TASKS,
        of=OF_TASK,
        factors=FACTORS,
        repeats=f"{PAGES * repeats:,}",
        exact=f"{100 * exact_share():.2f}%",
        chance=_percent((0.05 * 0.95 / (PAGES * repeats)) ** 0.5),
    )
    of_leaders = PICKED.format(items=ITEMS, repeats=f"{NULLS * repeats:,}")
    return "\n".join([told, *lines, "", compared, *of_pages, "", of_leaders, *picked]) + "\n"


if __name__ == "__main__":
    write_page(page, PAGE, REPEATS, __doc__, "runs of each line")
