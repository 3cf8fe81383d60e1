"""What a model is: one coroutine.

`Model.complete(Request) -> Completion` is the only way to ask. Everything below it (host,
dialect, retries, limits, quota, batch) is the model's own affair.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec

from coeval.core.records import Completion, Request, Usage
from coeval.core.shown_url import HIDDEN, shown_url

# A mebibyte of UTF-8, about 250,000 tokens: above any model's output, small enough to store and show.
MAX_ANSWER_BYTES = 1 << 20
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
    timeout_s: float = 600.0
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
        """The model's public names, whatever its key is."""
        return (self.name, self.model, *([self.base_model] if self.base_model else ()))

    @property
    def known_as(self) -> str:
        """The model's name for looking up prices and parameters."""
        return self.base_model or self.model

    def __repr__(self) -> str:
        """Show the model without secrets."""
        shown = msgspec.structs.asdict(self)
        if self.access_key is not None:
            shown["access_key"] = HIDDEN
        if self.base_url is not None:
            shown["base_url"] = shown_url(self.base_url)
        return f"ModelSpec({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class Model(ABC):
    """A model that answers. Opened and closed by `coeval.models.open.Models`."""

    name: str
    interface: str
    answer_limit: str = "max_tokens"
    """The parameter that an answer is cut at."""

    async def reach(self) -> None:
        """Check quickly whether the host accepts connections, without a request; a local model always does.

        Raises ModelError: the host refuses, does not reply, or cannot be resolved.
        """
        return

    async def is_listed(self) -> bool:
        """Check whether the host's model list names the model. False proves nothing.

        Raises Gap: the run is being interrupted.
        """
        return False

    async def context_window(self) -> int | None:
        """Return the most tokens of a prompt and its answer, where the host says it.

        Raises Gap: the run is being interrupted.
        """
        return None

    @abstractmethod
    async def complete(self, request: Request) -> Completion:
        """Answer one request.

        Raises ModelError: the request failed; transport errors have been retried already; Gap: no request was
        sent: quota reached, model given up, run being interrupted.
        """

    def forget(self, request: Request) -> None:  # noqa: B027  most models keep nothing
        """Take back the answer to ``request`` from where answers are kept: it cannot be used."""


def is_own_address(url: str) -> bool:
    """Check whether a URL's host is this machine or a private network: by its address, or a name without a
    domain. No name is resolved."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False  # what is wrong with it is said when it is asked
    try:
        address = ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".local", ".localhost", ".internal", ".lan"))
    return address.is_loopback or address.is_private or address.is_link_local
