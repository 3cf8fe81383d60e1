"""The judged benchmarks on their real data and templates, where these have been fetched."""

from __future__ import annotations

import re

import pytest
from fakes.judged_tasks import JUDGE, MODEL, Panel

from coeval.benchmarks.assets.library import Library, Presence
from coeval.benchmarks.benchmark import Benchmark, Item, JudgeSettings, TaskSettings
from coeval.benchmarks.tasks.alpaca_eval import AlpacaEval
from coeval.benchmarks.tasks.arena_hard import ArenaHard
from coeval.benchmarks.tasks.healthbench import HealthBench
from coeval.benchmarks.tasks.writingbench import WritingBench
from coeval.core.model import ModelSpec
from coeval.simulation.simulated_model import SimulatedModel

SIZES: dict[type[Benchmark], tuple[int, int]] = {
    WritingBench: (1000, 5000),
    HealthBench: (500, 5965),
    ArenaHard: (750, 1500),
    AlpacaEval: (805, 805),
}
"""Items, and judgments of one answer to each."""

PLACEHOLDER = re.compile(
    r"<<(?:conversation|rubric_item)>>|\{(?:criteria|QUESTION|ANSWER_[AB]|instruction|output_[12])\}"
)


@pytest.fixture(params=SIZES, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> type[Benchmark]:
    library = Library()
    kind: type[Benchmark] = request.param
    absent = [name for name in kind.assets if library.presence(name)[0] is not Presence.READY]
    if absent:
        pytest.skip(f"not fetched: {', '.join(absent)}; run `coeval datasets fetch {kind.name}`")
    return kind


def task(kind: type[Benchmark]) -> Benchmark:
    assets = {name: Library().presence(name)[1] for name in kind.assets}
    judge = JudgeSettings(JUDGE)
    return kind(TaskSettings(model=MODEL, assets=assets, judge=judge))


@pytest.mark.process
def test_every_item_has_its_judgments(kind: type[Benchmark]) -> None:
    panel = Panel(task(kind), lambda item: f"Reply to {item.id}.")
    n_items, n_asks = SIZES[kind]
    assert len({item.id for item in panel.items}) == n_items
    requests = panel.requests()
    assert len(requests) == n_asks
    for key, request in requests.items():
        shown = request.messages[-1].content
        assert shown.count(f"Reply to {key.partition('__')[0]}.") == 1
        assert not any(message.content == "" for message in request.messages)


def test_templates_are_filled(kind: type[Benchmark]) -> None:
    for request in Panel(task(kind), lambda _: "Reply.", first=20).requests().values():
        assert not [part for message in request.messages for part in PLACEHOLDER.findall(message.content)]


@pytest.mark.process
async def test_a_simulated_judge_is_understood_and_prefers_the_better_model(kind: type[Benchmark]) -> None:
    judge = SimulatedModel(ModelSpec(name=JUDGE, interface="simulated", model=JUDGE))
    means = []
    for quality in ("0.150", "0.850"):

        def respond(_: Item, quality: str = quality) -> str:
            return f"An answer.\n[simulated answer of sim, quality {quality}]"

        panel = Panel(task(kind), respond, first=12)
        said = {ask.id: await judge.complete(ask.request()) for _, ask in panel.asks()}
        scored = panel.judge(lambda key, _: said[key])  # noqa: B023 - called at once
        assert scored.n_failed == {}
        assert scored.n_scored == scored.n_expected > 0
        scores = [value for of in scored.items.values() for value in of.values() if value is not None]
        means.append(sum(scores) / len(scores))
    assert means[0] < means[1]
