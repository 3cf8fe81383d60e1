"""The range of an estimate holds what a run costs: a hundred random experiments on simulated models,
which count their tokens, at random prices; without samples, and with two or six of each model. Nothing is
known of these models but what they answer."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest
from pipeline.experiments import ROLES, Lab, model, quiz, task

from coeval.api import load_config
from coeval.engine.progress import Unwatched
from coeval.engine.session import SessionContext
from coeval.models.keys import load_keys
from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan.estimate.recorded_lengths import read_recorded_lengths
from coeval.pipeline.plan.estimate.run_estimate import EstimateInputs, estimate_run
from coeval.pipeline.plan.preview import preview_run
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.start.partial_starts import add_sampled_lengths
from coeval.pricing.lengths import Span
from coeval.pricing.price_book import PriceBook

EXPERIMENTS = 100
SAMPLES = (0, 2, 6)
"""Of each model. Two are the default, and show one or two of the roles of a model that has three."""
WIDEST, WIDEST_SAMPLED = 3.0, 1.5
"""High ÷ low, in the median."""
DESCRIPTIONS = [
    ("Tell a short story.", "A story of one paragraph."),
    ("Summarise a passage of text.", "Two to four sentences of plain prose."),
    ("Explain a concept to a layman.", "A short explanation."),
    ("Answer the customer's email.", "A complete email."),
    ("Give advice on gardening.", "Whatever helps."),
]


def any_experiment(draw: random.Random, folder: Path) -> Lab:
    models = []
    for number in range(draw.randint(2, 5)):
        roles = draw.sample(ROLES, draw.randint(1, 3)) if number else ROLES
        entry = model(f"m{number}", *roles, verbosity=round(draw.uniform(0.6, 1.6), 2))
        if draw.random() < 0.3:
            entry["role_parameters"] = {"student": {"max_tokens": draw.choice([40, 64, 128, 512])}}
        models.append(entry)
    tasks = [any_task(draw, f"t{number}") for number in range(draw.randint(1, 4))]
    return Lab(folder, models, tasks, {"probe_mode": "disable"})


def any_task(draw: random.Random, name: str) -> dict[str, Any]:
    description, output = draw.choice(DESCRIPTIONS)
    changes: dict[str, Any] = {"description": description}
    if draw.random() < 0.3:
        changes["evaluation_mode"] = "per_factor"
    if draw.random() < 0.2:
        both = {"colour": "The right one.", "style": "It reads well."}
        return quiz(
            name, total=draw.randint(2, 8), **changes, **({"rubric": both} if draw.random() < 0.5 else {})
        )
    for key in ("rubric", "target_attributes"):
        if draw.random() < 0.2:
            changes[key] = "auto"
    return task(name, total=draw.randint(2, 8), output_description=output, **changes)


def any_prices(draw: random.Random, folder: Path) -> None:
    """For all models that an experiment may have."""
    rows = [
        f"  m{number}: {{input_usd_per_mtok: {into:.3f}, output_usd_per_mtok: {out:.3f}}}"
        for number in range(5)
        for into, out in [(draw.uniform(0.1, 3), draw.uniform(0.4, 12))]
    ]
    file = folder / "Config" / "provider_pricing.yaml"
    file.parent.mkdir()
    file.write_text("\n".join(["overrides:", *rows, ""]))


def spent(lab: Lab) -> float:
    path = lab.path / "usage.json"
    accounts = json.loads(path.read_text())["models"] if path.exists() else {}
    return sum(account["cost_usd"] or 0.0 for account in accounts.values())


async def estimated(config: Config, samples: int) -> Span:
    settings = config.experiment.model_copy(update={"estimate_samples": samples})
    config = config.model_copy(update={"experiment": settings})
    prices, preview = PriceBook(), preview_run(config, RunOptions())
    lengths = read_recorded_lengths(config, preview)
    context = SessionContext(load_keys(), Unwatched(), asyncio.Event())
    await add_sampled_lengths(config, preview, lengths, prices, context)
    cost = estimate_run(config, preview, EstimateInputs(prices, lengths)).total.cost_usd
    assert cost is not None
    return cost


class Estimated(NamedTuple):
    cost: Span
    true: float

    @property
    def holds(self) -> bool:
        return self.cost.low <= self.true <= self.cost.high

    @property
    def width(self) -> float:
        return self.cost.high / self.cost.low


def tried(folder: Path, seed: int) -> tuple[Estimated, ...]:
    """One experiment: estimated with each number of samples, and then run."""
    folder.mkdir()
    os.chdir(folder)
    draw = random.Random(seed)
    lab = any_experiment(draw, folder)
    any_prices(draw, folder)
    return asyncio.run(held_against(lab))


async def held_against(lab: Lab) -> tuple[Estimated, ...]:
    """The estimates of an experiment, and what it then costs."""
    config = load_config(lab.file)
    costs = [await estimated(config, samples) for samples in SAMPLES]
    before = spent(lab)
    run = await lab.arun()
    assert run.exit_code == 0
    true = spent(lab) - before
    return tuple(Estimated(cost, true) for cost in costs)


@pytest.mark.system
def test_the_range_holds_what_runs_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = [tried(tmp_path / str(seed), seed) for seed in range(EXPERIMENTS)]
    for samples, each in zip(SAMPLES, zip(*found, strict=True), strict=True):
        missed = {seed: one for seed, one in enumerate(each) if not one.holds}
        width = median(one.width for one in each)
        held = EXPERIMENTS - len(missed)
        print(f"{samples} samples: held {held} of {EXPERIMENTS}, high / low {width:.2f} in the median")
        assert len(missed) <= 0.05 * EXPERIMENTS, missed
        assert width <= (WIDEST_SAMPLED if samples else WIDEST)


def test_a_few_short_items_do_not_stand_for_a_long_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All items of a table are known, so samples of the first two, and their records, are read beside it."""
    monkeypatch.chdir(tmp_path)
    rows = [{"text": f"Why is it number {n}?", "answer": "So."} for n in range(20)]
    rows[12]["text"] = "At great length. " * 5_000
    Path("items.jsonl").write_text("\n".join(map(json.dumps, rows)))
    items = {"path": "items.jsonl", "prompt": "text", "reference": "answer"}
    told = task(items=items)
    del told["target_attributes"], told["sampling"]
    lab = Lab(tmp_path, [model("m0", "student", "judge")], [told], {"probe_mode": "disable"})
    any_prices(random.Random(1), tmp_path)
    costs = [asyncio.run(estimated(load_config(lab.file), samples)).central for samples in SAMPLES[1:]]
    before = spent(lab)
    assert lab.run().exit_code == 0
    assert costs == pytest.approx([spent(lab) - before] * 2, rel=0.2)
