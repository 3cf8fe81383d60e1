"""A student meets demands of form as often as it is good, measured by IFEval's own verifiers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from coeval.benchmarks.tasks.following import make_instruction
from coeval.benchmarks.text_analysis import Language
from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request, SamplingParameters
from coeval.simulation.prose import read_answer_mark
from coeval.simulation.simulated_model import SimulatedModel

ASKED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Do not use any commas.", "punctuation:no_comma", {}),
    (" in all lowercase letters.", "change_case:english_lowercase", {}),
    (", in all capital letters.", "change_case:english_capital", {}),
    (
        " in at least 250 words.",
        "length_constraints:number_words",
        {"relation": "at least", "num_words": 250},
    ),
    (
        " in less than 60 words.",
        "length_constraints:number_words",
        {"relation": "less than", "num_words": 60},
    ),
    ("Use exactly 5 bullet points.", "detectable_format:number_bullet_lists", {"num_bullets": 5}),
    (
        "Highlight at least 3 parts like *this*.",
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 3},
    ),
    (
        " with at least 4 placeholders in brackets.",
        "detectable_content:number_placeholders",
        {"num_placeholders": 4},
    ),
    ("Add a title such as <<Tea>>.", "detectable_format:title", {}),
    (" and close with a P.S.", "detectable_content:postscript", {"postscript_marker": "P.S."}),
    ("Wrap the answer in double quotes.", "startend:quotation", {}),
)
"""What a prompt demands, and the instruction that this is."""
SEEDS = 12


@pytest.fixture(scope="module")
def language() -> Language:
    return Language()


def student(skill: float) -> SimulatedModel:
    spec = ModelSpec(name="s", interface="simulated", model="sim-large", options={"skill": skill})
    return SimulatedModel(spec)


async def reported(model: SimulatedModel, prompt: str, seed: int = 1) -> str:
    request = Request((Message("user", prompt),), seed=seed, sampling=SamplingParameters(max_tokens=2048))
    return (await model.complete(request)).text


@pytest.mark.process
@pytest.mark.parametrize(("demand", "instruction", "arguments"), ASKED, ids=[row[0][:24] for row in ASKED])
async def test_each_demand_is_met_as_often_as_the_student_is_good(
    demand: str, instruction: str, arguments: dict[str, Any], language: Language
) -> None:
    prompt = f"Tell me about tea{'' if demand[0] in ' ,' else '. '}{demand}"

    async def met(skill: float) -> float:
        model = student(skill)
        texts = [await reported(model, prompt, seed) for seed in range(SEEDS)]
        required = make_instruction(instruction, arguments)
        return sum(required.is_followed(text, language) for text in texts) / SEEDS

    assert await met(1) >= 0.75
    assert await met(0) <= 0.34


@pytest.mark.parametrize(
    "demand",
    [
        "",
        "Do not use any commas.",
        "Use all capital letters.",
    ],
)
async def test_an_answer_bound_by_form_still_states_its_quality(demand: str) -> None:
    mark = read_answer_mark(await reported(student(0.9), f"Tell me about tea. {demand}"))
    assert mark is not None
    assert mark.model.lower() == "sim-large"
    assert mark.quality > 0.6


async def test_our_own_items_are_answered_as_before() -> None:
    """What an item of the pipeline says is its subject, also where it reads like a demand."""
    item = "Case 1. Do not use any commas. (simulated item, difficulty 0.50; attributes: topic=JSON)"
    assert "," in await reported(student(1), item)


@pytest.mark.process
@pytest.mark.timeout(20)
async def test_hostile_prompts_do_not_hang_a_student() -> None:
    hostile = (
        "at least " * 20_000 + "less than the " * 10_000 + " words bullets\n" + "limit max " * 20_000
        + "\nhighlight " * 5_000 + "double quotes 9 " * 10_000 + "all capital no comma " * 5_000
        + " 999999 words, 999999 bullet points, 999999 placeholders"
    )  # fmt: skip
    text = await reported(student(1), hostile)
    assert len(text) < 2_000_000


@pytest.mark.process
async def test_skill_shows_in_the_prompts_of_ifeval(language: Language) -> None:
    cache = Path(os.environ.get("COEVAL_CACHE", Path.home() / ".cache" / "coeval"))
    path = cache / "files" / "ifeval" / "input_data.jsonl"
    if not path.is_file():
        pytest.skip(f"{path} is missing; `coeval datasets fetch ifeval` fetches it")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[::3]]
    shares = []
    for skill in (0.2, 0.5, 0.9):
        texts = [await reported(student(skill), row["prompt"]) for row in rows]
        verdicts = [
            make_instruction(kind, arguments).is_followed(text, language)
            for row, text in zip(rows, texts, strict=True)
            for kind, arguments in zip(row["instruction_id_list"], row["kwargs"], strict=True)
        ]
        shares.append(mean(verdicts))
    low, middle, high = shares
    assert low + 0.1 < middle < high - 0.1, shares
