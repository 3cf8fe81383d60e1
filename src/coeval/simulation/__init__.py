"""Simulated models: no key, network or GPU needed, and their true skill is known."""

from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import Traits, parse_model_option, traits_of

__all__ = ["SimulatedModel", "Traits", "parse_model_option", "traits_of"]
