"""Probe the models of a session before any work depends on them; survey what hosts serve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from coeval.core.errors import (
    AskError,
    BadRequest,
    ModelError,
    ModelStopped,
    ModelUnavailable,
    QuotaExhausted,
    UsageError,
    WindowExceeded,
)
from coeval.core.model import Model, ModelSpec, is_private_address, lowest_answer_limit
from coeval.core.options import PROBE_WARNS, ProbeMode, max_tokens
from coeval.core.plain import escape_line
from coeval.core.records import Failure, Message, Request, SamplingParameters
from coeval.core.shown_url import mask_url
from coeval.core.text import pluralize
from coeval.engine.session import Session, await_unless_interrupted
from coeval.engine.terms import RequestedUnder, find_tariff, make_offer
from coeval.models.address import EndpointKey, ModelAddress, resolve_address
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.models.dialects.dialect import ListedModel
from coeval.models.hosted import list_models
from coeval.models.keys import Keys
from coeval.models.open import find_interface_obstacle
from coeval.models.pacing.limits import Limiter
from coeval.models.transport.endpoint import Endpoint, check_reachable
from coeval.models.transport.http import Http
from coeval.pricing.price_book import PriceBook
from coeval.pricing.tariff import Tariff
from coeval.store.jsonl import write_json_atomic
from coeval.store.rundir import utc_now

_QUESTION = (Message("user", "Reply with the single word: ok"),)
# Tokens of an answer. One is enough to know that a model is there; some that reason first refuse so few.
_LIMITS = (1, 256)


class ProbeResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a model may be asked, in how many seconds that was known, and if not, why. ``listed``: its host
    names it among its models, and it was not asked itself."""

    name: str
    ok: bool
    latency_s: float
    error: Failure | None = None
    listed: bool = False


async def probe_all(
    models: Mapping[str, Model], *, by_list: bool = True, clock: Callable[[], float] = time.perf_counter
) -> list[ProbeResult]:
    """Check all models at once; results in the order of ``models``.

    With ``by_list``, a model that its host lists passes. Any other is asked for a single token, as many
    are served under names that no list has; any answer will do, an empty one included. These requests
    count against the model's quota, lists do not. A host that refuses connections fails within seconds: at
    the start that is a mistake more often than an outage.
    """
    probes = (_probe_one(name, model, clock, by_list=by_list) for name, model in models.items())
    return list(await asyncio.gather(*probes))


async def _probe_one(name: str, model: Model, clock: Callable[[], float], *, by_list: bool) -> ProbeResult:
    """Check one model: its host's connection, then its list, then a single token."""
    began = clock()
    try:
        await model.check_connection()
        listed = by_list and await model.is_listed()
        if not listed:
            few, more = (
                Request(_QUESTION, SamplingParameters(max_tokens=limit), purpose="probe") for limit in _LIMITS
            )
            try:
                await model.complete(few)
            except BadRequest:
                await model.complete(more)
    except (AskError, ModelStopped, QuotaExhausted) as error:
        failure = Failure(error.kind, _join_lines(error))
        return ProbeResult(name, ok=False, latency_s=clock() - began, error=failure)
    return ProbeResult(name, ok=True, latency_s=clock() - began, listed=listed)


class Probing(NamedTuple):
    """Which models are probed (all, by lists or each by an answer; those with missing work; none),
    and whether a failure ends the start or only warns."""

    mode: ProbeMode = "full"
    on_fail: Literal["abort", "warn"] = "abort"


async def probe_and_write_results(
    session: Session, probing: Probing, owing: Collection[str] | None
) -> list[ProbeResult]:
    """Probe the models and write ``probe_results.json``. ``owing`` are the models with missing work, None
    while unknown; if empty, none is probed. Raises Draining: somebody interrupted it meanwhile."""
    requested = _models_to_probe(session.models, probing, owing)
    if not requested:
        return []
    session.context.watcher.note(f"probing {pluralize(len(requested), 'model')}")
    results = await await_unless_interrupted(
        probe_all(requested, by_list=probing.mode != "answer"),
        session.context.interrupt,
        "stopped while the models were being probed; nothing was run",
    )
    write_json_atomic(session.accounts.probes, {"at": utc_now(), "models": results})
    return results


async def probe_models(
    session: Session,
    probing: Probing,
    owing: Collection[str] | None,
    requested: Iterable[RequestedUnder] = (),
) -> None:
    """Probe the models before a start, as `probe_and_write_results` does, and check that the answers of those
    ``requested`` fit into their windows. Raises, if ``probing.on_fail`` is ``abort``, ModelUnavailable:
    one does not answer; WindowExceeded: a window is smaller than answers may be. Draining: interrupted."""
    watcher = session.context.watcher
    results = await probe_and_write_results(session, probing, owing)
    probed = _models_to_probe(session.models, probing, owing)
    away = {result.name for result in results if not result.ok}
    answering = [
        model_under
        for model_under in requested
        if model_under.spec.name not in away and _is_probed_or_own_server(model_under.spec, probed, owing)
    ]
    too_long = await await_unless_interrupted(
        _find_too_long_answers(session.models, answering),
        session.context.interrupt,
        "stopped before anything was run",
    )
    if too_long and probing.on_fail == "abort":
        raise WindowExceeded("\n".join([*too_long, "Nothing was run."]))
    for sentence in too_long:
        watcher.warn(sentence)
    reasons = list(explain_silent_models(results, watcher.warn))
    if not reasons:
        return
    verb = "does" if len(reasons) == 1 else "do"
    message = f"{len(reasons)} of {len(results)} models {verb} not answer:"
    if probing.on_fail == "abort":
        listed = "".join(f"\n  {escape_line(reason)}" for reason in reasons)
        warned = str(PROBE_WARNS)
        way = f", or continue anyway with {warned}" if warned else ""
        raise ModelUnavailable(f"{message}{listed}\nNothing was run. Fix this and start again{way}.")
    watcher.warn(f"{message} {'; '.join(reasons)}")


def _is_probed_or_own_server(spec: ModelSpec, probed: Container[str], owing: Collection[str] | None) -> bool:
    """Check whether a model's window is worth a request: it is probed, or the user's own server."""
    works = owing is None or spec.name in owing
    return spec.name in probed or (works and spec.base_url is not None and is_private_address(spec.base_url))


async def _find_too_long_answers(
    models: Mapping[str, Model], requested: Iterable[RequestedUnder]
) -> list[str]:
    """Write a sentence for each limit on answers above the server's window, as each request would fail."""
    limited = [
        (spec, most, judge)
        for spec, sampling, judge in requested
        if spec.name in models and (most := lowest_answer_limit(sampling, spec)) is not None
    ]
    names = list(dict.fromkeys(spec.name for spec, _, _ in limited))
    windows = dict(
        zip(names, await asyncio.gather(*(_read_window(models[name]) for name in names)), strict=True)
    )
    problems: dict[str, None] = {}
    for spec, most, judge in limited:
        window = windows[spec.name]
        if window is None or most <= window:
            continue
        # Half of the window is left for prompts: their tokens are not counted before they are sent.
        larger = "" if spec.base_url is None else ", or serve it with a larger --max-model-len"
        problems[
            f"{escape_line(spec.name)}: an answer may have {most:,} tokens, and its server's window "
            f"(max_model_len) has {window:,}: every request would be refused. Use {max_tokens(judge=judge)} "
            f"{max(1, window // 2)}{larger}"
        ] = None
    return list(problems)


async def _read_window(model: Model) -> int | None:
    try:
        await model.check_connection()
    except ModelError:
        return None  # its first requests say what is wrong with it
    return await model.context_window()


def _models_to_probe(
    models: Mapping[str, Model], probing: Probing, owing: Collection[str] | None
) -> Mapping[str, Model]:
    match probing.mode:
        case "disable":
            return {}
        case "full" | "answer":
            return models if owing is None or owing else {}
        case "resume":
            return {name: model for name, model in models.items() if owing is None or name in owing}


def explain_silent_models(
    results: Iterable[ProbeResult], warn_of_ceiling: Callable[[str], None]
) -> Iterable[str]:
    """Yield a line for each model that does not answer, with the reason. A model at its ceiling is not probed
    and stops no others: its work stays missing, which ``warn_of_ceiling`` reports."""
    for result in results:
        if result.error is None:
            continue
        if result.error.kind == QuotaExhausted.kind:
            warn_of_ceiling(f"{result.name} is not probed: {result.error.message}")
        else:
            yield f"{result.name}: {result.error.message}"


# --- Survey of hosts: the models they list, with context windows and prices where known

# Dialects of models that no host serves.
_IN_PROCESS = frozenset({"local", "simulated", "benchmark", OWN_CODE})
# For a list, with all that is tried again to have it.
_PATIENCE_S = 30.0


class OfferedModel(NamedTuple):
    """A listed model by its id; ``context_window`` in tokens, None if unknown."""

    id: str
    context_window: int | None
    tariff: Tariff | None


class HostReport(NamedTuple):
    """A host as one credential sees it: ``models`` by id, or a one-line ``problem``. ``names``: the
    configured models served there, by id."""

    interface: str
    account: str | None
    base_url: str
    models: tuple[OfferedModel, ...] = ()
    problem: str | None = None
    names: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def specs_with_credentials(keys: Keys) -> list[ModelSpec]:
    """Make a nameless model for each interface with a credential, and for each account of the key files."""
    specs = [
        ModelSpec(name=name, interface=name, model=name)
        for name, host in HOSTS.items()
        if host.dialect not in _IN_PROCESS
        and keys.sources(name)
        and find_interface_obstacle(name, keys) is None
    ]
    accounts = sorted((name, interface) for name, (interface, _) in keys.locate_accounts().items())
    return specs + [
        ModelSpec(name=name, interface=interface, model=interface, account=name)
        for name, interface in accounts
    ]


def select_hosted(specs: Iterable[ModelSpec]) -> list[ModelSpec]:
    """Keep the models that are served over HTTP."""
    return [
        spec
        for spec in specs
        if spec.base_url is not None or HOSTS[spec.interface].dialect not in _IN_PROCESS
    ]


async def survey_hosts(specs: Iterable[ModelSpec], keys: Keys, prices: PriceBook) -> list[HostReport]:
    """Query all hosts and credentials at once, in the order of the models; no model is called. Raises
    UsageError: the pricing file cannot be used."""
    prices.refuse_unknown_interfaces(HOSTS, HOSTS.own)
    reports: list[HostReport | ModelAddress] = []
    names: dict[EndpointKey, dict[str, tuple[str, ...]]] = {}
    for spec in specs:
        try:
            address = resolve_address(spec, HOSTS[spec.interface], keys)
        except UsageError as error:
            reports.append(
                HostReport(
                    spec.interface, spec.account, mask_url(spec.base_url or ""), problem=_join_lines(error)
                )
            )
            continue
        if address.key not in names:
            names[address.key] = {}
            reports.append(address)
        names_here = names[address.key]
        names_here[spec.model] = (*names_here.get(spec.model, ()), spec.name)
    secrets = [secret for report in reports if isinstance(report, ModelAddress) for secret in report.secrets]
    http = Http()
    try:
        return await asyncio.gather(
            *(_survey_host(report, http, secrets, prices, names) for report in reports)
        )
    finally:
        await http.aclose()


async def _survey_host(
    address: HostReport | ModelAddress,
    http: Http,
    secrets: Sequence[str],
    prices: PriceBook,
    names_by_host: Mapping[EndpointKey, Mapping[str, tuple[str, ...]]],
) -> HostReport:
    """List one host's models. ``secrets`` are those of all hosts, since one may repeat what others sent it;
    ``names_by_host`` has the configured names by model id."""
    if isinstance(address, HostReport):
        return address
    spec = address.spec
    names = names_by_host[address.key]
    report = HostReport(spec.interface, spec.account, mask_url(address.url), names=names)
    if address.dialect.model_list is None or not address.host.lists_models:
        return report._replace(problem="it lists no models")
    endpoint = Endpoint(address.url, address.signer, Limiter(), secrets, address.host.headers)
    endpoint.exempt_names((*names, *chain.from_iterable(names.values())))
    try:
        await check_reachable(endpoint, address.dialect.model_list.page_path(None), "GET")
        async with asyncio.timeout(_PATIENCE_S):
            listed = await list_models(http, endpoint, address.dialect)
    except ModelError as error:
        return report._replace(problem=_join_lines(error))
    except TimeoutError:
        return report._replace(problem=f"it returned no list of its models within {_PATIENCE_S:.0f} s")
    offered = (_make_offered_model(model, spec, prices) for model in listed or ())
    return report._replace(models=tuple(sorted(offered, key=lambda model: model.id)))


def _make_offered_model(model: ListedModel, spec: ModelSpec, prices: PriceBook) -> OfferedModel:
    offer = make_offer(spec)._replace(model=model.id, base_model=None)
    tariff = find_tariff(offer, prices)
    return OfferedModel(model.id, model.context_window or prices.find_context_window(offer), tariff)


def _join_lines(error: Exception) -> str:
    return " ".join(str(error).split())
