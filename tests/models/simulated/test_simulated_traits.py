from __future__ import annotations

import pytest

from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.simulation import Traits, parse_model_option, traits_of
from coeval.simulation.traits import family_of


def test_a_bare_name_has_the_default_traits() -> None:
    spec = parse_model_option("sim-large")
    assert (spec.name, spec.model, spec.interface) == ("sim-large", "sim-large", "simulated")
    assert traits_of(spec) == Traits(family="sim")


def test_options_are_read_with_spaces_around_them() -> None:
    spec = parse_model_option(" sim-a : skill = 0.8, noise=0 ,family=acme ")
    assert spec.name == "sim-a"
    assert traits_of(spec) == Traits(skill=0.8, noise=0.0, family="acme")


def test_defaults_give_way_to_options() -> None:
    defaults = {"latency_s": 0.5}
    assert traits_of(parse_model_option("sim", defaults)).latency_s == 0.5
    assert traits_of(parse_model_option("sim:latency_s=0", defaults)).latency_s == 0.0


def test_a_name_may_hold_a_colon() -> None:
    assert parse_model_option("llama3:8b").name == "llama3:8b"
    spec = parse_model_option("llama3:8b:skill=0.2")
    assert (spec.name, spec.options) == ("llama3:8b", {"skill": 0.2})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no model"),
        (":skill=1", "names no model"),
        ("sim:skil=0.8", "did you mean skill?"),
        ("sim:temperature_of_the_room=1", "the options are skill, severity"),
        ("sim:skill", "an option needs a value"),
        ("sim:", "an option needs a value"),
        ("sim:skill=", "no option=value"),
        ("sim:skill=0.8,,noise=0", "no option=value"),
        ("sim:skill=0.8,noise", "no option=value"),
        ("sim:skill=0.8,skill=0.9", "given twice"),
        ("sim:skill=high", "from 0 to 1; it is 'high'"),
        ("sim:skill=1.5", "from 0 to 1; it is 1.5"),
        ("sim:skill=nan", "from 0 to 1; it is nan"),
        ("sim:latency_s=-1", "from 0 to 3600"),
    ],
)
def test_what_cannot_be_read_is_explained(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_model_option(text)
    assert said in str(caught.value)


def test_options_of_an_experiment_file_are_checked_too() -> None:
    spec = ModelSpec(name="judge-a", interface="simulated", model="sim", options={"skill": True})
    with pytest.raises(UsageError, match="judge-a: skill must be a number"):
        traits_of(spec)


@pytest.mark.parametrize(
    ("model", "family"),
    [("sim-large", "sim"), ("llama3.1", "llama"), ("qwen:7b", "qwen"), ("7b", "7b"), ("solo", "solo")],
)
def test_family_is_the_first_word_of_the_name(model: str, family: str) -> None:
    assert family_of(model) == family
