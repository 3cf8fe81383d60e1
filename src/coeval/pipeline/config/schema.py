"""Schema of an experiment file: every key, its type, its default.

Rules that need more than one key (V-01 …) are in ``rules``; ``load_file`` reads YAML with line numbers.
The JSON schema for editors is generated from these classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple, TypeAlias, get_args

from pydantic import Field

from coeval.core.model import ModelSpec, find_answer_limits
from coeval.core.options import ProbeMode
from coeval.core.records import Purpose, Role, SamplingParameters, variant_name
from coeval.core.scale import HIGH_MEDIUM_LOW, RubricScale
from coeval.core.text import pluralize
from coeval.models.batch.job_list import BATCH_PHASES
from coeval.models.catalog import HOSTS
from coeval.models.local.local_transformers import ENGINE_OPTIONS
from coeval.pipeline.config import values
from coeval.pipeline.config.items_section import (
    AnsweredStudent,
    Documents,
    Items,
    ModelName,
    Name,
    Sampling,
    Section,
)
from coeval.pipeline.config.values import ENDPOINT_KEYS, CheckOptions, ParameterMap, RubricFactor
from coeval.simulation.traits import RANGES, VARIED

Phase: TypeAlias = Literal[
    "attribute_mapping", "rubric_mapping", "data_generation", "response_collection", "evaluation"
]
PHASES: tuple[Phase, ...] = get_args(Phase)
Mode: TypeAlias = Literal["New", "Keep", "Extend", "Model"]

Omissible: TypeAlias = Literal[
    "input", "response", "factor", "criterion", "rubric", "target_attributes", "passages",
    "answer_a", "answer_b",
]  # fmt: skip

INTERFACES = (*HOSTS.own, "auto")
"""What a model's `interface` may be without another package's help."""
BATCH_INTERFACES = tuple(name for name, host in HOSTS.own.items() if host.batch and not host.local)

OPTIONS = {
    **{host.name: host.places for host in HOSTS.own.values() if host.places},
    "simulated": frozenset({*RANGES, "family"}),
    "huggingface": frozenset({"device", "load_in_4bit", *ENGINE_OPTIONS}),
    "python": frozenset({"callable"}),
    "command": frozenset({"argv", "protocol", "env"}),
}
"""Interface → the parameters that it alone knows and no provider sees."""

_SPEC_KEYS = ENDPOINT_KEYS.intersection(ModelSpec.__struct_fields__) - {"structured_output"}


class Variant(Section):
    """A prompt and sampling parameters that override the model's."""

    system_prompt: str | None = Field(default=None, description="System message that replaces the model's.")
    prompt: values.FilledText | None = Field(
        default=None,
        description="Template around each item, like `test` of `prompt_library`; it must contain `{input}`.",
    )
    parameters: ParameterMap = Field(default={}, description="Sampling parameters that override the model's.")


class ModelConfig(Section):
    """A model, where it is served, and its roles."""

    name: ModelName = Field(
        description="Unique; used in file names and reports. Slashes are allowed, as in "
        "`Qwen/Qwen2.5-72B-Instruct`; reports show its shortest unique form."
    )
    interface: str = Field(
        description="Who serves the model; `auto` picks the cheapest host you have a key for.",
        json_schema_extra={"enum": list(INTERFACES)},
    )
    roles: list[Role] = Field(
        min_length=1, description="Teachers write items, students answer them, judges score answers."
    )
    parameters: ParameterMap = Field(
        default={}, description="The provider's identifier, sampling parameters and limits, for every role."
    )
    role_parameters: dict[Role, ParameterMap] = Field(
        default={}, description="Per role, merged over `parameters`."
    )
    variants: dict[str, Variant] = Field(
        default={},
        description="Prompts to compare: each is a student `name@variant` that answers the same items. The "
        "model alone is then no student; an empty variant `{}` tests it unchanged.",
        json_schema_extra={"propertyNames": {"pattern": values.NAME_PATTERN}},
    )
    samples: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Answers per item of the student (and of each variant), all judged: for pass@k and for "
        "the variation of answers.",
    )
    access_key: str | None = Field(
        default=None, repr=False, description="Credential for this model only; prefer a key file."
    )
    account: str | None = Field(
        default=None,
        description="Entry of a key file to use instead of the interface's own, for a second account of a "
        "provider, such as `team-b: {interface: openai, api_key: ...}`.",
    )
    batch_enabled: bool | None = Field(
        default=None, description="Force (true) or forbid (false) the Batch API for this model."
    )
    structured_output: bool = Field(
        default=True, description="Ask for JSON by schema where the provider can."
    )
    label: str | None = Field(
        default=None,
        min_length=1,
        max_length=30,
        description="Name in reports and tables. Unique; may change at any time. "
        "Default: the name without vendor, `-Instruct` and date, if that is unique.",
    )

    def spec(self) -> ModelSpec:
        """Return the host, identifier and limits of the model, which are the same in every role."""
        ours = self.parameters
        own_options = OPTIONS.get(self.interface, frozenset())
        return ModelSpec(
            **{"model": self.name, **{key: ours[key] for key in _SPEC_KEYS & ours.keys()}},
            name=self.name,
            interface=self.interface,
            access_key=self.access_key,
            account=self.account,
            structured_output=self.structured_output and ours.get("structured_output", True),
            options={key: value for key, value in ours.items() if key in own_options},
        )

    def at_host(self, interface: str, model: str) -> ModelConfig:
        """Copy the model with another host, whose identifier itself says which model that is."""
        others = {key: value for key, value in self.parameters.items() if key != "base_model"}
        return self.model_copy(update={"interface": interface, "parameters": {**others, "model": model}})

    @property
    def roles_text(self) -> str:
        """Return the roles as text, with a student's variants in brackets."""
        varied = f"student ({', '.join(self.variants)})"
        return ", ".join(varied if role == "student" and self.variants else role for role in self.roles)

    def students(self) -> list[ModelConfig]:
        """Return the students that the model is: itself, or each of its variants."""
        return [self._make_variant(name, variant) for name, variant in self.variants.items()] or [self]

    def _make_variant(self, name: str, variant: Variant) -> ModelConfig:
        system = {} if variant.system_prompt is None else {"system_prompt": variant.system_prompt}
        return self.model_copy(
            update={
                "name": variant_name(self.name, name),
                "roles": ["student"],
                "parameters": {**self.parameters, "model": self.spec().model},
                "role_parameters": {
                    "student": {**self.role_parameters.get("student", {}), **variant.parameters, **system}
                },
                "variants": {},
                "label": None,
            }
        )

    def sampling(self, role: Role) -> SamplingParameters:
        """Return a role's sampling parameters, those of the role first, without our own keys."""
        merged = self._merge_parameters(role)
        ours = ENDPOINT_KEYS | {"system_prompt"} | OPTIONS.get(self.interface, frozenset())
        if self.interface == "simulated":  # a variant's own: V-26 keeps those of a role the model's
            ours = ours - {key for key in VARIED if merged.get(key) != self.parameters.get(key)}
        return SamplingParameters.of({key: value for key, value in merged.items() if key not in ours})

    def system_prompt(self, role: Role) -> str | None:
        prompt: str | None = self._merge_parameters(role).get("system_prompt")
        return prompt

    def lowest_answer_limit(self, role: Role) -> int | None:
        """Return the lowest limit on answers that the user set, under any host's name; None without any."""
        limits = (limit for _, limit in find_answer_limits(self._merge_parameters(role)))
        return min((limit for limit in limits if type(limit) is int and limit > 0), default=None)

    def accepts_run_seed(self, role: Role) -> bool:
        """Check whether the run may send seeds: ``seed: null`` forbids it."""
        return self._merge_parameters(role).get("seed", ...) is not None

    def _merge_parameters(self, role: Role) -> ParameterMap:
        return self.parameters | self.role_parameters.get(role, {})


class TaskConfig(Section):
    """A task: its description, items, attributes and rubric."""

    name: Name = Field(description="Unique; used in file names and reports.")
    description: values.FilledText = Field(description="What the student has to do.")
    output_description: str = Field(
        default="",
        description="What a good answer looks like. Default for a task with labels and no rubric: the "
        "declared values.",
    )
    category: Literal["benchmark", "synthetic"] = Field(
        default="synthetic",
        description="`benchmark`: items are supplied (docs/items.md); `synthetic`: teachers write them.",
    )
    items: Items | None = Field(
        default=None,
        description="Your own items (docs/items.md): no model writes any. `target_attributes` and "
        "`sampling` may be left out then, and with a label `rubric` too.",
    )
    documents: Documents | None = Field(
        default=None,
        description="Your documents: teachers write each item from a passage of them and quote it as "
        "evidence (docs/documents.md). `target_attributes` may be left out then.",
    )
    target_attributes: values.TargetAttributes = Field(
        description="What items must cover; `auto`: teachers propose it; `complete`: all combinations."
    )
    nuanced_attributes: values.NuancedAttributes = Field(
        default={}, description="What keeps items varied; `auto`: teachers propose it."
    )
    target_attributes_seed: values.Attributes | None = Field(
        default=None, description="Attributes always used, in addition to the teachers' proposals."
    )
    nuanced_attributes_seed: values.Attributes | None = Field(
        default=None, description="Nuances always used, in addition to the teachers' proposals."
    )
    sampling: Sampling = Field(description="Number of items, and what each samples.")
    store_nuanced: bool = Field(default=False, description="Keep each item's nuance in its record.")
    rubric: values.Rubric = Field(
        description="Factor → criterion, `{criterion: …, scale: …}` or a check; `auto`: teachers write it; "
        "`extend`: they add to an earlier run's."
    )
    scale: values.ScaleLevels | None = Field(
        default=None,
        description="Levels of the rubric's factors: a range such as `1-5`, a list such as `[pass, fail]`, "
        "or level → number (docs/tasks.md). Default: High, Medium, Low.",
    )
    weights: values.Weights = Field(
        default={}, description="Factor → weight in an item's score. Default: 1 each."
    )
    rationale: bool | None = Field(
        default=None,
        description="Whether judges give a one-sentence reason before each level; `false` saves tokens. "
        "Default: where `max_tokens` of every judge leaves room, about 60 tokens a factor.",
    )
    label_attributes: list[str] = Field(
        default=[], description="Target attributes whose value is the right answer: scored without a judge."
    )
    evaluation_mode: Literal["single", "per_factor"] = Field(
        default="single", description="One judge call per answer, or one per rubric factor."
    )
    judging: Literal["scores", "pairwise"] = Field(
        default="scores",
        description="`scores`: judges score each answer; `pairwise`: they compare pairs of answers "
        "(docs/pairs.md).",
    )
    baseline: str | None = Field(
        default=None,
        description="Pairwise judging: the student to compare all others with. Default: all pairs.",
    )
    prompt_library: dict[str, values.FilledText] = Field(
        default={}, description="Your own prompt templates: `{id}`, or `{id}.{model name}` for one model."
    )
    prompts_may_omit: list[Omissible] = Field(
        default=[],
        description="Variables that templates of `prompt_library` leave out on purpose, such as "
        "`[response]` for a judge that sees no answer (V-35).",
    )

    @property
    def rubric_texts_or_word(self) -> dict[str, str] | Literal["auto", "extend"]:
        """Return factor → criterion, checks by their options; ``auto`` or ``extend`` if teachers write it."""
        if isinstance(self.rubric, str):
            return self.rubric
        return {factor: _describe_criterion(what) for factor, what in self.rubric.items()}

    @property
    def checks(self) -> dict[str, CheckOptions]:
        """Return factor → the options of its check."""
        if isinstance(self.rubric, str):
            return {}
        return {factor: what for factor, what in self.rubric.items() if isinstance(what, dict)}

    @property
    def judging_mode(self) -> str:
        """Return ``pairwise``, or what one judge call covers: ``single`` (an answer) or ``per_factor``."""
        return self.evaluation_mode if self.judging == "scores" else self.judging

    def scale_of(self, factor: str) -> RubricScale:
        """Return the levels that judges choose from for a factor."""
        what = self.rubric.get(factor) if isinstance(self.rubric, dict) else None
        own = what.scale if isinstance(what, RubricFactor) else None
        return own or self.scale or HIGH_MEDIUM_LOW

    def describe_custom_scales(self) -> str:
        """Describe scales other than High, Medium and Low: their factors, and levels from worst to best."""
        judged = ["factors"] if isinstance(self.rubric, str) else self.rubric.keys() - self.checks.keys()
        having: dict[RubricScale, list[str]] = {}
        for factor in sorted(set(judged).difference(self.label_attributes)):
            having.setdefault(self.scale_of(factor), []).append(factor)
        having.pop(HIGH_MEDIUM_LOW, None)
        return "; ".join(
            f"{', '.join(factors)}: {scale.levels_naming_best()}" for scale, factors in having.items()
        )


def _describe_criterion(factor_entry: str | RubricFactor | CheckOptions) -> str:
    match factor_entry:
        case str():
            return factor_entry
        case RubricFactor():
            return factor_entry.criterion
        case _:
            options = ", ".join(f"{name} {value}" for name, value in factor_entry.items() if name != "check")
            return f"check: {factor_entry['check']}" + (f" ({options})" if options else "")


class Quota(Section):
    """Hard ceilings for one model over the life of the run."""

    max_calls: int | None = Field(
        default=None,
        ge=0,
        description="Maximum requests over the life of the run, probes and retries included, but none for a "
        "host's list of models. Up to 32 that a killed run had reserved count as used; those of its last "
        "second without a ceiling do not.",
    )
    max_cost_usd: float | None = Field(default=None, ge=0, description="Budget in US dollars.")


class Experiment(Section):
    """Where the run is kept, what its phases do with what exists, and its limits."""

    id: Name = Field(description="Unique; the name of the run's folder.")
    storage_folder: values.PathText = Field(
        description="Folder of all runs, relative to the working directory."
    )
    phases: dict[Phase, Mode] = Field(
        default={},
        description="What each phase does with work that exists. New (the default) makes everything, and "
        "refuses a folder that holds any; Keep leaves a task as it is that has any record; Model (phases "
        "3–5) a combination of task and models; Extend makes each record that is missing or failed.",
    )
    resume_from: values.PathText | None = Field(
        default=None, description="A run to start from: its id in storage_folder, or a path."
    )
    quota: dict[str, Quota] = Field(default={}, description="Ceilings by model name.")
    store: values.PathText | None = Field(
        default=None,
        description="Folder of paid answers that runs share: the same request is paid once. COEVAL_STORE "
        "overrides it.",
    )
    batch: dict[str, dict[str, bool]] = Field(
        default={},
        description="Interface → phase → whether to use its Batch API.",
        json_schema_extra={
            "propertyNames": {"enum": list(BATCH_INTERFACES)},
            "additionalProperties": {
                "type": "object",
                "propertyNames": {"enum": list(BATCH_PHASES)},
                "additionalProperties": {"type": "boolean"},
            },
        },
    )
    batch_poll_s: list[Annotated[float, Field(gt=0)]] = Field(
        default=[5.0, 60.0],
        min_length=2,
        max_length=2,
        description="Seconds between two checks of a batch job: at first, and at most.",
    )
    probe_mode: ProbeMode = Field(
        default="full",
        description="Models to probe before a run. `full`: all, if any has work; `resume`: those "
        "with work; `disable`: none; `answer`: all, with a one-token request each, listed or not.",
    )
    probe_on_fail: Literal["abort", "warn"] = Field(
        default="abort", description="What to do if a model does not answer the probe."
    )
    estimate_cost: bool = Field(default=False, description="Estimate the cost before the run starts.")
    estimate_samples: int = Field(
        default=2,
        ge=0,
        description="Live calls per model for an estimate, over all its roles; 0: rules of thumb only.",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Level of run.log."
    )
    generation_retries: int = Field(
        default=2,
        ge=0,
        description="Retries of an item without a usable reply; none if temperature 0 would repeat it.",
    )
    budget_usd: float | None = Field(
        default=None, ge=0, description="Budget for the whole run, in US dollars."
    )
    seed: int | None = Field(
        default=0,
        description="Seed of requests to models that take one: samples and retries derive theirs from it. "
        "`null`: none is sent.",
    )
    report: bool = Field(default=False, description="Whether to write report.html at the end of a run.")

    def mode(self, phase: Phase) -> Mode:
        return self.phases.get(phase, "New")


# A reason of 25 words and its level take about 60 tokens.
_TOKENS_PER_FACTOR = 60


class ReasonSetting(NamedTuple):
    """Whether judges of a task give reasons. ``stated``: the file's setting or None; ``factors``: how many
    one reply gives reasons for; ``limits``: judge → its limit on answers, in tokens, if it has one."""

    stated: bool | None
    factors: int
    limits: Mapping[str, int]

    @property
    def are_given(self) -> bool:
        """Check whether reasons are given: by default, if the limits leave room (V-43)."""
        return not self.limit_problem if self.stated is None else self.stated

    @property
    def limit_problem(self) -> str:
        """Say which limits are too low for reasons, and what would do; empty if none is."""
        needed = _TOKENS_PER_FACTOR * self.factors
        cramped = [f"{judge} {limit:,}" for judge, limit in self.limits.items() if limit < needed]
        if not cramped:
            return ""
        return (
            f"reasons for {pluralize(self.factors, 'factor')} need about {needed:,} tokens a reply, and "
            f"max_tokens allows fewer ({', '.join(cramped)}); set it to {needed} or more"
        )


class Config(Section):
    """A valid experiment file with its defaults filled in."""

    models: list[ModelConfig] = Field(
        description="The models and their roles. Optional if all answers exist."
    )
    students: list[AnsweredStudent] = Field(
        default=[], description="Students whose answers exist (docs/items.md)."
    )
    tasks: list[TaskConfig] = Field(min_length=1, description="What is evaluated, and how.")
    experiment: Experiment = Field(description="The run: where, how, and within which limits.")

    def batched_phases(self, model: ModelConfig) -> frozenset[Purpose]:
        """Return the phases in which a model uses batch jobs: by its own setting, else by its interface's."""
        if model.batch_enabled is not None:
            return frozenset(BATCH_PHASES if model.batch_enabled else ())
        of_interface = self.experiment.batch.get(model.interface, {})
        return frozenset(phase for phase in BATCH_PHASES if of_interface.get(phase))

    def with_role(self, role: Role) -> list[ModelConfig]:
        """Return the models with a role; students with variants are replaced by these."""
        playing = [model for model in self.models if role in model.roles]
        return (
            [student for model in playing for student in model.students()] if role == "student" else playing
        )

    def decide_reasons(self, task: TaskConfig, factors: int) -> ReasonSetting:
        """Decide whether judges give reasons for this many factors of a task."""
        limits = {judge.name: judge.lowest_answer_limit("judge") for judge in self.with_role("judge")}
        set_by_user = {name: limit for name, limit in limits.items() if limit is not None}
        return ReasonSetting(task.rationale, factors if task.judging_mode == "single" else 1, set_by_user)

    def variant_prompts_by_library_key(self) -> dict[str, str]:
        """Return the templates of variants by their keys in a ``prompt_library``."""
        return {
            f"test.{variant_name(model.name, name)}": variant.prompt
            for model in self.models
            for name, variant in model.variants.items()
            if variant.prompt is not None
        }

    def students_with_existing_answers(self, task: TaskConfig) -> tuple[str, ...]:
        """Return who has existing answers to a task, from ``students`` and from the task's table."""
        listed = [
            student.name for student in self.students if student.tasks is None or task.name in student.tasks
        ]
        of_table = task.items.responses if task.items is not None else {}
        return tuple(dict.fromkeys([*listed, *of_table]))

    def __repr__(self) -> str:
        counts = f"{len(self.models)} models, {len(self.tasks)} tasks"
        return f"Config({self.experiment.id!r}: {counts})"

    def __str__(self) -> str:
        return repr(self)
