"""Owed = planned − recorded, for any state of a folder: hypothesis tries them."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline.experiments import FOLDERS, PHASES, ROLES, Lab, listen, model, quiz, task

from coeval.api import load_config, run
from coeval.core.errors import UsageError
from coeval.models.keys import load_keys
from coeval.pipeline.config.load_file import read_config
from coeval.pipeline.config.schema import PHASES as ALL_PHASES
from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan import walk
from coeval.pipeline.plan.count_plan import PlanCount
from coeval.pipeline.plan.estimate.recorded_lengths import read_recorded_lengths
from coeval.pipeline.plan.estimate.run_estimate import EstimateInputs, estimate_run
from coeval.pipeline.plan.estimate.start_preview import preview_start
from coeval.pipeline.plan.preview import Forecast, forecast_start, preview_run
from coeval.pipeline.run_options import ChangePolicy, RunOptions
from coeval.pipeline.upkeep.gaps import Gaps, find_gaps
from coeval.pricing.estimate import Estimate
from coeval.pricing.lengths import Span
from coeval.pricing.price_book import PriceBook
from coeval.store.rundir import RunDir


@pytest.fixture(scope="module")
def whole() -> Iterator[Lab]:
    """A finished run: two tasks, one of them with a label beside its factor."""
    with tempfile.TemporaryDirectory() as folder:
        tasks = [task(total=3), quiz(total=2, rubric={"colour": "Right.", "style": "Good."})]
        lab = Lab(Path(folder), [model("ann"), model("ben", "student", "judge")], tasks)
        assert lab.run().exit_code == 0
        yield lab


def owed(config: Config, **options: Any) -> dict[str, int]:
    found = preview_run(config, RunOptions(continue_run=True, **options)).plan_count
    return {phase: found.total(phase).owed for phase in PHASES}


ALL = {"data_generation": 5, "response_collection": 10, "evaluation": 20 + 4}


def test_a_whole_run_owes_nothing(whole: Lab) -> None:
    config = load_config(whole.file)
    found = preview_run(config, RunOptions(continue_run=True)).plan_count
    assert {phase: found.total(phase).planned for phase in PHASES} == ALL
    assert owed(config) == dict.fromkeys(PHASES, 0)
    assert not any(found.open_slots)


def lost(whole: Lab, folder: Path, gone: set[str], failed: set[str]) -> Lab:
    """A copy of the run without some records, and with others failed."""
    lab = Lab(folder, whole.models, whole.tasks)
    for source in whole.path.rglob("*"):
        target = lab.path / source.relative_to(whole.path)
        if not source.is_file() or source.name.startswith("."):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix != ".jsonl":
            target.write_bytes(source.read_bytes())
            continue
        records = [json.loads(line) for line in source.read_text().splitlines()]
        left = [
            {**record, "status": "failed", "error": {"kind": "server", "message": "no"}, "prompt": None}
            if record["id"] in failed
            else record
            for record in records
            if record["id"] not in gone
        ]
        target.write_text("".join(json.dumps(record) + "\n" for record in left))
    return lab


@pytest.mark.process
@given(data=st.data())
@settings(max_examples=10)
def test_whatever_is_lost_is_owed_with_what_follows_and_made_again(whole: Lab, data: st.DataObject) -> None:
    keys = sorted(key for phase in PHASES for key in whole.records(phase))
    gone = data.draw(st.sets(st.sampled_from(keys), max_size=8), "lost")
    failed = data.draw(st.sets(st.sampled_from(keys), max_size=4), "failed") - gone
    missing = gone | failed
    expected = dict.fromkeys(PHASES, 0)
    for phase in PHASES:
        for key in whole.records(phase):
            above = {"__".join(key.split("__")[:parts]) for parts in range(3, 6)}
            expected[phase] += bool(above & missing)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        lab = lost(whole, Path(folder), gone, failed)
        assert owed(load_config(lab.file)) == expected
        requested = listen(patch)
        assert run(lab.file, continue_run=True).exit_code == 0
        judged = [key for key in whole.records("evaluation") if key.endswith("exact_match")]
        labels = sum(bool({"__".join(k.split("__")[:n]) for n in range(3, 6)} & missing) for k in judged)
        # What comes again the same keeps what was made from it: fewer may be asked for than were owed.
        _, _, items, answers, judgments = requested.phases()
        assert items == expected["data_generation"]
        assert answers <= expected["response_collection"]
        assert judgments <= expected["evaluation"] - labels
        assert {phase: len(lab.records(phase)) for phase in PHASES} == ALL
        assert all(record.get("status", "ok") == "ok" for p in PHASES for record in lab.records(p).values())
        assert owed(load_config(lab.file)) == dict.fromkeys(PHASES, 0)


def test_a_record_of_a_model_that_is_named_is_its_alone(whole: Lab, tmp_path: Path) -> None:
    lab = lost(whole, tmp_path, set(whole.records("evaluation")), set())
    config = load_config(lab.file)
    assert owed(config)["evaluation"] == 24
    assert owed(config, only_models=("ann",))["evaluation"] == 24, "ann wrote all items"
    lab.models[0]["name"] = "amy"
    assert owed(load_config(lab.file), only_models=("ben",)) == {
        "data_generation": 0,
        "response_collection": 0,
        "evaluation": 0,
    }, "amy has written nothing yet that ben could answer"


def test_a_line_that_is_no_record_is_owed(whole: Lab, tmp_path: Path) -> None:
    lab = lost(whole, tmp_path, set(), set())
    path = next((lab.path / FOLDERS["response_collection"]).glob("story.ann.*"))
    lines = path.read_text().splitlines()
    path.write_text("\n".join(['{"id": 3}', *lines[1:], "not JSON"]) + "\n")
    config = load_config(lab.file)
    assert owed(config) == {"data_generation": 0, "response_collection": 1, "evaluation": 2}
    assert len(preview_run(config, RunOptions(continue_run=True)).plan.recorded.damaged) == 2


def test_a_good_line_of_an_id_counts_wherever_it_stands_and_a_failed_one_is_owed(
    whole: Lab, tmp_path: Path
) -> None:
    lab = lost(whole, tmp_path, set(), set())
    path = next((lab.path / FOLDERS["response_collection"]).glob("story.ann.*"))
    good, *others = path.read_text().splitlines()
    failed = json.dumps({**json.loads(good), "status": "failed", "response": None})
    for lines, expected in (([good, failed], 0), ([failed, good], 0), ([failed, failed], 1)):
        path.write_text("\n".join([*lines, *others]) + "\n")
        assert owed(load_config(lab.file))["response_collection"] == expected


@pytest.mark.parametrize("stance", list(ChangePolicy))
def test_looking_ahead_changes_nothing(whole: Lab, stance: ChangePolicy) -> None:
    before = {path: path.read_bytes() for path in whole.path.rglob("*") if path.is_file()}
    preview_run(load_config(whole.file), RunOptions(continue_run=True, change_policy=stance))
    assert {path: path.read_bytes() for path in whole.path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("changed", ["keep", "redo"])
def test_what_stands_whole_is_counted_as_item_by_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """Items that stand with all that follows from them are counted in one; the figures are the same."""
    lab = Lab(tmp_path, [model("ann", failure_rate=0.1), model("ben")], [task(total=8), quiz(total=8)])
    lab.run()
    lab.lose("response_collection", "story__ann__00002__ben")
    lab.lose("evaluation", "quiz__ben__00003__ann__exact_match")
    lab.tasks[0]["sampling"]["total"] = 9
    lab.models[1]["parameters"]["temperature"] = 0.3
    config = load_config(lab.file)
    options = RunOptions(continue_run=True, change_policy=ChangePolicy(changed))

    def counted() -> tuple[PlanCount, Gaps]:
        plan = preview_run(config, options)
        return plan.plan_count, find_gaps(RunDir(lab.path), config, plan.plan.recorded)

    quickly = counted()
    monkeypatch.setattr(walk, "find_current_rows", lambda *_: set())
    assert counted() == quickly


# Calls as a host counts them: those of the guide's formulas, and of the dry run, exactly.

AUTO: dict[str, Any] = {"target_attributes": "auto", "nuanced_attributes": "auto", "rubric": "auto"}


def foretold(lab: Lab, **options: Any) -> list[tuple[int, int]]:
    """The forecast's range for each phase."""
    expected = forecast_start(load_config(lab.file), RunOptions(**options))
    return [(calls.low, calls.high) for calls in map(expected.sum_phase_calls, ALL_PHASES)]


def exactly(*calls: int) -> list[tuple[int, int]]:
    return [(count, count) for count in calls]


@pytest.mark.system
def test_many_models_are_counted_without_a_walk_over_what_they_will_make(tmp_path: Path) -> None:
    """432 million evaluations, one by one, would outlast the runner's limit."""
    many = 600
    lab = Lab(tmp_path, [model(f"m{n}") for n in range(many)], [task(total=2)])
    assert foretold(lab) == exactly(0, 0, 2 * many, 2 * many**2, 2 * many**3)


CASES: dict[str, tuple[list[dict[str, Any]], tuple[int, ...]]] = {
    # tasks, and calls of phases 1–5 for two models in all roles
    "single": ([task(total=3)], (0, 0, 6, 12, 24)),
    "per factor": ([task(total=3, evaluation_mode="per_factor")], (0, 0, 6, 12, 48)),
    "label alone": ([quiz(total=3)], (0, 0, 6, 12, 0)),
    "label beside a factor": (
        [quiz(total=3, rubric={"colour": "Right.", "style": "Good."}, evaluation_mode="per_factor")],
        (0, 0, 6, 12, 24),
    ),
    "auto": ([task(total=3, **AUTO)], (4, 2, 6, 12, 24)),
    "complete": ([task(total=3, target_attributes="complete")], (2, 0, 6, 12, 24)),
    "all": ([task(total=3, sampling={"target": "all", "total": 3})], (0, 0, 6, 12, 24)),
    "several": ([task(total=1), task("b", total=2, rubric="auto"), quiz(total=2)], (0, 2, 10, 20, 24)),
}


@pytest.mark.parametrize(("tasks", "calls"), CASES.values(), ids=CASES)
def test_calls_are_those_of_the_formulas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: list[dict[str, Any]], calls: tuple[int, ...]
) -> None:
    lab = Lab(tmp_path, tasks=tasks)
    assert foretold(lab) == exactly(*calls)
    requested = listen(monkeypatch)
    assert lab.run().exit_code == 0
    assert requested.phases() == calls
    assert foretold(lab, continue_run=True) == exactly(0, 0, 0, 0, 0)


def test_where_the_number_of_factors_is_not_known_yet_a_range_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, tasks=[task(rubric="auto", evaluation_mode="per_factor")])
    expected = foretold(lab)
    requested = listen(monkeypatch)
    lab.run()
    assert expected[:4] == exactly(*requested.phases()[:4])
    low, high = expected[4]
    assert low == 24
    assert low < requested.phases()[4] <= high
    factors = json.loads((lab.path / "phase2_rubric" / "story.rubric.json").read_text())
    assert requested.phases()[4] == 24 * len(factors)


ALL_SIX = ["accuracy", "completeness", "clarity", "relevance", "conciseness", "format"]
"""All factors that simulated teachers know: to these they add nothing."""
EXTENDING = dict.fromkeys(("data_generation", "response_collection", "evaluation"), "Extend")


@pytest.mark.parametrize("mode", ["single", "per_factor"])
@pytest.mark.parametrize("factors", [ALL_SIX, ALL_SIX[:1]], ids=["nothing new", "something new"])
def test_an_extended_rubric_may_bring_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factors: list[str], mode: str
) -> None:
    """16 answers were judged, but for one, and the teacher may add factors or not."""
    rubric = {name: f"Of the best {name}." for name in factors}
    tasks = [task(total=4, rubric=rubric, evaluation_mode=mode)]
    source = Lab(tmp_path, [model("ann"), model("ben", "student", "judge")], tasks, id="old")
    source.run()
    source.lose("evaluation", "story__ann__00002__ben__ann")
    settings = {"resume_from": "old", "phases": EXTENDING}
    lab = Lab(tmp_path, source.models, [tasks[0] | {"rubric": "extend"}], settings)
    expected = foretold(lab)
    requested = listen(monkeypatch)
    assert lab.run().exit_code == 0
    assert expected[:4] == exactly(*requested.phases()[:4]) == exactly(0, 1, 0, 0)
    written = json.loads((lab.path / "phase2_rubric" / "story.rubric.json").read_text())
    added = len(written) - len(factors)
    assert bool(added) == (factors != ALL_SIX)
    low, high = expected[4]
    per_answer = len(factors) if mode == "per_factor" else 1
    assert low == per_answer, "nothing new: one judgment is missing"
    assert high == (per_answer + 40 * 16 if mode == "per_factor" else 16)
    made = requested.phases()[4]
    new = 16 * (added if mode == "per_factor" else bool(added))
    assert made == (low + new if mode == "per_factor" else max(low, new))
    assert low <= made <= high


def test_a_rubric_drawn_anew_may_be_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--overwrite asks the teachers again, and the judgments stay."""
    lab = Lab(tmp_path, tasks=[task(rubric="auto")])
    lab.run()
    lab.settings["phases"] = EXTENDING
    assert foretold(lab, overwrite=True) == [(0, 0), (2, 2), (0, 0), (0, 0), (0, 24)]
    requested = listen(monkeypatch)
    assert lab.run(overwrite=True).exit_code == 0
    assert requested.phases() == (0, 2, 0, 0, 0)


def test_of_a_file_that_a_run_has_itself_nothing_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Lab(tmp_path, id="old").run()
    lab = Lab(tmp_path, settings={"resume_from": "old", "phases": EXTENDING})
    lab.run()
    lab.lose("response_collection", "story__ann__00002__ben")
    judgments = (0, 2)  # the lost answer may come again the same, and does
    assert foretold(lab, overwrite=True) == [*exactly(0, 0, 0, 1), judgments]
    requested = listen(monkeypatch)
    assert lab.run(overwrite=True).exit_code == 0
    assert requested.phases() == (0, 0, 0, 1, 0)


@pytest.mark.process
def test_what_was_proposed_before_a_crash_is_known(tmp_path: Path) -> None:
    """One of two teachers was heard before the run was cut short."""
    lab = Lab(tmp_path, tasks=[task(total=2, rubric="auto", evaluation_mode="per_factor")])
    lab.run()
    folder = lab.path / "phase2_rubric"
    first, _ = (folder / "proposals.jsonl").read_text().splitlines()
    (folder / "proposals.jsonl").write_text(first + "\n")
    (folder / "story.rubric.json").unlink()
    for phase in ("phase3_datapoints", "phase4_responses", "phase5_evaluations"):
        shutil.rmtree(lab.path / phase)
    judgments, heard = 2 * 4 * 2, 4
    assert foretold(lab, continue_run=True)[1:] == [
        (1, 1), (4, 4), (8, 8), (judgments * heard, judgments * (heard + 40)),
    ]  # fmt: skip


def test_open_attributes_leave_a_static_rubric_known(tmp_path: Path) -> None:
    lab = Lab(tmp_path, tasks=[task(target_attributes="auto", evaluation_mode="per_factor")])
    assert foretold(lab) == exactly(2, 0, 6, 12, 48)


def test_every_request_of_a_run_is_known_by_what_it_is_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tries of the same thing are two calls, now and at the next start."""
    models = [model("ann", malformed_rate=0.3, failure_rate=0.2), model("ben")]
    tasks = [task("one", total=3), task("two", total=2, evaluation_mode="per_factor", rubric="auto")]
    lab = Lab(tmp_path, models, tasks)
    requested = listen(monkeypatch)
    lab.run()
    lab.run(continue_run=True)
    calls = Counter((who, request.call) for who, request in requested.requests)
    assert len(calls) > 60
    assert all(call is not None for _, call in calls)
    assert max(calls.values()) == 1
    tries = {call.attempt for _, call in calls if call is not None}
    assert {0, 1, 2} <= tries


# Random experiments, started in every way: as many calls as a dry run and a plan said, or all refuse.
# Labels, calls per factor, proposed attributes and rubrics, checks, scales, reasons, samples, variants,
# `--continue`, `--only-models`, `resume_from` and lost records are among them: 400 starts.


def any_task(draw: random.Random, name: str) -> dict[str, Any]:
    kind, changes = draw.choice([task, quiz]), dict[str, Any]()
    if draw.random() < 0.4:
        changes["evaluation_mode"] = "per_factor"
    if kind is quiz and draw.random() < 0.5:
        changes["rubric"] = {"colour": "The right one.", "style": "It reads well."}
    if kind is task:
        changes["target_attributes"] = draw.choice([{"mood": ["glad", "sad"]}, "auto", "complete"])
        changes["nuanced_attributes"] = draw.choice([{}, "auto"])
        changes["rubric"] = draw.choice([{"plot": "Things happen for a reason."}, any_rubric(draw), "auto"])
        changes["rationale"] = draw.random() < 0.5
    return kind(name, total=draw.randint(1, 3), **changes)


CHECKS: tuple[dict[str, Any], ...] = (
    {"check": "length", "most": 90, "unit": "words"},
    {"check": "contains", "values": ["review", "team"], "require": "any"},
    {"check": "not_contains", "value": "quality 0.1"},
)
SCALES: tuple[Any, ...] = ("1-5", ["pass", "fail"], {"thin": 0, "fair": 20, "full": 100})


def any_rubric(draw: random.Random) -> dict[str, Any]:
    """Judged factors on scales of their own, checks, or both."""
    factors: list[Any] = [{"criterion": "It reads well.", "scale": draw.choice(SCALES)}, *CHECKS]
    return {f"f{number}": factor for number, factor in enumerate(draw.sample(factors, draw.randint(1, 3)))}


def any_model(draw: random.Random, name: str) -> dict[str, Any]:
    made = model(name, *draw.sample(ROLES, draw.randint(1, 3)))
    if "student" in made["roles"] and draw.random() < 0.5:
        made["samples"] = draw.randint(1, 3)
    if "student" in made["roles"] and draw.random() < 0.4:
        made["variants"] = {"base": {}, "brief": {"system_prompt": "Be brief."}}
    return made


def vary(draw: random.Random, lab: Lab, name: str) -> None:
    """Add a check, a scale, reasons, a sample or a variant."""
    students = [one for one in lab.models if "student" in one["roles"]]
    rubrics = [one for one in lab.tasks if isinstance(one["rubric"], dict)]
    match draw.randrange(4):
        case 0 if rubrics:
            draw.choice(rubrics)["rubric"][f"check-{name}"] = draw.choice(CHECKS)
        case 1 if rubrics:
            scaled = {"criterion": "It holds.", "scale": draw.choice(SCALES)}
            draw.choice(rubrics)["rubric"][f"scaled-{name}"] = scaled
        case 2 if students:
            one = draw.choice(students)
            one["samples"] = one.get("samples", 1) + draw.choice([-1, 1, 2]) or 1
        case _ if students:
            one = draw.choice(students)
            one["variants"] = one.get("variants", {"base": {}}) | {name: {"system_prompt": f"Be {name}."}}


def meddle(draw: random.Random, lab: Lab, step: int) -> None:
    """Change the file, or lose records."""
    for number in range(draw.randint(0, 3)):
        name, one = f"x{step}{number}", draw.choice(lab.tasks)
        match draw.randrange(9):
            case 0 if len(lab.models) < 4:
                lab.models.append(any_model(draw, name))
            case 1:
                lab.tasks.append(any_task(draw, name))
            case 2:
                one["sampling"] = one["sampling"] | {"total": draw.randint(1, 4)}
            case 3 if isinstance(one["rubric"], dict):
                one["rubric"] = one["rubric"] | {draw.choice([name, "plot"]): "Another criterion."}
            case 4 if len(lab.models) > 2:
                lab.models.pop()
            case 5 | 6:
                vary(draw, lab, name)
            case 7:
                one["judging"] = draw.choice(["pairwise", "scores"])
            case _:
                for phase in PHASES:
                    keys = list(lab.records(phase))
                    for key in draw.sample(keys, min(len(keys), 2)):
                        lab.lose(phase, key)


def any_start(draw: random.Random, lab: Lab, step: int) -> tuple[Lab, dict[str, Any]]:
    """The experiment as it is started next, and how."""
    how: dict[str, Any] = {"changed": draw.choice(["refuse", "redo", "keep"])}
    if draw.random() < 0.2:
        how["only_models"] = (draw.choice(lab.models)["name"],)
    modes = {phase: draw.choice(["New", "Keep", "Extend", "Model"]) for phase in PHASES}
    match draw.randrange(4):
        case 0:
            how["continue_run"] = True
        case 1:
            how["overwrite"] = True
            lab.settings["phases"] = modes
        case 2:
            lab.settings["phases"] = modes
        case _:
            settings = {"resume_from": lab.id, "phases": modes}
            lab = Lab(lab.folder, lab.models, lab.tasks, settings, id=f"exp{step}")
            for one in lab.tasks:
                if not one.get("label_attributes") and draw.random() < 0.5:
                    one["rubric"] = "extend"
    return lab, how


def options_of(how: dict[str, Any]) -> RunOptions:
    options = {name: value for name, value in how.items() if name != "changed"}
    return RunOptions(**options, change_policy=ChangePolicy(how["changed"]))


def foreseen(lab: Lab, how: dict[str, Any]) -> Forecast | None:
    try:
        options = options_of(how)
        return forecast_start(read_config(lab.file, start=options).config, options)
    except UsageError:
        return None


def planned(lab: Lab, how: dict[str, Any]) -> Estimate | None:
    prices = PriceBook()
    try:
        options = options_of(how)
        loaded = read_config(lab.file, start=options).config
        start = preview_start(loaded, options, load_keys(), prices)
        start.preview.refuse_start(options)
    except UsageError:
        return None
    lengths = read_recorded_lengths(start.config, start.preview)
    return estimate_run(start.config, start.preview, EstimateInputs(prices, lengths))


@pytest.mark.process
@pytest.mark.parametrize("seed", range(100))
def test_a_run_makes_as_many_calls_as_were_foretold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    lab = Lab(
        tmp_path, [model("ann"), any_model(draw, "ben")], [any_task(draw, "one"), any_task(draw, "two")]
    )
    lab.run()
    requested = listen(monkeypatch)
    for step in range(4):
        meddle(draw, lab, step)
        lab, how = any_start(draw, lab, step)
        said, estimate = foreseen(lab, how), planned(lab, how)
        requested.clear()
        assert (said is None) == (estimate is None)
        if said is None or estimate is None:
            with pytest.raises(UsageError):
                lab.run(**how)
            continue
        lab.run(**how)
        for phase, made in zip(ALL_PHASES, requested.phases(), strict=True):
            calls = said.sum_phase_calls(phase)
            assert calls.low <= made <= calls.high, (step, how, phase)
            reported = estimate.by_phase[phase].calls if phase in estimate.by_phase else Span(0, 0, 0)
            assert (reported.low, reported.high) == (calls.low, calls.high), (step, how, phase)
            assert reported.low <= reported.central <= reported.high
        by_model = Counter(name for name, _ in requested.requests)
        for name, line in estimate.by_model.items():
            assert line.calls.low <= by_model[name] <= line.calls.high, (step, how, name)
