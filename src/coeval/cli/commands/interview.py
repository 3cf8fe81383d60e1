"""The questions of `coeval init`, each with the flag that answers it, and the file made of the answers:
checked and priced before it is written."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, TypeVar

import typer
from msgspec.structs import replace
from rich.console import Console

from coeval.benchmarks.run.eval_settings import listed_names
from coeval.benchmarks.task_registry import kind_of as kind_of_task
from coeval.cli import streams
from coeval.cli.commands.ingest_report import take_in
from coeval.cli.commands.sweep.sweep_report import plan_of
from coeval.cli.ingest_flags import IngestFlags
from coeval.cli.streams import say, warn
from coeval.cli.views.host_view import credentials
from coeval.core.errors import UsageError
from coeval.core.plain import plain
from coeval.core.text import listed
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.models.keys import Keys
from coeval.pipeline.config.document import parse_document
from coeval.pipeline.config.load_file import read_config
from coeval.pipeline.config.names import name_problem
from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan.estimate.run_estimate import Assumed, estimate_run, summed_up
from coeval.pipeline.plan.estimate.savings import described_start
from coeval.pipeline.plan.estimate.seen_lengths import seen_lengths
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.upkeep.new_experiment import (
    SIMULATED,
    NewExperiment,
    NewModel,
    experiment_text,
    of_table,
    settings_text,
    simulated,
    usable_name,
)
from coeval.pricing.price_book import PriceBook
from coeval.store.jsonl import write_bytes_atomic
from coeval.sweeps.sweep_settings import SweepSettings
from coeval.tables.item_map import is_template, usual_map
from coeval.tables.table_source import SourceChoice, find_source

# --- Questions on a terminal

T = TypeVar("T")


class Questions:
    """Asks on the console, and reads answers from standard input, one a line. What a flag has answered is not
    asked; with ``asks`` False nothing is, and what no flag answers takes its default."""

    def __init__(self, console: Console, given: Mapping[str, Sequence[str]], *, asks: bool) -> None:
        self._console = console
        self.given = given
        self.asks = asks

    def ask(self, question: str, read: Callable[[str], T], default: str = "", flag: str = "") -> T:
        """What ``read`` makes of the answer, or of the ``default`` where there is none.

        Raises UsageError: the answers end here, or the flag is missing, or cannot be read.
        """
        if (given := self.given.get(flag)) or not self.asks:
            try:
                return read(given[-1] if given else default)
            except UsageError as error:
                raise UsageError(f"{flag}: {error}") from None
        while True:
            answer = self._line(f"{question} [{default}]" if default else question, question)
            try:
                return read(answer or default)
            except UsageError as error:
                say(self._console, f"  {error}", "yellow")

    def lines(self, question: str, read: Callable[[str], T], flag: str) -> list[T]:
        """One answer a line, until an empty one."""
        if (given := self.given.get(flag)) or not self.asks:
            try:
                return [read(text) for text in given or ()]
            except UsageError as error:
                raise UsageError(f"{flag}: {error}") from None
        self.tell(question)
        found: list[T] = []
        while True:
            prompt = f"  {len(found) + 1}. (Return: {'no more' if found else 'none'})"
            answer = self.ask(prompt, lambda text: read(text) if text else None)
            if answer is None:
                return found
            found.append(answer)

    def tell(self, sentence: str) -> None:
        if self.asks:
            say(self._console, sentence)

    def _line(self, prompt: str, question: str) -> str:
        self._console.print(f"{plain(prompt)} ", end="", soft_wrap=True)
        line = sys.stdin.readline()
        if not sys.stdin.isatty():
            self._console.print(plain(line.strip()), soft_wrap=True)
        if not line:
            raise UsageError(
                f"the answers end at {question!r}; answer in a terminal, give a line for each, or use flags: "
                "--description, --items, --answers or --checkpoints (coeval init --help)"
            )
        return line.strip()


# --- The questions of `coeval init`

ROLES = ("teacher", "student", "judge")
_LABELLED = re.compile(r"([^:]+):(.+)")
_MODEL = re.compile(r"([a-z_]+)/(.+?)(?:@(https?://[^\s=]+))?(?:=([a-z, ]+))?")
_KINDS = ("description", "items", "answers", "checkpoints")
_WHAT = (
    "  1 a description of the task: models write the items",
    "  2 a table of items: CSV, JSON lines, Parquet",
    "  3 answers that exist, in a table",
    "  4 checkpoints of a training run",
)


class TableAnswers(NamedTuple):
    """What was said of a table. ``answered`` are tables of answers beside it, by student."""

    name: str
    path: str
    flags: IngestFlags
    models: tuple[NewModel, ...]
    answered: Mapping[str, Mapping[str, str]]
    budget_usd: float | None


def kind_of(questions: Questions) -> str:
    """Which of the four somebody has: told by a flag, else asked."""
    found = [kind for kind in _KINDS if questions.given.get(f"--{kind}")]
    if len(found) > 1 and found != ["items", "answers"]:
        raise UsageError(f"--{found[0]} and --{found[1]} exclude each other; give one of them")
    if found:
        return found[-1]
    questions.tell(
        "Return accepts the answer in brackets. Ctrl-C cancels; nothing is written before the end."
    )
    for line in _WHAT:
        questions.tell(line)
    return _KINDS[questions.ask("What do you have?", _choice, "1") - 1]


def interview(questions: Questions, keys: Keys) -> NewExperiment:
    """Ask about an experiment whose items are written by models.

    Raises UsageError: the answers end before the questions do.
    """
    name = questions.ask("Name of the experiment?", _name, "my-benchmark", "--name")
    description = questions.ask("What are the models to do? One sentence.", _some, flag="--description")
    task = questions.ask("A short name for that task?", _name, _short(description), "--task")
    good = "A short, complete answer in plain prose."
    output = questions.ask("What does a good answer look like?", _some, good, "--output")
    label = _label(questions)
    attributes = _attributes(questions)
    if label is not None:
        attributes = {**(attributes or {}), label[0]: label[1]}
    models = _models(questions, keys, ROLES)
    return NewExperiment(
        by="coeval init",
        name=name,
        task=task,
        description=description,
        output=output,
        attributes=attributes,
        label=None if label is None else label[0],
        models=models,
        rubric=_rubric(questions),
        total=questions.ask("How many items does each teacher write?", _count, "20", "--total"),
        budget_usd=_budget(questions, models),
    )


def ask_of_table(questions: Questions, keys: Keys, kind: str) -> TableAnswers:
    """Ask about a table of items, and of answers that exist.

    Raises UsageError: the answers end, or a table cannot be opened.
    """
    answers = questions.ask("The table of answers?", _some, flag="--answers") if kind == "answers" else None
    asked = "The table of items?" if answers is None else "The table of items (Return: the same)?"
    path = questions.ask(asked, _some, answers or "", "--items")
    encoding = next(iter(questions.given.get("--encoding", ())), None)
    columns = _header(SourceChoice(name=path, encoding=encoding))
    usual = usual_map(columns)
    name = questions.ask("Name of the experiment?", _name, usable_name(Path(path).stem) or "items", "--name")
    prompt = questions.ask(_which("the prompts"), _column(columns), usual.get("prompt", ""), "--prompt")
    responses: tuple[str, ...] = ()
    answered, student = {}, ""
    if answers is not None:
        theirs = columns if answers == path else _header(SourceChoice(name=answers, encoding=encoding))
        student = questions.ask("A name for whoever gave the answers?", _name, "mine", "--student")
        response = questions.ask(_which("the answers"), _column(theirs), _usual_of(theirs), "--response")
        if answers == path:
            responses = (f"{student}={response}",)
        else:
            of = questions.ask(
                _which("the prompts of the answers"), _column(theirs), prompt, "--answers-prompt"
            )
            table = {"path": answers, "prompt": of, "response": response}
            answered = {student: {**table, **({"encoding": encoding} if encoding else {})}}
    label = questions.ask(_which("the right label (Return: none)"), _maybe(columns), flag="--label")
    reference = None
    if label is None:
        of_judges = _which("a right answer, for judges (Return: none)")
        known = usual.get("reference", "")  # `answer` may be the student's own
        default = known if f"{student}={known}" not in responses else ""
        reference = questions.ask(of_judges, _maybe(columns), default, "--reference")
    roles = [*([] if answers else ["student"]), *([] if label else ["judge"])]
    models = _models(questions, keys, roles) if roles or questions.given.get("--model") else ()
    said = IngestFlags(
        prompt=[prompt],
        reference=[reference] if reference else (),
        label=[label] if label else (),
        response=responses,
        encoding=encoding,
        id=questions.given.get("--id", ()),
        skip_bad="--skip-bad" in questions.given,
        yes=not questions.asks,
    )
    return TableAnswers(name, path, said, models, answered, _budget(questions, models))


def ask_of_checkpoints(questions: Questions) -> dict[str, Any]:
    """Ask about a sweep, and return its settings."""
    folder = questions.ask("The folder of the checkpoints?", _some, flag="--checkpoints")
    questions.tell("Tasks are ifeval, ifbench and others, or a run of your own: coeval:runs/quickstart.")
    tasks = questions.ask("Which tasks?", _some, "ifeval", "--tasks")
    out = questions.ask("Folder of the results?", _some, f"outputs/{Path(folder).name}", "--results")
    questions.tell("What rules cannot score needs a judge, as in gpt-4.1@https://api.openai.com/v1.")
    judge = questions.ask("Which judge (Return: none)?", str, flag="--judge")
    settings: dict[str, Any] = {"checkpoints": folder, "tasks": tasks, "out": out}
    model, _, url = judge.partition("@")
    judged = {"judge_model": model, "judge_base_url": url}
    if lacking := [name for name in listed_names(tasks) if kind_of_task(name).needs_judge and not url]:
        raise UsageError(
            f"{', '.join(lacking)}: a judge is needed, with the server that has it; add --judge MODEL@URL, "
            "such as --judge gpt-4.1@https://api.openai.com/v1, or leave them out of --tasks"
        )
    return {**settings, **{key: value for key, value in judged.items() if value}}


def _header(choice: SourceChoice) -> tuple[str, ...]:
    table = next(find_source(choice).tables())
    table.close()
    return table.columns


def _which(what: str) -> str:
    return f"Which column holds {what}?"


def _usual_of(columns: Sequence[str]) -> str:
    return next((name for name in ("response", "answer", "output", "completion") if name in columns), "")


def _column(columns: Sequence[str]) -> Callable[[str], str]:
    def known(text: str) -> str:
        if text not in columns and not is_template(text):
            wrong = f"no column is called {text!r}" if text else "name a column"
            raise UsageError(f"{wrong}; there are {listed(columns, 30)}")
        return text

    return known


def _maybe(columns: Sequence[str]) -> Callable[[str], str | None]:
    return lambda text: _column(columns)(text) if text else None


def _budget(questions: Questions, models: Sequence[NewModel]) -> float | None:
    if all(model.interface == SIMULATED for model in models) and not questions.given.get("--budget"):
        return None
    return questions.ask("Most dollars to spend?", _dollars, "5", "--budget")


def place_of(questions: Questions, out: Path | None, name: str) -> Path:
    """A file that is not there yet."""

    def new(text: str) -> Path:
        place = Path(text)
        if place.exists():
            raise UsageError(f"{place} is there already; name another file")
        return place

    return new(str(out)) if out is not None else questions.ask("File to write?", new, f"{name}.yaml", "--out")


def _label(questions: Questions) -> tuple[str, list[str]] | None:
    asked = "Is each right answer one of a few labels (as a class)? y or n"
    if not questions.given.get("--labels") and not questions.ask(asked, _yes, "n"):
        return None
    return questions.ask("The labels, as in `team: billing, technical, sales`:", _values, flag="--labels")


def _attributes(questions: Questions) -> dict[str, list[str]] | None:
    said = (
        "What do the items vary in? One attribute a line, as in `reader: child, expert`; none: the teachers "
        "propose some."
    )
    return dict(questions.lines(said, _values, "--attribute")) or None


def _rubric(questions: Questions) -> dict[str, str] | None:
    said = (
        "What are answers judged by? One factor a line, as in `accuracy: What is said is true.`; none: the "
        "teachers write them."
    )
    return dict(questions.lines(said, _criterion, "--factor")) or None


def _models(questions: Questions, keys: Keys, roles: Sequence[str]) -> tuple[NewModel, ...]:
    if questions.asks:
        usable = [found.interface for found in credentials(keys, (), None) if found.usable and found.found]
        none = "none; `coeval models --providers` says where they may stand"
        questions.tell(f"Credentials were found for: {', '.join(dict.fromkeys(usable)) or none}.")
    said = (
        f"Which models take part ({', '.join(roles)})? One a line, as in `openai/gpt-4o-mini`, or "
        "`vllm/Qwen3-4B@http://localhost:8000/v1`; none: simulated ones, to try it without a key. Two "
        "or more let judges be compared."
    )
    names: dict[str, int] = {}
    models = []
    for model in questions.lines(said, _model, "--model"):
        count = names[model.name] = names.get(model.name, 0) + 1
        own = model.name if count == 1 else f"{model.name}-{count}"
        asked = f"Roles of {model.model}?"
        taken = model.roles or questions.ask(asked, _roles, ",".join(roles or ROLES[1:]))
        models.append(model._replace(name=own, roles=taken))
    if not models:
        return simulated(roles)
    lacking = [role for role in roles if not any(role in model.roles for model in models)]
    if lacking:
        questions.tell(f"Nobody is {' or '.join(lacking)}: {models[0].name} is, then.")
        all_roles = {*models[0].roles, *lacking}
        models[0] = models[0]._replace(roles=tuple(role for role in ROLES if role in all_roles))
    return tuple(models)


def _some(text: str) -> str:
    if not text:
        raise UsageError("an answer is needed here")
    return text


def _choice(text: str) -> int:
    if text not in ("1", "2", "3", "4"):
        raise UsageError("a number from 1 to 4")
    return int(text)


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


def _model(text: str) -> NewModel:
    """``INTERFACE/MODEL``, and where it is served, and its roles; none where they are not said."""
    found = _MODEL.fullmatch(text)
    askable = [name for name, host in HOSTS.items() if host.dialect not in ("benchmark", OWN_CODE)]
    if not found or found[1] not in askable:
        known = ", ".join(sorted(askable))
        raise UsageError(f"INTERFACE/MODEL, as in `openai/gpt-4o-mini`; the interfaces are {known}")
    plain = re.sub(r"[^A-Za-z0-9.-]+", "-", found[2].rpartition("/")[2]).strip("-.")
    roles = _roles(found[4]) if found[4] else ()
    return NewModel(plain or found[1], found[1], found[2], found[3], roles)


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


# --- The file

_NOTES = {
    "checkpoints": "a folder for each step",
    "tasks": "coeval:RUN is a benchmark of your own",
    "out": "results; the same command goes on from there",
    "judge_model": "for tasks that rules cannot score",
}


def write_for(questions: Questions, out: Path | None, keys: Keys) -> None:
    """Ask, check, price, and write the file; name what comes next.

    Raises UsageError or ConfigError: the answers end, or do not fit together; nothing is written.
    """
    kind = kind_of(questions)
    if kind == "checkpoints":
        settings = ask_of_checkpoints(questions)
        place = place_of(questions, out, "sweep")
        plan_of(SweepSettings(**settings))
        _write(place, settings_text("coeval init", "docs/sweeps.md", settings, _NOTES))
        _tell_next(place, {"sweep": "serves each checkpoint and asks it; --dry-run counts again"})
        return
    if kind == "description":
        new = interview(questions, keys)
        place = place_of(questions, out, new.name)
    else:
        said = ask_of_table(questions, keys, kind)
        place = place_of(questions, out, said.name)
        table = take_in(said.path, replace(said.flags, new=place))  # it shows the first items
        if table is None:
            raise typer.Exit(1)
        new = of_table("coeval init", said.name, table, said.models)
        new = dataclasses.replace(new, answered=said.answered, budget_usd=said.budget_usd)
    text = experiment_text(new)
    _tell_price(read_config(parse_document(text, place)).config, keys)
    _write(place, text)
    _tell_next(place, {"describe": "the prompts, as they will be sent", "run": "the experiment"})


def _tell_price(config: Config, keys: Keys) -> None:
    """What a run would call and cost; lengths by rules of thumb, since nobody is asked."""
    options, prices = RunOptions(), PriceBook()
    start = described_start(config, options, keys, prices)
    for sentence in start.warnings:
        warn(streams.messages(), sentence)
    assumed = Assumed(prices, seen_lengths(start.config, start.preview), options.phase_barriers)
    for sentence in summed_up(estimate_run(start.config, start.preview, assumed)):
        say(streams.results(), sentence)


def _write(place: Path, text: str) -> None:
    write_bytes_atomic(place, text.encode())
    say(
        streams.messages(),
        f"Written: {place}. Edit it as you like; docs/configuration.md explains every key.",
    )


def _tell_next(place: Path, commands: dict[str, str]) -> None:
    say(streams.messages(), "Next:")
    for command, what in commands.items():
        say(streams.messages(), f"  coeval {command} --config {quote(str(place))}   {what}")
