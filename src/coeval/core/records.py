"""Frozen records that cross module borders: requests, answers and stored records.

Item → Request → Completion → Judgment → Score. The kept ones (`Datapoint`, `Response`,
`Evaluation`) are the lines of a run's JSONL files; fields at their default are left out of a
line, so a failed record holds no invented value and an empty answer (``""``) stays an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

Level: TypeAlias = Literal["High", "Medium", "Low"]
LEVELS: tuple[Level, ...] = ("High", "Medium", "Low")
LEVEL_VALUE: dict[Level, float] = {"High": 1.0, "Medium": 0.5, "Low": 0.0}

Role: TypeAlias = Literal["teacher", "student", "judge"]
ROLES: tuple[Role, ...] = ("teacher", "student", "judge")

Purpose: TypeAlias = Literal[
    "probe", "attribute_mapping", "rubric_mapping", "data_generation", "response_collection", "evaluation"
]

EXACT_MATCH = "exact_match"
"""Judge id of label comparisons; reserved, so no model may have it."""

CHECK = "check"
"""Judge id of checks; reserved likewise."""

LABELS_KEY = "coeval_labels"
"""Entry of a body's ``metadata`` for a request's labels, as JSON, since it may hold texts only."""

ServedAs: TypeAlias = Literal["", "alias", "fallback"]
ModelRole: TypeAlias = Literal["system", "user", "assistant"]


class Message(msgspec.Struct, frozen=True):
    role: ModelRole
    content: str


class Schema(msgspec.Struct, frozen=True):
    """A JSON schema for the answer, with the name that providers require."""

    name: str
    body: dict[str, Any]


class CallId(NamedTuple):
    """Identity of one request: the record (or part) it makes, its sample from 0, and its attempt from 0 over
    all starts of a run. Unique within a run, but for the transport's retries."""

    key: str
    sample: int = 0
    attempt: int = 0

    def seed(self, run_seed: int) -> int:
        """Derive the request's seed: 31 bits, a pure function of the run's seed and this id."""
        seed = sample_seed(run_seed, self.sample) if self.sample else run_seed
        return _derive_seed(seed, self.key, self.attempt)

    @property
    def custom_id(self) -> str:
        """Return the id in a batch: 32 hex digits, since some providers allow few characters."""
        text = f"{self.key}\0{self.sample}\0{self.attempt}"
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def __str__(self) -> str:
        sample = f" sample {self.sample}" if self.sample else ""
        return f"{self.key}{sample}" + (f" attempt {self.attempt + 1}" if self.attempt else "")


def sample_seed(run_seed: int, sample: int) -> int:
    """Return the seed of the k-th sample; the first is that of a single run."""
    return run_seed if not sample else _derive_seed(run_seed, f"run_{sample}", 0)


def _derive_seed(seed: int, key: str, attempt: int) -> int:
    digest = blake2b(f"{seed}\0{key}\0{attempt}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") & 0x7FFFFFFF


ParametersByName: TypeAlias = dict[str, Any]
"""Parameters of a model as hosts and configurations name them."""


class SamplingParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters. None is not sent, so that the provider's default holds.

    The fields mean the same everywhere, and each dialect translates them. ``reasoning_effort`` is a word of
    the provider's (``low``, ``high``), ``thinking_budget`` the most tokens of reasoning. ``rest`` are
    parameters that some providers have, by their own names: they are laid over the body as they stand, like
    ``extra_body``.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    thinking_budget: int | None = None
    rest: dict[str, Any] = {}

    @classmethod
    def of(cls, named: ParametersByName) -> SamplingParameters:
        """Build from names; ``max_new_tokens`` is read as ``max_tokens``, a single stop text as a list."""
        rest = {_SAME_AS.get(name, name): value for name, value in named.items() if value is not None}
        typed = {name: rest.pop(name) for name in TYPED_PARAMETERS if name in rest}
        if (stop := typed.get("stop")) is not None:
            typed["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
        return cls(**typed, rest=rest)

    def to_dict(self) -> ParametersByName:
        """Return the parameters that are set."""
        typed = {name: value for name in TYPED_PARAMETERS if (value := getattr(self, name)) is not None}
        return typed | self.rest

    def __or__(self, other: SamplingParameters) -> SamplingParameters:
        """Merge; the other one's parameters win."""
        return self.of(self.to_dict() | other.to_dict())

    def without(self, names: Iterable[str]) -> SamplingParameters:
        return self.of(self.to_dict() | dict.fromkeys(names))


TYPED_PARAMETERS = tuple(name for name in SamplingParameters.__struct_fields__ if name != "rest")
_SAME_AS = {"max_new_tokens": "max_tokens"}


class Request(msgspec.Struct, frozen=True):
    """One request to a model, independent of its host.

    ``call`` says what it is about; a probe, and what foreign clients ask of simulated models, has none.
    ``droppable`` names those parameters of ``sampling`` that nobody asked for: a host that does not know
    one is asked without it. ``seed`` is the engine's own, and goes before that of ``sampling``. ``priority``
    says how far downstream the work stands: where requests wait for the same endpoint, a larger one is served
    first. ``labels`` are the attributes that the answer is compared on, with their declared values:
    simulated models alone are told. ``shared`` counts the characters that the last message begins with, after
    those before it, as other requests about the same time do: what a host's cache may keep; 0 where nobody
    knows of any. ``goes_on``: it is sent though the run is being interrupted, as a paid reply would be lost
    without it. ``fresh``: no copy of another sample will do. ``raised``: its limit is above its role's.
    """

    messages: tuple[Message, ...]
    sampling: SamplingParameters = SamplingParameters()
    schema: Schema | None = None
    purpose: Purpose = "response_collection"
    call: CallId | None = None
    seed: int | None = None
    priority: int = 0
    top_logprobs: int | None = None
    droppable: tuple[str, ...] = ()
    labels: dict[str, list[str]] = {}
    shared: int = 0
    goes_on: bool = False
    fresh: bool = False
    raised: bool = False


class Usage(msgspec.Struct, frozen=True):
    """Tokens as the provider counted them; ``cost_usd`` is None where no price is known.

    ``input_tokens`` are all of the prompt: of these, ``cached_tokens`` were read from the provider's cache
    and ``cache_write_tokens`` written to it. ``output_tokens`` are all that was made, ``reasoning_tokens``
    among them. What a provider does not tell is left out of a record. ``uncounted``: a count that belongs to
    an answer is missing or impossible, so the others do not say what the answer cost. ``stored``: how many
    requests were answered from the store, at no cost, with the tokens of when they were paid.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    cached_tokens: int | msgspec.UnsetType = msgspec.UNSET
    cache_write_tokens: int | msgspec.UnsetType = msgspec.UNSET
    reasoning_tokens: int | msgspec.UnsetType = msgspec.UNSET
    uncounted: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    stored: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        both_priced = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            (self.cost_usd or 0.0) + (other.cost_usd or 0.0) if both_priced else None,
            _add_known(self.cached_tokens, other.cached_tokens),
            _add_known(self.cache_write_tokens, other.cache_write_tokens),
            _add_known(self.reasoning_tokens, other.reasoning_tokens),
            self.uncounted or other.uncounted,
            _add_known(self.stored, other.stored),
        )


def _add_known(first: int | msgspec.UnsetType, second: int | msgspec.UnsetType) -> int | msgspec.UnsetType:
    if first is msgspec.UNSET:
        return second
    return first if second is msgspec.UNSET else first + second


class TokenLogprob(msgspec.Struct, frozen=True):
    """Natural-log probability of a token and of its likeliest alternatives."""

    token: str
    logprob: float
    top: dict[str, float] = {}


class Completion(msgspec.Struct, frozen=True):
    """A model's answer. ``text`` is the answer without its reasoning; ``finish_reason`` is one of ``stop``,
    ``length``, ``window``, ``content_filter``, ``tool_calls`` or what the provider said; ``latency_s`` is the
    time of the attempt that answered; ``attempts`` counts the transport's attempts; ``dropped`` names the
    sampling parameters that the host refused and was asked without; ``served_by`` is the model that the reply
    names, ``served_as`` as in `Kept`; ``notes`` say what of it could not be read.
    """

    text: str
    usage: Usage = Usage()
    finish_reason: str = "stop"
    latency_s: float = 0.0
    attempts: int = 1
    reasoning: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    truncated: bool = False
    refusal: str | None = None
    dropped: tuple[str, ...] = ()
    served_by: str = ""
    notes: tuple[str, ...] = ()
    served_as: ServedAs = ""
    reply_id: str = ""


class Failure(msgspec.Struct, frozen=True):
    """Why a record holds no value: ``kind`` is the error's class, ``message`` its words."""

    kind: str
    message: str


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored record: its id, and how it was made. ``dropped`` and ``notes`` are those of its `Completion`;
    ``served_by`` is the model that the reply names, if another, and ``served_as`` how the host calls it;
    ``reply_id`` is kept of samples. The attempt after ``unanswered`` ones keeps their seed.
    """

    id: str
    recipe: str = ""
    input_hash: str = ""
    usage: Usage | None = None
    latency_s: float | None = None
    attempts: int = 0
    finish_reason: str = ""
    reasoning: str | None = None
    truncated: bool = False
    dropped: tuple[str, ...] = ()
    served_by: str = ""
    notes: tuple[str, ...] = ()
    served_as: ServedAs = ""
    reply_id: str = ""
    repaired: bool = False
    status: Literal["ok", "failed"] = "ok"
    error: Failure | None = None
    unanswered: int = 0

    @property
    def value(self) -> object:
        """Return the record's value, None if it has none; see `is_good`."""
        raise NotImplementedError


class Datapoint(Kept, frozen=True, kw_only=True, omit_defaults=True):
    """Phase 3: one benchmark item, ``id`` = ``{task}__{teacher}__{n:05d}``.

    Of an item made from documents, ``source`` is the passage (``file#offset``), ``evidence`` what its teacher
    quotes of it, ``filtered`` how many replies were discarded before it, by reason; ``prompt`` begins with
    ``shown_passage`` characters of the passage.
    """

    task_id: str
    teacher_model_id: str
    sampled_target_attributes: dict[str, str]
    prompt: str | None = None
    reference_response: str | None = None
    generated_at: str = ""
    sampled_nuanced_attributes: dict[str, str] | None = None
    benchmark_native_score: float | None = None
    # Named so in files, since lines written by hand may hold a ``source`` or ``evidence`` of any kind.
    source: str = msgspec.field(default="", name="passage_source")
    evidence: tuple[str, ...] = msgspec.field(default=(), name="passage_quotes")
    shown_passage: int = msgspec.field(default=0, name="passage_shown")
    filtered: dict[str, int] = msgspec.field(default_factory=dict, name="passage_filtered")

    @property
    def value(self) -> str | None:
        return self.prompt


class Response(Kept, frozen=True, kw_only=True, omit_defaults=True):
    """Phase 4: a student's answer, ``id`` = ``{datapoint}__{student}``; of its further answers to an item,
    ``sample`` 1 and on, ``{datapoint}__{student}#2`` and on."""

    datapoint_id: str
    task_id: str
    teacher_model_id: str
    student_model_id: str
    sample: int = 0
    input: str | None = None
    response: str | None = None
    generated_at: str = ""

    @property
    def value(self) -> str | None:
        return self.response


class LabelScore(msgspec.Struct, frozen=True):
    """Comparison of an answer with one label; both values are spelt as declared. ``predicted`` is None where
    the answer is none of the labels: it states no value, or several."""

    expected: str
    predicted: str | None
    match: bool


class Evaluation(Kept, frozen=True, kw_only=True, omit_defaults=True):
    """Phase 5: a judge's scores of a response, ``id`` = ``{response}__{judge}``.

    ``scores`` are those of factors on the default scale, ``values`` (0 to 1) those of factors on any other
    one and of checks; ``reasons`` says why, by factor. ``missing`` names the factors that were asked for and
    did not come; ``criteria`` holds, per factor, the hash of the criterion text it was scored by; ``raw`` is
    what the judge said.
    """

    response_id: str
    datapoint_id: str
    task_id: str
    teacher_model_id: str
    student_model_id: str
    judge_model_id: str
    scores: dict[str, Level]
    sample: int = 0
    evaluated_at: str = ""
    label_scores: dict[str, LabelScore] | None = None
    missing: tuple[str, ...] = ()
    criteria: dict[str, str] | None = None
    values: dict[str, float] | None = None
    reasons: dict[str, str] | None = None
    raw: str | None = None

    @property
    def value(self) -> dict[str, LabelScore] | dict[str, Level] | dict[str, float] | None:
        if self.label_scores is not None:
            return self.label_scores
        return self.scores or keep_valid_values(self.values) or None


Winner: TypeAlias = Literal["first", "second", "tie"]
WINNERS: tuple[Winner, ...] = ("first", "second", "tie")


class Preference(Kept, frozen=True, kw_only=True, omit_defaults=True):
    """Phase 5 of a pairwise task: which of two answers to an item a judge prefers, ``id`` =
    ``{datapoint}__{first}:{second}__{judge}``. The answer of ``first_model_id`` was shown first."""

    datapoint_id: str
    task_id: str
    teacher_model_id: str
    first_model_id: str
    second_model_id: str
    judge_model_id: str
    winner: Winner | None = None
    reason: str | None = None
    evaluated_at: str = ""
    raw: str | None = None

    @property
    def value(self) -> Winner | None:
        return self.winner


Record: TypeAlias = Datapoint | Response | Evaluation


# --- Record ids
#
# An item is ``task__teacher__n``, a response ``item__student``, an evaluation ``response__judge``. Names hold
# no ``__`` (V-04); the part that an ingested item keeps of its own id may.

SEPARATOR = "__"
VARIANT = "@"
"""What parts a student's name where a model is asked in several ways: ``model@variant``."""


def variant_name(model: str, variant: str) -> str:
    """Return the name of the student that a variant of a model's prompt is."""
    return f"{model}{VARIANT}{variant}"


def model_of(student: str) -> str:
    """Return the model that is asked for a student of a run: of a variant, the one that it belongs to."""
    return student.partition(VARIANT)[0]


def item_prefix(task: str, teacher: str) -> str:
    return f"{task}__{teacher}__"


def task_prefix(task: str) -> str:
    return f"{task}__"


def item_id(task: str, teacher: str, n: int) -> str:
    """Return an item's id; ``n`` counts from 1."""
    return f"{task}__{teacher}__{n:05d}"


def item_number(item: str) -> int | None:
    """Parse the n of an item's id; None for an ingested item that keeps its own id."""
    number = item.rpartition(SEPARATOR)[2]
    return int(number) if number.isdecimal() else None


def proposal_id(task: str, teacher: str, kind: str) -> str:
    return f"{task}__{teacher}__{kind}"


SAMPLE = "#"
"""What parts a student's name from the number of its answer to an item, from 2."""


def answer_name(student: str, sample: int) -> str:
    """Return how the id of a student's answer ends; ``sample`` counts from 0."""
    return f"{student}{SAMPLE}{sample + 1}" if sample else student


def student_of(answer: str) -> str:
    return answer.partition(SAMPLE)[0]


def response_id(item: str, student: str, sample: int = 0) -> str:
    return f"{item}__{answer_name(student, sample)}"


def evaluation_id(response: str, judge: str = EXACT_MATCH) -> str:
    """Return the id of a judge's evaluation, or of a label comparison."""
    return f"{response}__{judge}"


PAIR = ":"
"""What parts the two students of a comparison in its id; no name holds it."""


def pair_name(first: str, second: str) -> str:
    """Return how a comparison's id names its students; the answer of ``first`` is shown first."""
    return f"{first}{PAIR}{second}"


def preference_id(item: str, first: str, second: str, judge: str) -> str:
    return f"{item}__{pair_name(first, second)}__{judge}"


def judgment_id(item: str, what: str) -> str:
    """Return the id of a benchmark's judgment: ``what`` is judged of an answer."""
    return f"{item}__{what}"


def split_id(key: str) -> list[str]:
    """Split an id into its names, in order; an ingested item's own id may be several of them."""
    return key.split(SEPARATOR)


def parent_id(key: str) -> str:
    """Return the id of the item or response that a record was made from."""
    return key.rpartition(SEPARATOR)[0]


def strip_names(key: str, name_count: int) -> str:
    """Return the item's part of an id that ends in so many names."""
    return key.rsplit(SEPARATOR, name_count)[0]


def student_or_judge_of(key: str) -> str:
    return student_of(key.rpartition(SEPARATOR)[2])


# --- Good records, and which line of an id counts
#
# Resumption, repair, results and benchmarks ask here. A record is good when its status is ``ok`` and it holds
# the value that it was made for: an item its prompt, an answer its text (an empty one is a text), an
# evaluation the labels that were compared, or a valid level or value for at least one factor. What is not
# good counts as failed, whatever it says of itself: it is owed, and never a score.
#
# The SQL beside the Python says the same of the columns of a line; random records hold the two to agree.

_LEVEL_BY_WORD: dict[str, Level] = {word: level for level in LEVELS for word in (level, level.lower())}
_BLANKS = " \t\n\r"

KeptT = TypeVar("KeptT", bound=Kept)


class Valued(Protocol):
    """A record, or its light reading, that has a value."""

    @property
    def status(self) -> str: ...
    @property
    def value(self) -> object: ...


def is_good(record: Valued) -> bool:
    return record.status == "ok" and record.value is not None


def parse_level(word: object) -> Level | None:
    """Parse a level, in any case and with blanks around it; None for other words."""
    if not isinstance(word, str):
        return None
    return _LEVEL_BY_WORD.get(word) or _LEVEL_BY_WORD.get(word.strip(_BLANKS).lower())


def keep_valid_levels(scores: Mapping[str, object]) -> dict[str, Level]:
    """Keep the scores that are levels, by factor; others count as missing."""
    return {factor: level for factor, word in scores.items() if (level := parse_level(word)) is not None}


def keep_valid_values(values: Mapping[str, object] | None) -> dict[str, float]:
    """Keep the values that are numbers from 0 to 1, by factor; others count as missing."""
    return {
        factor: float(value)
        for factor, value in (values or {}).items()
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    }


def choose_counted(records: Iterable[KeptT]) -> dict[str, KeptT]:
    """Choose the line that counts for each id, by first appearance: a good one before others, else the last.

    A good one that was asked for again in vain counts the askings of the failed one too, so that the
    next asking goes on from there.
    """
    chosen: dict[str, KeptT] = {}
    for record in records:
        earlier = chosen.get(record.id)
        if earlier is not None and is_good(earlier) and not is_good(record):
            attempts, unanswered = max((line.attempts, line.unanswered) for line in (earlier, record))
            record = msgspec.structs.replace(earlier, attempts=attempts, unanswered=unanswered)
        chosen[record.id] = record
    return chosen


def level_sql(word: str, then: Mapping[Level, str]) -> str:
    """Make the SQL form of `parse_level`, with a value per level, NULL otherwise; usual spellings first."""
    spelled = " ".join(f"WHEN '{level}' THEN {value}" for level, value in then.items())
    blanks = " || ".join(f"chr({ord(blank)})" for blank in _BLANKS)
    otherwise = " ".join(f"WHEN '{level.lower()}' THEN {value}" for level, value in then.items())
    # Lower case in ASCII alone: DuckDB makes other letters into these.
    lower = f"translate(trim({word}, {blanks}), '{ascii_uppercase}', '{ascii_lowercase}')"
    return f"CASE {word} {spelled} ELSE CASE {lower} {otherwise} END END"


PROMPT_SQL = "prompt IS NOT NULL"
RESPONSE_SQL = "response IS NOT NULL"
_ARE_VALUES = '[value BETWEEN 0 AND 1 FOR value IN map_values("values")]'
SCORES_SQL = (
    "(label_scores IS NOT NULL OR coalesce(list_count(levels) > 0, false) "
    f"OR coalesce(list_contains({_ARE_VALUES}, true), false))"
)
VALUE_SQL = "value IS NOT NULL"
"""SQL condition: the line holds the value of an item, answer, evaluation or benchmark judgment."""


def is_good_sql(holds_value: str) -> str:
    """Make the SQL form of `is_good` for a line with a column ``status``; never NULL."""
    return f"coalesce(coalesce(status, 'ok') = 'ok' AND {holds_value}, false)"


def counting_rowids_sql(table: str) -> str:
    """Make the SQL that selects the rowids that `choose_counted` would choose; ``table`` has the
    columns ``key`` and ``failed``, in line order."""
    chosen = "coalesce(max(rowid) FILTER (NOT failed), max(rowid))"
    return f"SELECT {chosen} FROM {table} GROUP BY key"  # noqa: S608 - names of ours
