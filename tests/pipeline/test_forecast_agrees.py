"""Random experiments, started in every way there is: as many calls as a dry run said, or both refuse."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import PHASES, ROLES, Lab, listen, model, quiz, task

from coeval.api import load_config
from coeval.core.errors import UsageError
from coeval.pipeline.config.schema import PHASES as ALL_PHASES
from coeval.pipeline.plan.forecast import Forecast, forecast
from coeval.pipeline.plan.recorded import Stance
from coeval.pipeline.run_session import RunOptions


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


def foreseen(lab: Lab, how: dict[str, Any]) -> Forecast | None:
    options = {name: value for name, value in how.items() if name != "changed"}
    try:
        return forecast(load_config(lab.file), RunOptions(**options, stance=Stance(how["changed"])))
    except UsageError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
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
        said = foreseen(lab, how)
        asked.clear()
        if said is None:
            with pytest.raises(UsageError):
                lab.run(**how)
            continue
        lab.run(**how)
        for phase, made in zip(ALL_PHASES, asked.phases(), strict=True):
            calls = said.calls_of_phase(phase)
            assert calls.low <= made <= calls.high, (step, how, phase)
