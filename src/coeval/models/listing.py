"""The models that a host says it serves."""

from __future__ import annotations

from coeval.core.errors import ModelError, Unreadable
from coeval.core.secrets.redaction import Redactor
from coeval.models.connections.reply_parser import HttpReply
from coeval.models.dialects.dialect import Dialect, ListedModel, ModelList, ModelPage
from coeval.models.transport.call import Call
from coeval.models.transport.endpoint import Endpoint
from coeval.models.transport.http import Http

__all__ = ["list_models"]

MOST_PAGES = 100
"""Of a list; the longest that are known have some ten."""
_TIMEOUT_S = 30.0


async def list_models(http: Http, endpoint: Endpoint, dialect: Dialect) -> list[ListedModel] | None:
    """All that the host lists, in its order, each id once; None where the dialect has no list.

    No tokens are spent, and nothing is counted: these requests ask no model.

    Raises
    ------
    ModelError
        the list cannot be had.
    Gap
        the run is being interrupted.
    """
    listing = dialect.model_list
    if listing is None:
        return None
    call = _call(endpoint, dialect, listing)
    found: dict[str, ListedModel] = {}
    page: str | None = None
    for _ in range(MOST_PAGES):
        models, page = (await http.get(endpoint, listing.path(page), call)).value
        for model in models:
            found.setdefault(model.id, model)
        if page is None:
            return list(found.values())
    raise Unreadable(f"its list of models goes on after {MOST_PAGES} pages")


def _call(endpoint: Endpoint, dialect: Dialect, listing: ModelList) -> Call[ModelPage]:
    def decode(body: bytes, redactor: Redactor) -> ModelPage:
        page = listing.decode(body)
        models = tuple(model._replace(id=redactor.answer(model.id)) for model in page.models)
        return page._replace(models=models)

    def explain(reply: HttpReply, redactor: Redactor) -> ModelError | None:
        return dialect.explain(reply, endpoint.url, redactor)

    return Call(decode=decode, explain=explain, timeout_s=_TIMEOUT_S, rank=0, permit=_uncounted)


def _uncounted() -> None:
    """A list is no request for an answer: no ceiling on a model's requests concerns it."""
