"""Which credentials were found, and where: never what they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console

from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.models.catalog import HOSTS
from coeval.models.keys import Keys
from coeval.models.open import can_be_asked

__all__ = ["FoundCredential", "credentials", "print_credentials"]


class FoundCredential(msgspec.Struct, frozen=True):
    """Whether an interface (with an ``account`` of its own, or for one ``model``) can be asked, by what was
    ``found``: field → where it stands. ``missing`` says what there is to do where it cannot."""

    interface: str
    account: str | None
    model: str | None
    usable: bool
    found: dict[str, str]
    missing: str | None


def credentials(keys: Keys, specs: Iterable[ModelSpec], interface: str | None) -> list[FoundCredential]:
    """Those of all interfaces, or of one; then those of accounts, and of models that bring their own."""
    if interface is not None and interface not in HOSTS:
        raise UsageError(f"--interface: there is no {interface}; there are {', '.join(sorted(HOSTS))}")
    specs = list(specs)
    used = {spec.interface for spec in specs}
    wanted = [interface] if interface is not None else [name for name in HOSTS if not used or name in used]
    found = [_of_interface(keys, name) for name in wanted if HOSTS[name].dialect != "benchmark"]
    for name, (at, path) in sorted(keys.accounts().items()):
        if at in wanted:
            place = {"account": f"`providers.{name}` in {path}"}
            found.append(FoundCredential(at, name, None, usable=True, found=place, missing=None))
    found += [
        FoundCredential(
            spec.interface, None, spec.name, usable=True,
            found={"api_key": "`access_key` of the model"}, missing=None,
        )
        for spec in specs
        if spec.access_key is not None
    ]  # fmt: skip
    return found


def _of_interface(keys: Keys, name: str) -> FoundCredential:
    host, found = HOSTS[name], keys.sources(name)
    usable = host.local or can_be_asked(name, keys)  # whether weights can be loaded here is another question
    missing = None if usable or not host.needs_key else keys.places(name)
    return FoundCredential(name, None, None, usable, found, missing)


def print_credentials(found: Sequence[FoundCredential], console: Console) -> None:
    """A row for each."""
    columns = (Column("usable", words=True), Column("found", words=True, free=True))
    rows = [NameRow(_named(each), ("yes" if each.usable else "no", _where(each))) for each in found]
    print_table(console, "", "interface", columns, rows)


def _named(found: FoundCredential) -> str:
    if found.account is not None:
        return f"{found.interface} (account {found.account})"
    return found.interface if found.model is None else f"{found.interface} (model {found.model})"


def _where(found: FoundCredential) -> str:
    """Fields with their places; where something is lacking, what to set."""
    told = [f"{field}: {place}" for field, place in found.found.items()]
    if found.usable:
        return "; ".join(told) or "none needed"
    host = HOSTS[found.interface]
    variables = " or ".join(host.key_env) or ", ".join(names[0] for names in host.settings.values())
    return "; ".join([*(told or ["nothing"]), f"set {variables}"] if variables else told or ["nothing"])
