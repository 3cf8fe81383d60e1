"""Specification of an evaluation, and its task runs: assets, benchmarks, folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from coeval.benchmarks.assets.cache import Progress
from coeval.benchmarks.assets.library import Library
from coeval.benchmarks.benchmark import JudgeSettings, OptionValues, TaskSettings
from coeval.benchmarks.run.task_folder import (
    TaskFolder,
    normalise_source,
    read_first_answer,
    read_response_file,
)
from coeval.benchmarks.run.task_run import TaskRun
from coeval.benchmarks.task_registry import benchmark_class
from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.core.options import BATCH
from coeval.core.records import Purpose, Role, SamplingParameters, sample_seed
from coeval.core.regular_files import read_file_bytes
from coeval.core.text import digest
from coeval.engine.model_work import Recipe, RoleModel, choose_base_seed, make_recipe
from coeval.engine.probing import Probing
from coeval.models.batch.job_list import Batching, BatchMode
from coeval.models.catalog import HOSTS
from coeval.store.output_folder import SHARDS, list_task_folders

Mode: TypeAlias = Literal["all", "inference", "judge", "conclude"]


class TaskRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A requested task.

    ``given`` are the user's own files by asset; ``options`` the task's flags without their dashes;
    ``responses`` a file of answers to score instead of asking a model; ``runs`` the samples of each prompt,
    each in a folder ``run_<k>``, or a single one without; ``max_examples`` limits it to the first prompts.
    """

    name: str
    given: Mapping[str, Path] = {}
    options: OptionValues = {}
    responses: Path | None = None
    runs: tuple[int | None, ...] = (None,)
    max_examples: int | None = None


class Shard(msgspec.Struct, frozen=True):
    """Every ``count``-th prompt from ``index`` on, with its own folder for answers."""

    index: int
    count: int

    @property
    def folder(self) -> str:
        return f"{SHARDS}/{self.index}_of_{self.count}"


class EvalSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks × samples of one model.

    ``tested`` may be None where every task has its answers already. ``judge`` None means that the
    tested model judges itself. ``droppable`` names what of ``sampling`` is not the user's wish, and
    may be refused by a host. ``judge_sampling`` goes over each task's official one. In mode
    ``inference`` nothing is judged, in mode ``judge`` the stored answers are, whatever they were asked with;
    in mode ``conclude`` those of this model are judged and scored. Neither of the last two asks for answers.
    ``seed`` is that of requests (None: none is sent) and, else 0, of bootstraps.
    ``checkpoint`` is what the answers are recorded as being of, where several are served under one name.
    With a ``shard`` only its prompts are asked; ``account`` is the folder that keeps account, where that is
    not the output folder, since several processes may fill one.
    ``max_calls`` is the most requests that each model is sent, over all starts in the output folder;
    ``budget_usd`` the most money for all of them together; ``probing`` says which models are tried before.
    ``batched`` names what goes by batch jobs: ``response_collection`` are the answers of the tested model,
    ``evaluation`` the judgments; ``batch_mode`` how far that goes.
    """

    output: Path
    tasks: tuple[TaskRequest, ...]
    tested: ModelSpec | None = None
    judge: ModelSpec | None = None
    sampling: SamplingParameters = SamplingParameters()
    droppable: tuple[str, ...] = ()
    judge_sampling: SamplingParameters = SamplingParameters()
    mode: Mode = "all"
    seed: int | None = 0
    checkpoint: str | None = None
    shard: Shard | None = None
    account: Path | None = None
    max_calls: int | None = None
    budget_usd: float | None = None
    probing: Probing = Probing("resume")
    batched: frozenset[Purpose] = frozenset()
    batch_mode: BatchMode = BatchMode.WAIT

    def batching(self) -> Batching:
        """Return which phases of which models use batch jobs; raises UsageError where a host has none."""
        phases: dict[str, frozenset[Purpose]] = {}
        requested: dict[Purpose, ModelSpec | None] = {
            "response_collection": self.tested,
            "evaluation": self.judging,
        }
        for phase in sorted(self.batched):
            spec = requested[phase]
            if spec is None:
                continue
            if not HOSTS[spec.interface].batch:
                raise UsageError(
                    f"{spec.name}: the interface {spec.interface} has no Batch API here; leave out {BATCH}"
                )
            phases[spec.name] = phases.get(spec.name, frozenset()) | {phase}
        return Batching(phases, mode=self.batch_mode)

    @property
    def judging(self) -> ModelSpec | None:
        return self.judge or (None if self.mode == "conclude" else self.tested)

    @property
    def accounts_folder(self) -> Path:
        return self.account or self.output

    @property
    def tested_name(self) -> str:
        """Return the tested model's name in records; empty if none is asked."""
        return self.checkpoint or (self.tested.model if self.tested is not None else "")

    def folder(self, task: str, run: int | None) -> TaskFolder:
        """Return ``<output>/<task>``, or ``<output>/run_<k>/<task>`` for a numbered sample."""
        return TaskFolder(self.output / (task if run is None else f"run_{run}/{task}"))


def find_assets(
    requests: Sequence[TaskRequest], progress: Progress | None, note: Callable[[str], None]
) -> list[dict[str, Path]]:
    """Find each task's assets, fetching missing ones; optional ones only if quickly available. Raises
    AssetMissing: names what all tasks lack, and how to get it."""
    library = Library()
    kinds = [benchmark_class(request.name) for request in requests]
    given = {name: path for request in requests for name, path in request.given.items()}
    needed = dict.fromkeys(name for kind in kinds for name in kind.assets)
    paths = library.ensure(needed, progress, given=given)
    optional = dict.fromkeys(name for kind in kinds for name in kind.optional_assets)
    reasons: dict[str, str] = {}
    paths |= library.fetch_optional(optional, progress, given=given, failed=reasons.__setitem__)
    if reasons:  # of an earlier command's failures, that command has said so
        causes = dict.fromkeys(reason.rpartition(": ")[2] for reason in reasons.values())
        note(
            f"continuing without {', '.join(reasons)} ({'; '.join(causes)}); "
            f"`coeval datasets fetch {' '.join(reasons)}` tries again"
        )
    return [
        {name: paths[name] for name in (*kind.assets, *kind.optional_assets) if name in paths}
        for kind in kinds
    ]


def make_task_runs(
    evaluation: EvalSpec, request: TaskRequest, assets: Mapping[str, Path]
) -> Iterator[TaskRun]:
    """Make the runs of a task, one per sample. Raises UsageError: a judge lacks, or prompts share a key."""
    kind, judging = benchmark_class(request.name), evaluation.judging
    may_judge = kind.needs_judge and evaluation.mode != "inference"
    tested = evaluation.tested
    settings = TaskSettings(
        model=answering_model(evaluation, request),
        assets=assets,
        options={**request.options, "task": request.name},
        seed=evaluation.seed or 0,
        judge=JudgeSettings(judging.model, evaluation.judge_sampling, evaluation.judge is None)
        if judging is not None and may_judge
        else None,
    )
    benchmark = kind(settings)
    judged = may_judge and benchmark.is_judged
    if judged and judging is None:
        raise UsageError(f"{request.name} needs a judge; name one with --judge-model")
    prompts = benchmark.items()
    if len({item.id for item in prompts}) < len(prompts):
        raise UsageError(f"{request.name}: two prompts of its data have the same key; keys must be unique")
    items, shard = prompts[: request.max_examples], evaluation.shard
    if shard is not None:
        items = items[shard.index :: shard.count]
    for run in request.runs:
        label = benchmark.label if run is None else f"run_{run} {benchmark.label}"
        folder = evaluation.folder(benchmark.label, run)
        if shard is not None:
            folder = TaskFolder(folder.path / shard.folder, whole=folder)
        task_run = TaskRun(label, benchmark.label, run, benchmark, items, len(prompts), folder, None)
        if request.responses is not None:
            written = digest(read_file_bytes(request.responses).decode(errors="replace"))
            made = Recipe.of({"model": settings.model, "responses": written})
            task_run.tested = RoleModel(name="", model=settings.model, role="student", recipe=made)
            task_run.answers, task_run.given = read_response_file(
                request.responses, prompts, items, task_run.tested
            )
        elif evaluation.mode != "judge" and tested is not None:
            parts = {} if evaluation.checkpoint is None else {"checkpoint": evaluation.checkpoint}
            task_run.tested = _make_role_model(
                tested, "student", evaluation.sampling, evaluation, task_run, parts
            )
        if judged and judging is not None:
            task_run.judge = make_judge(evaluation, judging, task_run)
        yield task_run


def make_judge(evaluation: EvalSpec, judging: ModelSpec, task_run: TaskRun) -> RoleModel:
    """Make the judge of a task; its recipe may depend on the judge's capabilities."""
    sampling = task_run.benchmark.effective_judge_sampling()
    template = task_run.benchmark.judge_template()
    parts = {"template": digest(template)} if template else {}
    return _make_role_model(judging, "judge", sampling, evaluation, task_run, parts)


def _make_role_model(
    spec: ModelSpec,
    role: Role,
    sampling: SamplingParameters,
    evaluation: EvalSpec,
    task_run: TaskRun,
    parts: Mapping[str, Any],
) -> RoleModel:
    """Make a model in its role, with the recipe and seed of this sample."""
    sample, seed = task_run.run or 0, choose_base_seed(spec, sampling, evaluation.seed)
    seeded = {} if seed is None else {"seed": sample_seed(seed, sample)}
    return RoleModel(
        name=spec.name,
        model=evaluation.tested_name if spec is evaluation.tested else spec.model,
        role=role,
        sampling=sampling,
        recipe=make_recipe(spec, role, sampling, None, {**parts, **seeded}),
        seed=seed,
        sample=sample,
        droppable=evaluation.droppable
        if role == "student"
        else task_run.benchmark.list_unset_judge_parameters(),
    )


def answering_model(evaluation: EvalSpec, request: TaskRequest) -> str:
    """Return the model whose answers are scored; for a response file without a name, the file's path."""
    if evaluation.tested is not None:
        return evaluation.tested_name
    if request.responses is not None:
        return normalise_source(request.responses)
    return evaluation.folder(request.name, request.runs[0]).read_answering_model()


# --- Ownership of an output folder
#
# The answers say so themselves, in every task's folder and for every sample: there is no file beside them
# that could be lost or be out of date. Where answers were lost, the summary made of them does.
#
# A model is known by its name as ``--model`` gives it (which is also its ``--served-model-name``, or the path
# of its folder with ``--local``), or by ``--checkpoint``; where it is served does not matter. Answers from a
# file that nobody names a model for bear the file's path as their model; they belong to their task's folder
# alone, since the files of one model's tasks have different names.


class _Claim(NamedTuple):
    """Stored answers of a model in a task's folder; ``unnamed``: known by its file only."""

    path: Path
    model: str
    unnamed: bool


def refuse_another_model(evaluation: EvalSpec) -> None:
    """Raise UsageError, with the ways out, if the output folder has answers of another model."""
    requests = {request.name: request for request in evaluation.tasks}
    for claim in _find_claims(evaluation.output):
        request = requests.get(claim.path.parent.name)
        if request is not None:
            needed = answering_model(evaluation, request)
        elif evaluation.tested is not None and not claim.unnamed:
            needed = evaluation.tested_name
        else:
            continue
        if needed not in ("", claim.model):  # empty: there are no answers to judge, which is said elsewhere
            raise _other_model_error(claim, needed, evaluation)


def _other_model_error(claim: _Claim, needed: str, evaluation: EvalSpec) -> UsageError:
    ways = [f"another --output-dir for {needed}"]
    if not claim.unnamed:
        ways.append(f"{'--model' if evaluation.checkpoint is None else '--checkpoint'} {claim.model}")
    if evaluation.mode == "judge" and evaluation.judge is not None:
        ways.append("no --model beside --judge-model")
    return UsageError(
        f"{claim.path} holds answers of {claim.model}, not of {needed}, and an output folder belongs to "
        f"one model; give {', or '.join(ways)}"
    )


def _find_claims(output: Path) -> Iterator[_Claim]:
    for folder in list_task_folders(output):
        answers = ((path, read_first_answer(path)) for path in sorted(folder.glob("responses*.jsonl")))
        claims = [
            _Claim(path, answer.model, answer.model == answer.source)
            for path, answer in answers
            if answer is not None and answer.model
        ]
        summary = TaskFolder(folder).read_summary()
        if not claims and summary.model:
            # A summary does not say of given responses whether somebody named their model.
            claims = [_Claim(TaskFolder(folder).summary, summary.model, summary.given is not None)]
        yield from claims
