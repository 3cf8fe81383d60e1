"""What the hand-written pages of ``docs`` show is what happens."""

from __future__ import annotations

import re
from pathlib import Path

from ruamel.yaml import YAML

from coeval.judging.labels import score_labels

TASKS = (Path(__file__).resolve().parents[1] / "docs" / "tasks.md").read_text(encoding="utf-8")


def test_answers_become_the_labels_that_the_page_says() -> None:
    declaration = YAML(typ="safe").load(re.findall(r"```yaml\n(.*?)```", TASKS, re.DOTALL)[0])
    declared = declaration["target_attributes"]
    rows = re.findall(r"^\| `(.+)` \| ([\w ]+) \|$", TASKS, re.MULTILINE)
    assert len(rows) == 9
    for answer, value in rows:
        predicted = score_labels(answer, {"kind": "crash"}, declared)["kind"].predicted
        assert (predicted or "none of the labels") == value, answer
