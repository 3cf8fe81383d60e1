"""A check of a judge: a run of its own, with items and answers of the anchor's run, and one judge.

So it is priced, held to its budget, journalled and continued like every run.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import msgspec

from coeval.analysis.panel.judge_drift import (
    JudgeDrift,
    ScoreKey,
    Scores,
    compare_with_anchor,
    read_judge_scores,
    read_other_served_models,
)
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import UsageError
from coeval.core.foreign import make_decoder
from coeval.core.text import digest, join_names
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.roles import describe_user_code
from coeval.pipeline.config.schema import PHASES, Config, Experiment, ModelConfig, Phase
from coeval.store.human_labels import read_labels
from coeval.store.jsonl import read_whole_lines, write_bytes_atomic
from coeval.store.record_index import index_record_states
from coeval.store.rundir import RunDir

LABELS = "labels.jsonl"
RESULT = "judge.json"
"""What a check came to; the folder of one that did not end has none."""


class JudgeCheck(NamedTuple):
    """A prepared check: ``config`` judges again, ``anchor`` are the scores to compare with; ``continues`` an
    earlier check that was not finished."""

    judge: str
    source: RunDir
    config: Config
    folder: RunDir
    anchor: Scores
    continues: bool

    def measure_drift(self) -> JudgeDrift:
        """Compare the check's scores so far with the anchor; raises as `judge_drift`."""
        with RunReader(self.source.path) as before, RunReader(self.folder.path) as after:
            drift = compare_with_anchor(self.judge, self.anchor, read_judge_scores(after, self.judge))
            then = read_other_served_models(before, self.judge)
            return msgspec.structs.replace(drift, served=(then, read_other_served_models(after, self.judge)))


class CheckRequest(NamedTuple):
    """``anchor`` is a run's folder, or its ``labels.jsonl``; ``items``: how many of its items are judged
    again (None: all); ``models``: an experiment file with the judge's present settings."""

    judge: str
    anchor: Path
    items: int | None = None
    models: Path | None = None
    budget_usd: float | None = None
    start_over: bool = False


def prepare_check(request: CheckRequest, home: Path | None = None) -> JudgeCheck:
    """Make the check's folder, in ``home`` or else beside the anchor's run; no model is called.

    An unfinished check of the same judge is continued, unless ``start_over``.

    Raises UsageError: the anchor is no run, has no score of the judge, or compares answers in pairs.
    """
    by_people = request.anchor.name == LABELS
    source = RunDir(request.anchor.parent if by_people else request.anchor)
    if not source.is_run():
        raise UsageError(f"{request.anchor} is not a run; name a run's folder, or its {LABELS}")
    config = load_config(source.config)
    if any(task.judging == "pairwise" for task in config.tasks):
        raise UsageError(f"{source.path} compares answers in pairs; name a run that scores answers")
    judge = _find_judge(config, request)
    with RunReader(source.path) as reader:
        anchor = _average_human_labels(source) if by_people else read_judge_scores(reader, judge.name)
    if not anchor:
        whose = "people" if by_people else judge.name
        raise UsageError(f"{source.path} holds no score of {whose}; name a run that has some")
    folder, continues = _find_new_or_unfinished_folder(source, home or source.path.resolve().parent, request)
    # the same items at every check: those whose ids hash lowest
    items = set(sorted({key.item for key in anchor}, key=digest)[: request.items])
    scores = {place: value for place, value in anchor.items() if place.item in items}
    checked = _configure_judge_alone(
        config, judge, source, folder, {place.task for place in scores}, request.budget_usd
    )
    if not continues:
        _copy_items_and_answers(source, folder, items, {place.answer for place in scores})
    elif set(index_record_states(folder.files("data_generation"), "data_generation")) != items:
        raise UsageError(
            f"{folder.path} was begun with other items and did not finish; give the same --items, "
            "or --start-over"
        )
    return JudgeCheck(judge.name, source, checked, folder, scores, continues)


def _find_judge(config: Config, request: CheckRequest) -> ModelConfig:
    """Return the judge's configuration. One that runs code has to be in a file that the user named."""
    models = config.models
    if request.models is not None:
        models = load_config(request.models).models
    judges = {model.name: model for model in models if "judge" in model.roles}
    if request.judge not in judges:
        names = join_names(sorted(judges)) or "none"
        raise UsageError(f"--judge {request.judge}: no judge of that name; there are: {names}")
    if request.models is None and any(describe_user_code([judges[request.judge]])):
        raise UsageError(
            f"--judge {request.judge} runs code that no given file names; give the "
            "experiment file that names it: --config FILE"
        )
    return judges[request.judge]


def _average_human_labels(source: RunDir) -> dict[ScoreKey, float]:
    values_by_key: dict[ScoreKey, list[float]] = {}
    for label in read_labels(source.path).values():
        if label.is_persons_level and label.value is not None:
            key = ScoreKey(label.task_id, label.datapoint_id, label.response_id, label.factor)
            values_by_key.setdefault(key, []).append(label.value)
    return {key: sum(values) / len(values) for key, values in values_by_key.items()}


def _find_new_or_unfinished_folder(source: RunDir, home: Path, request: CheckRequest) -> tuple[RunDir, bool]:
    """Return the check's folder, and whether an unfinished check is continued there."""
    stem = f"{source.path.resolve().name}-check-{request.judge.replace('/', '-')}"
    number = 1
    while (folder := RunDir(home / f"{stem}-{number}")).path.exists():
        if not request.start_over and not (folder.path / RESULT).exists():
            return folder, folder.meta.exists()
        number += 1
    return folder, False


def _configure_judge_alone(
    config: Config,
    judge: ModelConfig,
    source: RunDir,
    folder: RunDir,
    tasks: Collection[str],
    budget_usd: float | None,
) -> Config:
    """Copy the anchor's configuration with these tasks, this judge alone, and earlier phases kept."""
    keep: dict[Phase, str] = dict.fromkeys(PHASES[:-1], "Keep")
    experiment = {
        "id": folder.path.name,
        "storage_folder": str(folder.path.parent),
        "resume_from": str(source.path.resolve()),
        "phases": keep,
        "seed": config.experiment.seed,
        "probe_mode": "resume",  # the judge alone has work
        **({} if budget_usd is None else {"budget_usd": budget_usd}),
    }
    models = []
    for model in config.models:
        chosen = judge if model.name == judge.name else model
        roles = [role for role in model.roles if role != "judge"] + ["judge"] * (chosen is judge)
        if roles:
            models.append(chosen.model_copy(update={"roles": roles}))
    if judge.name not in {model.name for model in models}:
        models.append(judge.model_copy(update={"roles": ["judge"]}))
    kept = [task for task in config.tasks if task.name in tasks]
    read = {"experiment": Experiment.model_validate(experiment), "models": models, "tasks": kept}
    return config.model_copy(update=read)


def _copy_items_and_answers(
    source: RunDir, folder: RunDir, item_ids: Collection[str], answer_ids: Collection[str]
) -> None:
    read = make_decoder(_IdField)
    for phase, kept in (("data_generation", item_ids), ("response_collection", answer_ids)):
        for path in source.files(phase):
            lines = [line.text for line in read_whole_lines(path) if read(line.text).id in kept]
            write_bytes_atomic(folder.folder(phase) / path.name, b"".join(lines))


class _IdField(msgspec.Struct):
    id: str = ""
