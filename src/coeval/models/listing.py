"""The models that a host says it serves."""

from __future__ import annotations

import asyncio

from coeval.core.errors import ModelError, Undecodable, Unreadable
from coeval.core.redaction import Redactor
from coeval.models.dialects.dialect import Dialect, ListedModel, ModelList, ModelPage
from coeval.models.transport.call import Call
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.endpoint import Endpoint
from coeval.models.transport.faults import excerpt
from coeval.models.transport.http import Http

# Of a list; the longest that are known have some ten.
MOST_PAGES = 100
# Lists may be a megabyte; nothing is generated for them, so seconds suffice.
_TIMEOUT_S = 30.0
# How long whoever could ask the model itself waits for a list.
_PATIENCE_S = 10.0


class HostModels:
    """The models of one endpoint: asked for once, however many want to know whether theirs is there."""

    def __init__(self, http: Http, endpoint: Endpoint, dialect: Dialect) -> None:
        self._http = http
        self._endpoint = endpoint
        self._dialect = dialect
        self._asking = asyncio.Lock()
        self._models: dict[str, ListedModel] | None = None

    async def find(self, model: str) -> ListedModel | None:
        """Return what the list says of a model. None proves nothing: many go by names that are in no list,
        and the list may not be had.

        Raises Gap: the run is being interrupted.
        """
        async with self._asking:
            if self._models is None:
                self._models = await self._listed()
            return self._models.get(model)

    async def _listed(self) -> dict[str, ListedModel]:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                models = await list_models(self._http, self._endpoint, self._dialect)
        except (ModelError, TimeoutError):
            return {}
        return {model.id: model for model in models or ()}


async def list_models(http: Http, endpoint: Endpoint, dialect: Dialect) -> list[ListedModel] | None:
    """All that the host lists, in its order, each id once; None where the dialect has no list.

    No tokens are spent, and nothing is counted: these requests ask no model.

    Raises ModelError: the list cannot be had; Gap: the run is being interrupted.
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
    def decode(reply: HttpReply, redactor: Redactor) -> ModelPage:
        try:
            page = listing.decode(reply.body)
        except Undecodable as error:
            # Some servers answer whatever is asked: asking again takes half a second and brings the same.
            said = excerpt(reply.body, redactor) or "nothing"
            message = f"it answers with what is no list of models ({error}): {said}"
            raise Unreadable(message, retry_advised=False) from error
        models = tuple(model._replace(id=redactor.answer(model.id)) for model in page.models)
        return page._replace(models=models)

    def explain(reply: HttpReply, redactor: Redactor) -> ModelError | None:
        return dialect.explain(reply, endpoint.url, redactor)

    return Call(decode=decode, explain=explain, timeout_s=_TIMEOUT_S, rank=0, permit=_uncounted)


def _uncounted() -> None:
    """A list is no request for an answer: no ceiling on a model's requests concerns it."""
