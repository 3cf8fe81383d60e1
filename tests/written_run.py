"""Small runs written line by line, in the current layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coeval.store.rundir import in_file_name

REFERENCE = Path(__file__).parents[1].parent / "shared" / "reference"
WHY_SKIPPED = f"reference data not found at {REFERENCE}"


def append(path: Path, *records: dict[str, Any] | str) -> None:
    """Add lines to a JSONL file; a str is written as it is, without a line's end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="") as file:
        for record in records:
            file.write(record if isinstance(record, str) else json.dumps(record) + "\n")


class Run:
    """A run folder with one task and one teacher unless told otherwise."""

    def __init__(self, folder: Path, task: str = "haiku", teacher: str = "t.1") -> None:
        self.folder = folder
        self.task = task
        self.teacher = teacher

    @property
    def datapoints(self) -> Path:
        return (
            self.folder / "phase3_datapoints" / in_file_name(f"{self.task}.{self.teacher}.datapoints.jsonl")
        )

    def responses(self, student: str) -> Path:
        return self.folder / "phase4_responses" / in_file_name(f"{self.task}.{student}.responses.jsonl")

    def evaluations(self, judge: str) -> Path:
        return (
            self.folder
            / "phase5_evaluations"
            / in_file_name(f"{self.task}.{self.teacher}.{judge}.evaluations.jsonl")
        )

    def datapoint_id(self, n: int) -> str:
        return f"{self.task}__{self.teacher}__{n:05d}"

    def datapoint(self, n: int, **fields: Any) -> None:
        record = {
            "id": self.datapoint_id(n),
            "task_id": self.task,
            "teacher_model_id": self.teacher,
            "sampled_target_attributes": {"form": "strict"},
            "prompt": f"prompt {n}",
        }
        append(self.datapoints, record | fields)

    def response(self, n: int, student: str, **fields: Any) -> None:
        record = {
            "id": f"{self.datapoint_id(n)}__{student}",
            "datapoint_id": self.datapoint_id(n),
            "task_id": self.task,
            "teacher_model_id": self.teacher,
            "student_model_id": student,
            "response": "an answer",
        }
        append(self.responses(student), record | fields)

    def evaluation(self, n: int, student: str, judge: str, scores: dict[str, Any], **fields: Any) -> None:
        response = f"{self.datapoint_id(n)}__{student}"
        record = {
            "id": f"{response}__{judge}",
            "response_id": response,
            "datapoint_id": self.datapoint_id(n),
            "task_id": self.task,
            "teacher_model_id": self.teacher,
            "student_model_id": student,
            "judge_model_id": judge,
            "scores": scores,
        }
        append(self.evaluations(judge), record | fields)

    def judged(self, n: int, student: str, judge: str, scores: dict[str, Any]) -> None:
        """A datapoint, its answer and one judgment of it; repeated datapoints do no harm."""
        self.datapoint(n)
        self.response(n, student)
        self.evaluation(n, student, judge, scores)
