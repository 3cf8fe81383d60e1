"""A student meets demands of form as often as it is good, measured by the benchmarks' own verifiers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from coeval.benchmarks.tasks.following import check
from coeval.benchmarks.text_analysis import Language
from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request, SamplingParameters
from coeval.simulation.prose import read_answer
from coeval.simulation.simulated_model import SimulatedModel

ASKED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Do not use any commas.", "punctuation:no_comma", {}),
    (" in all lowercase letters.", "change_case:english_lowercase", {}),
    (", in all capital letters.", "change_case:english_capital", {}),
    ("Write it in the Russian language.", "language:response_language", {"language": "ru"}),
    ('Include the keywords "leaf" and "cup".', "keywords:existence", {"keywords": ["leaf", "cup"]}),
    (
        "The word leaf should appear at least 4 times.",
        "keywords:frequency",
        {"keyword": "leaf", "relation": "at least", "frequency": 4},
    ),
    (
        'Do not mention the words "report" or "cup".',
        "keywords:forbidden_words",
        {"forbidden_words": ["report", "cup"]},
    ),
    (
        "The letter q should appear at least 6 times.",
        "keywords:letter_frequency",
        {"letter": "q", "let_relation": "at least", "let_frequency": 6},
    ),
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
    (
        " with at least twelve sentences.",
        "length_constraints:number_sentences",
        {"relation": "at least", "num_sentences": 12},
    ),
    (
        " in 4 paragraphs, parted by three asterisks (***).",
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 4},
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
    ("Give the whole answer in JSON format.", "detectable_format:json_format", {}),
    (" and close with a P.S.", "detectable_content:postscript", {"postscript_marker": "P.S."}),
    ("Wrap the answer in double quotes.", "startend:quotation", {}),
    ('End with "That is all."', "startend:end_checker", {"end_phrase": "That is all."}),
    ("Give two different responses, parted by ******.", "combination:two_responses", {}),
    ("Use an emoji at the end of every sentence.", "format:emoji", {}),
    ("Write each word on a new line.", "format:newline", {}),
    ("The output should not contain any whitespace.", "format:no_whitespace", {}),
    (
        "The response must contain between 40 and 44 words.",
        "count:word_count_range",
        {"min_words": 40, "max_words": 44},
    ),
    ("Use exactly 7 numbers.", "count:numbers", {"N": 7}),
    ("Keep a 2:1 ratio of declarative to interrogative.", "ratio:sentence_type", {}),
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
        return sum(check(instruction, arguments, text, language) for text in texts) / SEEDS

    assert await met(1) >= 0.75
    assert await met(0) <= 0.34


@pytest.mark.parametrize(
    "demand",
    [
        "",
        "Do not use any commas.",
        "Use all capital letters.",
        "Answer in JSON format.",
        "In title case, please.",
    ],
)
async def test_an_answer_bound_by_form_still_states_its_quality(demand: str) -> None:
    mark = read_answer(await reported(student(0.9), f"Tell me about tea. {demand}"))
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
        "include the words " + "a and " * 20_000 + "\n"
        + "at least " * 20_000 + " words sentences paragraphs\n"
        + "keyword x once, " * 10_000 + "\nlist of person names: " + "Ann, " * 20_000
        + "\nhighlight " * 5_000 + "double quotes 9 " * 10_000 + "all capital no comma " * 5_000
        + '\nend with "' * 5_000 + "instead of bullet points use " * 5_000 + "following options: " * 5_000
        + " 999999 words, 999999 sentences, 999999 bullet points, 999999 placeholders"
    )  # fmt: skip
    text = await reported(student(1), hostile)
    assert len(text) < 2_000_000


def prompts(name: str) -> list[dict[str, Any]]:
    path = Path(os.environ.get("COEVAL_CACHE", Path.home() / ".cache" / "coeval")) / "files" / name
    if not path.is_file():
        pytest.skip(f"{name} is not in the cache; `coeval datasets fetch {name.split('/')[0]}` puts it there")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.process
@pytest.mark.parametrize("name", ["ifeval/input_data.jsonl", "ifbench/IFBench_test.jsonl"])
async def test_skill_shows_in_the_benchmarks_own_prompts(name: str, language: Language) -> None:
    rows = prompts(name)[::3]
    shares = []
    answers = {
        skill: [await reported(student(skill), row["prompt"]) for row in rows] for skill in (0.2, 0.5, 0.9)
    }
    for texts in answers.values():
        verdicts = [
            check(kind, arguments, text, language)
            for row, text in zip(rows, texts, strict=True)
            for kind, arguments in zip(row["instruction_id_list"], row["kwargs"], strict=True)
        ]
        shares.append(mean(verdicts))
    low, middle, high = shares
    assert low + 0.15 < middle < high - 0.15, shares
