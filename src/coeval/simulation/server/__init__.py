"""HTTP server of simulated models with OpenAI's interface."""

from coeval.simulation.server.app import make_app, serve

__all__ = ["make_app", "serve"]
