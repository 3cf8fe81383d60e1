"""What is known of a run's prompts before anything is asked: all but the texts that models are yet to write.

The prompts are made by the same templates, for the same models, from the same fields as the run's; a text
that is not there yet is left out, and it is told how often it will stand in the prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from coeval.core.records import Request
from coeval.engine.role_model import RoleModel
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.prompts import BENCHMARK_ITEM, FACTOR_SCORE, render_attributes
from coeval.pipeline.sampling.samples import Samples
from coeval.pricing.estimate.tokens import TextSize, size_of

__all__ = ["KnownPrompt", "item_prompt", "judge_prompt", "proposal_prompt", "student_prompt"]

_DRAWN = 12
"""Items whose attributes are drawn to know how long they are."""
_MARKS = {"input": "\ue000", "reference": "\ue001", "response": "\ue002"}
"""What stands in the place of a text that is not known, which no text of a task holds."""


class KnownPrompt(NamedTuple):
    """``size`` is what is known; ``times`` how often each text that is not known stands in it. ``head`` is
    the part that other requests about the same answer begin with, as far as it is known, and ``head_times``
    as ``times``; both empty where there are none."""

    size: TextSize
    messages: int
    times: Mapping[str, int]
    head: TextSize = TextSize(0.0, 0.0)
    head_times: Mapping[str, int] = {}


def item_prompt(setup: TaskSetup, teacher: RoleModel) -> KnownPrompt:
    """What a teacher is asked for an item: the mean over some of those that it will be asked for."""
    drawn = _attributes(setup, teacher.name)
    values = [{"target_attributes": target, "nuanced_attributes": nuance} for target, nuance in drawn]
    return _mean([_of_request(teacher, teacher.prompt(value, BENCHMARK_ITEM)) for value in values])


def proposal_prompt(teacher: RoleModel) -> KnownPrompt:
    """What a teacher is asked for attributes or a rubric."""
    return _of_request(teacher, teacher.prompt({}))


def student_prompt(setup: TaskSetup, student: RoleModel) -> KnownPrompt:
    return _of_request(student, student.prompt(_item_values(setup)))


def judge_prompt(setup: TaskSetup, judge: RoleModel, factors: Sequence[str]) -> KnownPrompt:
    """What a judge is asked about an answer: once for all factors; or once for each, in the mean over
    them."""
    values = _item_values(setup) | {"response": _MARKS["response"]}
    if setup.task.evaluation_mode == "per_factor":
        varying = ("factor", "criterion") if len(factors) > 1 else ()
        criteria = [{"factor": factor, "criterion": setup.rubric.get(factor, "")} for factor in factors]
        asked = [judge.prompt(values | criterion, FACTOR_SCORE, varying) for criterion in criteria]
        return _mean([_of_request(judge, request) for request in asked])
    shown = setup.asked_about(tuple(factors))
    return _of_request(judge, judge.prompt({**values, **shown.values}, shown.schema))


def _mean(prompts: Sequence[KnownPrompt]) -> KnownPrompt:
    """Prompts that differ in what is known of them."""
    characters = sum(prompt.size.characters for prompt in prompts) / len(prompts)
    tokens = sum(prompt.size.tokens for prompt in prompts) / len(prompts)
    return prompts[0]._replace(size=TextSize(characters, tokens))


def _of_request(role_model: RoleModel, asked: Request) -> KnownPrompt:
    """What is known of a request, as the model is asked it."""
    request = role_model.request(asked, "probe", "", 0)
    text = "\n".join(message.content for message in request.messages)
    head = request.messages[-1].content[: request.shared]
    return KnownPrompt(
        _known_size(text),
        len(request.messages),
        {name: text.count(mark) for name, mark in _MARKS.items()},
        _known_size(head),
        {name: head.count(mark) for name, mark in _MARKS.items()} if head else {},
    )


def _known_size(text: str) -> TextSize:
    for mark in _MARKS.values():
        text = text.replace(mark, "")
    return size_of(text)


def _item_values(setup: TaskSetup) -> dict[str, str]:
    """The variables of an item, its texts unknown."""
    target, nuance = _attributes(setup, "")[0]
    return {
        "input": _MARKS["input"],
        "reference": _MARKS["reference"],
        "target_attributes": target,
        "nuanced_attributes": nuance,
    }


def _attributes(setup: TaskSetup, teacher: str) -> list[tuple[str, str]]:
    """Attributes and nuance of some items, as prompts show them."""
    samples = Samples(setup.space, seed=setup.task.sampling.seed, task=setup.task.name, teacher=teacher)
    drawn = map(samples.item, range(1, _DRAWN + 1))
    return [(render_attributes(sample.target), render_attributes(sample.nuance)) for sample in drawn]
