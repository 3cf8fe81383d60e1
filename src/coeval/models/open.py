"""`Models`: opens the models that an experiment names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Self

import msgspec
from yarl import URL

from coeval.core.errors import UsageError
from coeval.core.model import Model, ModelSpec
from coeval.models.address import EndpointKey, ModelAddress, resolve_address
from coeval.models.answer_store import AnswerStore, StoredModel
from coeval.models.batch.batches import BatchedModel, Batches
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.models.hosted import HostedModel, HostModels
from coeval.models.keys import Keys
from coeval.models.local.callables import require_callable_file
from coeval.models.local.command_guard import CommandGuard
from coeval.models.local.command_model import CommandModel, find_program
from coeval.models.local.function_model import FunctionModel
from coeval.models.local.local_model import InProcess, LocalModel, find_runtime
from coeval.models.metering.meter import Ledger
from coeval.models.pacing.admission import Admission
from coeval.models.pacing.limits import EndpointLimits, Limiter
from coeval.models.pacing.throttle import read_throttle
from coeval.models.transport.endpoint import Endpoint
from coeval.models.transport.http import Http, make_draining_error


def raise_unless_askable(specs: Iterable[ModelSpec], keys: Keys) -> None:
    """Raise the UsageError that opening these models would raise, without opening them, as far as it is
    known. A model lacks an address or a key, or its folder, a library or the device. Whether weights can be
    loaded shows only when they are."""
    read_throttle(os.environ)
    _check_all_and_resolve_hosted(_select_callable_specs(specs), keys)


def find_interface_obstacle(interface: str, keys: Keys) -> str | None:
    """Return why an interface's models cannot be called, as far as is known; None if they can."""
    return find_model_obstacle(ModelSpec(name=interface, interface=interface, model=interface), keys)


def find_model_obstacle(spec: ModelSpec, keys: Keys) -> str | None:
    """Return why a model cannot be called (no credential, no address), as far as is known; None if it can."""
    try:
        addresses = _check_all_and_resolve_hosted(_select_callable_specs([spec]), keys)
    except UsageError as error:
        return str(error)
    signers = (address.signer for address in addresses.values())
    return next((signer.missing_credential for signer in signers if signer is not None), None)


class Models(dict[str, Model]):
    """The models of a run by name, opened together: one HTTP session, one limiter per endpoint.

    An endpoint is a base URL and a credential. Models that share one share its limiter: with the largest
    ``max_concurrency`` that any of them sets (256 if none does) and the smallest rates. A simulated model
    in this process is an endpoint of its own, unlimited if it sets no limits. ``ledger`` keeps their
    accounts; ``http``, drained and closed with the models, reaches hosts, on connections that it may
    share; ``batches``, closed with them too, parks requests for batch jobs; ``store`` shares answers of
    priced models between runs. Models of the interface ``benchmark`` supply items and are not opened.

    Use as an async context manager; entering raises UsageError, with a line for every model that cannot be
    called.
    """

    def __init__(
        self,
        specs: Iterable[ModelSpec],
        keys: Keys,
        *,
        ledger: Ledger | None = None,
        http: Http | None = None,
        batches: Batches | None = None,
        store: AnswerStore | None = None,
    ) -> None:
        super().__init__()
        self._specs = _select_callable_specs(specs)
        self._keys = keys
        self._ledger = ledger
        self._in_process: list[InProcess] = []
        self._guard: CommandGuard | None = None
        self._closing = AsyncExitStack()
        self._batches = batches
        self._store = store
        self.http = http or Http()

    async def __aenter__(self) -> Self:
        """Open all models and resume their batch jobs; close what is open if one fails."""
        addresses = _check_all_and_resolve_hosted(self._specs, self._keys)
        endpoints = self.http.hosts.open_endpoints(addresses.values())
        lists = _make_proving_lists(addresses, endpoints, self.http)
        async with AsyncExitStack() as opened:
            opened.push_async_callback(self.http.aclose)
            for spec in self._specs:
                if _is_local(spec):
                    model = await self._open_local(spec, opened)
                elif HOSTS[spec.interface].dialect == OWN_CODE:
                    model = self._open_code(spec, opened)
                elif (address := addresses.get(spec.name)) is None:
                    model = self._open_simulated(spec)
                else:
                    model = self._open_hosted(address, endpoints[address.key], lists.get(address.key), opened)
                self[spec.name] = model
            if self._batches is not None:
                opened.push_async_callback(self._batches.aclose)
                await self._batches.resume_jobs()
            self._closing = opened.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    def drain(self) -> None:
        """Call nothing new: waiting requests, and later ones, raise Draining."""
        self.http.drain()
        if self._ledger is not None:
            self._ledger.budget_gate.close(make_draining_error())
        for model in self._in_process:
            model.drain()

    def _open_simulated(self, spec: ModelSpec) -> Model:
        from coeval.simulation.simulated_model import SimulatedModel

        limits = (spec.max_concurrency, spec.requests_per_minute, spec.tokens_per_minute)
        free = all(limit is None for limit in limits)
        return self._add_in_process(
            spec, SimulatedModel(spec), None if free else Limiter(EndpointLimits.combine([spec]))
        )

    def _open_hosted(
        self,
        address: ModelAddress,
        endpoint: Endpoint,
        host_models: HostModels | None,
        opened: AsyncExitStack,
    ) -> Model:
        """Open a model called over HTTP, with batch jobs and the answer store if they apply to it."""
        name, batches, ledger = address.spec.name, self._batches, self._ledger
        arguments = (address, self.http, endpoint, self._make_admission(address.spec), host_models)
        model = HostedModel(*arguments)
        if batches is not None and ledger is not None and name in batches:
            model = batched = BatchedModel(*arguments)
            opened.push_async_callback(batched.join_batches(batches, address, ledger.meter(name)).aclose)
        if self._store is None or not arguments[3].is_priced or name in self._store.without:
            return model
        return StoredModel(model, address, self._store)

    def _add_in_process(self, spec: ModelSpec, model: Model, limiter: Limiter | None = None) -> Model:
        in_process = InProcess(model, spec, self._make_admission(spec), limiter)
        self._in_process.append(in_process)
        return in_process

    def _make_admission(self, spec: ModelSpec) -> Admission:
        return Admission(spec.name, None if self._ledger is None else self._ledger.meter(spec.name))

    def _open_code(self, spec: ModelSpec, opened: AsyncExitStack) -> Model:
        """Open a function or program of the user's; it limits concurrent calls by itself."""
        model: FunctionModel | CommandModel
        if spec.interface == "python":
            model = FunctionModel(spec, self._make_admission(spec))
        else:
            if self._guard is None:
                self._guard = CommandGuard()
                opened.callback(self._guard.close)
            model = CommandModel(spec, self._make_admission(spec), self._guard)
        opened.push_async_callback(model.aclose)
        free = spec.requests_per_minute is None and spec.tokens_per_minute is None
        return self._add_in_process(spec, model, None if free else Limiter(EndpointLimits.combine([spec])))

    async def _open_local(self, spec: ModelSpec, opened: AsyncExitStack) -> Model:
        """Load a model's weights into this process; they are freed with the other models."""
        credential = self._keys.credential(spec.interface, spec.access_key, spec.account)
        key = credential.api_key if credential is not None else None
        model = LocalModel(msgspec.structs.replace(spec, access_key=key))
        opened.push_async_callback(model.aclose)
        await model.open()
        return self._add_in_process(spec, model)


def _select_callable_specs(specs: Iterable[ModelSpec]) -> list[ModelSpec]:
    return [spec for spec in specs if HOSTS[spec.interface].dialect != "benchmark"]


def _check_all_and_resolve_hosted(specs: Iterable[ModelSpec], keys: Keys) -> dict[str, ModelAddress]:
    """Resolve the address of every model called over HTTP; UsageError names all that cannot be called."""
    addresses: dict[str, ModelAddress] = {}
    problems: list[str] = []
    for spec in specs:
        host = HOSTS[spec.interface]
        try:
            if _is_local(spec):
                find_runtime(spec)
            elif host.dialect == OWN_CODE:
                _raise_unless_code_exists(spec)
            elif host.dialect != "simulated" or spec.base_url is not None:
                addresses[spec.name] = resolve_address(spec, host, keys)
        except UsageError as error:
            problems.append(f"{error}")
    if problems:
        raise UsageError("\n".join(dict.fromkeys(problems)))  # of a host once, not for each of its models
    return addresses


def _is_local(spec: ModelSpec) -> bool:
    return HOSTS[spec.interface].dialect == "local" and spec.base_url is None


def _raise_unless_code_exists(spec: ModelSpec) -> None:
    needed = "callable" if spec.interface == "python" else "argv"
    if needed not in spec.options:
        raise UsageError(f"interface {spec.interface} (model {spec.name}) needs parameters.{needed}")
    if spec.interface == "python":
        require_callable_file(str(spec.options["callable"]))
    else:
        find_program(spec)


def _make_proving_lists(
    addresses: Mapping[str, ModelAddress], endpoints: Mapping[EndpointKey, Endpoint], http: Http
) -> dict[EndpointKey, HostModels]:
    return {
        address.key: HostModels(http, endpoints[address.key], address.dialect)
        for address in addresses.values()
        if _has_proving_list(address)
    }


def _has_proving_list(address: ModelAddress) -> bool:
    """Check by the rows of interface and base URL whether a host lists what a key may call."""
    host_name = URL(address.url).host
    rows = (host for host in HOSTS.own.values() if "{" not in host.url and URL(host.url).host == host_name)
    return all(host.lists_models and host.listed_may_be_requested for host in (address.host, *rows))
