"""Random experiments, started in every way: as many calls as a dry run and a plan said, or all refuse.

Labels, calls per factor, proposed attributes and rubrics, `--continue`, `--only-models`, `resume_from` and
lost records are among them: 220 starts."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import PHASES, ROLES, Lab, listen, model, quiz, task

from coeval.api import find_keys
from coeval.core.errors import UsageError
from coeval.pipeline.config.load_file import read_config
from coeval.pipeline.config.schema import PHASES as ALL_PHASES
from coeval.pipeline.plan.estimate.run_estimate import Assumed, estimate_run
from coeval.pipeline.plan.estimate.savings import estimated_start
from coeval.pipeline.plan.estimate.seen_lengths import seen_lengths
from coeval.pipeline.plan.forecast import Forecast, forecast
from coeval.pipeline.run_options import RunOptions, Stance
from coeval.pricing.estimate import Estimate
from coeval.pricing.lengths import Span
from coeval.pricing.price_book import PriceBook


def any_task(draw: random.Random, name: str) -> dict[str, Any]:
    kind, changes = draw.choice([task, quiz]), dict[str, Any]()
    if draw.random() < 0.4:
        changes["evaluation_mode"] = "per_factor"
    if kind is quiz and draw.random() < 0.5:
        changes["rubric"] = {"colour": "The right one.", "style": "It reads well."}
    if kind is task:
        changes["target_attributes"] = draw.choice([{"mood": ["glad", "sad"]}, "auto", "complete"])
        changes["nuanced_attributes"] = draw.choice([{}, "auto"])
        changes["rubric"] = draw.choice([{"plot": "Things happen for a reason."}, "auto"])
    return kind(name, total=draw.randint(1, 3), **changes)


def any_model(draw: random.Random, name: str) -> dict[str, Any]:
    return model(name, *draw.sample(ROLES, draw.randint(1, 3)))


def meddle(draw: random.Random, lab: Lab, step: int) -> None:
    """Change the file, or lose records."""
    for number in range(draw.randint(0, 3)):
        name, one = f"x{step}{number}", draw.choice(lab.tasks)
        match draw.randrange(6):
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
    return RunOptions(**options, stance=Stance(how["changed"]))


def foreseen(lab: Lab, how: dict[str, Any]) -> Forecast | None:
    try:
        options = options_of(how)
        return forecast(read_config(lab.file, start=options).config, options)
    except UsageError:
        return None


def planned(lab: Lab, how: dict[str, Any]) -> Estimate | None:
    prices = PriceBook()
    try:
        options = options_of(how)
        loaded = read_config(lab.file, start=options).config
        start = estimated_start(loaded, options, find_keys(), prices)
    except UsageError:
        return None
    lengths = seen_lengths(start.config, start.preview)
    return estimate_run(start.config, start.preview, Assumed(prices, lengths))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(55))
def test_a_run_makes_as_many_calls_as_were_foretold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    lab = Lab(
        tmp_path, [model("ann"), any_model(draw, "ben")], [any_task(draw, "one"), any_task(draw, "two")]
    )
    lab.run()
    asked = listen(monkeypatch)
    for step in range(4):
        meddle(draw, lab, step)
        lab, how = any_start(draw, lab, step)
        said, estimate = foreseen(lab, how), planned(lab, how)
        asked.clear()
        assert (said is None) == (estimate is None)
        if said is None or estimate is None:
            with pytest.raises(UsageError):
                lab.run(**how)
            continue
        lab.run(**how)
        for phase, made in zip(ALL_PHASES, asked.phases(), strict=True):
            calls = said.calls_of_phase(phase)
            assert calls.low <= made <= calls.high, (step, how, phase)
            told = estimate.by_phase[phase].calls if phase in estimate.by_phase else Span(0, 0, 0)
            assert (told.low, told.high) == (calls.low, calls.high), (step, how, phase)
            assert told.low <= told.central <= told.high
        by_model = Counter(name for name, _ in asked.requests)
        for name, line in estimate.by_model.items():
            assert line.calls.low <= by_model[name] <= line.calls.high, (step, how, name)
