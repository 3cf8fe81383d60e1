"""Whose output folder it is: one model's, so that no figures take the place of another's.

The answers say so themselves, in every task's folder and for every sample: there is no file beside them
that could be lost or be out of date. Where answers were lost, the summary made of them does.

A model is known by its name as ``--model`` gives it (which is also its ``--served-model-name``, or the
path of its folder with ``--local``), or by ``--checkpoint``; where it is served does not matter. Answers
from a file that nobody names a model for bear the file's path as their model; they belong to their
task's folder alone, since the files of one model's tasks have different names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from coeval.benchmarks.run.eval_spec import EvalSpec, model_of
from coeval.benchmarks.run.task_folder import TaskFolder, first_answer
from coeval.core.errors import UsageError
from coeval.store.output_folder import task_folders

__all__ = ["refuse_another_model"]


class _Claim(NamedTuple):
    """Answers of a model that lie in a task's folder; ``unnamed``: it is known by its file only."""

    place: Path
    model: str
    unnamed: bool


def refuse_another_model(evaluation: EvalSpec) -> None:
    """Look through the output folder for answers of another model. Touches nothing.

    Raises
    ------
    UsageError
        there are some; the message names both models and the ways out.
    """
    requests = {request.name: request for request in evaluation.tasks}
    for claim in _claims(evaluation.output):
        request = requests.get(claim.place.parent.name)
        if request is not None:
            wanted = model_of(evaluation, request)
        elif evaluation.tested is not None and not claim.unnamed:
            wanted = evaluation.tested_as
        else:
            continue
        if wanted not in ("", claim.model):  # empty: there are no answers to judge, which is said elsewhere
            raise _refusal(claim, wanted, evaluation)


def _refusal(claim: _Claim, wanted: str, evaluation: EvalSpec) -> UsageError:
    ways = [f"another --output-dir for {wanted}"]
    if not claim.unnamed:
        ways.append(f"{'--model' if evaluation.checkpoint is None else '--checkpoint'} {claim.model}")
    if evaluation.mode == "judge" and evaluation.judge is not None:
        ways.append("no --model beside --judge-model")
    return UsageError(
        f"{claim.place} holds answers of {claim.model}, not of {wanted}, and an output folder belongs to "
        f"one model; give {', or '.join(ways)}"
    )


def _claims(output: Path) -> Iterator[_Claim]:
    for folder in task_folders(output):
        files = sorted(folder.glob("responses*.jsonl"))
        found = [claim for path in files if (claim := _of_answers(path)) is not None]
        yield from found or _of_summary(folder)


def _of_answers(path: Path) -> _Claim | None:
    first = first_answer(path)
    if first is None or not first.model:
        return None
    return _Claim(path, first.model, first.model == first.source)


def _of_summary(folder: Path) -> Iterator[_Claim]:
    summary = TaskFolder(folder).summarised()
    if summary.model:  # which does not say of given responses whether somebody named their model
        yield _Claim(TaskFolder(folder).summary, summary.model, summary.given is not None)
