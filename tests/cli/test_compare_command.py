"""``coeval compare``: what it says of two folders, and of two students of a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp.test_utils import TestServer
from cli.eval_process import finish, start
from cli.invoked import Command
from cli.written_output import output, verdicts
from cli.written_training import drawn, write_training
from pipeline.experiments import Lab, listen, model, quiz, task
from scipy import stats
from written_run import Run

from coeval.benchmarks.assets.library import Library, Presence
from coeval.benchmarks.task_registry import benchmark_class
from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option


def found(coeval: Command, *arguments: object) -> dict[str, Any]:
    ended = coeval("compare", *arguments, "--json")
    assert ended.code == 0, ended.err
    document: dict[str, Any] = json.loads(ended.out)
    return document


@pytest.fixture
def two(here: Path) -> tuple[Path, Path]:
    """Of 200 prompts, base follows 100 and tuned the same and 30 more, but not 6 of them."""
    base = np.repeat([1, 0], 100)
    tuned = base.copy()
    tuned[:6], tuned[100:130] = 0, 1
    return output(here / "a", "base", verdicts(base)), output(here / "b", "tuned", verdicts(tuned))


def test_a_student_may_be_named_as_tables_name_it(here: Path, coeval: Command) -> None:
    names = ("Qwen/Qwen2.5-72B-Instruct", "gpt-4.1-2025-04-14")
    cast = [model("judge", "teacher", "judge"), *(model(name, "student") for name in names)]
    lab = Lab(here, cast, [task(total=3)])
    assert lab.run().exit_code == 0
    [one, *_] = found(coeval, lab.path, "--students", "gpt-4.1,Qwen2.5-72B")["comparisons"]
    assert (one["b"], one["a"]) == names
    refused = coeval("compare", lab.path, "--students", "gpt-4.1,Qwen2.5-7B")
    assert "did you mean Qwen2.5-72B?" in refused.err


@pytest.mark.process
def test_two_outputs_are_compared_prompt_by_prompt(two: tuple[Path, Path], coeval: Command) -> None:
    [one] = found(coeval, *two)["comparisons"]
    keys = {"a", "b", "task", "metric", "mean_a", "mean_b", "difference", "ci95", "p", "p_adjusted", "n"}
    assert keys | {"minimum_detectable", "missing"} <= one.keys()
    assert (one["a"], one["b"], one["task"]) == ("base", "tuned", "ifeval")
    assert (one["mean_a"], one["mean_b"], one["n"], one["missing"]) == (0.5, 0.62, 200, 0)
    assert one["difference"] == pytest.approx(0.12)
    d = np.repeat([-1.0, 1, 0], [6, 30, 164])
    assert one["ci95"] == pytest.approx(stats.ttest_1samp(d, 0).confidence_interval(), abs=1e-12)
    assert one["p"] == one["p_adjusted"] == pytest.approx(stats.binomtest(6, 36).pvalue, rel=1e-9)


@pytest.mark.process
def test_it_says_so_in_a_sentence_and_in_markdown(two: tuple[Path, Path], coeval: Command) -> None:
    shown = coeval("compare", *two)
    least = 100 * found(coeval, *two)["comparisons"][0]["minimum_detectable"]
    assert shown.out.splitlines()[0] == (
        "tuned leads on ifeval: 12.0 ± 5.7 points ahead of base on 200 shared prompts (p < 0.001). With 200 "
        f"prompts, a true gap of {least:.1f} points would be detected four times in five"
    )
    turned = coeval("compare", *reversed(two)).out
    assert turned.startswith("tuned leads on ifeval: 12.0 ± 5.7 points ahead of base")
    assert "−12.0 ± 5.7" in turned
    marked = coeval("compare", *two, "--markdown").out
    assert marked.startswith("- tuned leads on ifeval: ")
    assert "| ifeval | 50.0 | 62.0 | 12.0 ± 5.7 | <0.001 | 200 |" in marked


@pytest.mark.process
def test_folders_keep_their_order_or_are_refused(two: tuple[Path, Path], coeval: Command) -> None:
    """`--run A B` read as B A: a gate passed a loss."""
    tuned, base = two[1], two[0]
    assert coeval("compare", "--run", tuned, "--run", base, "--fail-if-worse", "2%").code == 4
    mixed = coeval("compare", "--run", tuned, base, "--fail-if-worse", "2%")
    assert mixed.code == 1
    assert "write all folders after --run, or none: coeval compare A B, or --run A --run B" in mixed.err


@pytest.mark.process
def test_models_that_score_alike_on_every_item_are_identical(here: Path, coeval: Command) -> None:
    a, b = (output(here / name, name, verdicts([1, 0, 0] * 9)) for name in ("old", "new"))
    shown = coeval("compare", a, b)
    assert shown.out.startswith("old and new have identical scores on ifeval: 27 shared prompts")
    assert "tied" not in shown.out
    assert json.loads(coeval("compare", a, b, "--json").out)["comparisons"][0]["identical"] is True


@pytest.mark.process
def test_what_is_not_sure_is_not_called_better(here: Path, coeval: Command) -> None:
    a = output(here / "a", "base", verdicts([1, 0] * 20))
    b = output(here / "b", "tuned", verdicts([1, 0] * 18 + [1, 1] * 2))
    shown = coeval("compare", a, b).out
    assert shown.startswith("tuned and base are tied on ifeval: the gap is 5.0 [")
    assert "better" not in shown.splitlines()[0]
    assert "With 40 prompts, a true gap of " in shown.splitlines()[0]


@pytest.mark.process
def test_ids_do_not_make_prompts_the_same(here: Path, coeval: Command) -> None:
    """Item 0 of b asks what item 3 of a asks; item 3 of b asks something new."""
    a = output(here / "a", "base", verdicts([1, 1, 1, 0]))
    b = output(here / "b", "tuned", verdicts([0, 1, 1, 1]), prompts={"0": "3", "3": "new"})
    document = found(coeval, a, b)
    [one] = document["comparisons"]
    assert (one["n"], one["missing"], one["difference"]) == (3, 2, 0.0)
    assert one["bounds"] == pytest.approx([(0 - 1 + 0) / 5, (0 + 0 + 1) / 5])
    assert any("different prompts" in note for note in document["notes"])
    shown = coeval("compare", a, b).out
    assert "2 of 5 prompts lack a score of base or tuned" in shown
    assert "lies between −20.0 and 20.0 points" in shown


@pytest.mark.process
def test_metrics_of_different_weights_and_units(here: Path, coeval: Command) -> None:
    scores = [1.0, 4.0, 6.0, 3.0, 9.0, 5.0, 7.0]
    for name, more in (("a", 0.0), ("b", 1.0)):
        given = {str(n): {"overall": score + more * (n % 3 > 0)} for n, score in enumerate(scores)}
        folder = output(here / name, name, given, task="writingbench")
        summary = json.loads((folder / "writingbench" / "summary.json").read_text())
        summary["metrics"]["overall"] |= {"unit": "points", "value": 5.0}
        (folder / "writingbench" / "summary.json").write_text(json.dumps(summary))
        lines = [
            {"id": key, "scores": each, "weights": {"overall": 1 + int(key) % 2}}
            for key, each in given.items()
        ]
        (folder / "writingbench" / "scores.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    [one] = found(coeval, here / "a", here / "b")["comparisons"]
    weights = np.array([1 + n % 2 for n in range(7)])
    assert one["unit"] == "points"
    assert one["mean_a"] == pytest.approx(np.average(scores, weights=weights))
    assert one["difference"] == pytest.approx(
        np.average([float(n % 3 > 0) for n in range(7)], weights=weights)
    )


@pytest.mark.process
def test_what_is_not_comparable_with_published_numbers_is_told(here: Path, coeval: Command) -> None:
    how: dict[str, Any] = {
        "comparable": False,
        "compared_with": "published numbers",
        "reasons": ["another judge"],
    }
    a = output(here / "a", "base", verdicts([1, 0] * 5))
    b = output(here / "b", "tuned", verdicts([0, 1] * 5), **how)
    reported = found(coeval, a, b)["notes"]
    assert reported == ["ifeval is not comparable with published numbers: another judge"]
    rows = coeval("compare", a, b).out.splitlines()
    assert rows[rows.index("Not comparable with published numbers") + 2].split("  ") == [
        "ifeval",
        "another judge",
    ]


@pytest.mark.process
def test_different_judges_are_told(here: Path, coeval: Command) -> None:
    folders = []
    for name, judge in (("a", "strict"), ("b", "mild")):
        how = {"judge": {"model": judge, "recipe": f"{judge}-1"}}
        folders.append(output(here / name, name, verdicts([1, 0] * 5), task="writingbench", **how))
    document = found(coeval, *folders)
    assert document["comparisons"][0]["n"] == 10
    [note] = document["notes"]
    assert "strict judged a, mild judged b, and no judge both: the difference also reflects" in note


@pytest.fixture
def lab(here: Path) -> Lab:
    models = [model("ann", skill=0.9), model("ben", skill=0.3)]
    made = Lab(here, models, [task(total=12), task("saga"), quiz(total=8)])
    assert made.run().exit_code == 0
    return made


@pytest.mark.system
def test_students_of_a_run_and_of_the_tasks_that_it_has_left(
    lab: Lab, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = listen(monkeypatch)
    document = found(coeval, lab.path, "--students", "ben,ann")
    assert requested.requests == []
    rows = {(one["task"], one["metric"]): one for one in document["comparisons"]}
    assert list(rows)[:4] == [(None, "score"), ("quiz", "colour"), ("saga", "score"), ("story", "score")]
    assert {("story", "plot"), ("story", "style"), ("quiz", "colour")} <= rows.keys()
    scores = json.loads(coeval("results", "--run", lab.path, "--json").out)
    means = {(each["task"], each["student"]): each["score"] for each in scores["students"]}
    for name in (None, "story", "saga"):
        one = rows[name, "score"]
        assert (one["a"], one["b"]) == ("ben", "ann")
        assert one["mean_a"] == pytest.approx(means[name, "ben"])
        assert one["mean_b"] == pytest.approx(means[name, "ann"])
    labels = {each["student"]: each["accuracy"] for each in scores["labels"]}
    assert rows["quiz", "colour"]["difference"] == pytest.approx(labels["ann"] - labels["ben"])
    assert rows[None, "score"]["n"] == sum(rows[name, "score"]["n"] for name in ("story", "saga"))
    assert "ann leads by these judges overall: " in coeval("compare", lab.path).out
    beside = [rows[None, "score"], rows["quiz", "colour"]]  # labels alone are in no overall score
    assert [one["p_adjusted"] for one in beside] == pytest.approx([one["p"] for one in beside])
    below = [rows["saga", "score"], rows["story", "score"]]
    shared = [max(min(2 * one["p"], 1.0), beside[0]["p_adjusted"]) for one in below]
    assert [one["p_adjusted"] for one in below] == pytest.approx(shared)
    lab.tasks = [one for one in lab.tasks if one["name"] != "saga"]
    lab.run(continue_run=True)
    assert {one["task"] for one in found(coeval, lab.path)["comparisons"]} == {"story", "quiz"}


@pytest.mark.process
def test_two_runs_hold_each_student_against_itself(lab: Lab, here: Path, coeval: Command) -> None:
    """Their items have the same ids; only where the prompts are the same too are they compared."""
    again = Lab(here, lab.models, lab.tasks, id="again")
    again.run()
    document = found(coeval, lab.path, again.path)
    assert list(document["sides"]) == ["exp:ann", "again:ann", "exp:ben", "again:ben"]
    assert {(one["a"], one["b"]) for one in document["comparisons"]} == {
        ("exp:ann", "again:ann"),
        ("exp:ben", "again:ben"),
    }
    other = Lab(here, lab.models, lab.tasks, id="other")
    other.tasks[0]["description"] = "Tell a long story."
    other.run()
    reported = coeval("compare", lab.path, other.path, "--students", "ann")
    assert reported.code == 0
    assert "another prompt" in reported.out or "only exp" in reported.out
    apart = Lab(here, lab.models, [{**lab.tasks[0], "name": "apart"}], id="apart")
    apart.run()
    refused = coeval("compare", lab.path, apart.path)
    assert (refused.code, refused.err.count("only exp has the task story")) == (1, 1), refused.err


@pytest.mark.process
def test_a_threshold_that_is_failed_ends_with_4(two: tuple[Path, Path], coeval: Command) -> None:
    base, tuned = two
    failed = coeval("compare", tuned, base, "--fail-if-worse", "0.05")
    assert failed.code == 4
    assert "gate failed: base is worse than tuned on ifeval by 12.0 ± 5.7 points, significantly" in failed.err
    assert coeval("compare", tuned, base, "--fail-if-worse", "6%").code == 4
    assert coeval("compare", tuned, base, "--fail-if-worse", "10%").code == 0
    assert coeval("compare", base, tuned, "--fail-if-worse", "0").code == 0


@pytest.mark.process
def test_without_any_an_unsure_difference_fails_nothing(here: Path, coeval: Command) -> None:
    a = output(here / "a", "base", verdicts([1] * 20 + [0] * 20))
    b = output(here / "b", "tuned", verdicts([1] * 18 + [0] * 22))
    passed = coeval("compare", a, b, "--fail-if-worse", "1%")
    most = 100 * stats.binomtest(2, 40).proportion_ci().high
    assert passed.code == 0
    assert passed.err.splitlines() == [
        "gate passed: no side is worse by more than 1% of the scale, and significantly so",
        f"a loss of up to {most:.1f} points of tuned in ifeval is not excluded; coeval gate passes only what "
        "is shown to lose less",
    ]
    failed = coeval("compare", a, b, "--fail-if-worse", "0.01", "--any")
    assert failed.code == 4
    assert "gate failed: tuned is worse than base on ifeval by 5.0 [" in failed.err
    assert "] points, not significantly" in failed.err
    assert "are tied" not in failed.err, "what fails the gate is said as such"
    marked = coeval("compare", a, b, "--fail-if-worse", "1%", "--markdown").out
    assert marked.startswith("- gate passed: no side is worse by more than 1% of the scale")
    assert coeval("compare", a, b, "--fail-if-worse", "0.06", "--any").code == 0


@pytest.mark.process
def test_the_gate_says_of_whom_it_knows_nothing(here: Path, coeval: Command) -> None:
    run = Run(here / "run")
    for n in range(1, 11):
        for student in ("ann", "ben"):
            run.judged(n, student, "judge", {"a": "High" if n % 2 else "Low"})
        run.response(n, "cy")
    passed = coeval("compare", run.folder, "--students", "ann,ben,cy", "--fail-if-worse", "2%")
    assert passed.code == 3, "what nobody knows is no pass"
    assert "the gate cannot judge haiku for cy: no item has a score of both ann and cy" in passed.err
    assert "gate passed" not in passed.err
    assert (
        "says nothing"
        not in coeval("compare", run.folder, "--students", "ann,ben", "--fail-if-worse", "2%").err
    )


@pytest.mark.parametrize("delta", ["2", "-0.1", "100%", "two", "nan"])
def test_a_threshold_that_could_never_be_failed_is_refused(
    delta: str, two: tuple[Path, Path], coeval: Command
) -> None:
    ended = coeval("compare", *two, f"--fail-if-worse={delta}")
    assert (ended.code, ended.out) == (1, "")
    assert "0.02 or 2%" in ended.err


@pytest.mark.process
def test_doubts_stand_beside_the_claim_wherever_it_is_shown(two: tuple[Path, Path], coeval: Command) -> None:
    responses = two[1] / "ifeval" / "responses.jsonl"
    responses.write_text(responses.read_text().replace('"text"', '"cut", "truncated": true', 3))
    doubt = (
        "Cut off at max_tokens: 3 of 200 answers of tuned, 0 of 200 answers of base. Part of the difference "
        "may come from that: raise max_tokens (of your own code: max_answer_bytes) before trusting it."
    )
    assert found(coeval, *two)["doubts"] == [doubt]
    shown = coeval("compare", *two, "--html", "page.html").out.splitlines()
    assert (shown[0][:21], shown[1]) == ("tuned leads on ifeval", f"warning: {doubt}")
    page = re.sub(r"<[^>]+>", "", Path("page.html").read_text())
    assert page.index(doubt) < page.index("tuned leads on ifeval") < page.index("Differences from the base")
    claims = coeval("compare", *two, "--markdown").out.splitlines()
    assert claims[1].startswith(r"- **Doubt:** Cut off at max\_tokens: 3 of 200")


@pytest.mark.process
def test_names_make_no_markup(here: Path, coeval: Command) -> None:
    a = output(here / "a", "a|<b>_x_", verdicts([1, 0] * 5))
    b = output(here / "b", "tuned\x1b[2J", verdicts([1, 0] * 5))
    shown = coeval("compare", a, b, "--markdown").out
    assert r"a\|\<b\>\_x\_" in shown
    assert "\x1b" not in shown + coeval("compare", a, b).out


@pytest.mark.process
def test_what_cannot_be_compared_is_refused_with_the_way_out(
    lab: Lab, two: tuple[Path, Path], here: Path, coeval: Command
) -> None:
    for arguments, said in (
        ((two[0],), "name a second folder to compare it with"),
        ((lab.path, "--students", "ann"), "name two students"),
        ((lab.path, "--students", "ann,bne"), "did you mean ben?"),
        ((lab.path, two[0]), "no student is in all folders"),
        ((two[0], two[0]), "the same folder is named twice"),
        ((two[0], output(here / "c", "c", verdicts([1]), task="ifbench")), "nothing to compare"),
        ((two[0], here / "nowhere"), "there is no folder"),
        ((*two, "--any"), "--any needs --fail-if-worse"),
        ((*two, "--json", "--markdown"), "exclude each other"),
    ):
        ended = coeval("compare", *arguments)
        assert (ended.code, ended.out) == (1, ""), said
        assert said in ended.err


@pytest.mark.process
def test_three_checkpoints_are_compared_in_pairs(two: tuple[Path, Path], here: Path, coeval: Command) -> None:
    third = output(here / "c", "third", verdicts([0, 1] * 100))
    pairs = [(one["a"], one["b"]) for one in found(coeval, *two, third)["comparisons"]]
    assert pairs == [("base", "tuned"), ("base", "third"), ("tuned", "third")]


@pytest.mark.process
def test_of_many_the_leader_is_shown_against_each_other(here: Path, coeval: Command) -> None:
    """A table for each task and no more than a handful; names are short, and whole in the key."""
    names = ["Qwen/Qwen2.5-72B-Instruct-Turbo", *(f"org/model-{n}b-Instruct-2501" for n in range(2, 9))]
    folders = [
        output(here / str(at), name, verdicts([1] * (190 - 20 * at) + [0] * (10 + 20 * at)))
        for at, name in enumerate(names)
    ]
    shown = coeval("compare", *folders).out
    titles = [line for line in shown.splitlines() if "the others −" in line]
    assert titles == ["ifeval: the others − Qwen2.5-72B"]
    rows = [line.split()[0] for line in shown.splitlines() if line.startswith("model-")]
    assert rows == [f"model-{n}b" for n in range(2, 9)]
    assert shown.count("org/model-2b-Instruct-2501") == 1, "in the key alone"
    assert "28 differences were tested; all of them: --html FILE, --excel FILE or --json" in shown
    first = next(line for line in shown.splitlines() if line.startswith("model-8b"))
    assert re.match(r"model-8b +95\.0 +25\.0 +−70\.0 ± ", first)
    assert len(found(coeval, *folders)["comparisons"]) == 28


@pytest.mark.process
def test_two_sweeps_are_compared_and_one_checkpoint_is_named(here: Path, coeval: Command) -> None:
    for name, last in (("run_a", 0.4), ("run_b", 0.9)):
        write_training(here / name, drawn({100: 0.1, 200: 0.3, 300: last}, 150, 1))
    ended = coeval("compare", here / "run_a", here / "run_b")
    assert ended.code == 0, ended.err
    said = " ".join(ended.out.split())
    assert said.startswith("Ship run_b step 300, ")
    assert "it leads the 5 others" in said
    assert re.search(r"step 300 .* 0?<?0\.\d+ +150 ", ended.out, re.MULTILINE), (
        "run against run, step by step"
    )
    document = found(coeval, here / "run_a", here / "run_b")
    assert [one["b"]["step"] for one in document["differences"]] == [100, 200, 300]
    assert document["choices"][0]["best"] == {"run": "run_b", "step": 300}


@pytest.mark.process
def test_sweeps_are_compared_with_sweeps_and_without_options_of_runs(
    two: tuple[Path, Path], here: Path, coeval: Command
) -> None:
    sweeps = [write_training(here / name, drawn({1: 0.3, 2: 0.5}, 30, 1)) for name in ("run_a", "run_b")]
    for arguments, said in (
        ((sweeps[0], two[0]), "is a sweep"),
        ((sweeps[0],), "name two sweeps to compare"),
        ((*sweeps, "--students", "a,b"), "do not apply to sweeps"),
        ((*sweeps, "--markdown"), "do not apply to sweeps"),
    ):
        ended = coeval("compare", *arguments)
        assert (ended.code, ended.out) == (1, ""), said
        assert said in ended.err


# `coeval compare` on outputs that `eval-framework` made of simulated models, whose skill is known.

CHECKPOINTS = ("base:skill=0.60", "even:skill=0.60", "tuned:skill=0.63", "strong:skill=0.80")


@pytest.mark.system
async def test_what_is_said_of_checkpoints_is_what_was_planted(tmp_path: Path, coeval: Command) -> None:
    library = Library()
    if any(library.presence(name)[0] is Presence.ABSENT for name in benchmark_class("ifeval").assets):
        pytest.skip("needs IFEval's prompts: coeval datasets fetch ifeval")
    models = [SimulatedModel(parse_model_option(text, {})) for text in CHECKPOINTS]
    async with TestServer(make_app(models)) as server:
        for text in CHECKPOINTS:
            name = text.partition(":")[0]
            how = ["--tasks", "ifeval", "--model", name, "--output-dir", name]
            ended = await finish(
                await start(tmp_path, *how, "--base-url", f"http://127.0.0.1:{server.port}/v1")
            )
            assert ended.code == 0, ended

    def headline(other: str) -> dict[str, Any]:
        shown = coeval("compare", tmp_path / "base", tmp_path / other, "--json")
        assert shown.code == 0, shown.err
        found: dict[str, Any] = json.loads(shown.out)["comparisons"][0]
        assert (found["n"], found["missing"]) == (541, 0)
        return found

    equal, tuned, strong = (headline(name) for name in ("even", "tuned", "strong"))
    assert "are tied" in equal["sentence"]
    assert equal["ci95"][0] < 0 < equal["ci95"][1]
    per_skill = strong["difference"] / 0.2
    assert tuned["ci95"][0] < 0.03 * per_skill < tuned["ci95"][1], "where a step of 0.03 is to lie"
    if tuned["minimum_detectable"] > abs(tuned["difference"]):
        assert "base is better" not in tuned["sentence"]
    assert strong["sentence"].startswith("strong leads on ifeval: ")
    assert coeval("compare", tmp_path / "strong", tmp_path / "base", "--fail-if-worse", "2%").code == 4
    assert coeval("compare", tmp_path / "base", tmp_path / "strong", "--fail-if-worse", "2%").code == 0
