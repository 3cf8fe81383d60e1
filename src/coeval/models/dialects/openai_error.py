"""What an error of a chat completions endpoint says beyond its status.

Hosts of OpenAI's shape agree on little here: Mistral and DeepInfra send FastAPI's lists of places, Hugging
Face and Ollama a bare text, OpenRouter the words of whoever it asked, Azure the verdicts of its filter.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from coeval.core import foreign
from coeval.core.errors import ContentFiltered, ModelError, NotFound, Undecodable
from coeval.core.redaction import Redactor
from coeval.models.dialects.refusals import refusal_of
from coeval.models.transport.faults import excerpt, from_status, said

_NO_DEPLOYMENT = "DeploymentNotFound"
# An HTTP status, as a number or in quotes.
_STATUS = re.compile(r"[45]\d\d")
_VERSION = re.compile(r"[^/]/v\d")


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
    """Return the error of a 200 that holds one: by its own code where that is an HTTP status, else by its
    words."""
    code = f"{_problem(body).code}"
    status = int(code) if _STATUS.fullmatch(code) else None
    return explain(status or 400, body, redactor) or from_status(
        status or 502, body, "the host, behind a 200,", redactor
    )


def explain(status: int, body: bytes, redactor: Redactor, *, passes: bool = False) -> ModelError | None:
    """What an error body says beyond its status; None where the status says it all.

    ``passes``: the host says when to try again. Beside the table of all dialects, Azure's verdicts and its
    word for a deployment that is not there are read.
    """
    problem = _problem(body)
    message = said(body, redactor)
    param = redactor.message(problem.param) if isinstance(problem.param, str) else ""
    codes = [code for code in (problem.code, problem.type) if isinstance(code, str)]
    codes += problem.metadata if isinstance(problem.metadata, dict) else ()
    if status == 404 and _NO_DEPLOYMENT in codes:
        return NotFound(f"{message} (`model` is the name of the deployment)", status=status)
    error = refusal_of(status, message, codes=" ".join(codes), param=param, passes=passes)
    if isinstance(error, ContentFiltered) and (verdicts := excerpt(_verdicts(problem.innererror), redactor)):
        return ContentFiltered(f"{message} ({verdicts})", status=status)
    return error


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


def _verdicts(inner: Any) -> str:
    """What Azure's filter found, as ``hate: high``."""
    found = inner.get("content_filter_result") if isinstance(inner, dict) else None
    verdicts = [
        f"{kind}: {verdict.get('severity', 'detected')}"
        for kind, verdict in (found.items() if isinstance(found, dict) else ())
        if isinstance(verdict, dict) and verdict.get("filtered") is True
    ]
    return ", ".join(verdicts)
