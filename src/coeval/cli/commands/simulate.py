"""`coeval simulate`: serves simulated models as an OpenAI-compatible server on this machine."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import Annotated

import typer

from coeval.cli.command_names import Port
from coeval.cli.loop import run_server
from coeval.core.errors import UsageError
from coeval.simulation.server import make_app, serve
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import Traits, parse_model_option


def simulate(
    model: Annotated[
        list[str],
        typer.Option(
            metavar="NAME[:OPTION=VALUE,…]",
            help=f"A model to serve; repeatable. Options: {', '.join(Traits.__struct_fields__)}. "
            "Example: --model sim-large:skill=0.85,malformed_rate=0.02",
        ),
    ],
    port: Port = 8000,
    host: Annotated[
        str, typer.Option(help="Loopback address to listen on. Example: --host 127.0.0.1")
    ] = "127.0.0.1",
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="COEVAL_SIMULATE_API_KEY",
            help="Refuse requests without this key (401); set in the environment, it stays out of the "
            "process list. Example: --api-key test",
        ),
    ] = None,
    latency: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds before each answer, for models without latency_s. Example: --latency 0.05"
        ),
    ] = 0.0,
    rate_limit_every: Annotated[
        int | None,
        typer.Option(min=2, help="Answer each Nth request with 429 once. Example: --rate-limit-every 100"),
    ] = None,
) -> None:
    """Serve simulated models on this machine.

    Runs an OpenAI-compatible server for any client, until Ctrl-C.

    Example: coeval simulate --port 8000 --model sim-large:skill=0.85 --model sim-small:skill=0.35
    """
    address = _check_loopback(host)
    models: dict[str, SimulatedModel] = {}
    for text in model:
        spec = parse_model_option(text, {"latency_s": latency})
        if spec.model in models:
            raise UsageError(f"--model {spec.model} is given twice; give each model its own name")
        models[spec.model] = SimulatedModel(spec)

    def announce(actual_port: int) -> None:
        url_host = f"[{address}]" if ":" in address else address
        print(f"simulated models at http://{url_host}:{actual_port}/v1: {', '.join(models)}", flush=True)

    app = make_app(models.values(), api_key=api_key, rate_limit_every=rate_limit_every)
    run_server(serve(app, address, port, announce), address, port)


def _check_loopback(host: str) -> str:
    """Return the address of ``host``; raises UsageError unless only this machine can reach it."""
    if host == "localhost":
        return "127.0.0.1"
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return host
    raise UsageError(
        f"--host {host}: simulated models are served on this machine only; use 127.0.0.1, ::1 or localhost"
    )
