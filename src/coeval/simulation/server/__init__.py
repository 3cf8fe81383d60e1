"""The simulated models behind OpenAI's HTTP interface, for any client and no GPU."""

from coeval.simulation.server.app import make_app, serve

__all__ = ["make_app", "serve"]
