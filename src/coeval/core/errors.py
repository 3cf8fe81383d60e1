"""CoEval's errors, one class tree. Code tests the class, never the message.

    CoevalError                     everything we raise on purpose
    ├── UsageError                  the request was wrong: exit 1, one message, no traceback
    │   ├── ConfigError             carries every problem of a configuration at once
    │   ├── KeyMissing              all that is wrong is that a credential is not there yet
    │   └── WindowExceeded          answers of the requested length do not fit into a model's window
    ├── ModelUnavailable            a probed model does not answer: exit 2
    ├── ServerDown                  a server that we started does not come up, or is gone
    │   └── SwapDoubted                 it may not hold the weights that it was told to load
    ├── StoreError                  the disk refused (full, read-only, locked, damaged)
    ├── Undecodable                 JSON from outside that is none, or none that can be held
    │   └── Misshapen                   JSON of another shape than expected
    ├── Gap                         no answer was sought: the item stays owed, nothing is recorded
    │   ├── QuotaExhausted          a ceiling on calls or money was reached
    │   ├── ModelStopped            the model was given up (credentials, unknown model)
    │   ├── Draining                the run is being interrupted
    │   └── BatchLost               a batch job ended without carrying it out
    ├── CheckFailed                 a check of an answer came to no score
    ├── Pending                     it waits for a batch job: nothing is recorded yet, and nothing is missing
    └── AskError                    asking a model came to nothing
        ├── ModelError              a request failed
        │   ├── ConnectionFailed *      refused, reset, cut off
        │   ├── RequestTimeout *        no answer within timeout_s, or within a gateway's (408, 504)
        │   ├── RateLimited *           429
        │   ├── ServerFault *           409, 425, 499, 5xx
        │   │   └── Unreadable *            what came is no answer, or none that we can read
        │   ├── BadRequest              400, 413, 422
        │   ├── AccessDenied            401, 403
        │   │   └── AccountSpent            402, or words that say so: no money is left
        │   ├── NotFound                404
        │   └── ContentFiltered         the provider refused the content
        └── ReplyError *            an answer came, without what was asked
            ├── Refused *           the model declined
            ├── EmptyReply *        nothing in it
            ├── Filtered *          items that say what their documents do not, or what others ask
            └── Unparsable *        not in the form asked for
                ├── CutOff *            because it ended at max_tokens
                └── CutByWindow *       because it filled its server's window

(* retryable.) Foreign exceptions are mapped to this tree in one place each:
``models.transport.faults`` for aiohttp and the operating system's sockets, ``store.jsonl`` for files,
``core.foreign`` for what decoding raises.
"""

from __future__ import annotations

from typing import ClassVar

from coeval.core.records import Usage


def describe_error(error: BaseException) -> str:
    """Format a foreign error: its class and its message, if it has one that can be read."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  the text of another package's error is code of its own
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


class CoevalError(Exception):
    """Base of all our errors. ``kind`` is its name in records and logs; a class without one, or that does not
    say whether it is ``retryable``, is as its base."""

    kind: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls, kind: str | None = None, retryable: bool | None = None) -> None:
        super().__init_subclass__()
        cls.kind = cls.kind if kind is None else kind
        cls.retryable = cls.retryable if retryable is None else retryable


class UsageError(CoevalError, kind="usage"): ...


class RecordsChanged(UsageError):
    """A run holds records of another configuration; ``changes`` says which, without the ways on."""

    def __init__(self, changes: str, ways_on: str) -> None:
        super().__init__(f"{changes}\n{ways_on}")
        self.changes = changes


class KeyMissing(UsageError):
    """A credential is missing; everything that needs no request still works."""


class WindowExceeded(UsageError):
    """A server's window is smaller than the answers that are requested of it."""


class ConfigError(UsageError, kind="config"):
    """All problems of a configuration, one rendered line each; ``more`` counts those left out.

    >>> try:
    ...     coeval.load_config({"models": []})
    ... except coeval.ConfigError as error:
    ...     print(error.problems[0])
    config  tasks  V-01  the required key 'tasks' is missing; ...
    """

    def __init__(self, problems: list[str], more: int = 0) -> None:
        rest = [f"… and {more:,} more; fix these first"] if more else []
        super().__init__("\n".join([*problems, *rest]))
        self.problems = problems
        self.more = more


class ModelUnavailable(CoevalError, kind="unavailable"): ...


class ServerDown(CoevalError, kind="server_down"):
    """A server that we started failed; ``again``: another start may succeed."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.again = again


class SwapDoubted(ServerDown, kind="swap_doubted"):
    """A running server may hold other weights than it was told to load: a cold start is sure to."""


class StoreError(CoevalError, kind="store"): ...


class Undecodable(CoevalError, kind="undecodable"):
    """Foreign JSON that cannot be read. The caller, who knows its origin, raises an error that names it."""


class Misshapen(Undecodable, kind="misshapen"): ...


class Gap(CoevalError, kind="gap"): ...


class QuotaExhausted(Gap, kind="quota"):
    """A ceiling on calls or money was reached. ``facts`` hold in any context, ``way_out`` in a run's."""

    def __init__(self, facts: str, way_out: str = "") -> None:
        super().__init__(f"{facts} {way_out}".rstrip())
        self.facts = facts


class ModelStopped(Gap, kind="stopped"): ...


class Draining(Gap, kind="interrupted"): ...


class BatchLost(Gap, kind="batch"): ...


class CheckFailed(CoevalError, kind="check"):
    """A check gave no score: its function raised, its limit was reached, the item lacks what it needs."""


class Pending(CoevalError, kind="pending"):
    """The request is part of a batch job; ask again when results have arrived."""


class AskError(CoevalError):
    """A model gave no usable answer; carries the number of attempts."""

    def __init__(self, message: str, *, attempts: int = 1, raw: str | None = None) -> None:
        super().__init__(message)
        self.attempts = attempts
        self.raw = raw


class ModelError(AskError, kind="model"):
    """A request that failed.

    ``status`` is the HTTP status where there was one; ``retry_after_s`` what the provider asked
    us to wait; ``retry_advised`` is False when the provider, or an outage, says that asking
    again is pointless now, whatever the class says; ``usage`` what an answer took that failed.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        retry_advised: bool = True,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.retry_advised = retry_advised
        self.usage = usage


class ConnectionFailed(ModelError, kind="connection", retryable=True): ...


class RequestTimeout(ModelError, kind="timeout", retryable=True): ...


class RateLimited(ModelError, kind="rate_limited", retryable=True): ...


class ServerFault(ModelError, kind="server", retryable=True): ...


class Unreadable(ServerFault, kind="unreadable"):
    """The reply cannot be read. It may be billed and rarely passes, so it is retried once."""


class BadRequest(ModelError, kind="bad_request"): ...


class AccessDenied(ModelError, kind="access_denied"): ...


class AccountSpent(AccessDenied, kind="account_spent"):
    """Money, credit or a budget of the account is used up: nothing more is answered until somebody pays."""


class NotFound(ModelError, kind="not_found"): ...


class ContentFiltered(ModelError, kind="content_filter"): ...


class ReplyError(AskError, kind="reply", retryable=True): ...


class Refused(ReplyError, kind="refused"): ...


class EmptyReply(ReplyError, kind="empty"): ...


class Filtered(ReplyError, kind="filtered"): ...


class Unparsable(ReplyError, kind="unparsable"): ...


class CutOff(Unparsable, kind="cut_off"):
    """The answer ended at max_tokens; a higher limit helps, a retry seldom."""


class CutByWindow(Unparsable, kind="window"):
    """The answer filled its server's window; a larger one helps, or a shorter prompt."""


MODEL_FAILURE_KINDS = frozenset(
    error_class.kind
    for error_class in (ReplyError, Refused, EmptyReply, Filtered, Unparsable, CutOff, ContentFiltered)
)
"""Failures that say something of the model; all others are of the settings or the connection."""


# --- The exit codes that have a name

# A probed model does not answer: nothing was begun, and a scheduler may try again.
UNAVAILABLE = 2
# Finished with gaps: the summary says how many, and the command that fills them.
GAPS = 3
# A comparison failed its threshold: what a build looks at.
WORSE = 4
# As shells count: 128 and the number of SIGINT.
INTERRUPTED = 130
