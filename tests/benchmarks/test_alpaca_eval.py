"""AlpacaEval on invented instructions, and on published annotations."""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.anthropic_messages import anthropic_fake
from fakes.judged_tasks import JUDGE, MODEL, Panel, Shelf, hold_on_the_scale, lines_of
from fakes.openai_chat import Answer, Behaviour, Fault, fake

from coeval.analysis.pairwise.alpaca import LengthControl
from coeval.analysis.pairwise.rates import rate_with_spread
from coeval.benchmarks.assets.library import Library
from coeval.benchmarks.benchmark import Item, JudgeSettings
from coeval.benchmarks.tasks.alpaca_eval import LONG_REPLY, AlpacaEval, explain_missing_interval, parse_chatml
from coeval.core.errors import AccessDenied
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Message, Request, SamplingParameters, TokenLogprob
from coeval.engine.model_work import Recipe, RoleModel
from coeval.models.keys import Keys
from coeval.models.open import Models

TEMPLATE = """<|im_start|>system
You compare.
<|im_end|>
<|im_start|>user
{
    "instruction": "{instruction}"
    {"m": "{output_1}"}, {"M": "{output_2}"}
}
<|im_end|>
"""
NO_KEYS = Keys.load(None, env={}, cwd=Path("/nonexistent"), home=Path("/nonexistent"))


def baseline(number: int) -> dict[str, str]:
    return {
        "dataset": "even" if number % 2 == 0 else "odd",
        "instruction": f"Do {number} {{output_1}}",
        "output": f"theirs {number}",
        "generator": "gpt4_1106_preview",
    }


def shelf_of(folder: Path, records: list[dict[str, str]]) -> Shelf:
    shelf = Shelf(folder)
    shelf.list("alpaca-eval/baseline", records)
    shelf.text("alpaca-eval/judge", TEMPLATE)
    return shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return shelf_of(tmp_path, [baseline(number) for number in range(6)])


def ours(item: Item) -> str:
    return f"ours {item.id} {{instruction}}"


def is_switched(item: Item) -> bool:
    """The published order, as its own definition draws it."""
    seed = "is_switched_outputs" + item.fields["instruction"] + "0"
    return random.Random(seed).choices([False, True])[0]


def sure(letter: str, probability: float) -> Completion:
    other = "m" if letter == "M" else "M"
    top = {letter: math.log(probability), other: math.log(1 - probability), "The": -9.0}
    return Completion(letter, logprobs=(TokenLogprob(letter, top[letter], top),))


def favours_ours(panel: Panel, probability: float) -> Any:
    """A judge that gives our output this probability, wherever it stands."""
    items = {item.id: item for item in panel.items}

    def reply(ask_id: str, _: Request) -> Completion:
        return sure("m" if is_switched(items[ask_id.partition("__")[0]]) else "M", probability)

    return reply


def test_one_comparison_in_the_published_order(shelf: Shelf) -> None:
    panel = Panel(AlpacaEval(shelf.settings()), ours)
    requests = panel.requests()
    assert list(requests) == [f"{number}__preference" for number in range(6)]
    assert {is_switched(item) for item in panel.items} == {True, False}
    for item in panel.items:
        request = requests[f"{item.id}__preference"]
        pair = (f"ours {item.id} {{instruction}}", f"theirs {item.id}")
        first, second = pair if is_switched(item) else pair[::-1]
        assert request.messages == (
            Message("system", "You compare."),
            Message(
                "user",
                f'{{\n    "instruction": "Do {item.id} {{output_1}}"\n'
                f'    {{"m": "{first}"}}, {{"M": "{second}"}}\n}}',
            ),
        )
        assert request.top_logprobs == 5
    assert panel.benchmark.judge_sampling().to_dict() == {"temperature": 0.0, "max_tokens": 1}


def test_preferences_become_official_figures(shelf: Shelf) -> None:
    panel = Panel(AlpacaEval(shelf.settings()), ours)
    scored = panel.judge(favours_ours(panel, 0.8))
    assert scored.metrics["win_rate"].value == pytest.approx(80)
    assert scored.metrics["win_rate"].standard_error == pytest.approx(0, abs=1e-9)
    assert scored.metrics["discrete_win_rate"].value == 100
    assert next(iter(scored.metrics)) == "win_rate"
    controlled = scored.metrics["length_controlled_winrate"]
    assert controlled.value is not None
    assert (controlled.standard_error, controlled.ci95, controlled.n) == (None, None, 6)
    fit = scored.tables["length_control"]
    assert fit["formula"] == "length_controlled_minimal"
    assert {name for name, found in fit["win_rate"].items() if found is not None} == {"value"}
    assert any("so it has no interval" in remark for remark in scored.remarks)
    assert scored.tables["counts"] == {
        "n_wins": 6,
        "n_wins_base": 0,
        "n_draws": 0,
        "n_total": 6,
        "avg_length": len("ours 0 {instruction}"),
    }
    assert scored.tables["dataset"]["even"]["n"] == 3
    (reason,) = scored.reasons
    assert "length_controlled_minimal" in reason


def test_equal_outputs_are_a_draw_without_asking(shelf: Shelf) -> None:
    panel = Panel(AlpacaEval(shelf.settings()), lambda item: f"theirs {item.id}")
    assert panel.requests() == {}
    scored = panel.score()
    assert scored.metrics["win_rate"].value == 50
    assert scored.metrics["discrete_win_rate"].value == 50
    assert scored.tables["counts"]["n_draws"] == 6
    assert (scored.n_expected, scored.n_scored, scored.n_failed) == (6, 6, {})


@pytest.mark.process
@pytest.mark.parametrize(
    ("count", "ours_said"), [(128, "ours"), (100, "ours"), (99, "ours"), (6, "ours"), (2, "theirs")]
)
def test_of_equal_preferences_every_interval_has_a_width(tmp_path: Path, count: int, ours_said: str) -> None:
    """All won; two draws, made without asking. Length control has an interval from 100 on."""
    shelf = shelf_of(tmp_path, [baseline(number) for number in range(count)])
    panel = Panel(AlpacaEval(shelf.settings()), lambda item: f"{ours_said} {item.id}")
    scored = panel.judge(favours_ours(panel, 1 - 1e-12))
    assert scored.metrics["win_rate"].value == pytest.approx(100 if ours_said == "ours" else 50)
    controlled = scored.metrics["length_controlled_winrate"]
    assert (controlled.value is not None, controlled.ci95 is not None) == (count > 2, count >= 100)
    headline = "length_controlled_winrate" if count >= 100 else "win_rate"
    assert next(iter(scored.metrics)) == headline, "with fewer than 100 prompts its fit is no estimate"
    metrics = [m for m in scored.metrics.values() if m is not controlled or count >= 100]
    assert len(metrics) == (3 if count >= 100 else 2)
    assert hold_on_the_scale(metrics, 0, 100)


def test_a_judge_that_names_neither_model_fails_its_judgment(shelf: Shelf) -> None:
    panel = Panel(AlpacaEval(shelf.settings()), ours)
    good = favours_ours(panel, 0.75)

    def reply(ask_id: str, request: Request) -> Completion:
        astray = Completion("The", logprobs=(TokenLogprob("The", -0.1, {"The": -0.1}),))
        return astray if ask_id.startswith("0") else good(ask_id, request)

    scored = panel.judge(reply)
    assert (scored.n_expected, scored.n_scored, scored.n_failed) == (6, 5, {"unparsable": 1})
    assert scored.metrics["win_rate"].value == pytest.approx(75)
    assert scored.metrics["win_rate"].n == 5


async def met(
    shelf: Shelf, *behaviour: Behaviour, **sampling: Any
) -> tuple[AlpacaEval, list[dict[str, Any]]]:
    """The task after meeting a judge on the loopback, and what that judge was sent."""
    task = AlpacaEval(shelf.settings(judge=JudgeSettings(JUDGE, SamplingParameters.of(sampling))))
    async with fake(*behaviour) as server:
        spec = ModelSpec(name=JUDGE, interface="vllm", model=JUDGE, base_url=server.url)
        async with Models([spec], NO_KEYS) as models:
            await task.detect_judge_abilities(models[JUDGE])
    return task, server.bodies


def reported(*tokens: str, text: str | None, ends: str = "length", **message: Any) -> Answer:
    """A reply with the log-probabilities of these tokens, or with none."""
    content = [
        {"token": token, "bytes": None, "logprob": -0.1, "top_logprobs": [{"token": token, "logprob": -0.1}]}
        for token in tokens
    ]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
        "logprobs": {"content": content} if tokens else None,
        "finish_reason": ends,
    }
    return Answer(body={"choices": [choice]})


async def test_a_claude_judges_in_words_and_without_a_temperature_where_it_takes_none(shelf: Shelf) -> None:
    task = AlpacaEval(shelf.settings(judge=JudgeSettings(JUDGE)))
    assert task.list_unset_judge_parameters() == ("temperature", "max_tokens")
    async with anthropic_fake() as server:
        spec = ModelSpec(name=JUDGE, interface="anthropic", model="claude-opus-5", base_url=server.url)
        async with Models([spec], NO_KEYS) as models:
            await task.detect_judge_abilities(models[JUDGE])
            assert task.manner == "words"
            panel = Panel(task, ours)
            (requested, *_) = panel.requests().values()
            judging = RoleModel(
                name=JUDGE,
                model=JUDGE,
                role="judge",
                recipe=Recipe.of({}),
                sampling=task.effective_judge_sampling(),
                droppable=task.list_unset_judge_parameters(),
            )
            completion = await models[JUDGE].complete(judging.request(requested, "evaluation", "0", 0))
    assert completion.dropped == ("temperature",)
    assert [requested.body["max_tokens"] for requested in server.requested] == [LONG_REPLY]


def test_what_the_user_asks_of_a_judge_is_not_left_out(shelf: Shelf) -> None:
    wished = JudgeSettings(JUDGE, SamplingParameters(temperature=0.0))
    assert AlpacaEval(shelf.settings(judge=wished)).list_unset_judge_parameters() == ("max_tokens",)


async def test_a_judge_with_log_probabilities_keeps_the_official_way(shelf: Shelf) -> None:
    task, bodies = await met(shelf, reported("M", text="M"))
    assert task.manner == "logprobs"
    (body,) = bodies
    assert (body["max_tokens"], body["temperature"], body["top_logprobs"]) == (1, 0.0, 5)


@pytest.mark.parametrize(
    "behaviour",
    [
        Fault(400, "This model does not support 'logprobs'.", param="logprobs"),
        Fault(400, "top_logprobs: extra inputs are not permitted"),
        reported(text="M"),
    ],
)
async def test_a_judge_without_is_asked_in_words_in_both_orders(shelf: Shelf, behaviour: Behaviour) -> None:
    task, _ = await met(shelf, behaviour)
    assert task.judge_sampling().to_dict() == {"temperature": 0.0, "max_tokens": LONG_REPLY}
    panel = Panel(task, ours)
    requests = panel.requests()
    assert len(requests) == 12
    assert {request.top_logprobs for request in requests.values()} == {None}

    def fond_of_the_first(ask_id: str, _: Request) -> str:
        sincere = "M" if "baseline-first" in ask_id else "m"
        return f"I'm going with {sincere}" if ask_id.startswith(("0", "1", "2")) else "m"

    scored = panel.judge(fond_of_the_first)
    assert scored.items["0"]["win_rate"] == 100
    assert scored.items["5"]["win_rate"] == 50
    assert scored.metrics["win_rate"].value == 75
    assert any("no log-probabilities" in reason for reason in scored.reasons)


async def test_the_way_of_asking_is_part_of_the_judges_recipe(shelf: Shelf) -> None:
    official, _ = await met(shelf, reported("M", text="M"))
    in_words, _ = await met(shelf, reported(text="M"))
    assert official.judge_template() != in_words.judge_template()


@pytest.mark.parametrize(
    "answer",
    [
        reported("<think>", text="<think>"),
        reported("Hm", text="", reasoning_content="Hm"),
    ],
)
async def test_a_judge_that_reasons_is_given_room(shelf: Shelf, answer: Answer) -> None:
    task, _ = await met(shelf, answer)
    assert task.manner == "logprobs after reasoning"
    panel = Panel(task, ours)
    items = {item.id: item for item in panel.items}

    def thinks(ask_id: str, _: Request) -> Completion:
        best = "m" if is_switched(items[ask_id.partition("__")[0]]) else "M"
        other = "m" if best == "M" else "M"
        tokens = ("<think>", other, "</think>", "\n\n")
        top = {best: math.log(0.9), other: math.log(0.1)}
        logprobs = (*(TokenLogprob(t, 0.0, {t: 0.0}) for t in tokens), TokenLogprob(best, top[best], top))
        return Completion(best, reasoning=other, logprobs=logprobs)

    scored = panel.judge(thinks)
    assert scored.metrics["win_rate"].value == pytest.approx(90)
    assert any("reasons before it answers" in reason for reason in scored.reasons)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
async def test_a_judge_whose_answers_a_parser_takes_for_reasoning_keeps_the_official_way(
    shelf: Shelf, name: str
) -> None:
    token, whole = {name: "M"}, {name: "M, by far"}
    task, bodies = await met(
        shelf, reported("M", text=None, **token), reported("M", ",", text=None, ends="stop", **whole)
    )
    assert task.manner == "logprobs"
    assert task.judge_sampling().max_tokens == 1
    assert [body["max_tokens"] for body in bodies] == [1, LONG_REPLY]
    panel = Panel(task, ours)

    def parsed(ask_id: str, request: Request) -> Completion:
        said: Completion = favours_ours(panel, 0.75)(ask_id, request)
        return msgspec.structs.replace(said, text="", reasoning=said.text, truncated=True)

    scored = panel.judge(parsed)
    assert scored.n_failed == {}
    assert scored.metrics["win_rate"].value == pytest.approx(75)


async def test_another_failure_of_the_judge_is_not_taken_for_an_answer(shelf: Shelf) -> None:
    with pytest.raises(AccessDenied):
        await met(shelf, Fault(401, "no logprobs for strangers"))


async def test_the_users_sampling_goes_over_the_official_one(shelf: Shelf) -> None:
    _, bodies = await met(shelf, reported("M", text="M"), temperature=0.7)
    assert (bodies[0]["temperature"], bodies[0]["max_tokens"]) == (0.7, 1)


@pytest.mark.process
def test_official_files(shelf: Shelf, tmp_path: Path) -> None:
    panel = Panel(AlpacaEval(shelf.settings()), ours)
    panel.judge(favours_ours(panel, 0.8))
    del panel.judgments["3__preference"]
    panel.write(tmp_path / "out")
    outputs = lines_of(tmp_path / "out" / "model_answer" / f"{MODEL}.jsonl")
    assert [line["output"] for line in outputs] == [ours(item) for item in panel.items]
    assert {line["generator"] for line in outputs} == {MODEL}
    annotations = lines_of(tmp_path / "out" / "model_judgment" / JUDGE / f"{MODEL}.jsonl")
    preferences = [line["preference"] for line in annotations]
    assert preferences == [*[pytest.approx(1.8)] * 3, None, *[pytest.approx(1.8)] * 2]
    assert annotations[0]["output_1"] == "theirs 0"


def test_chatml_is_read_as_messages_without_blanks_around_them() -> None:
    assert parse_chatml(TEMPLATE)[0] == Message("system", "You compare.")


def reference() -> Path | None:
    named = os.environ.get("COEVAL_REFERENCE")
    folders = [Path(named)] if named else [up / "shared" / "reference" for up in Path(__file__).parents]
    return next((folder / "alpaca_eval" for folder in folders if (folder / "alpaca_eval").is_dir()), None)


REFERENCE = reference()


@pytest.mark.process
@pytest.mark.skipif(REFERENCE is None, reason="no reference data: name its folder in COEVAL_REFERENCE")
@pytest.mark.parametrize("model", ["FuseChat-Llama-3.2-3B-Instruct", "alpaca-7b"])
def test_a_published_judge_gives_the_published_win_rate(model: str, tmp_path: Path) -> None:
    """The judge's raw completions as answers of our judge: texts are only as long as the published ones."""
    assert REFERENCE is not None
    rows = lines_of(REFERENCE / f"{model}.annotations.jsonl")
    expected = json.loads((REFERENCE / "expected.json").read_text(encoding="utf-8"))[model]
    records = [
        {
            "dataset": row["dataset"],
            "instruction": row["instruction"],
            "output": "b" * row["len_output_1"],
            "generator": row["generator_1"],
        }
        for row in rows
    ]

    def respond(item: Item) -> str:
        row = rows[int(item.id)]
        letter = "b" if row["preference"] == 1.5 else "m"  # equal outputs, a draw
        return letter * int(row["len_output_2"])

    panel = Panel(AlpacaEval(shelf_of(tmp_path, records).settings()), respond)
    items = {item.id: item for item in panel.items}

    def published(ask_id: str, _: Request) -> Completion:
        item = ask_id.partition("__")[0]
        row = rows[int(item)]
        if row["raw_completion"] is None:  # published as a preference only
            return sure("m" if is_switched(items[item]) else "M", row["preference"] - 1)
        (token,) = row["raw_completion"]["logprobs"]["content"]
        top = {entry["token"]: entry["logprob"] for entry in token["top_logprobs"]}
        return Completion(token["token"], logprobs=(TokenLogprob(token["token"], token["logprob"], top),))

    scored = panel.judge(published)
    assert scored.metrics["win_rate"].n == expected["n"] == 805
    assert scored.n_scored == 805
    assert scored.metrics["win_rate"].value == pytest.approx(expected["win_rate"], abs=1e-6)
    assert scored.metrics["win_rate"].standard_error == pytest.approx(expected["standard_error"], abs=1e-6)
    for row, item in zip(rows, panel.items, strict=True):
        share = scored.items[item.id]["win_rate"]
        assert share == pytest.approx(100 * (row["preference"] - 1), abs=1e-4)


@pytest.mark.process
def test_published_data_regularise_the_length_control(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    header = "preference,std_delta_len,instruction_difficulty,index,not_gamed_baseline,model"
    gamed = [
        f"{share},{apart},{0.1 * n},{n},False,x" for n in range(6) for share, apart in ((0.3, 1), (0.6, -1))
    ]
    shelf.table("alpaca-eval/gamed", [header, *gamed])
    shelf.table("alpaca-eval/difficulty", [",instruction_difficulty", *(f"{n},{0.1 * n}" for n in range(6))])

    def formula(*left_out: str) -> tuple[str, tuple[str, ...]]:
        assets = {name: path for name, path in shelf.paths.items() if name not in left_out}
        panel = Panel(AlpacaEval(shelf.settings(assets=assets)), ours)
        scored = panel.judge(favours_ours(panel, 0.8))
        return scored.tables["length_control"]["formula"], scored.reasons

    assert formula()[0] == "length_controlled_minimal"  # they are about the official instructions
    monkeypatch.setattr(Library, "is_official", lambda *_: True)
    assert formula() == ("length_controlled_v1", ())
    assert formula("alpaca-eval/gamed")[0] == "length_controlled_noreg"
    assert formula("alpaca-eval/gamed", "alpaca-eval/difficulty")[0] == "length_controlled_minimal"


# test_alpaca_remarks


def controlled(value: float, n: int = 805) -> LengthControl:
    return LengthControl("length_controlled_v1", {}, rate_with_spread(value, [value] * 2, n), 1.0, n)


def test_too_few_preferences_for_length_control_are_told() -> None:
    [remark] = explain_missing_interval(controlled(55.0, 99))
    assert "rests on 99 preferences; with fewer than 100" in remark
    assert remark.endswith("so it has no interval")
    assert explain_missing_interval(controlled(55.0, 100)) == ()
    assert explain_missing_interval(None) == ()
