"""What `coeval describe` says beforehand, held against what the run then does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pipeline.experiments import Lab, listen, model, quiz, task

from coeval.cli.views.description_view import preview_experiment
from coeval.models.keys import load_keys
from coeval.pipeline.config.load_file import load_config
from coeval.reports.content import Report
from coeval.reports.description_report import description_report
from coeval.reports.planned_prompts import count_planned_values


def described(lab: Lab) -> Report:
    return description_report(preview_experiment(load_config(lab.file), load_keys(None)))


def column(report: Report, table: str, name: str) -> list[object]:
    found = report.table(table)
    place = [each.name for each in found.columns].index(name)
    return [row[place] for row in found.rows]


def pattern(parts: tuple[object, ...]) -> re.Pattern[str]:
    """What a prompt with stand-ins for unwritten texts may have become."""
    texts = [".+" if part.stand_in else re.escape(part.text) for part in parts]  # type: ignore[attr-defined]
    return re.compile("".join(texts), re.DOTALL)


def test_of_many_who_are_asked_alike_a_row_names_a_few(tmp_path: Path) -> None:
    many = [model(f"student-{n}", "student") for n in range(12)]
    report = described(Lab(tmp_path, [model("ann", "teacher", "judge"), *many]))
    assert "student-0, student-1, student-2 and 9 more" in column(report, "prompts", "models")


def test_answers_that_exist_are_nobody_asked_and_checks_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "items.csv").write_text("q,a\nOne?,1\nTwo?,2\n")
    table = {"path": "items.csv", "prompt": "q"}
    checks = {
        "name": "sums",
        "description": "Add.",
        "items": table,
        "rubric": {"num": {"check": "numeric", "value": 3}},
    }
    lab = Lab(tmp_path, [model("ann", "student")], [checks])
    lab.students = [{"name": "prod", "responses": {**table, "response": "a"}}]
    report = described(lab)
    assert column(report, "prompts", "models") == ["ann"]
    assert column(report, "models", "model") == ["ann", "prod"]
    assert column(report, "tasks", "evaluation") == ["checks, no judge"]
    lab.tasks[0] |= {"rubric": {"right": "It is."}, "weights": {"right": 2.0}, "judging": "pairwise"}
    lab.models.append(model("jan", "judge"))
    report = described(lab)
    assert column(report, "tasks", "evaluation") == ["pairwise"]
    assert column(report, "rubric", "weight") == [2.0]


LABS = {
    "static": {"tasks": [task(nuanced_attributes={"tone": ["dry", "warm"]}, total=2), quiz(total=2)]},
    "to be proposed": {
        "tasks": [task(target_attributes="auto", nuanced_attributes="auto", rubric="auto", total=2)],
        "models": [model("ann", system_prompt="Be brief."), model("ben")],
    },
    "one factor at a time": {
        "tasks": [
            task(
                evaluation_mode="per_factor",
                total=2,
                prompt_library={"test": "Mood {target_attributes}. {{literal}} {input}"},
            )
        ]
    },
}


@pytest.mark.parametrize("name", LABS)
def test_each_prompt_that_is_shown_is_sent_and_each_kind_that_is_sent_is_shown(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, **LABS[name])  # type: ignore[arg-type]
    report = described(lab)
    requested = listen(monkeypatch)
    assert lab.run().exit_code == 0
    shown = report.table("prompts")
    names = [each.name for each in shown.columns]
    passages = [passage for section in report.sections for passage in section.passages]
    assert len(passages) == len(shown.rows)
    for row, passage in zip(shown.rows, passages, strict=True):
        of = dict(zip(names, row, strict=True))
        sent = [
            (who, "\n\n".join(f"[{m.role}]\n{m.content}" for m in request.messages))
            if len(request.messages) > 1
            else (who, request.messages[0].content)
            for who, request in requested.requests
            if request.purpose == of["phase"] and who in str(of["models"]).split(", ")
        ]
        matching = {who for who, text in sent if pattern(passage.parts).fullmatch(text)}
        assert str(of["models"]).split(", ")[0] in matching, passage.title
    purposes = {request.purpose for _, request in requested.requests}
    assert purposes == set(column(report, "prompts", "phase"))


def test_calls_and_records_are_those_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, tasks=[task(total=3), quiz(total=2)])
    report = described(lab)
    assert not lab.path.exists()
    requested = listen(monkeypatch)
    lab.run()
    assert column(report, "phases", "records")[2:5] == list(lab.counts())
    assert column(report, "cost_by_phase", "calls") == [*requested.phases()[2:], len(requested.requests)]
    assert described(lab).facts[0] == "the rest of a started run"
    assert column(described(lab), "phases", "owed") == [0] * 6


def test_what_the_plan_covers_is_what_the_items_have(tmp_path: Path) -> None:
    lab = Lab(
        tmp_path, tasks=[task(total=3, nuanced_attributes={"tone": ["dry", "warm"]}, store_nuanced=True)]
    )
    lab.tasks[0]["sampling"]["nuance"] = [1, 1]
    report = described(lab)
    lab.run()
    items = list(lab.records("data_generation").values())
    counted = {
        (kind, attribute, value): sum(item[of].get(attribute) == value for item in items)
        for kind, of, attributes in (
            ("target", "sampled_target_attributes", lab.tasks[0]["target_attributes"]),
            ("nuanced", "sampled_nuanced_attributes", lab.tasks[0]["nuanced_attributes"]),
        )
        for attribute, values in attributes.items()
        for value in values
    }
    shown = {(row[1], row[2], row[3]): row[4] for row in report.table("values").rows}
    assert shown == counted


def test_what_total_cannot_cover_is_said(tmp_path: Path) -> None:
    many = {"mood": ["glad", "sad", "calm"], "length": ["short", "long", "medium"]}
    lab = Lab(tmp_path, models=[model("ann")], tasks=[task(total=2, target_attributes=many)])
    text = " ".join(sentence.text for section in described(lab).sections for sentence in section.sentences)
    assert re.search(r"no item has (mood|length) = ", text)
    assert "2 items cannot hold all 9 pairs of values of the target attributes" in text


def test_an_item_that_lies_there_is_shown_itself(tmp_path: Path) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps({"q": "Is \ue0000\ue001 <b>this</b> it?", "a": "Yes."}) + "\n")
    lab = Lab(tmp_path, tasks=[task(items={"path": str(own), "prompt": "q", "reference": "a"})])
    lab.tasks[0].pop("target_attributes")
    lab.tasks[0].pop("sampling")
    passages = [passage for section in described(lab).sections for passage in section.passages]
    judged = "".join(part.text for part in passages[-1].parts)
    assert "Is \ue0000\ue001 <b>this</b> it?" in judged
    assert "Yes." in judged


def test_of_very_many_items_the_first_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coeval.reports.planned_prompts.MOST_DRAWN", 5)
    lab = Lab(tmp_path, models=[model("ann")], tasks=[task(total=8)])
    found = preview_experiment(load_config(lab.file), load_keys(None))
    counts = count_planned_values(found.preview.plan.setups[0], found.preview)
    assert max(counts.values()) <= 5
