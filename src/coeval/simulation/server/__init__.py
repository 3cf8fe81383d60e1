"""HTTP server of simulated models with OpenAI's interface."""

from coeval.simulation.server.app import make_app, serve
from coeval.simulation.server.served_batches import BatchFates

__all__ = ["BatchFates", "make_app", "serve"]
