"""`coeval models`: lists the models that the user's keys reach."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from coeval.cli import streams
from coeval.cli.command_names import AsJson, KeyFile
from coeval.cli.views.host_view import (
    find_credentials,
    host_label,
    hosts_as_data,
    print_credentials,
    print_host_models_and_prices,
)
from coeval.cli.views.progress_view import show_progress_while
from coeval.cli.views.results_view import write_json
from coeval.core.errors import ModelUnavailable, UsageError
from coeval.core.model import ModelSpec
from coeval.engine.probing import HostReport, select_hosted, specs_with_credentials, survey_hosts
from coeval.engine.session import SessionContext, await_unless_interrupted
from coeval.models.catalog import HOSTS
from coeval.models.keys import Keys, load_keys
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.start.session_start import resolve_hosts
from coeval.pricing.price_book import PriceBook


def models(
    config: Annotated[
        Path | None, typer.Option(help="List the hosts of an experiment file. Example: --config my.yaml")
    ] = None,
    interface: Annotated[
        str | None, typer.Option(help="One interface only. Example: --interface groq")
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Its address. Example: --base-url http://localhost:8000/v1")
    ] = None,
    providers: Annotated[
        bool, typer.Option("--providers", help="List the credentials and their sources; no model is called.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also show prices of cached input, and the source of prices.")
    ] = False,
    as_json: AsJson = False,
    keys: KeyFile = None,
) -> None:
    """List the models that your keys reach, with their prices.

    Requests each host's list, with context windows, at no cost. Without
    --config and --interface it lists all hosts that you have a credential for.

    \b
    Examples:
      coeval models
      coeval models --config my.yaml
      coeval models --interface groq --verbose
      coeval models --interface vllm --base-url http://localhost:8000/v1
      coeval models --providers
      coeval models --json > models.json

    \b
    Exit codes: 0 done (hosts that fail are reported), 1 usage error, 2 no host could be reached.
    """
    if config is not None and interface is not None:
        raise UsageError("--config and --interface exclude each other; give one of them")
    if base_url is not None and interface is None:
        raise UsageError("--base-url needs --interface: the API served there (openai, vllm, …)")
    if base_url is not None and "://" not in base_url:
        raise UsageError(
            "--base-url has no http:// or https:// before its host; write it as in "
            "--base-url http://127.0.0.1:8000/v1"
        )
    if interface is not None and interface not in HOSTS:
        raise UsageError(f"--interface: there is no {interface}; there are {', '.join(sorted(HOSTS))}")
    found_keys, prices = load_keys(keys), PriceBook()
    if providers:
        named = load_config(config).models if config is not None else []
        credentials = find_credentials(found_keys, [model.spec() for model in named], interface)
        if as_json:
            write_json({"providers": credentials})
        else:
            print_credentials(credentials, streams.results())
        return
    specs = _choose_host_specs(config, interface, base_url, found_keys, prices)
    requested = _survey_hosts_with_progress(specs, found_keys, prices)
    if config is None:  # then they were asked about for no model of anybody's
        requested = [report._replace(names={}) for report in requested]
    _print_host_reports(requested, verbose, as_json)
    if all(report.problem is not None for report in requested):
        raise ModelUnavailable("no host lists its models; coeval models --providers shows what was found")


def _choose_host_specs(
    config: Path | None, interface: str | None, base_url: str | None, keys: Keys, prices: PriceBook
) -> list[ModelSpec]:
    """Return one model per host to list: hosts of a file, of one interface, or all with a credential."""
    if config is not None:
        settled = load_config(config)
        options = RunOptions.continue_if_started(settled)
        resolved = resolve_hosts(settled, options, keys, prices).config
        return select_hosted(model.spec() for model in resolved.models)
    if interface is not None:
        at_interface = select_hosted(
            [ModelSpec(name=interface, interface=interface, model=interface, base_url=base_url)]
        )
        if not at_interface:
            raise UsageError(f"--interface {interface}: these models run in this process; no host lists them")
        return at_interface
    return specs_with_credentials(keys)


def _survey_hosts_with_progress(specs: list[ModelSpec], keys: Keys, prices: PriceBook) -> list[HostReport]:
    if not specs:
        raise UsageError(
            "no credential for any host was found; coeval models --providers lists the places "
            "searched, and coeval models --interface ollama lists a server that needs none"
        )

    def survey(context: SessionContext) -> Coroutine[Any, Any, list[HostReport]]:
        stopped = "stopped while listing the hosts' models"
        return await_unless_interrupted(survey_hosts(specs, keys, prices), context.interrupt, stopped)

    return show_progress_while(keys, survey)


def _print_host_reports(reports: list[HostReport], verbose: bool, as_json: bool) -> None:
    if as_json:
        write_json({"hosts": hosts_as_data(reports)})
    else:
        print_host_models_and_prices(reports, verbose, streams.results())
    messages = streams.messages()
    for report in reports:
        if report.problem is not None:
            streams.warn(messages, f"{host_label(report)}: {report.problem}")
