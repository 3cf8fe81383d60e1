"""What an error of a chat completions endpoint says beyond its status.

Hosts of OpenAI's shape agree on little here: Mistral and DeepInfra send FastAPI's lists of places, Hugging
Face and Ollama a bare text, OpenRouter the words of whoever it asked, Azure the verdicts of its filter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from coeval.core import foreign
from coeval.core.errors import (
    ContentFiltered,
    ModelError,
    NotFound,
    RateLimited,
    Undecodable,
    Unreadable,
)
from coeval.core.redaction import Redactor
from coeval.models.dialects.dialect import FieldRejected, LimitRenamed, SchemaRejected
from coeval.models.dialects.openai_words import OUR_NAMES
from coeval.models.transport.faults import excerpt, from_status, said

# Proxies wrap a provider's error in their own, two or three deep; JSON could nest for ever.
_DEEPEST = 8

_FILTERED = frozenset({"content_filter", "content_policy_violation", "moderation_blocked"})
# DeepSeek's filter, which has no code.
_RISKY = "content exists risk"
_SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
# Groq's 400 for an answer that was made and is not the JSON that was asked for.
_NO_JSON = "json_validate_failed"
_NO_DEPLOYMENT = "DeploymentNotFound"
_NO_MODEL = frozenset({"model_not_found", "unknown_model", "invalid_model", "model_not_supported"})
# For a model that is not there Azure AI, DeepSeek, Hugging Face and Mistral have a 400.
_ABOUT_NO_MODEL = re.compile(r"model not exist|\b(?:unknown|invalid) model\b")
_VERSION = re.compile(r"[^/]/v\d")
_FORMAT_WORDS = ("response_format", "json_schema", "structured output")

_NOT_TAKEN = re.compile(
    r"unexpected|unrecogni[sz]ed|unknown|unsupported|extra_forbidden|extra inputs"
    r"|not (?:permitted|allowed|supported)|does(?: not|n't) support"
)
_ABOUT_SYSTEM = re.compile(
    r"system (?:role|message|prompt|instruction)|'messages\[0\]\.role'|role:? .?system"
)
_THINGS = r"(?:argument|parameter|field|property|key)s?(?: in the request| supplied)?"
_QUOTED = re.compile(_THINGS + r":? ?[{\['\"`]+([a-z]\w*)")
_PLAIN = re.compile(_THINGS + r": ([a-z]\w*)|\b([a-z]\w*): extra inputs")
_WORD = re.compile(r"[a-z]\w*")
_NO_PARAMETERS = frozenset({"messages", "model", "input", "prompt", "body"})


class _Problem(msgspec.Struct):
    """The parts of an error that decide what it is; some hosts leave out the `error` around it."""

    message: Any = None
    detail: Any = None
    error: Any = None
    code: Any = None
    type: Any = None
    param: Any = None
    metadata: Any = None
    innererror: Any = None


def inner_error(body: bytes, redactor: Redactor) -> ModelError:
    """The error of a 200 that holds one: by its own code where that is an HTTP status."""
    problem = _problem(body)
    code = problem.code if isinstance(problem.code, int) and 400 <= problem.code < 600 else 502
    return explain(code, body, redactor) or from_status(code, body, "the host, behind a 200,", redactor)


def explain(status: int, body: bytes, redactor: Redactor) -> ModelError | None:
    """What an error body says beyond its status; None where the status says it all.

    Recognised are content filters, spent accounts (waiting does not help them), a model or deployment that
    is not there, an answer that is not the JSON asked for, a schema that is not taken, and a parameter that
    is not, which the message names.
    """
    problem = _problem(body)
    words = "; ".join(filter(None, _words(problem.message, problem.detail, problem.error, problem.metadata)))
    message = excerpt(words or body, redactor)
    param = redactor.message(problem.param) if isinstance(problem.param, str) else ""
    codes = {code for code in (problem.code, problem.type) if isinstance(code, str)}
    metadata = problem.metadata if isinstance(problem.metadata, dict) else {}
    if codes & _FILTERED or "flagged_input" in metadata or _RISKY in message.lower():
        verdicts = excerpt(_verdicts(problem.innererror), redactor)
        return ContentFiltered(f"{message} ({verdicts})" if verdicts else message, status=status)
    if status == 429 and codes & _SPENT:
        return RateLimited(message, status=status, retry_advised=False)
    if status == 404 and _NO_DEPLOYMENT in codes:
        return NotFound(f"{message} (`model` is the name of the deployment)", status=status)
    if status in (400, 422):
        if _NO_JSON in codes:
            return Unreadable(message, status=status)
        if codes & _NO_MODEL or _ABOUT_NO_MODEL.search(message.lower()):
            return NotFound(message, status=status)
        return _rejection(status, param.lower(), message)
    return None


def _rejection(status: int, param: str, message: str) -> ModelError | None:
    """A request that the host does not take as it stands."""
    about = f"{param} {message.lower()}"
    if any(word in about for word in _FORMAT_WORDS):
        return SchemaRejected(message, status=status)
    if not _NOT_TAKEN.search(about):
        return None
    if "max_tokens" in about and "max_completion_tokens" in about:
        return LimitRenamed(message, status=status)
    name = _parameter(param, about)
    if name is None:
        return None
    return FieldRejected(f"{message}; leave {name} out of the model's parameters", status=status, field=name)


def _parameter(param: str, about: str) -> str | None:
    """The parameter that is not taken, by our name where it has one."""
    if _ABOUT_SYSTEM.search(about):
        return "system_prompt"
    stated = [param] if _WORD.fullmatch(param) else []
    known = [word for word in _WORD.findall(about) if word in OUR_NAMES]
    named = [*_QUOTED.findall(about), *(found[1] or found[2] for found in _PLAIN.finditer(about))]
    name = next((name for name in (*stated, *known, *named) if name not in _NO_PARAMETERS), None)
    return name and OUR_NAMES.get(name, name)


def astray(status: int, body: bytes, base_url: str, redactor: Redactor) -> NotFound | None:
    """For a 404 that may be due to a base URL without its ``/v1``: the same, naming the URL to try.

    Not where the host speaks of the model, or gives the error a name of its own: then it was reached.
    """
    words = said(body, redactor)
    if status != 404 or _VERSION.search(base_url) or "model" in words.lower():
        return None
    if isinstance(_problem(body).code, str):
        return None
    # Most servers put the API below /v1, and people copy the address that the server prints.
    hint = f"the base URL {base_url} has no /v1: try {base_url}/v1"
    return NotFound(f"{words}; {hint}" if words else hint, status=status)


def _problem(body: bytes) -> _Problem:
    try:
        trouble = foreign.decode(body, _Problem)
        return foreign.convert(trouble.error, _Problem) if isinstance(trouble.error, dict) else trouble
    except Undecodable:
        return _Problem()


def _words(*parts: Any, depth: int = 0) -> Iterator[str]:
    """What an error says in words: texts, FastAPI's ``{loc, msg}``, what a provider behind the host said."""
    for part in parts if depth < _DEEPEST else ():
        match part:
            case str():
                yield part
            case list():
                yield from _words(*part, depth=depth + 1)
            case {"msg": str(text), **rest}:
                place = rest.get("loc")
                names = [str(name) for name in place if name != "body"] if isinstance(place, list) else []
                yield f"{'.'.join(names)}: {text}" if names else text
            case {"raw": str(text)}:
                yield from _words(_behind(text), depth=depth + 1)
            case dict():
                yield from _words(part.get("message"), part.get("detail"), part.get("error"), depth=depth + 1)
            case _:
                pass


def _behind(raw: str) -> Any:
    """The words of a provider that OpenRouter asked, which are JSON more often than not."""
    try:
        return foreign.decode(raw)
    except Undecodable:
        return raw


def _verdicts(inner: Any) -> str:
    """What Azure's filter found, as ``hate: high``."""
    found = inner.get("content_filter_result") if isinstance(inner, dict) else None
    verdicts = [
        f"{kind}: {verdict.get('severity', 'detected')}"
        for kind, verdict in (found.items() if isinstance(found, dict) else ())
        if isinstance(verdict, dict) and verdict.get("filtered") is True
    ]
    return ", ".join(verdicts)
