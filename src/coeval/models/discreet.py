"""An answer without the credentials that its host was sent: what every dialect hands on."""

from __future__ import annotations

import msgspec

from coeval.core.records import Completion, TokenLogprob
from coeval.core.secrets.redaction import Redactor
from coeval.core.secrets.secret_forms import PART

__all__ = ["without_secrets"]


def without_secrets(completion: Completion, redactor: Redactor) -> Completion:
    """The same answer, its every text as `Redactor.answer` leaves it."""
    if not redactor.knows_any:
        return completion
    text, finish = redactor.answer(completion.text), redactor.answer(completion.finish_reason)
    reasoning, refusal = completion.reasoning, completion.refusal
    reasoning = redactor.answer(reasoning) if reasoning is not None else None
    refusal = redactor.answer(refusal) if refusal is not None else None
    if (text, finish, reasoning, refusal) != (
        completion.text,
        completion.finish_reason,
        completion.reasoning,
        completion.refusal,
    ):
        completion = msgspec.structs.replace(
            completion, text=text, finish_reason=finish, reasoning=reasoning, refusal=refusal
        )
    if completion.logprobs and _may_hold(completion.logprobs):
        logprobs = tuple(_token(token, redactor) for token in completion.logprobs)
        completion = msgspec.structs.replace(completion, logprobs=logprobs)
    return completion


def _may_hold(logprobs: tuple[TokenLogprob, ...]) -> bool:
    """Whether a token is long enough to be a part of a secret; few are."""
    return any(len(said) >= PART for token in logprobs for said in (token.token, *token.top))


def _token(token: TokenLogprob, redactor: Redactor) -> TokenLogprob:
    top = {redactor.answer(said): logprob for said, logprob in token.top.items()}
    return TokenLogprob(redactor.answer(token.token), token.logprob, top)
