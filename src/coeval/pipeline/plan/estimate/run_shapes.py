"""The calls of a run as shapes: what is known of their prompts, with the texts that models are yet to
write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from coeval.core.records import Purpose, Request
from coeval.engine.model_facts import output_limit
from coeval.engine.model_work import RoleModel
from coeval.engine.progress import Calls
from coeval.pipeline.config.schema import TaskConfig
from coeval.pipeline.phases.blueprint import PHASE_OF
from coeval.pipeline.plan.estimate.planned_calls import Mix, TaskCalls
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.prompts import BENCHMARK_ITEM, FACTOR_SCORE, render_attributes
from coeval.pipeline.samples import Samples
from coeval.pricing.call_shape import LATIN_PER_TOKEN, AskedModel, CallShape, TextSize, size_of, surely
from coeval.pricing.unknowns import SCENARIOS, Cell, ErrorSpread, Guess, Quantity, ScenarioDraws, Scenarios
from coeval.simulation.prose import TypicalLengths

# --- How long texts will be that no model has written yet: rules of thumb, each a guess to be corrected
#
# Characters of what large models write when they are asked like this. A task's words on its output say most:
# "one sentence", "an essay", "300 words"; where they say nothing, a paragraph is expected.

# An answer, where nothing is said about its length.
_USUAL = 700
# An item's prompt: the input of a task, with the particulars that it needs.
_ITEM = 900
_CHARACTERS = {
    "word": 6,
    "sentence": 150,
    "line": 60,
    "bullet": 90,
    "step": 120,
    "paragraph": 450,
    "page": 2500,
}
_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "single": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "few": 3, "several": 4, "couple": 2,
}  # fmt: skip
_NUMBER = rf"(?:\d[\d,]*|{'|'.join(_NUMBERS)})"
_AMOUNT = re.compile(
    rf"\b({_NUMBER})(?:\s*(?:to|or|-|–)\s*({_NUMBER}))?[\s-]+(?:[a-z]+\s+)?({'|'.join(_CHARACTERS)})s?\b",
    re.IGNORECASE,
)
_FORMS = {
    r"\b(label|category|class|yes or no|true or false|number|letter|rating)\b": 20,
    r"\b(title|headline|name|phrase|keyword|url)s?\b": 50,
    r"\b(essay|article|report|story|chapter|proposal)\b": 2400,
    r"\b(function|program|script|code|sql)\b": 700,
    r"\b(email|e-mail|letter|memo)\b": 1000,
    r"\b(poem|dialogue|plan|guide|review|table|list)\b": 800,
    r"\b(summary|abstract|explanation|paragraph)\b": 750,
    r"\b(short|brief|concise)\b": 300,
}

PROPOSAL: Mapping[str, int] = {"target": 420, "nuanced": 380, "rubric": 620}
"""What a teacher answers in phases 1 and 2, by kind."""
FACTOR_LINE = 95
"""A line of a rubric: a factor and its criterion."""


def text_characters(description: str) -> float:
    """How long a text is that is described so."""
    amounts = [_amount(*found.groups()) for found in _AMOUNT.finditer(description)]
    if amounts:
        return max(amounts)
    for pattern, characters in _FORMS.items():
        if re.search(pattern, description, re.IGNORECASE):
            return characters
    return _USUAL


def _amount(first: str, last: str | None, unit: str) -> float:
    numbers = [_number(text) for text in (first, last) if text is not None]
    return max(4.0, sum(numbers) / len(numbers) * _CHARACTERS[unit.lower()])


def _number(text: str) -> float:
    return float(_NUMBERS.get(text.lower()) or text.replace(",", ""))


def item_characters(task: TaskConfig) -> float:
    """How long an item's prompt is: a task that works on a text has one in it."""
    said = f"{task.description} {task.output_description}"
    works_on = re.search(
        r"\b(summari|passage|document|article|translate|rewrite|extract|review of)", said, re.IGNORECASE
    )
    return _ITEM * (2.0 if works_on else 1.0)


def label_characters(labels: Mapping[str, Sequence[str]]) -> float:
    """How long an answer is that is a label, or one of each attribute."""
    longest = [max((len(value) for value in values), default=10) for values in labels.values()]
    return 12.0 + sum(longest) + 16.0 * (len(longest) - 1)


def verdict_characters(factors: Iterable[str]) -> float:
    """How long a judge's JSON is that gives each factor a level."""
    return 4.0 + sum(len(factor) + 14 for factor in factors)


# --- What is known of a run's prompts before anything is asked: all but the texts that models are yet to
# write
#
# The prompts are made by the same templates, for the same models, from the same fields as the run's; a text
# that is not there yet is left out, and it is told how often it will stand in the prompt.

# Items whose attributes are drawn to know how long they are.
_DRAWN = 12
# What stands in the place of a text that is not known, which no text of a task holds.
_MARKS = {"input": "\ue000", "reference": "\ue001", "response": "\ue002"}


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


# --- The lengths of all that models are yet to write in a run, in every scenario: what is written upstream
# stands in the prompts below it

_WRITTEN = ErrorSpread(shared=0.3, task=0.25, model=0.16, cell=0.1, item=0.25, slope=0.2)
_ANSWERED = ErrorSpread(shared=0.3, task=0.25, model=0.22, cell=0.1, item=0.4, slope=0.2)
_LABELLED = ErrorSpread(shared=0.5, task=0.2, model=0.3, cell=0.1, item=0.2)
# Of models whose usual lengths are known.
_TYPICAL = ErrorSpread(shared=0.15, task=0.05, model=0.08, cell=0.05, item=0.3)
_JUDGED = ErrorSpread(shared=0.05, task=0.03, model=0.06, cell=0.03, item=0.1)
_PROPOSED = ErrorSpread(shared=0.3, task=0.1, model=0.2, cell=0.1, item=0.3)


class TextLengths(NamedTuple):
    """Characters by (task, model): of items and references by their teacher, of answers by their student;
    ``verdict`` is how much longer a judge's verdicts are than they have to be."""

    item: Mapping[Cell, Scenarios]
    reference: Mapping[Cell, Scenarios]
    answer: Mapping[Cell, Scenarios]
    verdict: Mapping[Cell, Scenarios]
    proposal: Mapping[Cell, Scenarios]


def text_lengths(
    tasks: Sequence[TaskCalls], typical: Mapping[str, TypicalLengths], draws: ScenarioDraws
) -> TextLengths:
    """``typical`` are the lengths of models that are known to write so, by name."""
    guesses: dict[str, dict[Cell, Guess]] = {name: {} for name in TextLengths._fields}
    labelled = {task.name for task in tasks if task.setup.labels and task.setup.task.label_attributes}
    for task in tasks:
        for kind, cell, guess in _guesses(task, typical):
            guesses[kind][cell] = guess

    def drawn(quantity: Quantity, of: Mapping[Cell, Guess], spread: ErrorSpread) -> dict[Cell, Scenarios]:
        """What is known of a model errs otherwise than rules of thumb."""
        known, guessed = _parted(of, lambda cell: cell.model in typical)
        return draws.means(quantity, known, _TYPICAL) | draws.lengths(quantity, guessed, spread)

    labels, prose = _parted(guesses["answer"], lambda cell: cell.task in labelled)
    answers = drawn("answer characters", prose, _ANSWERED) | drawn("answer characters", labels, _LABELLED)
    longest = {cell: most for task in tasks for cell, most in _longest_answers(task)}
    return TextLengths(
        drawn("item characters", guesses["item"], _WRITTEN),
        drawn("reference characters", guesses["reference"], _WRITTEN),
        {cell: np.minimum(each, longest.get(cell, np.inf)) for cell, each in answers.items()},
        draws.means("verdict ratio", guesses["verdict"], _JUDGED),
        draws.lengths("proposal characters", guesses["proposal"], _PROPOSED),
    )


def _parted(
    guesses: Mapping[Cell, Guess], first: Callable[[Cell], bool]
) -> tuple[dict[Cell, Guess], dict[Cell, Guess]]:
    """Those of the cells that ``first`` holds of, and the others."""
    ones = {cell: guess for cell, guess in guesses.items() if first(cell)}
    return ones, {cell: guess for cell, guess in guesses.items() if cell not in ones}


def _longest_answers(task: TaskCalls) -> Iterator[tuple[Cell, float]]:
    """How long the answers of students are at the most, whose tokens are limited."""
    for student in task.setup.students:
        if (limit := output_limit(student.sampling)) is not None:
            yield Cell(task.name, student.name), limit * LATIN_PER_TOKEN


def _guesses(task: TaskCalls, typical: Mapping[str, TypicalLengths]) -> Iterator[tuple[str, Cell, Guess]]:
    """What kind of text is expected how long, of whom."""
    setup, name = task.setup, task.name
    planned = {(asked.phase, asked.role_model.name): asked.calls.high for asked in task.asked}
    labels = setup.labels if setup.task.label_attributes else {}
    answer = label_characters(labels) if labels else text_characters(setup.task.output_description)
    for author in {**task.authors, **dict.fromkeys(teacher.name for teacher in setup.teachers)}:
        items = planned.get(("data_generation", author), 1)
        known = typical.get(author)
        item = known.item if known is not None else item_characters(setup.task)
        yield "item", Cell(name, author), Guess(item, items)
        yield "reference", Cell(name, author), Guess(known.reference if known is not None else answer, items)
    for student in setup.students:
        items = planned.get(("response_collection", student.name), 1)
        known = typical.get(student.name)
        expected = answer if known is None else (known.labelled_answer if labels else known.answer)
        yield "answer", Cell(name, student.name), Guess(expected, items)
    for judge in setup.judges:
        items = planned.get(("evaluation", judge.name), 1)
        yield "verdict", Cell(name, judge.name), Guess(1.0, items)
    for kind, teacher in task.proposals:
        yield "proposal", Cell(f"{name} {kind}", teacher.name), Guess(PROPOSAL[kind], 1)


def mixed(of: Mapping[Cell, Scenarios], task: str, mix: Mix) -> Scenarios:
    """The mean length of texts by several models, each counting as much as it does in ``mix``."""
    return sum((of[Cell(task, name)] * share for name, share in mix.items()), np.zeros(SCENARIOS + 1))


AskedIn: TypeAlias = Callable[[Purpose, RoleModel], AskedModel]
"""How the calls of a model in a phase are priced and timed."""

_NEW_FACTORS = ErrorSpread(shared=0.2, task=0.25, model=0.0, cell=0.0, item=0.12)
# Factors that a teacher proposes.
_OF_ONE = 4.5
_ADDED, _LESS = 1.6, 0.6
"""Factors that a second teacher adds to them, and how many of what one added the next one adds."""
JSON_OF_ITEM = 34
"""Characters of an item's JSON beside its two texts."""
_STAND_IN = "(proposed 1)"
_NAME = "a_usual_name"


def run_shapes(
    tasks: Sequence[TaskCalls], lengths: TextLengths, asked_in: AskedIn, draws: ScenarioDraws
) -> Iterator[CallShape]:
    """Those of all tasks."""
    guesses = {
        Cell(task.name, ""): Guess(with_other_teachers(_OF_ONE, _ADDED, task.factors.proposals - 1))
        for task in tasks
        if task.factors.proposals
    }
    new_factors = draws.means("new factors", guesses, _NEW_FACTORS)
    for task in tasks:
        new = new_factors.get(Cell(task.name, ""), surely(0.0))
        yield from _TaskShapes(task, lengths, asked_in, draws, new).all()


def with_other_teachers(factors: float, added: float, others: int) -> float:
    """How many factors there are once so many other teachers have proposed theirs, of whom the first adds so
    many: most of what one proposes has been proposed before."""
    return factors + added * (1 - _LESS**others) / (1 - _LESS)


class _TaskShapes(NamedTuple):
    """What the shapes of one task are made of."""

    task: TaskCalls
    lengths: TextLengths
    asked_in: AskedIn
    draws: ScenarioDraws
    new_factors: Scenarios

    def all(self) -> Iterator[CallShape]:
        name, lengths = self.task.name, self.lengths
        for kind, teacher in self.task.proposals:
            prompt = proposal_prompt(teacher)
            reply = lengths.proposal[Cell(f"{name} {kind}", teacher.name)]
            yield self._shape(PHASE_OF[kind], teacher, surely(1), prompt, surely(0), reply)
        for phase, role_model, calls in self.task.asked:
            if calls.high:
                yield self._of_phase(phase, role_model, calls)

    def _of_phase(self, phase: Purpose, role_model: RoleModel, calls: Calls) -> CallShape:
        name, setup, lengths = self.task.name, self.task.setup, self.lengths
        cell = Cell(name, role_model.name)
        match role_model.role:
            case "teacher":
                prompt, made = item_prompt(setup, role_model), lengths.item[cell] + lengths.reference[cell]
                return self._shape(
                    phase, role_model, self._between(calls), prompt, surely(0), made + JSON_OF_ITEM
                )
            case "student":
                prompt = student_prompt(setup, role_model)
                unknown = prompt.times["input"] * mixed(lengths.item, name, self.task.authors)
                return self._shape(
                    phase, role_model, self._between(calls), prompt, unknown, lengths.answer[cell]
                )
            case "judge":
                return self._judged(phase, role_model, calls)

    def _judged(self, phase: Purpose, judge: RoleModel, calls: Calls) -> CallShape:
        task = self.task
        alone = task.setup.task.evaluation_mode == "per_factor"
        prompt = judge_prompt(task.setup, judge, task.factors.known or (_STAND_IN,))
        texts = self._texts()
        unknown = _unknown(prompt.times, texts)
        known, factors = task.factors.known, self._factors()
        reply, new = surely(verdict_characters(("score",) if alone else known)), factors - len(known)
        if task.factors.proposals and not alone:
            unknown = unknown + new * FACTOR_LINE
            reply = reply + new * (verdict_characters((_NAME,)) - verdict_characters(()))
        elif task.factors.proposals:
            unknown = unknown + (0 if task.factors.known else FACTOR_LINE)
        reply = reply * self.lengths.verdict[Cell(task.name, judge.name)]
        made = self._judgments(calls, factors, alone=alone)
        shape = self._shape(phase, judge, made, prompt, unknown, reply)
        if not alone or not prompt.head.characters:
            return shape
        head = prompt.head.characters + _unknown(prompt.head_times, texts)
        return shape._replace(
            together=float(factors[0]), head=head * prompt.size.tokens / prompt.size.characters
        )

    def _factors(self) -> Scenarios:
        """How many factors a judge scores in the end."""
        known = self.task.factors
        return np.clip(len(known.known) + np.round(self.new_factors), known.least, known.most)

    def _judgments(self, calls: Calls, factors: Scenarios, *, alone: bool) -> Scenarios:
        """The calls of a judge: as many as there are factors, where each is asked for by itself."""
        known = self.task.factors
        if not known.proposals or known.most == known.least:
            return self._between(calls)
        share = (factors - known.least) / (known.most - known.least) if alone else factors > len(known.known)
        return np.asarray(calls.low + (calls.high - calls.low) * share, dtype=np.float64)

    def _between(self, calls: Calls) -> Scenarios:
        """Calls, some of which are not made where a lost record comes again as it was."""
        if calls.low == calls.high:
            return surely(calls.high)
        return np.round(self.draws.between(calls.low, calls.high, calls.high))

    def _texts(self) -> Mapping[str, Scenarios]:
        """The texts that judges are shown, in the mean over whose they are."""
        name, task, lengths = self.task.name, self.task, self.lengths
        return {
            "input": mixed(lengths.item, name, task.judged_authors),
            "reference": mixed(lengths.reference, name, task.judged_authors),
            "response": mixed(lengths.answer, name, task.answerers),
        }

    def _shape(
        self,
        phase: Purpose,
        role_model: RoleModel,
        calls: Scenarios,
        prompt: KnownPrompt,
        unknown: Scenarios,
        reply: Scenarios,
    ) -> CallShape:
        asked = self.asked_in(phase, role_model)
        return CallShape(phase, self.task.name, asked, calls, prompt.size, prompt.messages, unknown, reply)


def _unknown(times: Mapping[str, int], texts: Mapping[str, Scenarios]) -> Scenarios:
    return sum((texts[name] * often for name, often in times.items() if often), surely(0.0))
