"""A run whose judge is kind to its family: `coeval analyze` names this judge and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer
from cli.eval_process import finish, start
from cli.invoked import Command
from pipeline.experiments import Lab, model, task

import coeval
from coeval.benchmarks.assets.library import Library, Presence
from coeval.benchmarks.task_registry import benchmark_class
from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option

pytestmark = pytest.mark.process


def test_the_judge_with_a_planted_bias_is_the_one_that_is_named(here: Path, coeval: Command) -> None:
    """Families as the file tells them: names do not show that kin-judge, ann and ben are related."""
    lab = Lab(
        here,
        [
            model("writer", "teacher"),
            model("ann", "student", skill=0.7, family="oak"),
            model("ben", "student", skill=0.45, family="oak"),
            model("cleo", "student", skill=0.6, family="elm"),
            model("dora", "student", skill=0.5, family="fir"),
            model("kind", "judge", severity=0.1, family="oak", family_bias=0.25),
            model("fair", "judge", severity=-0.1, family="ash"),
            model("even", "judge", family="yew"),
            model("kin", "judge", severity=0.05, family="elm"),
        ],
        [task(total=60)],
    )
    assert lab.run().exit_code == 0
    measures = json.loads(coeval("analyze", "all", "--run", lab.path, "--format", "json").out)
    family = {name: judge["bias"]["family"] for name, judge in measures["judges"].items()}
    assert family["kind"]["ci95"][0] > 0.05
    assert family["kin"]["ci95"][0] < 0 < family["kin"]["ci95"][1]
    nothing = {"value": None, "ci95": None, "p_adjusted": None, "usual": None}
    assert family["fair"] == nothing, "nobody of its family answered"
    severity = {name: judge["bias"]["severity"]["value"] for name, judge in measures["judges"].items()}
    assert severity["fair"] == min(severity.values())
    assert measures["g_study"]["components"].keys() >= {"students_judges", "items_judges", "residual"}
    assert measures["g_study"]["worth"].keys() == {"kind", "fair", "even", "kin"}
    reported = " ".join(coeval("analyze", "--run", lab.path).out.split())
    assert "kind scores answers of its own family " in reported
    assert "kin scores answers of its own family" not in reported
    assert "Eρ² = 0." in reported
    shown = coeval("analyze", "judges", "--run", lab.path).out
    assert all(words in shown for words in ("students × judges", "Contribution of each judge to Eρ²"))


# A judge of the leader's own family that makes the winner is told right after the leader's sentence.

KIN = model("red-j", "judge", family="red", family_bias=0.2)
OTHERS = [model("hard-j", "judge", severity=0.1), model("soft-j", "judge", severity=-0.1)]


TWO, FIVE = {"red": 0.6, "blue": 0.6}, {"red": 0.6, "blue": 0.6, "gold": 0.4, "lime": 0.5, "pink": 0.45}


def findings(
    here: Path,
    coeval: Command,
    judges: list[dict[str, object]],
    skills: dict[str, float] = TWO,
    teachers: tuple[str, ...] = ("own",),
) -> list[str]:
    """``teachers``: the families of those who write."""
    students = [model(f"{name}-s", "student", skill=skill, family=name) for name, skill in skills.items()]
    writers = [model(f"writer{n}", "teacher", family=name) for n, name in enumerate(teachers)]
    lab = Lab(here, [*writers, *students, *judges], [task(total=80 // len(writers))])
    assert lab.run().exit_code == 0
    measured = coeval("analyze", "all", "--run", lab.path, "--format", "json").out
    found: list[str] = json.loads(measured)["findings"]
    return found


def test_a_named_judge_of_the_leader_s_family_is_told_with_the_lead_without_it(
    here: Path, coeval: Command
) -> None:
    leader, _, related, *more = findings(here, coeval, [KIN, *OTHERS], FIVE, teachers=("red",))
    family = "Items may favour a student of their teacher's family: red-s (writer0);"
    assert f"{family} add a teacher of another family." in more
    assert leader.startswith("red-s leads ")
    assert related.startswith("red-j, 1 of the 3 judges, is of red-s's family: without its scores, red-s ")
    assert any(one.startswith("red-j scores answers of its own family ") for one in more)


def test_of_two_families_what_is_usual_cannot_be_told(here: Path, coeval: Command) -> None:
    found = findings(here, coeval, [KIN, *OTHERS], teachers=("red", "own"))
    [said] = [one for one in found if "red-s's family" in one]
    [warned] = [one for one in found if one.startswith("Items may favour")]
    assert warned.endswith(": red-s (writer0); compare the scores by teacher.")
    assert said.startswith("red-j, 1 of the 3 judges, is of red-s's family: without its scores, ")


@pytest.mark.parametrize(
    ("judges", "expected"),
    [
        ([KIN], "The only judge, red-j, is of red-s's family: whether it favours it cannot be tested here; "),
        ([KIN, OTHERS[0]], "red-j, 1 of the 2 judges, is of red-s's family: without its scores, "),
    ],
    ids=["one", "two"],
)
def test_whether_the_lead_holds_without_family_is_said_where_it_can_be(
    judges: list[dict[str, object]], expected: str, here: Path, coeval: Command
) -> None:
    found = findings(here, coeval, judges)
    assert any(one.startswith(expected) for one in found[1:3]), found
    assert not any(one.startswith("red-j scores answers") for one in found), "laid to one of two"


@pytest.mark.parametrize(
    ("judges", "begins"),
    [
        (
            [],
            "The only judge, red-s, judges its own answers: whether it favours them cannot be tested here",
        ),
        (OTHERS, "red-s, 1 of the 3 judges, judges its own answers: without its scores, "),
    ],
    ids=["one", "three"],
)
def test_a_student_who_judges_itself_favours_its_own_answers(
    judges: list[dict[str, object]], begins: str, here: Path, coeval: Command
) -> None:
    """Nothing "is red-s itself"."""
    both = model("red-s", "student", "judge", skill=0.6, family="red", family_bias=0.3)
    lab = Lab(
        here,
        [
            model("writer", "teacher"),
            both,
            *(
                model(f"{name}-s", "student", skill=skill, family=name)
                for name, skill in FIVE.items()
                if name != "red"
            ),
            *judges,
        ],
        [task(total=80)],
    )
    assert lab.run().exit_code == 0
    found = json.loads(coeval("analyze", "all", "--run", lab.path, "--format", "json").out)["findings"]
    assert any(one.startswith(begins) for one in found), found
    assert not any("itself and" in one or "is red-s itself" in one for one in found)


def test_judges_who_are_family_to_neither_are_not_mentioned(here: Path, coeval: Command) -> None:
    assert not any("family" in one for one in findings(here, coeval, OTHERS))


# What `coeval analyze` says of judges that were asked: of a run, one of them twice; of an output folder.


def test_a_judge_under_two_names_is_asked_everything_twice(here: Path, coeval: Command) -> None:
    judges = [
        model("one", "judge", model="same"),
        model("again", "judge", model="same"),
        model("other", "judge"),
    ]
    lab = Lab(here, [model("ann", "teacher", "student"), *judges], [task(total=12)])
    assert lab.run().exit_code == 0
    found = json.loads(coeval("analyze", "judges", "--run", lab.path, "--format", "json").out)["judges"]
    pair = json.loads(coeval("analyze", "agreement", "--run", lab.path, "--format", "json").out)["agreement"]
    assert found["one"]["consistency"]["count"] == 24
    assert found["one"]["consistency"]["spa"] == pair["again|one"]["spa"]
    assert found["one"]["consistency"] == found["again"]["consistency"]
    assert found["one"]["ci95"]["consistency"]["spa"] == pytest.approx(pair["again|one"]["ci95"]["spa"])
    assert found["other"]["consistency"] is None
    assert found["one"]["bias"]["position"]["value"] is None, "a run shows no pairs"
    assert "itself" in coeval("analyze", "judges", "--run", lab.path).out


async def test_the_place_that_a_judge_likes_is_told_of_an_output_folder(
    tmp_path: Path, coeval: Command
) -> None:
    library = Library()
    if any(library.presence(name)[0] is Presence.ABSENT for name in benchmark_class("arena-hard").assets):
        pytest.skip("needs Arena-Hard's data: coeval datasets fetch arena-hard")
    texts = ("base:skill=0.6", "fair:noise=0.1", "lean:noise=0.1,position_bias=0.2")
    models = [SimulatedModel(parse_model_option(text, {})) for text in texts]
    async with TestServer(make_app(models)) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        for judge in ("fair", "lean"):
            how = ["--tasks", "arena-hard", "--model", "base", "--base-url", url, "--max-examples", "150"]
            ended = await finish(await start(tmp_path, *how, "--judge-model", judge, "--output-dir", "out"))
            assert ended.code == 0, ended
    found = json.loads(coeval("analyze", "--run", tmp_path / "out", "--format", "json").out)
    lean, fair = (found["judges"][name]["bias"]["position"] for name in ("lean", "fair"))
    assert lean["ci95"][0] > 0.2
    assert fair["ci95"][0] < 0.15
    assert lean["value"] > fair["value"] + 0.1
    assert found["agreement"]["fair|lean"]["count"] == 300
    assert "lean favours the answer shown first by " in " ".join(found["findings"])
    shown = coeval("analyze", "judges", "--run", tmp_path / "out").out
    assert len(re.findall(r"^(?:fair|lean) +the first of two +\d", shown, re.MULTILINE)) == 2
    refused = coeval("analyze", "coverage", "--run", tmp_path / "out")
    assert refused.code == 1
    assert "which have no coverage" in refused.err


# A run's reference answers, judged by its own rubric: the steps of docs/measures.md.

PAGE = Path(__file__).resolve().parents[2] / "docs" / "measures.md"


async def test_what_the_page_says_gives_every_reference_a_score(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    lab = Lab(here, [model("ann")], [task(total=4)], id="quickstart")
    assert (await lab.arun()).exit_code == 0
    [snippet] = re.findall(r"```python\n(.*?reference_response.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(snippet, str(PAGE), "exec"), {})  # noqa: S102 - the page's own words
    judge = SimulatedModel(parse_model_option("fair:noise=0.1", {}))
    async with TestServer(make_app([judge])) as server:
        how = ["--tasks", "coeval:runs/quickstart", "--model", "reference", "--judge-only"]
        url = f"http://127.0.0.1:{server.port}/v1"
        judged = ["--judge-model", "fair", "--judge-base-url", url, "--output-dir", "references"]
        ended = await finish(await start(here, *how, *judged))
    assert ended.code == 0, ended
    scores = coeval.open_run("references").table("scores").filter("metric = 'mean_score' AND value <= 1")
    assert len(scores.fetchall()) == 4
