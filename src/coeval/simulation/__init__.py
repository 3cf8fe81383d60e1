"""Models that need no key, no network and no GPU, and whose true skill is known."""

from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import Traits, parse_model_option, traits_of

__all__ = ["SimulatedModel", "Traits", "parse_model_option", "traits_of"]
