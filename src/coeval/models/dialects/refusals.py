"""What the messages of errors mean, from any host: one table for all dialects.

Hosts and gateways agree on few statuses and codes, and repeat each other's messages. A dialect reads the
message, codes and parameter of an error; the first row whose words match says what the error is.
`HostedModel` decides what to learn from a refusal.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from coeval.core.errors import (
    AccessDenied,
    AccountSpent,
    ContentFiltered,
    ModelError,
    NotFound,
    Unreadable,
)
from coeval.models.dialects.dialect import FieldRejected, LimitRenamed, SchemaRejected

UNPROCESSED = (400, 422)
# Engines say so of a grammar that they cannot compile, or of a seed that a device cannot take.
_BROKEN = (500, 501)


def is_broken(status: int | None) -> bool:
    """Check for a status of a host that failed at a request, which another host of its kind may not."""
    return status in _BROKEN


class _Row(NamedTuple):
    """``statuses`` in which the words have this meaning; none: in any. ``passes``: unless the host says when
    to retry. ``vague``: unless it names another parameter."""

    kind: type[ModelError]
    words: re.Pattern[str]
    statuses: tuple[int, ...] = UNPROCESSED
    passes: bool = False
    vague: bool = False


TOO_LONG = re.compile(
    r"context[_ ](?:length|window)|maximum context|too (?:long|large)|input_tokens|too many tok"
)
_FILTER = re.compile(r"content_filter|content_?policy_?violation|moderation_blocked|flagged_input")
_FILTERED = re.compile(
    r"content (?:management|filtering|safety) poli|filtering policy|content filter|content exists risk"
    r"|filtered due to the prompt|responsibleaipolicy|data_?inspection_?failed|inappropriate content"
    r"|sensitive ?content|敏感|considered high risk|violating our usage polic|unsafe content"
)
_SPENT = re.compile(
    r"insufficient[_ ](?:quota|credits?|balance|funds)|billing[_ ](?:hard[_ ]limit|error|not_active)"
    r"|crossed budget|exceeded (?:your |the |its )?budget|budget(?:_| has been | )exceeded|over budget"
    r"|credit balance|no credits? left|out of credits|all available credits|never purchased credits"
    r"|(?:purchase|requires) more credits|(?:api|monthly|specified) usage limit|spend(?:ing)?[_ ]limit"
    r"|account is (?:overdue|in arrears)|arrearage"
)
_QUOTA = re.compile(
    r"^(?!.*\b(?:re)?try (?:again )?(?:in|after) \d)"
    r".*(?:exceeded your current quota|check your plan and billing)"
)
_NO_KEY = re.compile(
    r"no connected db|invalid proxy server token|invalid_api_key|(?:incorrect|invalid|malformed) api[_ ]key"
    r"|api[_ ]key (?:is )?(?:not valid|invalid|expired|not found)"
)
_NO_MODEL = re.compile(
    r"no healthy deployments|model not exist|\b(?:unknown|invalid)[_ ]model\b|model_not_(?:found|supported)"
    r"|model identifier is invalid|on-demand throughput|model (?:id )?(?:is )?(?:not found|end of)"
    r"|\bmodel\b.{0,80} does not exist"
)
_SCHEMA = re.compile(
    r"response[_ ]?(?:json_?|mime_?)?(?:format|schema|type)|json[_ ]?(?:mode|schema)|structured[_ ]?output"
    r"|output_?(?:config|format)|textformat|controlled generation|too many states"
    r"|guided[_ ](?:json|decoding|grammar)|grammar|outlines|llguidance|format[_ -]?enforcer"
)
_TOOLS = re.compile(r"\bschema\b|tool[_ ]?(?:use|choice|config)|\btools\b|function[_ ]call")
_GRAMMAR = re.compile(
    r"grammar|guided_|outlines|llguidance|json[_ ]?schema|response_format|structured[_ ]out"
)

_ROWS = (
    _Row(ContentFiltered, _FILTER, ()),
    _Row(ContentFiltered, _FILTERED, (*UNPROCESSED, 403)),
    _Row(AccountSpent, _SPENT, ()),
    _Row(AccountSpent, _QUOTA, (), passes=True),  # Google says the same of the requests of a minute
    _Row(AccessDenied, _NO_KEY, (*UNPROCESSED, *_BROKEN)),
    _Row(Unreadable, re.compile("json_validate_failed")),  # Groq's, for an answer that is not the JSON
    _Row(NotFound, _NO_MODEL),
    _Row(SchemaRejected, _SCHEMA),
    _Row(SchemaRejected, _TOOLS, vague=True),
    _Row(SchemaRejected, _GRAMMAR, _BROKEN),
    _Row(SchemaRejected, re.compile(r"no endpoints found.*(?:tool|format|structured|parameters)"), (404,)),
)

_NOT_TAKEN = re.compile(
    r"unexpected|unrecogni[sz]ed|unknown|unsupported|extra_forbidden|extra inputs|extraneous|malformed"
    r"|invalid|deprecated|cannot both|may only be|must be unset|too many|forbidden|disallowed|disabled"
    r"|not (?:permitted|allowed|supported|available|implemented|accepted|enabled)|does(?: not|n't) support"
    r"|no support for|cannot be (?:set|used|specified)"
)
_FIELDS = {
    "temperature": "temperature",
    "top_p": "top_?p",
    "top_k": "top_?k",
    "max_tokens": "max_?(?:output_?|completion_?|new_?)?tokens",
    "stop": "stop(?:_?sequences?)?",
    "seed": "(?:random_?)?seeds?",
    "thinking_budget": r"thinking[_ /.]*budget(?:_?tokens)?|budget_tokens|budget [0-9]+ is invalid",
    "reasoning_effort": r"(?:reasoning_?)?effort|reasoning(?:_?config)?|thinking(?:[_ ]?level)?",
    "metadata": "metadata",
    "logprobs": "(?:top_?)?logprobs",
}
_NAMED = re.compile("|".join(rf"(?P<{name}>\b(?:{words})\b)" for name, words in _FIELDS.items()))
# A field that the host puts in quotes, or names apart from its words; a schema's own names are in quotes too.
_SINGLED_OUT = re.compile(rf"^(?!.*\bschema\b).*['\"`](?:{_NAMED.pattern})['\"`]")
_ABOUT_SYSTEM = re.compile(
    r"system (?:role|message|prompt|instruction)|'messages\[0\]\.role'|role:? .?system"
)
_THINGS = r"(?:argument|parameter|field|property|key)s?(?: in the request| supplied)?"
_OTHERS = (
    re.compile(rf"{_THINGS}:? ?[{{\['\"`]+([a-z]\w*)"),
    re.compile(rf"{_THINGS}: ([a-z]\w*)|\b([a-z]\w*): extra inputs"),
)
_WORD = re.compile(r"[a-z]\w*")
_NO_PARAMETERS = frozenset({"messages", "model", "input", "prompt", "body"})


def classify_refusal(
    status: int, message: str, *, codes: str = "", param: str = "", passes: bool = False
) -> ModelError | None:
    """Classify a refusal by the host's words; None leaves it to the status. ``message`` is quoted in the
    error, ``codes`` and ``param`` are only read. ``passes``: the host says when to retry."""
    param = param.lower()
    text = f"{param} {message}".lower()
    about = f"{codes.lower()} {text}"
    singled_out = _NAMED.fullmatch(param) or _SINGLED_OUT.search(text)
    for row in _ROWS:
        fits = status in row.statuses if row.statuses else status >= 400
        fits = fits and not (passes and row.passes) and not (singled_out and row.vague)
        if fits and row.words.search(about):
            return row.kind(message, status=status)
    if status not in (*UNPROCESSED, *_BROKEN) or not _NOT_TAKEN.search(text):
        return None
    if "max_tokens" in text and "max_completion_tokens" in text:
        return LimitRenamed(message, status=status)
    name = _find_parameter(param, text)
    if name is None or (status in _BROKEN and name != "seed"):
        return None
    return FieldRejected(f"{message}; leave {name} out of the model's parameters", status=status, field=name)


def _find_parameter(param: str, about: str) -> str | None:
    """Find the refused parameter, by our name if it has one."""
    if _ABOUT_SYSTEM.search(about):
        return "system_prompt"
    names = [str(match.lastgroup) for match in _NAMED.finditer(about)]
    if param and _WORD.fullmatch(param) and param not in _NO_PARAMETERS:
        return next((str(match.lastgroup) for match in [_NAMED.fullmatch(param)] if match), param)
    if names:  # where two cannot both be set, the first one says more
        return names[-1 if "both" in about else 0]
    others = ("".join(match.groups("")) for words in _OTHERS for match in words.finditer(about))
    return next((name for name in others if name not in _NO_PARAMETERS), None)
