"""A large run in the older layout, with all that goes wrong in years of use, from a seeded generator.

Names hold dots, so that files of different tasks and teachers share a name; lines are doubled, failed,
damaged or torn; evaluations do not say whose answer they judge; and there is no ``config.yaml``, or one.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

Record = dict[str, Any]

MODELS = ("gpt-4.1", "gpt-4.1.mini", "x", "v1.x", "gamma.small", "delta", "judge.a-2.0")
TEACHERS, STUDENTS = MODELS[:5], (*MODELS[1:5], MODELS[5])
JUDGES = ("gpt-4.1", "delta", "gamma.small", "judge.a-2.0")
TASKS: dict[str, dict[str, str]] = {
    "sum": {"accuracy": "It is right.", "brevity": "It is short."},
    "sum.v1": {"accuracy": "It is right.", "tone": "It is kind.", "plan & order": "It has both."},
    "code.python-3.12": {"runs": "It runs."},
    "uebung": {"accuracy": "Es stimmt.", "Stil (ü)": "Es liest sich gut."},
}
SPACE: dict[str, list[Any]] = {
    "form": ["strict", "loose", "none at all"],
    "length": [1, 2, 10],
    "formal": [True, False],
    "never sampled": ["a", "b"],
}
LEVELS = ("Low", "Medium", "High")
PER_TEACHER = 20


class OlderRun:
    """Writes 400 datapoints of four tasks and five teachers, 2,000 answers, 8,000 judgments."""

    def __init__(self, folder: Path, seed: int = 7) -> None:
        self.folder = folder
        self._random = random.Random(seed)
        self._lines: defaultdict[Path, list[str]] = defaultdict(list)
        self._skill = {name: 0.25 + 0.12 * place for place, name in enumerate(STUDENTS)}
        self._severity = {name: 0.06 * place for place, name in enumerate(JUDGES)}

    def write(self, *, config: bool = False, without: tuple[str, ...] = (), lost: str = "") -> Path:
        """``config``: with a ``config.yaml`` that names all, but for the models ``without`` and the factor
        ``lost`` of the task sum."""
        self._write_space()
        for task in TASKS:
            for teacher in TEACHERS:
                for n in range(1, PER_TEACHER + 1):
                    self._datapoint(task, teacher, n)
        self._orphans()
        for path, lines in self._lines.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if self._random.random() < 0.3:
                lines.insert(self._random.randrange(len(lines)), "this is not a record\n")
                lines.append("\n")
            if self._random.random() < 0.3:
                lines.append(lines[0][: len(lines[0]) // 2])  # torn by a crash
            path.write_text("".join(lines), encoding="utf-8")
        meta: Record = {
            "experiment_id": "old",
            "status": "completed",
            "phases_completed": [],
            "resume_from": None,
        }
        (self.folder / "meta.json").write_text(json.dumps(meta))
        if config:
            self._write_config(without, lost)
        return self.folder

    def _write_space(self) -> None:
        for phase, suffix, content in (
            ("phase1_attributes", "target_attrs", lambda task: SPACE),
            ("phase2_rubric", "rubric", lambda task: TASKS[task]),
        ):
            (self.folder / phase).mkdir(parents=True, exist_ok=True)
            for task in TASKS:
                path = self.folder / phase / f"{task}.{suffix}.json"
                path.write_text(json.dumps(content(task)), encoding="utf-8")

    def _write_config(self, without: tuple[str, ...], lost: str) -> None:
        models: list[Record] = []
        for name in MODELS:
            played = (("teacher", TEACHERS), ("student", STUDENTS), ("judge", JUDGES))
            roles = [role for role, names in played if name in names]
            if name not in without:
                models.append({"name": name, "interface": "simulated", "roles": roles, "parameters": {}})
        tasks = [
            {
                "name": task,
                "description": "Do it.",
                "output_description": "A text.",
                "target_attributes": {name: [str(value) for value in of] for name, of in SPACE.items()},
                "sampling": {"target": [1, 2], "total": PER_TEACHER},
                "rubric": {
                    factor: said for factor, said in rubric.items() if (task, factor) != ("sum", lost)
                },
            }
            for task, rubric in TASKS.items()
        ]
        experiment = {"id": "old", "storage_folder": str(self.folder.parent)}
        with (self.folder / "config.yaml").open("w", encoding="utf-8") as stream:
            YAML(typ="safe", pure=True).dump(
                {"models": models, "tasks": tasks, "experiment": experiment}, stream
            )

    def _datapoint(self, task: str, teacher: str, n: int) -> None:
        key = f"{task}__{teacher}__{n:05d}"
        drawn = self._random.sample(list(SPACE)[:3], self._random.randint(0, 3))
        record = {
            "id": key,
            "task_id": task,
            "teacher_model_id": teacher,
            "sampled_target_attributes": {name: self._random.choice(SPACE[name]) for name in drawn},
            "prompt": f"Do {n} of {task} for {teacher}: " + " ".join(self._random.choices("abcdefgh", k=9)),
            "reference_response": None if n % 7 == 0 else f"reference {n}",
        }
        path = self.folder / "phase3_datapoints" / f"{task}.{teacher}.datapoints.jsonl"
        if self._written(path, record, {"prompt": None}, {"prompt": "an earlier prompt"}):
            quality = self._random.gauss(0, 0.25)
            for student in STUDENTS:
                if self._random.random() > 0.03:
                    self._response(record, student, quality)

    def _response(self, datapoint: Record, student: str, quality: float) -> None:
        record = {
            "id": f"{datapoint['id']}__{student}",
            "datapoint_id": datapoint["id"],
            "task_id": datapoint["task_id"],
            "teacher_model_id": datapoint["teacher_model_id"],
            "student_model_id": student,
            "input": datapoint["prompt"],
            "response": "" if self._random.random() < 0.01 else "an answer",
        }
        name = f"{record['task_id']}.{record['teacher_model_id']}.{student}.responses.jsonl"
        path = self.folder / "phase4_responses" / name
        if self._written(path, record, {"response": None}, {"response": "an earlier answer"}):
            seen = self._skill[student] + quality + self._random.gauss(0, 0.15)
            for judge in JUDGES:
                if self._random.random() > 0.04 + 0.3 * (judge == "delta"):
                    self._evaluation(record, judge, seen)

    def _evaluation(self, response: Record, judge: str, seen: float) -> None:
        levels: dict[str, Any] = {}
        for factor in TASKS[response["task_id"]]:
            shown = seen - self._severity[judge] + self._random.gauss(0, 0.2)
            levels[factor] = LEVELS[(shown > 0.35) + (shown > 0.65)]
        record: Record = {
            "id": f"{response['id']}__{judge}",
            "response_id": response["id"],
            "datapoint_id": response["datapoint_id"],
            "task_id": response["task_id"],
            "teacher_model_id": response["teacher_model_id"],
            "judge_model_id": judge,
            "scores": levels,
        }
        if self._random.random() < 0.05:
            gone = self._random.choice(list(levels))
            if self._random.random() < 0.5:
                del levels[gone]
                record["missing"] = [gone]
            else:
                levels[gone] = self._random.choice(["Excellent", None, "5"])
        if self._random.random() < 0.1:
            record["student_model_id"] = response["student_model_id"]  # what a newer version appended
        name = f"{record['task_id']}.{record['teacher_model_id']}.{judge}.evaluations.jsonl"
        path = self.folder / "phase5_evaluations" / name
        earlier = dict.fromkeys(levels, "Low")
        self._written(path, record, {"scores": {}}, {"scores": earlier})

    def _written(self, path: Path, record: Record, empty: Record, earlier: Record) -> bool:
        """Whether a good record was written, among those of its id that failed or were made again."""
        failed = record | empty | {"status": "failed", "error": {"kind": "timeout", "message": "no answer"}}
        kind = self._random.random()
        lines = [record]
        if kind < 0.02:
            lines = [failed]
        elif kind < 0.04:
            lines = [failed, record]
        elif kind < 0.06:
            lines = [record, failed]
        elif kind < 0.08:
            lines = [record | earlier, record]
        elif kind < 0.10:
            lines = [record, record]
        self._lines[path] += [json.dumps(line, ensure_ascii=False) + "\n" for line in lines]
        return kind >= 0.02

    def _orphans(self) -> None:
        """Answers to nothing, and judgments of answers that nobody gave."""
        lost = {
            "id": "sum__x__99999",
            "task_id": "sum",
            "teacher_model_id": "x",
            "prompt": "",
            "reference_response": None,
        }
        for student in STUDENTS[:2]:
            self._response(lost, student, 0.0)
        nobody = {
            "id": "sum__x__00001__nobody",
            "datapoint_id": "sum__x__00001",
            "student_model_id": "nobody",
        }
        self._evaluation(nobody | {"task_id": "sum", "teacher_model_id": "x"}, JUDGES[0], 0.9)


def unlike(expected: Any, found: Any, path: str = "") -> list[str]:
    """What is expected and is another number, or is not there."""
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            return [f"{path} is {found}"]
        wrong = [f"{path}/{name} is not there" for name in expected if name not in found]
        for name in expected.keys() & found.keys():
            wrong += unlike(expected[name], found[name], f"{path}/{name}")
        return wrong
    if isinstance(expected, float) and isinstance(found, float | int):
        return [] if abs(expected - found) <= 1e-9 else [f"{path}: {expected} expected, {found} found"]
    return [] if expected == found else [f"{path}: {expected} expected, {found} found"]
