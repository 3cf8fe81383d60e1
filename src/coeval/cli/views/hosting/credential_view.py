"""Which credentials were found, and where: never what they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console

from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.models.catalog import HOSTS
from coeval.models.keys import Keys
from coeval.models.open import obstacle_to

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
            missing = _missing(ModelSpec(name=name, interface=at, model=at, account=name), keys)
            found.append(FoundCredential(at, name, None, missing is None, place, missing))
    for spec in specs:
        if spec.access_key is not None:
            own, missing = {"api_key": "`access_key` of the model"}, _missing(spec, keys)
            found.append(FoundCredential(spec.interface, None, spec.name, missing is None, own, missing))
    return found


def _of_interface(keys: Keys, name: str) -> FoundCredential:
    missing = _missing(ModelSpec(name=name, interface=name, model=name), keys)
    return FoundCredential(name, None, None, missing is None, keys.sources(name), missing)


def _missing(spec: ModelSpec, keys: Keys) -> str | None:
    """What a model lacks to be asked, without its name: the table has it."""
    if HOSTS[spec.interface].local and spec.base_url is None:
        return None  # whether weights can be loaded here is another question
    missing = obstacle_to(spec, keys)
    if missing is not None:
        missing = re.sub(rf'^interface "?{re.escape(spec.interface)}"?( \(model [^)]*\))?:? ', "", missing)
    return missing


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
    if told and found.missing is not None:
        return "; ".join([*told, found.missing])
    host = HOSTS[found.interface]
    variables = " or ".join(host.key_env) or ", ".join(names[0] for names in host.settings.values() if names)
    return f"nothing; set {variables}" if variables else "nothing"
