"""The pricing file, and the host that `interface: auto` stands for: the cheapest one with a credential.

`Config/provider_pricing.yaml` of the working directory goes before the packaged file, section by
section: a file that only overrides prices keeps the packaged routes.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from ruamel.yaml.error import YAMLError

from coeval.core.errors import Misshapen, UsageError
from coeval.core.foreign import convert
from coeval.core.plain_file import file_bytes
from coeval.core.yaml_text import yaml_reader

__all__ = ["PricingFile", "Route", "read_pricing", "resolve_auto"]

LOCAL_FILE = Path("Config") / "provider_pricing.yaml"
PACKAGED_FILE = Path(__file__).with_name("provider_pricing.yaml")


class Route(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host that serves a model, and what the host calls it."""

    interface: str
    model: str


class PricingFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``auto_routing``: model id → routes, cheapest first. ``batch_multipliers``: interface → share
    of the live price. ``overrides``: model id → its own prices."""

    auto_routing: dict[str, tuple[Route, ...]] = {}
    batch_multipliers: dict[str, float] = {}
    overrides: dict[str, dict[str, Any]] = {}


def read_pricing(folder: Path = Path()) -> PricingFile:
    """The pricing file for a working directory.

    Raises
    ------
    UsageError
        the directory's file cannot be used; the message says where and why.
    """
    local = folder / LOCAL_FILE
    sections = _sections(PACKAGED_FILE)
    if not local.exists():
        return _converted(sections, PACKAGED_FILE)
    return _converted(sections | _sections(local), local)


def _sections(path: Path) -> dict[str, Any]:
    try:
        data = yaml_reader().load(file_bytes(path).decode("utf-8-sig"))
    except (YAMLError, ValueError, RecursionError, OSError) as error:
        raise UsageError(
            f"{path} cannot be read: {' '.join(str(error).split())}; correct or remove it"
        ) from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UsageError(f"{path} is not a mapping; it holds auto_routing, batch_multipliers and overrides")
    return {key: value for key, value in data.items() if value is not None}


def _converted(sections: dict[str, Any], path: Path) -> PricingFile:
    try:
        return convert(sections, PricingFile)
    except Misshapen as error:
        raise UsageError(
            f"{path} is not as it should be: {error}; see {PACKAGED_FILE.name} of the package"
        ) from error


def resolve_auto(
    model_id: str,
    has_credential: Callable[[str], bool],
    table: PricingFile,
    key_variables: Mapping[str, str] | None = None,
) -> Route:
    """The cheapest route to a model among the hosts that there is a credential for.

    ``key_variables`` names, by interface, what to set to get one; it is used in messages only.

    Raises
    ------
    UsageError
        no route is known, or no host of it has a credential.
    """
    routes = _routes(model_id, table.auto_routing)
    for route in routes:
        if has_credential(route.interface):
            return route
    named = key_variables or {}
    hosts = [
        f"{interface} ({named[interface]})" if interface in named else interface
        for interface in dict.fromkeys(route.interface for route in routes)
    ]
    raise UsageError(
        f"no credential for any host of '{model_id}'; set a key of one of: {', '.join(hosts)}, "
        "in keys.yaml or in the environment"
    )


def _routes(model_id: str, known: Mapping[str, tuple[Route, ...]]) -> tuple[Route, ...]:
    by_lower = {name.lower(): routes for name, routes in known.items()}
    wanted = model_id.lower()
    for name in (wanted, wanted.rpartition("/")[2]):
        if routes := by_lower.get(name):
            return routes
    near = difflib.get_close_matches(wanted.rpartition("/")[2], by_lower, n=1)
    hint = f"did you mean '{near[0]}'? Else name" if near else "name"
    raise UsageError(
        f"no host is known for '{model_id}'; {hint} its interface, "
        f"or add the model to auto_routing in {LOCAL_FILE.as_posix()}"
    )
