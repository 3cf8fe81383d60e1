"""What is the same in every request to one place: the connection it needs and how it begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from multidict import CIMultiDict
from yarl import URL

__all__ = ["UNPACKED", "Origin", "RequestRoute"]

UNPACKED = {"Accept-Encoding": "identity"}
"""Answers of models are short, and unpacking them costs more than it saves."""


class Origin(NamedTuple):
    """Whom a connection is with."""

    host: str
    port: int
    tls: bool


@dataclass(frozen=True, slots=True, eq=False)
class RequestRoute:
    """One method at one URL, as one endpoint asks it; made once, used for every request.

    ``head`` is the beginning of the request in bytes, up to its length. ``proxy`` is how to get there
    where it is not straight.
    """

    method: str
    url: URL
    headers: Mapping[str, str]
    proxy: URL | None
    origin: Origin
    head: bytes

    @classmethod
    def to(cls, method: str, url: URL, headers: Mapping[str, str], proxy: URL | None = None) -> RequestRoute:
        """The route to an http(s) URL that names a host. ValueError: a header holds a line break."""
        host, port = url.raw_host, url.port
        if not host or port is None:
            raise ValueError(f"{url.scheme}: no host and port to connect to")
        fields = CIMultiDict({"Host": url.host_port_subcomponent or host, "Accept": "*/*", **UNPACKED})
        fields.update(headers)
        lines = [f"{method} {url.raw_path_qs} HTTP/1.1", *(f"{n}: {value}" for n, value in fields.items())]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header holds a line break")
        head = "".join(f"{line}\r\n" for line in lines).encode()
        return cls(method, url, headers, proxy, Origin(host, port, url.scheme == "https"), head)
