"""``coeval gate``: GO, NO-GO and INCONCLUSIVE, their exit codes, and what is never GO."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from cli.invoked import Command
from cli.written_output import output, verdicts
from pipeline.experiments import Lab, listen, model, task
from written_run import Run

import coeval as api

pytestmark = pytest.mark.process
METRIC = "prompt_level_strict_accuracy"


@pytest.fixture
def policy(here: Path) -> Path:
    return written(here, "max_drop: 5")


def written(here: Path, text: str) -> Path:
    (here / "gate.yaml").write_text(text)
    return here / "gate.yaml"


def two(here: Path, lost: int, n: int = 200, gained: int = 0, **how: Any) -> tuple[Path, Path]:
    """Of n prompts half are right in base; of these the candidate loses some, and gains some others."""
    base = np.repeat([1, 0], n // 2)
    after = base.copy()
    after[:lost], after[n // 2 : n // 2 + gained] = 0, 1
    return output(here / "base", "base", verdicts(base)), output(here / "new", "new", verdicts(after), **how)


def gated(coeval: Command, *arguments: object) -> tuple[int, dict[str, Any]]:
    ended = coeval("gate", *arguments, "--json")
    return ended.code, json.loads(ended.out)


@pytest.mark.parametrize(
    ("lost", "gained", "code", "verdict"),
    [(0, 0, 0, "GO"), (2, 2, 0, "GO"), (6, 0, 3, "INCONCLUSIVE"), (40, 5, 4, "NO-GO")],
)
def test_a_verdict_and_its_exit_code(
    lost: int, gained: int, code: int, verdict: str, here: Path, policy: Path, coeval: Command
) -> None:
    folders = two(here, lost, gained=gained)
    ended, found = gated(coeval, *folders, "--policy", policy)
    assert (ended, found["verdict"], found["level"]) == (code, verdict, 0.975)
    [one] = found["candidates"][0]["tasks"]
    assert (one["task"], one["tier"], one["n"], one["max_drop"]) == ("ifeval", "critical", 200, 0.05)
    assert one["difference"] == pytest.approx((gained - lost) / 200)
    assert one["lower"] < one["difference"]
    assert (one["items_needed"] is None) == (verdict != "INCONCLUSIVE")
    again = api.gate(*folders, policy={"max_drop": 5})
    assert (again.exit_code, json.loads(json.dumps(again.as_dict()))) == (code, found)


def test_a_loss_on_a_scale_of_ten_is_told_in_the_points_that_are_allowed(here: Path) -> None:
    folders = [
        output(
            here / name,
            name,
            {str(n): {"score": 7.0 + n % 3 - lost} for n in range(150)},
            task="writingbench",
            metrics={"score": {"value": 8.0 - lost, "n": 150, "unit": "points"}},
        )
        for name, lost in (("base", 0.0), ("new", 0.9))
    ]
    [one] = api.gate(*folders, policy={"max_drop": 2}).candidates[0].tasks
    assert one.difference == pytest.approx(-0.1)
    assert " by 10.0 ± 0.0 points, significantly more than the allowed 2.0;" in one.sentence


@pytest.mark.parametrize(("lost", "verdict"), [(14, "INCONCLUSIVE"), (16, "INCONCLUSIVE"), (60, "NO-GO")])
def test_a_loss_is_no_go_only_where_it_is_significantly_more_than_allowed(
    lost: int, verdict: str, here: Path
) -> None:
    """14 of 200 is a significant loss and more than 5 points: it may be what is allowed."""
    [one] = api.gate(*two(here, lost), policy={"max_drop": 5}).candidates[0].tasks
    assert one.p_adjusted is not None
    assert one.p_adjusted < 0.001
    assert one.verdict == verdict


@pytest.mark.parametrize(
    ("policy", "warned"),
    [
        ({"max_drop": 0.05}, ["max_drop: 0.05 means 0.05 of 100 points; for 5 points write 5"]),
        ({"max_drop": 0.3}, ["max_drop: 0.3 means 0.3 of 100 points; for 30 points write 30"]),
        ({"max_drop": 0.5}, []),
        ({"max_drop": 0}, []),
        (
            {"max_drop": 2, "tasks": {"ifeval": {"max_drop": 0.01}}},
            ["max_drop of ifeval: 0.01 means 0.01 of 100 points; for 1 points write 1"],
        ),
    ],
)
def test_a_drop_that_looks_like_a_share_is_warned_of(
    policy: dict[str, Any], warned: list[str], here: Path
) -> None:
    found = api.gate(*two(here, 0), policy=policy)
    assert [note for note in found.notes if "max_drop" in note] == warned


def test_ten_equal_items_are_no_go_yet(here: Path, policy: Path, coeval: Command) -> None:
    """Where no pair differs, a t interval has no width; 5 points take 72 items."""
    code, found = gated(coeval, *two(here, 0, n=10), "--policy", policy)
    [one] = found["candidates"][0]["tasks"]
    assert (code, one["difference"]) == (3, 0.0)
    assert 72 <= one["items_needed"] <= 75
    assert (
        "would decide it four times in five"
        in coeval("gate", here / "base", here / "new", "--policy", policy).out
    )


def test_a_policy_knows_tiers_and_own_margins(here: Path, coeval: Command) -> None:
    for name, lost in (("base", 0), ("new", 40)):
        for kind, loses in (("ifeval", 0), ("ifbench", lost)):
            values = np.repeat([1, 0], 100)
            values[:loses] = 0
            output(here / name, name, verdicts(values), task=kind)
    expected = {
        "max_drop: 5": 4,
        "max_drop: 5\ntasks: {ifbench: advisory}": 0,
        "max_drop: 5\ntasks: {ifbench: supporting}": 4,
        "max_drop: 5\ntasks: {ifbench: {max_drop: 30}}": 0,
        "max_drop: 5\ntasks: {ifbench: {tier: supporting, max_drop: 22}}": 0,
        "max_drop: 5\nmin_items: 500\ntasks: {ifbench: advisory}": 3,
        f"max_drop: 5\ntasks: {{ifbench: advisory, ifeval: {{metric: {METRIC}}}}}": 0,
        "max_drop: 5\ntasks: {ifbench: advisory, ifeval: {metric: other}}": 3,
        "max_drop: 5\ntasks: {ifbench: advisory, haiku: critical}": 3,
    }
    for text, code in expected.items():
        ended = coeval("gate", here / "base", here / "new", "--policy", written(here, text))
        assert ended.code == code, (text, ended)
    typed = written(here, "max_drop: 5\ntasks: {ifbanch: advisory}")
    ended = coeval("gate", here / "base", here / "new", "--policy", typed)
    assert "did you mean ifbench?" in " ".join(ended.out.split())
    only = written(here, "max_drop: 5\ntasks: {ifbench: advisory, ifeval: advisory}")
    refused = coeval("gate", here / "base", here / "new", "--policy", only)
    assert (refused.code, "calls no task critical" in refused.err) == (1, True)


def test_a_supporting_row_that_is_open_is_named(here: Path, coeval: Command) -> None:
    for name in ("base", "new"):
        for kind in ("ifeval", "ifbench"):
            output(here / name, name, verdicts(np.repeat([1, 0], 100)), task=kind)
    policy = written(here, "max_drop: 5\ntasks: {ifbench: {tier: supporting, min_items: 300}}")
    code, found = gated(coeval, here / "base", here / "new", "--policy", policy)
    [one] = found["candidates"]
    assert (code, one["verdict"]) == (0, "GO")
    shown = coeval("gate", here / "base", here / "new", "--policy", policy).out
    assert "undecided, but not required: it has too few items in ifbench" in " ".join(shown.split())


def test_a_growing_run_has_one_level(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("tea", "teacher", "judge"), model("ann", "student"), model("ben", "student")])
    lab.tasks = [task(total=12)]
    lab.run()
    lab.tasks = [task(total=16)]
    lab.run(continue_run=True)
    arguments = (lab.path, "--students", "ann,ben", "--policy", written(here, "max_drop: 5"))
    code, found = gated(coeval, *arguments)
    assert (code, found["level"]) == (3, 0.975)
    assert "(97.5% sure at any look)" in found["candidates"][0]["tasks"][0]["sentence"]
    once = api.gate(lab.path, policy={"max_drop": 5}, students=["ann", "ben"]).candidates[0].tasks[0].lower
    (lab.path / "looks.jsonl").unlink()
    alone = api.gate(lab.path, policy={"max_drop": 5}, students=["ann", "ben"]).candidates[0].tasks[0]
    assert once is not None
    assert alone.lower is not None
    assert once < alone.lower
    assert "(97.5% sure)" in alone.sentence


def test_what_cannot_be_gated_or_labelled_says_why(here: Path, policy: Path, coeval: Command) -> None:
    cast = [model("tea", "teacher", "judge"), model("ann", "student"), model("ben", "student")]
    lab = Lab(here, cast, [task(total=3, judging="pairwise")])
    lab.run()
    ended = coeval("gate", lab.path, "--students", "ann,ben", "--policy", policy)
    assert ended.code == 3
    assert "its answers are compared pairwise; a gate needs scores (judging: scores)" in " ".join(
        ended.out.split()
    )
    refused = coeval("label", lab.path, "--n", "2", "--sheet", here / "a.csv")
    assert (refused.code, "compare its answers pairwise" in refused.err) == (1, True)
    absent = coeval("gate", lab.path, "--students", "ann,ben", "--policy", here / "none.yaml")
    assert (absent.code, "give the path of a file with max_drop:" in absent.err) == (1, True)


def test_what_does_not_fit_is_never_go(here: Path, policy: Path, coeval: Command) -> None:
    """All of it shows no loss: other prompts, another recipe of the judge, a task less."""
    right = verdicts([1, 0] * 100)
    base = output(here / "base", "base", right)
    output(base, "base", right, task="writingbench", judge={"model": "j", "recipe": "one"})
    written(here, "max_drop: 5")
    same = output(here / "same", "same", right)
    output(same, "same", right, task="writingbench", judge={"model": "j", "recipe": "one"})
    assert coeval("gate", base, same, "--policy", policy).code == 0
    cases: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
        "different prompts": ("a", {"prompts": {"0": "new"}}, {"judge": {"model": "j", "recipe": "one"}}),
        "another recipe": ("b", {}, {"judge": {"model": "j", "recipe": "two"}}),
        "no judge both": ("c", {}, {"judge": {"model": "k", "recipe": "one"}}),
        "only base has the task writingbench": ("d", {}, None),
    }
    for said, (name, how, judged) in cases.items():
        other = output(here / name, name, right, **how)
        if judged is not None:
            output(other, name, right, task="writingbench", **judged)
        ended = coeval("gate", base, other, "--policy", policy)
        assert (ended.code, ended.out.startswith("INCONCLUSIVE: ")) == (3, True), (said, ended)
        assert said in ended.out
        headline = ended.out.splitlines()[0]
        assert "may lose" not in headline, "no loss is the reason"
        assert ("has no scores to compare with" if judged is None else "does not match") in headline


@pytest.fixture
def two_tasks(here: Path) -> dict[str, Path]:
    """Equal scores throughout: of two tasks in base and same, of one in less; other items in apart."""
    folders = {}
    for name in ("base", "same", "less", "apart"):
        folders[name] = here / name
        for kind in ("haiku", "ode"):
            if (name, kind) == ("less", "ode"):
                continue
            run = Run(here / name, kind)
            for n in range(1, 101):
                run.judged(n, "ann", "judge", {"a": "High" if n % 2 else "Low"})
            if (name, kind) == ("apart", "ode"):
                run.judged(101, "ann", "judge", {"a": "High"})
    return folders


@pytest.mark.parametrize(
    ("tasks", "other", "code", "said"),
    [
        ("haiku: advisory, ode: advisory, overall: critical", "same", 0, ""),
        (
            "haiku: advisory, ode: advisory, overall: critical",
            "apart",
            3,
            "ode does not fit on both sides",
        ),
        ("haiku: advisory, ode: advisory, overall: critical", "less", 3, "ode has no score of both"),
        (
            "haiku: advisory, ode: advisory, song: advisory, overall: critical",
            "same",
            3,
            "song has no score of both",
        ),
        ("ode: advisory", "apart", 0, ""),
        ("ode: advisory", "less", 0, ""),
    ],
)
def test_the_mean_over_tasks_is_of_all_of_them_or_never_go(
    tasks: str, other: str, code: int, said: str, two_tasks: dict[str, Path], coeval: Command
) -> None:
    policy = written(two_tasks["base"].parent, f"max_drop: 10\ntasks: {{{tasks}}}")
    ended, found = gated(coeval, two_tasks["base"], two_tasks[other], "--policy", policy)
    assert (ended, found["verdict"]) == (code, "INCONCLUSIVE" if code else "GO"), found
    overall = next((one for one in found["candidates"][0]["tasks"] if one["task"] is None), None)
    if "overall" in tasks:
        assert overall is not None
        assert any(said in reason for reason in overall["reasons"] or [""])
        assert (overall["n"], overall["fits"]) == (100 if other == "less" else 200, not code)


def test_of_one_task_the_mean_is_its_own_and_metrics_have_none(here: Path, coeval: Command) -> None:
    for name in ("one", "other"):
        for n in range(1, 101):
            Run(here / name).judged(n, "ann", "judge", {"a": "High" if n % 2 else "Low"})
    policy = written(here, "max_drop: 10\ntasks: {haiku: advisory, overall: critical}")
    code, found = gated(coeval, here / "one", here / "other", "--policy", policy)
    overall, own = found["candidates"][0]["tasks"]
    assert (code, overall["task"], own["task"]) == (0, None, "haiku")
    assert (overall["lower"], overall["n"]) == (own["lower"], 100)
    policy = written(here, "max_drop: 10\ntasks: {ifeval: advisory, overall: critical}")
    code, found = gated(coeval, *two(here, 0), "--policy", policy)
    overall = found["candidates"][0]["tasks"][0]
    assert (code, overall["task"], overall["n"]) == (3, None, 0)
    assert overall["reasons"] == ["metrics of benchmarks and labels have no mean over tasks"]


def test_a_side_without_scores_and_missing_ones_are_never_go(here: Path, coeval: Command) -> None:
    run = Run(here / "run")
    for n in range(1, 201):
        for student in ("ann", "ben", "dan"):
            run.datapoint(n)
            run.response(n, student)
            if student != "dan" or n > 20:
                run.evaluation(n, student, "judge", {"a": "High" if n % 2 else "Low"})
        run.response(n, "cy")
    policy = written(here, "max_drop: 5")
    codes = {
        other: coeval("gate", run.folder, "--students", f"ann,{other}", "--policy", policy)
        for other in ("ben", "cy", "dan")
    }
    assert {other: ended.code for other, ended in codes.items()} == {"ben": 0, "cy": 3, "dan": 3}
    assert "no item has a score of both ann and cy" in codes["cy"].out
    assert "20 without a score on either side count as lost" in codes["dan"].out


def test_a_label_that_is_lost_is_no_go_whatever_the_score_says(here: Path, coeval: Command) -> None:
    run = Run(here / "run")
    for n in range(1, 101):
        for student in ("ann", "ben"):
            run.judged(n, student, "judge", {"a": "High" if n % 2 else "Low"})
            match = student == "ann" or n > 66
            said = {"expected": "strict", "predicted": "strict" if match else "loose", "match": match}
            run.evaluation(n, student, "exact_match", {}, label_scores={"form": said})
    arguments = (run.folder, "--students", "ann,ben", "--policy")
    code, found = gated(coeval, *arguments, written(here, "max_drop: 5"))
    tasks = {one["place"]: (one["tier"], one["verdict"]) for one in found["candidates"][0]["tasks"]}
    assert (code, tasks) == (4, {"haiku": ("critical", "GO"), "haiku: form": ("critical", "NO-GO")})
    chosen = written(here, "max_drop: 5\ntasks: {haiku: {metric: score}}")
    assert coeval("gate", *arguments, chosen).code == 0
    assert coeval("compare", *arguments[:3], "--fail-if-worse", "2%").code == 4


def test_a_label_of_no_common_item_is_never_go(here: Path, coeval: Command) -> None:
    run = Run(here / "run")
    said = {"expected": "strict", "predicted": "strict", "match": True}
    for n in range(1, 101):
        for student, mine in (("ann", n % 2 == 0), ("ben", n % 2 == 1)):
            run.judged(n, student, "judge", {"a": "High" if n % 3 else "Low"})
            if mine:
                run.evaluation(n, student, "exact_match", {}, label_scores={"form": said})
    arguments = (run.folder, "--students", "ann,ben", "--policy", written(here, "max_drop: 5"))
    code, found = gated(coeval, *arguments)
    tasks = {one["place"]: (one["verdict"], one["n"]) for one in found["candidates"][0]["tasks"]}
    assert (code, tasks) == (3, {"haiku": ("GO", 100), "haiku: form": ("INCONCLUSIVE", 0)})
    assert "no item has the label form of both ann and ben" in coeval("gate", *arguments).out


def test_several_candidates_share_the_error(here: Path, policy: Path, coeval: Command) -> None:
    base, new = two(here, 0)
    worse = output(here / "worse", "worse", verdicts([1, 0] * 30 + [0, 0] * 70))
    code, found = gated(coeval, base, new, worse, "--policy", policy)
    assert (code, found["level"]) == (4, 1 - 0.0125)
    assert [one["verdict"] for one in found["candidates"]] == ["GO", "NO-GO"]
    assert found["candidates"][0]["tasks"][0]["lower"] == pytest.approx(0.0125 ** (1 / 200) - 1, abs=1e-4)


def test_reports_for_a_build(
    here: Path, policy: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = output(here / "base", "a|<b>", verdicts([1, 0] * 50))
    new = output(here / "new", "n\x07<x>&", verdicts([0, 0] * 50))
    summary = here / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    ended = coeval("gate", base, new, "--policy", policy, "--junit", "gate.xml")
    assert (ended.code, summary.read_text()) == (4, "before\n"), "only --markdown writes there"
    [suite] = ElementTree.fromstring((here / "gate.xml").read_bytes())  # noqa: S314 (our own)
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "1", "0")
    [case] = suite
    assert [part.tag for part in case] == ["failure"]
    assert suite.get("name") == r"n\x07<x>& against a|<b>"
    shown = coeval("gate", "--markdown", base, new, "--policy", policy)
    assert shown.out.startswith(r"### NO-GO: n\\x07\<x\>\& loses more than allowed against a\|\<b\>")
    assert summary.read_text() == "before\n" + shown.out
    filed = coeval("gate", base, new, "--policy", policy, "--markdown", "gate.md", "--json")
    assert ((here / "gate.md").read_text(), json.loads(filed.out)["verdict"]) == (shown.out, "NO-GO")
    assert coeval("gate", base, new, "--policy", policy, "--json", "--markdown").code == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_drop: 5\ntasks: {overall: {metric: nonsense}}", "leave out its metric, nonsense"),
        ("", "the file is empty"),
        ("min_items: 3", "the policy lacks max_drop"),
        ("max_drop: -1", "gate.yaml:1  max_drop"),
        ("max_drop: 100", "a number below 100"),
        (
            "max_drop: 5\nmin_itmes: 3",
            "gate.yaml:2  min_itmes  V-18  the key 'min_itmes' is unknown; did you",
        ),
        ("max_drop: 5\ntasks:\n  ifeval: {teir: 1}", "gate.yaml:3  tasks.ifeval.teir"),
        ("max_drop: 5\ntasks:\n  ifeval: critcal", "gate.yaml:3  tasks.ifeval  V-20  'critcal' is not one"),
    ],
)
def test_a_wrong_policy_is_refused_with_its_line(text: str, said: str, here: Path, coeval: Command) -> None:
    ended = coeval("gate", *two(here, 0), "--policy", written(here, text))
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err


def test_students_of_a_run_with_a_known_truth(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [model("tea", "teacher", "judge"), model("ann", "student", skill=0.9)]
    models += [model("ben", "student", skill=0.3), model("cy", "student", skill=0.9)]
    lab = Lab(here, models, [task(total=60), task("saga", total=40)])
    lab.run()
    requested = listen(monkeypatch)
    policy = written(here, "max_drop: 20")
    assert coeval("gate", lab.path, "--students", "ann,ben", "--policy", policy).code == 4
    code, found = gated(coeval, lab.path, "--students", "ann,cy", "--policy", policy)
    rows = {one["place"]: one for one in found["candidates"][0]["tasks"]}
    assert (code, found["simulated"]) == (0, True)
    assert {name: one["tier"] for name, one in rows.items()} == {
        "overall": "supporting",
        "saga": "critical",
        "story": "critical",
    }
    assert requested.requests == []
    refused = coeval("gate", lab.path, "--policy", policy)
    assert (refused.code, "--students is to name the base and its candidates" in refused.err) == (1, True)


def test_a_verdict_says_whether_other_judges_would_agree(here: Path, coeval: Command) -> None:
    """Two of three judges see no loss, the third sees one of the whole scale on few items of ben."""
    policy = written(here, "max_drop: 60")
    for name, judges in (("one", 1), ("three", 3), ("split", 3)):
        run = Run(here / name)
        for n in range(1, 101):
            for student in ("ann", "ben"):
                run.datapoint(n)
                run.response(n, student)
                for judge in range(judges):
                    apart = name == "split" and judge == 2 and student == "ben"
                    level = "Low" if apart else "High" if n % 2 else "Medium"
                    run.evaluation(n, student, f"judge{judge}", {"a": level})
    expected = {"one": "unknown", "three": "same", "split": "open"}
    for name, other in expected.items():
        code, found = gated(coeval, here / name, "--students", "ann,ben", "--policy", policy)
        [one] = found["candidates"][0]["tasks"]
        assert (code, one["verdict"], one["other_judges"]) == (0, "GO", other), one["sentence"]
    shown = coeval("gate", here / "split", "--students", "ann,ben", "--policy", policy).out
    assert "other judges" in shown
    assert "open" in shown


def test_other_judges_would_agree_with_a_no_go_if_their_loss_too_is_more_than_allowed(
    here: Path, coeval: Command
) -> None:
    """The judges see losses of 100, 50 and 60 points: others would see one, perhaps a smaller one than 40."""
    run = Run(here / "run")
    for n in range(1, 101):
        for student in ("ann", "ben"):
            run.datapoint(n)
            run.response(n, student)
            levels = ("Low", "Medium", "Low" if n % 5 == 0 else "Medium")
            for judge, level in enumerate(levels):
                run.evaluation(n, student, f"judge{judge}", {"a": level if student == "ben" else "High"})
    for drop, other in ((1, "same"), (40, "open")):
        policy = written(here, f"max_drop: {drop}")
        code, found = gated(coeval, here / "run", "--students", "ann,ben", "--policy", policy)
        [one] = found["candidates"][0]["tasks"]
        assert (code, one["verdict"], one["other_judges"]) == (4, "NO-GO", other), one["sentence"]
