"""What a model is: one coroutine; and what bounds its answers.

`Model.complete(Request) -> Completion` is the only way to ask. Everything below it (host,
dialect, retries, limits, quota, batch) is the model's own affair.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from itertools import chain
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec

from coeval.core.records import Completion, ParametersByName, Request, SamplingParameters, Usage
from coeval.core.shown_url import HIDDEN, mask_url

# A mebibyte of UTF-8, about 250,000 tokens: above any model's output, small enough to store and show.
MAX_ANSWER_BYTES = 1 << 20
DEFAULT_TIMEOUT_S = 600.0
WINDOW = "window"
"""The finish reason of an answer that ended below its limit, by the window (or a limit) of its server."""

Price: TypeAlias = Callable[[Usage], float | None]
"""Price an answer by its usage: US dollars, or None where unknown."""


def judge_name(name: str) -> str:
    """Name a judge apart from a tested model of the same name at another address."""
    return f"{name} (judge)"


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A model as an experiment names it.

    ``model`` is the provider's identifier. Where that is a free name, as of a deployment, ``base_model`` says
    which model it is. ``account`` names the entry of a key file that it is asked with,
    in place of its interface's. Limits are per endpoint (base URL and key): models that share one use the
    largest ``max_concurrency`` and the largest ``start_concurrency``, which is how many requests go out
    before the limit adapts to the host. ``options`` are our own parameters that no provider sees and that
    only the interface knows (``skill`` of a simulated model). Answers are cut to ``max_answer_bytes`` of
    UTF-8. With ``prompt_caching`` a host that has to be told what to keep in its cache is told, where
    requests begin alike. ``wait_s`` is how long an endpoint that takes no connection is waited for.
    """

    name: str
    interface: str
    model: str
    base_model: str | None = None
    base_url: str | None = None
    access_key: str | None = None
    account: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    wait_s: float | None = None
    max_concurrency: int | None = None
    start_concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    max_answer_bytes: int = MAX_ANSWER_BYTES
    structured_output: bool = True
    prompt_caching: bool = True
    extra_body: dict[str, Any] = {}
    options: dict[str, Any] = {}

    @property
    def open_names(self) -> tuple[str, ...]:
        """Return the model's names that are public, whatever its key is."""
        return (self.name, self.model, *([self.base_model] if self.base_model else ()))

    @property
    def lookup_name(self) -> str:
        """Return the model's name for looking up prices and parameters."""
        return self.base_model or self.model

    def __repr__(self) -> str:
        settings = msgspec.structs.asdict(self)
        if self.access_key is not None:
            settings["access_key"] = HIDDEN
        if self.base_url is not None:
            settings["base_url"] = mask_url(self.base_url)
        return f"ModelSpec({', '.join(f'{name}={value!r}' for name, value in settings.items())})"


class Model(ABC):
    """A model that answers. Opened and closed by `coeval.models.open.Models`."""

    name: str
    interface: str
    answer_limit: str = "max_tokens"
    """The parameter that an answer is cut at."""

    async def check_connection(self) -> None:
        """Check quickly whether the host accepts connections, without a request; a local model always does.
        Raises ModelError: the host refuses, does not reply, or cannot be resolved."""
        return

    async def is_listed(self) -> bool:
        """Check whether the host's model list names the model. False proves nothing. Raises Gap: the run is
        being interrupted."""
        return False

    async def context_window(self) -> int | None:
        """Return the most tokens of a prompt and its answer, where the host says it. Raises Gap: the run is
        being interrupted."""
        return None

    @abstractmethod
    async def complete(self, request: Request) -> Completion:
        """Answer one request.

        Raises ModelError: the request failed; transport errors have been retried already; Gap: no request was
        sent: quota reached, model given up, run being interrupted.
        """

    def forget(self, request: Request) -> None:  # noqa: B027  most models keep nothing
        """Take back the answer to ``request`` from where answers are kept: it cannot be used."""


def is_private_address(url: str) -> bool:
    """Check by address or undotted name, without DNS, whether a URL is on this machine or a private net."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False  # what is wrong with it is said when it is asked
    try:
        address = ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".local", ".localhost", ".internal", ".lan"))
    return address.is_loopback or address.is_private or address.is_link_local


# --- How many tokens an answer may have at most, and a prompt; and that a text has at least one

# How hosts call the limit on an answer, reasoning included.
_LIMITS = frozenset(
    {
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "maxOutputTokens",
        "maxTokens",
        "max_new_tokens",
        "num_predict",
    }
)
# How hosts call the number of answers to one prompt, which are all paid for.
_ANSWERS = frozenset({"n", "best_of", "candidateCount", "candidate_count", "num_generations"})
# Fields of a body in which such may stand.
_GROUPS = frozenset({"generationConfig", "generation_config", "inferenceConfig", "options"})


# Hosts count a few tokens of an answer otherwise than they limit it: those of its end, or of its template.
_BELOW_LIMIT = 0.95
# Characters of a token, in the mean of any text; of one that has more, not all tokens were counted.
_MOST_CHARACTERS = 8
# Limits that hosts take for none: llama.cpp and its like the first, Ollama's ``num_predict`` both.
NO_LIMIT = (-1, -2)


def max_tokens_of_all_answers(sampling: SamplingParameters, spec: ModelSpec) -> int | None:
    """Return the most tokens that all answers to a request may have; None if nothing bounds them.

    Parameters laid over the body count by every name that hosts have for the limit, and the largest
    counts. A limit below 1 bounds nothing: -1 means no limit to many hosts.
    """
    limits, answers = _find_limits_and_counts(sampling, spec)
    if not limits or not all(type(number) is int for number in answers):
        return None
    return int(max(limits) * max(answers))


def lowest_answer_limit(sampling: SamplingParameters, spec: ModelSpec) -> int | None:
    """Return the lowest limit on one answer; None if nothing bounds it. Parameters laid over the body replace
    ours, and a host heeds only one of two names."""
    limits, _ = _find_limits_and_counts(sampling, spec)
    return min(limits, default=None)


def _find_limits_and_counts(sampling: SamplingParameters, spec: ModelSpec) -> tuple[list[int], list[Any]]:
    """Return a request's limits on an answer (none if one bounds nothing), and its answer counts."""
    limits: list[Any] = [] if sampling.max_tokens is None else [sampling.max_tokens]
    answers: list[Any] = [1]
    for path, value in chain(_iterate_parameters(sampling.rest), _iterate_parameters(spec.extra_body)):
        if path[-1] in _LIMITS:
            limits.append(value)
        elif path[-1] in _ANSWERS:
            answers.append(value)
    bounds = all(type(limit) is int and limit > 0 for limit in limits)
    return limits if bounds else [], answers


# A limit on answers by its names in refusals; and the most that a host takes. The tokens of the prompt, which
# such a sentence often counts too, follow none of these words.
_NAMES_LIMIT = re.compile(
    r"max\w*[_ ]?tokens|maximum (?:number of )?(?:output )?tokens|(?:output|completion|new) tokens"
    r"|(?:in|for) the completion",
    re.IGNORECASE,
)
_MOST_TAKEN = re.compile(
    r"(?:max_model_len|context|length|window|size|limit|maximum|at most|equal to|less than|lower than"
    r"|more than|exceeds?|<|≤|>|up to|range\D{1,40}\b1\b\D{1,20}?(?=\d))"
    r"(?: value| is| of| to|\W){0,4}(\d{1,3}(?:,\d{3})+|\d+)",
    re.IGNORECASE,
)


def refuses_limit(message: str, answer_limit: int | None) -> bool:
    """Check whether a refusal is of the limit on answers itself, so that every request with it
    fails: it names a lower one. A prompt that leaves too little room for its answer is one item's affair."""
    if answer_limit is None or not _NAMES_LIMIT.search(message):
        return False
    most = [int(number.replace(",", "")) for number in _MOST_TAKEN.findall(message)]
    return any(1 < number < answer_limit for number in most)


def find_answer_limits(parameters: ParametersByName) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Find the limits on an answer in a model's parameters and their ``extra_body``, each with its keys."""
    extra = parameters.get("extra_body")
    below = _iterate_parameters(extra) if isinstance(extra, dict) else ()
    fields = chain(_iterate_parameters(parameters), ((("extra_body", *path), value) for path, value in below))
    return ((path, value) for path, value in fields if path[-1] in _LIMITS)


def _iterate_parameters(body: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in body.items():
        yield (name,), value
        if name in _GROUPS and isinstance(value, dict):
            for field, inner in value.items():
                yield (name, field), inner


def mark_if_uncounted(completion: Completion) -> Completion:
    """Mark a completion as ``uncounted`` if it holds text but its host reports no output tokens."""
    usage = completion.usage
    if usage.output_tokens or usage.uncounted or not (completion.text or completion.reasoning):
        return completion
    return msgspec.structs.replace(completion, usage=msgspec.structs.replace(usage, uncounted=True))


def mark_if_cut_by_window(completion: Completion, answer_limit: int | None) -> Completion:
    """Mark a completion that its server cut off below ``limit``: prompt and answer fill the window, and the
    host says only "length". A token count too small for the text proves nothing."""
    tokens = completion.usage.output_tokens
    cut = completion.finish_reason == "length" and completion.truncated and not completion.usage.uncounted
    if answer_limit is None or not cut or not 0 < tokens < _BELOW_LIMIT * answer_limit:
        return completion
    if len(completion.text) + len(completion.reasoning or "") > _MOST_CHARACTERS * tokens:
        return completion
    return msgspec.structs.replace(completion, finish_reason=WINDOW)


def count_prompt_bytes(request: Request) -> int:
    """Count the bytes of a request's texts, its schema included."""
    texts = [message.content for message in request.messages]
    if request.schema is not None:
        texts.append(f"{request.schema.body}")
    return sum(len(text.encode(errors="surrogatepass")) for text in texts)
