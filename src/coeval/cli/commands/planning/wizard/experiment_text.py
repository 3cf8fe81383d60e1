"""An experiment file with its comments, made of what the wizard was told."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from coeval.cli.commands.planning.wizard.interview import ChosenModel, WantedExperiment
from coeval.pipeline.config.document import parse_document
from coeval.pipeline.config.load_file import read_config

__all__ = ["experiment_text"]


def experiment_text(wanted: WantedExperiment) -> str:
    """The file, which is checked as any other.

    Raises
    ------
    ConfigError
        the answers do not fit together; every problem is named with its line.
    """
    text = "\n".join([*_models(wanted.models), *_task(wanted), *_experiment(wanted)]) + "\n"
    read_config(parse_document(text, Path(f"{wanted.name}.yaml")))
    return text


def _models(models: Sequence[ChosenModel]) -> Iterator[str]:
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


def _task(wanted: WantedExperiment) -> Iterator[str]:
    yield "tasks:"
    yield f"  - name: {_quoted(wanted.task)}"
    yield f"    description: {_quoted(wanted.description)}"
    yield f"    output_description: {_quoted(wanted.output)}"
    if wanted.attributes is None:
        yield "    target_attributes: auto   # the teachers propose what items vary in"
    else:
        yield "    target_attributes:        # what the items cover, each value equally often"
        for name, values in wanted.attributes.items():
            yield f"      {_quoted(name)}: [{', '.join(map(_quoted, values))}]"
    if wanted.label is not None:
        yield f"    label_attributes: [{_quoted(wanted.label)}]   # its value is the right answer"
    yield "    sampling:"
    yield f"      target: [1, {_most_sampled(wanted)}]            # so many attributes an item"
    yield f"      total: {wanted.total}               # items of each teacher; more later, with --continue"
    yield from _rubric(wanted)
    yield ""


def _most_sampled(wanted: WantedExperiment) -> int:
    return 2 if wanted.attributes is None or len(wanted.attributes) > 1 else 1


def _rubric(wanted: WantedExperiment) -> Iterator[str]:
    factors = dict(wanted.rubric or {})
    if wanted.label is not None:  # named like the label: compared with it
        factors = {wanted.label: f"The {wanted.label} is the right one.", **factors}
    if not factors:
        yield "    rubric: auto              # the teachers write it"
        return
    yield "    rubric:                   # factor: what High means"
    for factor, criterion in factors.items():
        yield f"      {_quoted(factor)}: {_quoted(criterion)}"


def _experiment(wanted: WantedExperiment) -> Iterator[str]:
    yield "experiment:"
    yield f"  id: {_quoted(wanted.name)}"
    yield "  storage_folder: ./runs"
    yield "  report: true                # report.html in the run's folder"
    if wanted.budget_usd is not None:
        yield f"  budget_usd: {wanted.budget_usd:g}             # never more than that"


def _quoted(text: str) -> str:
    """A text as YAML has it; JSON's quotes are YAML's."""
    return json.dumps(text, ensure_ascii=False)
