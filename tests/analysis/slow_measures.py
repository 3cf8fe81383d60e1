"""Every measure of a run once more, as its definition reads: loops over records, no library, no haste."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations
from math import ceil, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

VALUE = {"High": 1.0, "Medium": 0.5, "Low": 0.0}

Record = dict[str, Any]
Found = dict[str, Any]


class Unit(NamedTuple):
    """A score of a response by a judge in a factor."""

    item: str
    task: str
    teacher: str
    strata: tuple[str, ...]
    student: str
    judge: str
    factor: str
    value: float


class Counted(NamedTuple):
    """What is in the means: nobody and nothing ``lost``, that is students, judges and teachers by name and
    factors as (task, factor)."""

    units: list[Unit]
    items: dict[str, Record]
    students: list[str]
    judges: dict[str, set[str]]
    factors: dict[str, set[str]]


def mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None


def records(folder: Path, good: Callable[[Record], bool]) -> dict[str, Record]:
    """Those that count, by id: a good one before others, else the last; only the good ones."""
    standing: dict[str, Record] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").split("\n"):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            record["good"] = record.get("status", "ok") == "ok" and good(record)
            if record["good"] or not standing.get(record["id"], {"good": False})["good"]:
                standing[record["id"]] = record
    return standing


def text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def counted(folder: Path, lost: Iterable[str] = (), lost_factors: Iterable[tuple[str, str]] = ()) -> Counted:
    lost, lost_factors = set(lost), set(lost_factors)
    items = {
        key: item
        for key, item in records(folder / "phase3_datapoints", lambda r: r["prompt"] is not None).items()
        if item["good"] and item["teacher_model_id"] not in lost
    }
    answers = records(folder / "phase4_responses", lambda r: r["response"] is not None)
    students = sorted({answer["student_model_id"] for answer in answers.values()} - lost)
    judges, factors = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    units = []
    levels = set(VALUE)
    for judged in records(
        folder / "phase5_evaluations", lambda r: any(level in levels for level in r["scores"].values())
    ).values():
        answer = answers.get(judged["response_id"], {"good": False})
        item = items.get(answer.get("datapoint_id", ""))
        task, judge = judged["task_id"], judged["judge_model_id"]
        if not answer["good"] or item is None or judge in lost:
            continue
        judges[task].add(judge)
        named = {*judged["scores"], *judged.get("missing", [])}
        factors[task] |= {factor for factor in named if (task, factor) not in lost_factors}
        if not judged["good"] or answer["student_model_id"] in lost:
            continue
        strata = tuple(f"{name}={text(of)}" for name, of in item.get("sampled_target_attributes", {}).items())
        for factor, level in judged["scores"].items():
            if level in levels and (task, factor) not in lost_factors:
                place = (item["id"], task, item["teacher_model_id"], strata, answer["student_model_id"])
                units.append(Unit(*place, judge, factor, VALUE[level]))
    return Counted(units, items, students, judges, factors)


def agreement(units: Sequence[Unit]) -> tuple[Found, Found]:
    """Of pairs and of judges."""
    by_judge: dict[str, dict[Hashable, float]] = defaultdict(dict)
    for unit in units:
        by_judge[unit.judge][unit.item, unit.student, unit.factor] = unit.value
    pairs: Found = {}
    for a, b in combinations(sorted(by_judge), 2):
        both = [(by_judge[a][key], by_judge[b][key]) for key in by_judge[a].keys() & by_judge[b].keys()]
        found: Found = {"count": len(both)}
        if both:
            found["spa"] = mean(float(x == y) for x, y in both)
            found["wpa"] = mean({0.0: 1.0, 0.5: 0.5, 1.0: 0.0}[abs(x - y)] for x, y in both)
            chance = sum(
                sum(x == level for x, _ in both) * sum(y == level for _, y in both) / len(both) ** 2
                for level in VALUE.values()
            )
            found["kappa"] = None if chance == 1 else (found["spa"] - chance) / (1 - chance)
        pairs[f"{a}|{b}"] = found
    judges: Found = {}
    for judge in by_judge:
        mine = [pair for name, pair in pairs.items() if judge in name.split("|") and pair["count"]]
        common = sum(pair["count"] for pair in mine)
        judges[judge] = {"count": common, "degenerate": common < 30}
        for measure in ("spa", "wpa", "kappa"):
            known = [pair for pair in mine if pair[measure] is not None]
            weights = sum(pair["count"] for pair in known)
            judges[judge][f"{measure}_mean"] = mean(pair[measure] for pair in known)
            judges[judge][f"{measure}_weighted"] = (
                sum(pair[measure] * pair["count"] for pair in known) / weights if known else None
            )
    return pairs, judges


def teachers(units: Sequence[Unit], names: Iterable[str]) -> dict[str, Found]:
    by_response: dict[tuple[str, str, str, str, str], list[float]] = defaultdict(list)
    for unit in units:
        by_response[unit.teacher, unit.task, unit.factor, unit.student, unit.item].append(unit.value)
    cells: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for (teacher, task, factor, student, _), given in by_response.items():
        cells[teacher, task, factor, student].append(sum(given) / len(given))
    found: dict[str, Found] = {}
    for name in names:
        parts: dict[tuple[str, str], list[float]] = defaultdict(list)
        for (teacher, task, factor, _), given in cells.items():
            if teacher == name:
                parts[task, factor].append(sum(given) / len(given))
        reported = [means for means in parts.values() if len(means) > 1]
        centres = [sum(means) / len(means) for means in reported]
        v1 = mean(
            sum((x - centre) ** 2 for x in means) / (len(means) - 1)
            for means, centre in zip(reported, centres, strict=True)
        )
        found[name] = {"v1": v1, "s2": v1 and sqrt(v1), "r3": mean(max(m) - min(m) for m in reported)}
    return found


def item_means(units: Iterable[Unit]) -> dict[str, dict[str, float]]:
    """By task and datapoint: the mean over judges and factors."""
    given: dict[tuple[str, str], list[float]] = defaultdict(list)
    for unit in units:
        given[unit.task, unit.item].append(unit.value)
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for (task, item), values in given.items():
        found[task][item] = sum(values) / len(values)
    return found


def mean_over_tasks(units: Iterable[Unit]) -> float | None:
    return mean(sum(means.values()) / len(means) for means in item_means(units).values())


def students(of: Counted) -> dict[str, Found]:
    possible = {
        task: sum(item["task_id"] == task for item in of.items.values())
        * len(of.judges[task])
        * len(of.factors[task])
        for task in {item["task_id"] for item in of.items.values()}
    }
    scores = ranking(of)["scores"]
    found: dict[str, Found] = {}
    for student in of.students:
        mine = [unit for unit in of.units if unit.student == student]
        groups: dict[str, Callable[[Unit], Iterable[str]]] = {
            "by_task": lambda unit: (unit.task,),
            "by_aspect": lambda unit: (unit.factor,),
            "by_judge": lambda unit: (unit.judge,),
            "by_teacher": lambda unit: (unit.teacher,),
            "by_attr_value": lambda unit: unit.strata,
        }
        found[student] = {
            "overall": mean(unit.value for unit in mine),
            "score": scores.get(student),
            "mean_recorded": mean_over_tasks(mine),
            "valid_evals": len(mine),
            "n": {"overall": len({unit.item for unit in mine}), "by_task": {}},
            "missing": {"overall": sum(possible.values()) - len(mine), "by_task": {}},
        }
        for name, group in groups.items():
            parts: dict[str, list[float]] = defaultdict(list)
            for unit in mine:
                for part in group(unit):
                    parts[part].append(unit.value)
            found[student][name] = {part: mean(values) for part, values in parts.items()}
        for task, count in possible.items():
            of_task = [unit for unit in mine if unit.task == task]
            found[student]["n"]["by_task"][task] = len({unit.item for unit in of_task})
            found[student]["missing"]["by_task"][task] = count - len(of_task)
    return found


def ranking(of: Counted) -> Found:
    scores = {name: mean_over_tasks(u for u in of.units if u.student == name) for name in of.students}
    known = {name: score for name, score in scores.items() if score is not None}
    units: dict[str, dict[tuple[str, str, str], Unit]] = {name: {} for name in known}
    for unit in of.units:
        if unit.student in units:
            units[unit.student][unit.item, unit.factor, unit.judge] = unit
    differences: Found = {}
    for a, b in combinations(sorted(known), 2):
        both = units[a].keys() & units[b].keys()
        of_a, of_b = (item_means(units[name][cell] for cell in both) for name in (a, b))
        gaps = [
            sum(of_b[task][item] - score for item, score in scored.items()) / len(scored)
            for task, scored in of_a.items()
        ]
        n = sum(map(len, of_a.values()))
        differences[f"{a}|{b}"] = {"difference": mean(gaps), "n": n}
    most = max(map(len, units.values()))
    adjusted = _adjusted(known, differences, [name for name in known if len(units[name]) == most])
    order = sorted(known, key=lambda name: (-round(adjusted[name], 9), name))
    return {"order": order, "differences": differences, "scores": adjusted}


def _adjusted(means: dict[str, float], differences: Found, whole: list[str]) -> dict[str, float]:
    """Normal equations of the least squares that the means' differences follow those of pairs; those who
    are whole keep theirs on average."""
    names = sorted(means)
    laplacian, target = np.zeros((len(names), len(names))), np.zeros(len(names))
    for pair, found in differences.items():
        a, b = map(names.index, pair.split("|"))
        n = found["n"]
        laplacian[[a, b], [a, b]] += n
        laplacian[[a, b], [b, a]] -= n
        target[[a, b]] += [-n * found["difference"], n * found["difference"]]
    free = np.linalg.pinv(laplacian) @ target
    kept = sum(means[name] - free[names.index(name)] for name in whole) / len(whole)
    return {name: float(free[at]) + kept for at, name in enumerate(names)}


def robust(of: Counted, options: Found) -> Found:
    _, judges = agreement(of.units)
    metric = f"{options['agreement_metric']}_mean"
    ranked = sorted(
        (name for name, found in judges.items() if not found["degenerate"]),
        key=lambda name: (-judges[name][metric], -judges[name]["count"], name),
    )
    best = ranked if options["judge_selection"] == "all" else ranked[: max(ceil(len(ranked) / 2), 2)]
    by_best = [unit for unit in of.units if unit.judge in best]
    names = {item["teacher_model_id"] for item in of.items.values()}
    reported = teachers(by_best, names)
    formula = options["teacher_score_formula"]
    chosen = sorted(names, key=lambda name: (-(reported[name][formula] or 0.0), name))[: ceil(len(names) / 2)]
    cells: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for unit in by_best:
        cells[unit.item, unit.student, unit.factor].append(unit.value)
    apart = set()
    for (item, _, _), values in cells.items():
        centre = sum(values) / len(values)
        near = sum(abs(value - centre) <= options["score_tolerance"] + 1e-9 for value in values)
        if near < options["agreement_threshold"] * len(best) - 1e-9:
            apart.add(item)
    stays = {item for item, _, _ in cells} - apart
    stays = {item for item in stays if of.items[item]["teacher_model_id"] in chosen}
    kept = Counted(
        [unit for unit in by_best if unit.item in stays],
        {key: item for key, item in of.items.items() if key in stays},
        of.students,
        {task: judges & set(best) for task, judges in of.judges.items()},
        of.factors,
    )
    return {
        "judges": best,
        "teachers": chosen,
        "datapoints": len(stays),
        "of_datapoints": len(of.items),
        "students": students(kept),
    }


def coverage(of: Counted, space: dict[str, list[Any]]) -> dict[str, Found]:
    """The declared space of every task, and what students make of its datapoints."""
    found: dict[str, Found] = {}
    for task in {item["task_id"] for item in of.items.values()}:
        mine = [item for item in of.items.values() if item["task_id"] == task]
        sampled = [
            {f"{name}={text(of)}" for name, of in item.get("sampled_target_attributes", {}).items()}
            for item in mine
        ]
        single = [{f"{name}={text(value)}"} for name, values in space.items() for value in values]
        double = [
            one | other
            for one, other in combinations(single, 2)
            if next(iter(one)).split("=")[0] != next(iter(other)).split("=")[0]
        ]
        found[task] = {}
        for strata, acr, rar in ((single, "acr", "rar"), (double, "pairwise_acr", "pairwise_rar")):
            counts = [sum(stratum <= each for each in sampled) for stratum in strata]
            scarce = [count for count in counts if count <= 2]
            found[task][acr] = sum(count > 0 for count in counts) / len(counts)
            found[task][rar] = sum(count > 0 for count in scarce) / len(scarce) if scarce else None
        found[task] |= _items_of(of, [item["id"] for item in mine], task)
    return found


def _items_of(of: Counted, ids: Sequence[str], task: str) -> Found:
    scores = {
        student: item_means(u for u in of.units if u.student == student)[task] for student in of.students
    }
    difficulty, discrimination, passed, failed = [], [], 0, 0
    for item in ids:
        known = [name for name in scores if item in scores[name]]
        if not known:
            continue
        own = [scores[name][item] for name in known]
        difficulty.append(1 - sum(own) / len(own))
        passed += all(score == 1 for score in own)
        failed += all(score == 0 for score in own)
        rest = [
            mean(score for other, score in scores[name].items() if other != item) or 0.0 for name in known
        ]
        x, y = sum(own) / len(own), sum(rest) / len(rest)
        spread = sqrt(sum((each - x) ** 2 for each in own) * sum((each - y) ** 2 for each in rest))
        if len(own) > 2 and spread > 1e-12:
            joint = sum((a - x) * (b - y) for a, b in zip(own, rest, strict=True))
            discrimination.append(joint / spread)
    return {
        "difficulty": mean(difficulty),
        "discrimination": mean(discrimination),
        "all_pass": passed,
        "all_fail": failed,
        "reversed": sum(value < 0 for value in discrimination),
    }
