"""What `coeval analyze` costs: 80,000 to ten million judgments of five factors each.

``python -m perf.analysis FOLDER ITEMS STUDENTS JUDGES`` writes such a run, in a process of its own: the
memory of one that starts another counts for that one too.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from coeval import __version__
from perf.measure import Cost, coeval, run
from perf.scenarios import Figures

STUDENTS, JUDGES, FACTORS = 10, 4, 5
_EACH = STUDENTS * JUDGES
_WORDS = [f"word{number}" for number in range(500)]


def analyze_80_thousand(folder: Path) -> Figures:
    """Asked: under 6 s and 400 MB."""
    return _analyze(folder, 80_000, 6.0)


def analyze_million(folder: Path) -> Figures:
    """Asked: under 25 s and 1 GB."""
    return _analyze(folder, 1_000_000, 25.0)


def analyze_ten_million(folder: Path) -> Figures:
    """Asked: within 4 GB; the figure is the share of that. Takes some minutes, and 4 GB of disk."""
    cost = _analyzed(folder, 10_000_000)
    return Figures(cost.rss_mb / 4_096, _reported(cost, 10_000_000))


def _analyze(folder: Path, judgments: int, most_s: float) -> Figures:
    cost = _analyzed(folder, judgments)
    return Figures(cost.wall_s / most_s, _reported(cost, judgments))


def _analyzed(folder: Path, judgments: int) -> Cost:
    judged_run(folder / "run", judgments)
    return run(coeval("analyze", "all", "--run", "run", "--format", "json", "--partial-ok"), folder)


def judged_run(folder: Path, judgments: int) -> None:
    """Write a run of so many judgments, in a process of its own."""
    how = (judgments // _EACH, STUDENTS, JUDGES) if judgments >= _EACH else (judgments // 2, 2, 1)
    run([sys.executable, "-m", "perf.analysis", str(folder), *map(str, how)], folder.parent)


def _reported(cost: Cost, judgments: int) -> str:
    return (
        f"analyze all of {judgments:,} judgments in {cost.wall_s:.1f} s ({cost.cpu_s:.1f} s of CPU), "
        f"peak {cost.rss_mb:.0f} MB"
    )


def write_judged_run(folder: Path, items: int, students: int = STUDENTS, judges: int = JUDGES) -> None:
    """A run of two tasks and two teachers, without a configuration, so that all that is on record counts."""
    drawn = random.Random(0)
    for name in ("phase3_datapoints", "phase4_responses", "phase5_evaluations"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "meta.json").write_text(json.dumps(_META))
    for place in range(4):
        task, teacher = f"task-{place % 2}", f"teacher-{place // 2}"
        answers = [folder / f"phase4_responses/{task}.student-{n}.responses.jsonl" for n in range(students)]
        judged = [
            folder / f"phase5_evaluations/{task}.{teacher}.judge-{n}.evaluations.jsonl" for n in range(judges)
        ]
        _write_part(folder, (task, teacher), range(1, (items + 3 - place) // 4 + 1), (answers, judged), drawn)


def _write_part(
    folder: Path,
    named: tuple[str, str],
    numbers: range,
    places: tuple[list[Path], list[Path]],
    drawn: random.Random,
) -> None:
    task, teacher = named
    factors = [f"factor-{number}" for number in range(FACTORS)]
    answers, judged = ([path.open("a") for path in paths] for paths in places)
    with (folder / "phase3_datapoints" / f"{task}.{teacher}.datapoints.jsonl").open("w") as datapoints:
        for number in numbers:
            item = f"{task}__{teacher}__{number:05d}"
            colour, prompt = drawn.choice(("red", "blue", "green")), " ".join(drawn.choices(_WORDS, k=30))
            datapoints.write(
                f'{{"id":"{item}","task_id":"{task}","teacher_model_id":"{teacher}",'
                f'"sampled_target_attributes":{{"colour":"{colour}"}},"prompt":"{prompt}",'
                f'"reference_response":"{prompt}"}}\n'
            )
            hard = drawn.random()
            for student, out in enumerate(answers):
                answer = f"{item}__student-{student}"
                out.write(
                    f'{{"id":"{answer}","datapoint_id":"{item}","task_id":"{task}",'
                    f'"student_model_id":"student-{student}","response":"{prompt}"}}\n'
                )
                good = 0.4 + 0.03 * student + 0.5 * (0.5 - hard)
                for judge, file in enumerate(judged):
                    scores = ",".join(
                        f'"{factor}":"{_LEVELS[(drawn.random() < good) + (drawn.random() < good)]}"'
                        for factor in factors
                    )
                    file.write(
                        f'{{"id":"{answer}__judge-{judge}","response_id":"{answer}",'
                        f'"judge_model_id":"judge-{judge}","scores":{{{scores}}}}}\n'
                    )
    for file in (*answers, *judged):
        file.close()


_LEVELS = ("Low", "Medium", "High")
_META = {
    "experiment_id": "large",
    "coeval_version": __version__,
    "status": "completed",
    "created_at": "2026-02-24T12:00:00Z",
    "updated_at": "2026-02-24T12:01:36Z",
}

if __name__ == "__main__":
    write_judged_run(Path(sys.argv[1]), *map(int, sys.argv[2:]))
