"""Types of values that plain types cannot express: pairs, attributes, scales, parameters.

Errors raised here carry their rule number as their type, so that ``structure`` can print it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    PlainValidator,
    Tag,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError
from typing_extensions import TypedDict

from coeval.core.model import DEFAULT_TIMEOUT_S
from coeval.core.scale import RubricScale, parse_scale
from coeval.core.text import join_names
from coeval.pipeline.config.findings import to_yaml_line

MAPPING, WORD, LIST = "<mapping>", "<word>", "<list>"
"""Tags of the branches of a union. They appear in pydantic's error paths, never in ours."""

NAME_PATTERN = r"^(?!_)(?!.*__)(?!\.{1,2}$)[A-Za-z0-9._-]+(?<!_)$"
"""V-04, as an editor checks it."""
MODEL_NAME_PATTERN = r"^(?!_)(?!.*__)(?!(?:.*/)?\.{1,2}(?:/|$))[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*(?<!_)$"
"""The same of models, whose names may hold slashes."""


_AttributesOrWord = Discriminator(lambda value: MAPPING if isinstance(value, dict) else WORD)
_NumberOrAll = Discriminator(lambda value: WORD if value == "all" else LIST)
_PairOrWord = Discriminator(lambda value: WORD if isinstance(value, str) else LIST)


def _rule_error(rule: str, message: str) -> PydanticCustomError:
    """Make the error of a broken rule; pydantic takes what stands in braces of a template only."""
    return PydanticCustomError(rule, "{message}", {"message": message})


def _require_text(text: str) -> str:
    if not text.strip():
        raise _rule_error("V-20", "is empty; fill it in")
    return text


FilledText: TypeAlias = Annotated[
    str, Field(json_schema_extra={"pattern": r"\S"}), AfterValidator(_require_text)
]


def _stringify_value(value: Any) -> Any:
    """Return numbers and booleans as text: YAML reads ``[2, 2.5, true]``, but attribute values are words."""
    return to_yaml_line(value) if isinstance(value, bool | int | float) else value


def _require_distinct(values: list[str]) -> list[str]:
    if not values:
        raise _rule_error("V-25", "has no values; list at least one")
    repeated = sorted(value for value, times in Counter(values).items() if times > 1)
    if repeated:
        raise _rule_error("V-25", f"lists {join_names(repeated)} more than once; keep one of each")
    return values


AttributeValues: TypeAlias = Annotated[
    list[
        Annotated[
            str, BeforeValidator(_stringify_value), WithJsonSchema({"type": ["string", "number", "boolean"]})
        ]
    ],
    Field(json_schema_extra={"minItems": 1, "uniqueItems": True}),
    AfterValidator(_require_distinct),
]
Attributes: TypeAlias = dict[str, AttributeValues]
"""Attribute name → its values, in the order of the file; no value twice, no empty list."""

AutoOrComplete: TypeAlias = Literal["auto", "complete"]
TargetAttributes: TypeAlias = Annotated[
    Annotated[Attributes, Tag(MAPPING)] | Annotated[AutoOrComplete, Tag(WORD)], _AttributesOrWord
]
NuancedAttributes: TypeAlias = Annotated[
    Annotated[Attributes, Tag(MAPPING)] | Annotated[Literal["auto"], Tag(WORD)], _AttributesOrWord
]


def _parse_scale_value(value: Any) -> RubricScale:
    if isinstance(value, int | float) or not isinstance(value, str | list | dict):
        message = f'should be levels, such as [pass, fail] or "1-5"; found {to_yaml_line(value)}'
        raise _rule_error("V-20", message)
    try:
        return parse_scale(value)
    except ValueError as error:
        raise _rule_error("V-36", str(error)) from None


ScaleLevels: TypeAlias = Annotated[
    RubricScale,
    PlainValidator(_parse_scale_value),
    PlainSerializer(RubricScale.to_config),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^\s*-?\d+\s*(-|–|\.\.|to)\s*-?\d+\s*$"},
                {"type": "array", "items": {"type": ["string", "number", "boolean"]}, "minItems": 2},
                {"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 2},
            ]
        }
    ),
]
"""Levels as people write them; see `parse_scale`."""


class RubricFactor(BaseModel):
    """A factor that judges score, with its own scale."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    criterion: FilledText = Field(description="What the best level means.")
    scale: ScaleLevels | None = Field(default=None, description="Its levels. Default: those of the task.")


CHECK, FACTOR = "<check>", "<factor>"


def _find_factor_tag(value: Any) -> str:
    if isinstance(value, RubricFactor):
        return FACTOR
    if not isinstance(value, dict):
        return WORD
    return CHECK if "check" in value else FACTOR


CheckOptions: TypeAlias = dict[str, Any]
"""A check as a rubric has it: its kind under ``check``, and its options by name."""

Factor: TypeAlias = Annotated[
    Annotated[FilledText, Tag(WORD)]
    | Annotated[RubricFactor, Tag(FACTOR)]
    | Annotated[CheckOptions, Tag(CHECK)],
    Discriminator(_find_factor_tag),
]
Rubric: TypeAlias = Annotated[
    Annotated[dict[str, Factor], Tag(MAPPING)] | Annotated[Literal["auto", "extend"], Tag(WORD)],
    _AttributesOrWord,
]
Weights: TypeAlias = dict[str, Annotated[float, Field(gt=0)]]


def _parse_one_or_two_integers(value: Any) -> Any:
    """Parse ``[lo, hi]``; ``[1]`` means ``[1, 1]``. Anything else is one error."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= 2:
        raise _rule_error("V-20", "should be two whole numbers [lo, hi]; write for example [1, 2]")
    if any(isinstance(number, bool) or not isinstance(number, int) for number in value):
        message = f"should hold whole numbers only, found {to_yaml_line(value)}; write for example [1, 2]"
        raise _rule_error("V-20", message)
    return (value[0], value[-1])


def _require_ascending(pair: tuple[int, int]) -> tuple[int, int]:
    lo, hi = pair
    if lo < 0:
        raise _rule_error("V-21", f"starts at {lo}, but a count cannot be negative; use 0 or more")
    if lo > hi:
        raise _rule_error("V-21", f"is [{lo}, {hi}], upside down; write [{hi}, {lo}]")
    return pair


Pair: TypeAlias = Annotated[
    tuple[int, int],
    BeforeValidator(_parse_one_or_two_integers),
    AfterValidator(_require_ascending),
    WithJsonSchema(
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "maxItems": 2}
    ),
]
PairOrAll: TypeAlias = Annotated[
    Annotated[Pair, Tag(LIST)] | Annotated[Literal["all"], Tag(WORD)], _PairOrWord
]


# Ten million take minutes to plan, before anything is asked.
MOST_ITEMS = 10_000_000


def _require_plannable_total(total: int) -> int:
    if total > MOST_ITEMS:
        why = "items are planned one by one; counting more takes minutes"
        raise _rule_error("V-21", f"is {total}; use at most {MOST_ITEMS:,}: {why}")
    return total


Total: TypeAlias = Annotated[
    int, Field(ge=1, json_schema_extra={"maximum": MOST_ITEMS}), AfterValidator(_require_plannable_total)
]
TotalOrAll: TypeAlias = Annotated[
    Annotated[Total, Tag(LIST)] | Annotated[Literal["all"], Tag(WORD)], _NumberOrAll
]


def columns_by_name(value: Any) -> Any:
    """Turn a list of columns into a mapping from each name to itself."""
    is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return {name: name for name in value} if is_list else value


AttributeColumns: TypeAlias = Annotated[
    dict[str, str],
    BeforeValidator(columns_by_name),
    WithJsonSchema({"type": ["object", "array"], "additionalProperties": {"type": "string"}}),
]


def _parse_conditions(value: Any) -> Any:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Conditions: TypeAlias = Annotated[
    tuple[str, ...],
    BeforeValidator(_parse_conditions),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


_NOT_IN_PATHS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_printable_path(text: str) -> bool:
    """Check that a path has no control character and no lone surrogate."""
    return not _NOT_IN_PATHS.search(text)


def _require_printable_path(text: str) -> str:
    if not is_printable_path(text):
        raise _rule_error("V-20", f"is {text!a}, with a control character; write the path without it")
    return text


PathText: TypeAlias = Annotated[str, Field(min_length=1), AfterValidator(_require_printable_path)]


def _require_text_or_texts(value: Any) -> Any:
    texts = value if isinstance(value, list) else [value]
    if value is not None and not all(isinstance(text, str) for text in texts):
        raise _rule_error("V-20", f"is {to_yaml_line(value)}, not text or a list of texts; put it in quotes")
    return value


_passed_on = Field(description="Passed on to the provider.")
_Truth: TypeAlias = Annotated[bool | None, _passed_on]
_Number: TypeAlias = Annotated[float | None, _passed_on]
_Whole: TypeAlias = Annotated[int | None, _passed_on]
_Text: TypeAlias = Annotated[str | None, _passed_on]
_Stops: TypeAlias = Annotated[
    Any,
    _passed_on,
    BeforeValidator(_require_text_or_texts),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


class UsualParameters(TypedDict, total=False):
    """Parameters that providers take by these names in one sense: types are checked, null is not sent."""

    do_sample: _Truth
    frequency_penalty: _Number
    length_penalty: _Number
    max_completion_tokens: _Whole
    max_new_tokens: _Whole
    max_output_tokens: _Whole
    max_tokens: _Whole
    min_p: _Number
    min_tokens: _Whole
    n: _Whole
    num_ctx: _Whole
    num_predict: _Whole
    presence_penalty: _Number
    reasoning_effort: _Text
    repeat_penalty: _Number
    repetition_penalty: _Number
    seed: _Whole
    service_tier: _Text
    stop: _Stops
    stop_sequences: _Stops
    temperature: _Number
    top_a: _Number
    top_k: _Whole
    top_logprobs: _Whole
    top_p: _Number
    typical_p: _Number
    user: _Text


def _require_address(text: str) -> str:
    try:
        readable = urlsplit(text).port != 0
    except ValueError:
        readable = False
    if not readable:
        raise _rule_error("V-20", "is not an address; write https://host/v1 or http://…")
    return text


class Parameters(UsualParameters, total=False):
    """A model's parameters: our own are checked, every other one is passed to the provider unchanged."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)  # type: ignore[misc]

    model: Annotated[
        str, Field(min_length=1, description="The provider's identifier of the model. Default: its name.")
    ]
    base_model: Annotated[
        str,
        Field(
            min_length=1,
            description="The actual model, if `model` is a free name, such as an Azure deployment; sets its "
            "price and accepted parameters.",
        ),
    ]
    base_url: Annotated[
        str,
        Field(
            pattern=r"^https?://[^\s/]+",
            description="Address of any OpenAI-shaped host, up to and including /v1.",
        ),
        AfterValidator(_require_address),
    ]
    system_prompt: Annotated[str, Field(description="System message of every request.")]
    timeout_s: Annotated[
        float,
        Field(gt=0, description=f"Seconds that a request may take. Default: {DEFAULT_TIMEOUT_S:g}."),
    ]
    max_concurrency: Annotated[
        int, Field(ge=1, description="Maximum requests in flight at this endpoint. Default: 256.")
    ]
    requests_per_minute: Annotated[float, Field(gt=0, description="Maximum requests per minute.")]
    tokens_per_minute: Annotated[float, Field(gt=0, description="Maximum tokens, in and out, per minute.")]
    max_answer_bytes: Annotated[
        int,
        Field(
            ge=1,
            le=1 << 24,
            description="Longer answers are cut at this number of bytes and marked truncated. Default: "
            "1048576.",
        ),
    ]
    extra_body: Annotated[dict[str, Any], Field(description="Merged into the body of every request.")]
    structured_output: Annotated[
        bool, Field(description="Whether to ask for JSON by schema where the provider can. Default: true.")
    ]
    prompt_caching: Annotated[
        bool,
        Field(
            description="Whether `anthropic` may cache shared prefixes of prompts, which lowers the price. "
            "Default: true."
        ),
    ]
    device: Annotated[
        str,
        Field(
            description="Local models: where to run, `auto` (a GPU, which must exist), `cuda:0` or "
            "`cpu`. Default: auto."
        ),
    ]
    load_in_4bit: Annotated[
        bool, Field(description="Local models: whether to keep the weights in 4 bits (bitsandbytes).")
    ]
    max_model_len: Annotated[
        int, Field(ge=1, description="Local models: maximum tokens of a prompt plus its answer.")
    ]
    dtype: Annotated[
        Literal["auto", "float32", "float16", "bfloat16"],
        Field(description="Local models: precision of the weights. Default: auto, as in their file."),
    ]
    gpu_memory_utilization: Annotated[
        float, Field(gt=0, le=1, description="Local models on vLLM: fraction of GPU memory to use.")
    ]

    callable: Annotated[
        str,
        Field(
            min_length=1,
            description="Interface `python`: the function to call, as FILE.py:FUNCTION (relative to the "
            "working directory) or MODULE:FUNCTION.",
        ),
    ]
    argv: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(min_length=1, description="Interface `command`: the program to run and its arguments."),
    ]
    protocol: Annotated[
        Literal["stdin", "jsonl"],
        Field(
            description="Interface `command`: one process per prompt, which it reads from standard input "
            "(`stdin`), or lasting processes that read one JSON object per line (`jsonl`). Default: stdin."
        ),
    ]
    env: Annotated[
        list[str],
        Field(
            description="Interface `command`: environment variables with credentials that the program may "
            "see; it sees all other variables anyway."
        ),
    ]


class _ShapedAs:
    """Validates a plain dict against a TypedDict, and keeps keys that it does not know."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self.shape)


ParameterMap: TypeAlias = Annotated[dict[str, Any], _ShapedAs(Parameters)]

OUR_KEYS = frozenset(Parameters.__annotations__) - frozenset(UsualParameters.__annotations__)
ENDPOINT_KEYS = OUR_KEYS - {"system_prompt"}
"""Our keys that say who is asked and where: one set per model, whatever its role."""
