"""The wizard: its questions, what it makes of the answers, and the experiment file that it writes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rich.console import Console

from coeval.cli.streams import say
from coeval.cli.views.host_view import credentials
from coeval.core.errors import UsageError
from coeval.core.plain import plain
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.models.keys import Keys
from coeval.pipeline.config.document import parse_document
from coeval.pipeline.config.load_file import read_config
from coeval.pipeline.config.names import name_problem

# --- Questions on a terminal

T = TypeVar("T")


class Questions:
    """Asks on the console, and reads answers from standard input, one a line."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def ask(self, question: str, read: Callable[[str], T], default: str = "") -> T:
        """What ``read`` makes of the answer, or of the ``default`` where there is none.

        Raises UsageError: the answers end here.
        """
        while True:
            answer = self._line(f"{question} [{default}]" if default else question, question)
            try:
                return read(answer or default)
            except UsageError as error:
                say(self._console, f"  {error}", "yellow")

    def lines(self, question: str, read: Callable[[str], T]) -> list[T]:
        """One answer a line, until an empty one."""
        self.tell(question)
        found: list[T] = []
        while True:
            prompt = f"  {len(found) + 1}. (Return: {'no more' if found else 'none'})"
            answer = self.ask(prompt, lambda text: read(text) if text else None)
            if answer is None:
                return found
            found.append(answer)

    def tell(self, sentence: str) -> None:
        say(self._console, sentence)

    def _line(self, prompt: str, question: str) -> str:
        self._console.print(f"{plain(prompt)} ", end="", soft_wrap=True)
        line = sys.stdin.readline()
        if not sys.stdin.isatty():
            self._console.print(plain(line.strip()), soft_wrap=True)
        if not line:
            raise UsageError(
                f"the answers end at {question!r}; answer in a terminal, or give a line for each"
            )
        return line.strip()


# --- The wizard's questions

ROLES = ("teacher", "student", "judge")
SIMULATED = "simulated"
_LABELLED = re.compile(r"([^:]+):(.+)")
_MODEL = re.compile(r"([a-z_]+)/(.+?)(?:@(https?://\S+))?")


class ChosenModel(NamedTuple):
    """``options`` are parameters beside the provider's identifier."""

    name: str
    interface: str
    model: str
    base_url: str | None
    roles: tuple[str, ...]
    options: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class NeededExperiment:
    """``attributes`` and ``rubric`` None: teachers are to propose them."""

    name: str
    task: str
    description: str
    output: str
    attributes: dict[str, list[str]] | None
    label: str | None
    rubric: dict[str, str] | None
    models: tuple[ChosenModel, ...]
    total: int
    budget_usd: float | None


def interview(questions: Questions, keys: Keys) -> NeededExperiment:
    """
    Raises UsageError: the answers end before the questions do.
    """
    questions.tell("Return takes the answer in brackets. Ctrl-C ends it; nothing is written before the end.")
    name = questions.ask("Name of the experiment?", _name, "my-benchmark")
    description = questions.ask("What are the models to do? One sentence.", _some)
    task = questions.ask("A short name for that task?", _name, _short(description))
    output = questions.ask(
        "What does a good answer look like?", _some, "A short, complete answer in plain prose."
    )
    label = _label(questions)
    attributes = _attributes(questions)
    if label is not None:
        attributes = {**(attributes or {}), label[0]: label[1]}
    models = _models(questions, keys)
    return NeededExperiment(
        name=name,
        task=task,
        description=description,
        output=output,
        attributes=attributes,
        label=None if label is None else label[0],
        rubric=_rubric(questions),
        models=models,
        total=questions.ask("How many items is each teacher to write?", _count, "20"),
        budget_usd=None if _all_simulated(models) else questions.ask("Most dollars to spend?", _dollars, "5"),
    )


def place_of(questions: Questions, out: Path | None, name: str) -> Path:
    """A file that is not there yet."""

    def new(text: str) -> Path:
        place = Path(text)
        if place.exists():
            raise UsageError(f"{place} is there already; name another file")
        return place

    return new(str(out)) if out is not None else questions.ask("File to write?", new, f"{name}.yaml")


def _label(questions: Questions) -> tuple[str, list[str]] | None:
    if not questions.ask("Is each right answer one of a few labels (as a class)? y or n", _yes, "n"):
        return None
    return questions.ask("The labels, as in `team: billing, technical, sales`:", _values)


def _attributes(questions: Questions) -> dict[str, list[str]] | None:
    said = (
        "What are the items to vary in? One attribute a line, as in `reader: child, expert`; none at all: "
        "the teachers propose some."
    )
    return dict(questions.lines(said, _values)) or None


def _rubric(questions: Questions) -> dict[str, str] | None:
    said = (
        "What are answers judged by? One factor a line, as in `accuracy: What is said is true.`; none at "
        "all: the teachers write them."
    )
    return dict(questions.lines(said, _criterion)) or None


def _models(questions: Questions, keys: Keys) -> tuple[ChosenModel, ...]:
    usable = [found.interface for found in credentials(keys, (), None) if found.usable and found.found]
    requested = (
        ", ".join(dict.fromkeys(usable)) or "none; `coeval models --providers` says where they may stand"
    )
    questions.tell(f"Credentials were found for: {requested}.")
    said = (
        "Which models take part? One a line, as in `openai/gpt-4o-mini`, or `vllm/Qwen3-4B@http://localhost:"
        "8000/v1`; none at all: three simulated ones, to try it without a key. Two or more let judges be "
        "compared."
    )
    chosen = questions.lines(said, _model)
    names: dict[str, int] = {}
    models = []
    for model in chosen:
        count = names[model.name] = names.get(model.name, 0) + 1
        roles = questions.ask(f"Roles of {model.model}?", _roles, ",".join(ROLES))
        own = model.name if count == 1 else f"{model.name}-{count}"
        models.append(model._replace(name=own, roles=roles))
    if not models:
        return tuple(
            ChosenModel(f"sim-{size}", SIMULATED, f"sim-{size}", None, ROLES, {"skill": skill})
            for size, skill in (("large", 0.85), ("medium", 0.6), ("small", 0.35))
        )
    lacking = [role for role in ROLES if not any(role in model.roles for model in models)]
    if lacking:
        questions.tell(f"Nobody is {' or '.join(lacking)}: {models[0].name} is, then.")
        all_roles = {*models[0].roles, *lacking}
        models[0] = models[0]._replace(roles=tuple(role for role in ROLES if role in all_roles))
    return tuple(models)


def _all_simulated(models: tuple[ChosenModel, ...]) -> bool:
    return all(model.interface == SIMULATED for model in models)


def _some(text: str) -> str:
    if not text:
        raise UsageError("something is to stand here")
    return text


def _name(text: str) -> str:
    if (problem := name_problem(text)) is not None:
        raise UsageError(problem)
    return text


def _short(description: str) -> str:
    """The first words of a sentence, as a name."""
    words = re.findall(r"[a-z0-9]+", description.lower())
    return "_".join(words[:3])[:40].strip("_") or "task"


def _parted(text: str, example: str) -> tuple[str, str]:
    found = _LABELLED.fullmatch(text)
    if not found:
        raise UsageError(f"a name, a colon and what belongs to it: `{example}`")
    return found[1].strip(), found[2].strip()


def _values(text: str) -> tuple[str, list[str]]:
    name, listed = _parted(text, "reader: child, expert")
    values = [value.strip() for value in listed.split(",") if value.strip()]
    if len(set(values)) < max(len(values), 2):
        raise UsageError("two values or more, each another: `reader: child, expert`")
    return name, values


def _criterion(text: str) -> tuple[str, str]:
    return _parted(text, "accuracy: What is said is true.")


def _model(text: str) -> ChosenModel:
    found = _MODEL.fullmatch(text)
    askable = [name for name, host in HOSTS.items() if host.dialect not in ("benchmark", OWN_CODE)]
    if not found or found[1] not in askable:
        known = ", ".join(sorted(askable))
        raise UsageError(f"INTERFACE/MODEL, as in `openai/gpt-4o-mini`; the interfaces are {known}")
    plain = re.sub(r"[^A-Za-z0-9.-]+", "-", found[2].rpartition("/")[2]).strip("-.")
    return ChosenModel(plain or found[1], found[1], found[2], found[3], ROLES)


def _roles(text: str) -> tuple[str, ...]:
    named = {part.strip().rstrip("s") for part in text.split(",")}
    if not named <= set(ROLES):
        raise UsageError(f"some of {', '.join(ROLES)}, with commas between them")
    return tuple(role for role in ROLES if role in named)


def _yes(text: str) -> bool:
    if text.lower() not in ("y", "yes", "n", "no"):
        raise UsageError("y or n")
    return text.lower().startswith("y")


def _number(text: str, kind: type[Any], least: float) -> Any:
    try:
        number = kind(text)
    except ValueError:
        number = None
    if number is None or not least <= number <= 10_000_000:
        raise UsageError(f"a number of {least:g} or more")
    return number


def _count(text: str) -> int:
    return int(_number(text, int, 1))


def _dollars(text: str) -> float:
    return float(_number(text.removeprefix("$"), float, 0))


def experiment_text(needed: NeededExperiment) -> str:
    """The file, which is checked as any other.

    Raises ConfigError: the answers do not fit together; every problem is named with its line.
    """
    text = "\n".join([*_models_text(needed.models), *_task(needed), *_experiment(needed)]) + "\n"
    read_config(parse_document(text, Path(f"{needed.name}.yaml")))
    return text


def _models_text(models: Sequence[ChosenModel]) -> Iterator[str]:
    yield "# Made by `coeval wizard`. Every key: docs/configuration.md"
    yield ""
    yield "# Teachers write the items, students answer them, judges score the answers."
    yield "models:"
    for model in models:
        yield f"  - name: {_quoted(model.name)}"
        yield f"    interface: {model.interface}"
        yield f"    roles: [{', '.join(model.roles)}]"
        yield "    parameters:"
        yield f"      model: {_quoted(model.model)}"
        if model.base_url is not None:
            yield f"      base_url: {_quoted(model.base_url)}"
        for option, value in model.options.items():
            yield f"      {option}: {value}"
        yield "      temperature: 0.7"
        yield "      max_tokens: 1024          # answers that reach it are cut off, and told"
        if "judge" in model.roles:
            yield "    role_parameters:"
            yield "      judge: {temperature: 0.0}"
        yield ""


def _task(needed: NeededExperiment) -> Iterator[str]:
    yield "tasks:"
    yield f"  - name: {_quoted(needed.task)}"
    yield f"    description: {_quoted(needed.description)}"
    yield f"    output_description: {_quoted(needed.output)}"
    if needed.attributes is None:
        yield "    target_attributes: auto   # the teachers propose what items vary in"
    else:
        yield "    target_attributes:        # what the items cover, each value equally often"
        for name, values in needed.attributes.items():
            yield f"      {_quoted(name)}: [{', '.join(map(_quoted, values))}]"
    if needed.label is not None:
        yield f"    label_attributes: [{_quoted(needed.label)}]   # its value is the right answer"
    yield "    sampling:"
    yield f"      target: [1, {_most_sampled(needed)}]            # so many attributes an item"
    yield f"      total: {needed.total}               # items of each teacher; more later, with --continue"
    yield from _rubric_text(needed)
    yield ""


def _most_sampled(needed: NeededExperiment) -> int:
    return 2 if needed.attributes is None or len(needed.attributes) > 1 else 1


def _rubric_text(needed: NeededExperiment) -> Iterator[str]:
    factors = dict(needed.rubric or {})
    if needed.label is not None:  # named like the label: compared with it
        factors = {needed.label: f"The {needed.label} is the right one.", **factors}
    if not factors:
        yield "    rubric: auto              # the teachers write it"
        return
    yield "    rubric:                   # factor: what High means"
    for factor, criterion in factors.items():
        yield f"      {_quoted(factor)}: {_quoted(criterion)}"


def _experiment(needed: NeededExperiment) -> Iterator[str]:
    yield "experiment:"
    yield f"  id: {_quoted(needed.name)}"
    yield "  storage_folder: ./runs"
    yield "  report: true                # report.html in the run's folder"
    if needed.budget_usd is not None:
        yield f"  budget_usd: {needed.budget_usd:g}             # never more than that"


def _quoted(text: str) -> str:
    """A text as YAML has it; JSON's quotes are YAML's."""
    return json.dumps(text, ensure_ascii=False)
