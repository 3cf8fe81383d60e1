"""What a recipe stands for, and how a model in a role is asked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from coeval.core.model import ModelSpec
from coeval.core.records import CallId, Message, Request, Role, SamplingParameters
from coeval.engine.model_work import Recipe, RoleModel, differences, own_seed, recipe

SPEC = ModelSpec(name="m", interface="vllm", model="m-1", extra_body={"min_p": 0.1}, options={"skill": 1})
SAMPLING = SamplingParameters(temperature=0.5)


def made(
    spec: ModelSpec = SPEC,
    role: Role = "judge",
    sampling: SamplingParameters = SAMPLING,
    system: str | None = "Be fair.",
    template: str = "t",
) -> Recipe:
    return recipe(spec, role, sampling, system, {"template": template})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (made(msgspec.structs.replace(SPEC, interface="openai")), ["interface"]),
        (made(msgspec.structs.replace(SPEC, model="m-2")), ["parameters.model"]),
        (made(msgspec.structs.replace(SPEC, extra_body={"min_p": 0.2})), ["parameters.extra_body"]),
        (made(msgspec.structs.replace(SPEC, options={"skill": 0})), ["parameters.skill"]),
        (made(sampling=SamplingParameters(temperature=0.6)), ["parameters.temperature (judge)"]),
        (made(sampling=SamplingParameters()), ["parameters.temperature (judge)"]),
        (made(system=None), ["parameters.system_prompt (judge)"]),
        (made(template="other"), ["template"]),
    ],
)
def test_a_recipe_says_what_shapes_an_answer(changed: Recipe, named: list[str]) -> None:
    assert changed.hash != made().hash
    assert differences(made().parts, changed.parts) == named


def test_where_and_as_whom_a_model_is_asked_is_no_part_of_its_recipe() -> None:
    elsewhere = msgspec.structs.replace(
        SPEC, name="other", base_url="http://h/v1", access_key="k", timeout_s=1.0, max_concurrency=1
    )
    slow = msgspec.structs.replace(elsewhere, options={"skill": 1, "latency_s": 3})
    assert made(elsewhere) == made(slow) == made()


def test_a_request_says_whom_it_is_asked_of_and_what_about() -> None:
    asked = RoleModel(
        name="m",
        model="m-1",
        role="judge",
        sampling=SAMPLING,
        recipe=made(),
        system="Be fair.",
        seed=7,
        sample=2,
    )
    request = asked.request(Request((Message("user", "Well?"),), top_logprobs=5), "evaluation", "k", 3)
    assert request.messages == (Message("system", "Be fair."), Message("user", "Well?"))
    assert (request.sampling, request.top_logprobs, request.purpose) == (SAMPLING, 5, "evaluation")
    assert (request.call, request.seed) == (CallId("k", 2, 3), CallId("k", 2, 3).seed(7))


@pytest.mark.parametrize(
    ("interface", "sampling", "seed"),
    [
        ("vllm", {}, 7),
        ("simulated", {}, 7),
        ("openai", {}, None),
        ("auto", {}, None),
        ("vllm", {"seed": 1, "top_k": 3}, None),
    ],
)
def test_our_own_seeds_are_sent_where_they_are_taken_and_none_is_set(
    interface: str, sampling: dict[str, Any], seed: int | None
) -> None:
    assert (
        own_seed(msgspec.structs.replace(SPEC, interface=interface), SamplingParameters.of(sampling), 7)
        == seed
    )
