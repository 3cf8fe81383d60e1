"""What an instruction of IFEval or IFBench is: arguments, and a function that holds a text against them.

Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models" (IFEval); Pyatkin et
al. 2025, "Generalizing Verifiable Instruction Following" (IFBench). Verdicts follow the verifiers
published with the papers, quirks included, because scores are compared with published ones.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from inspect import Parameter, signature
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from coeval.benchmarks.text_analysis import Language

PUNCTUATION = string.punctuation
WITHOUT_PUNCTUATION = str.maketrans("", "", PUNCTUATION)
PUNCTUATION_AND_BLANK = PUNCTUATION + " "

Relation: TypeAlias = Literal["less than", "at least"]


class InstructionType(NamedTuple):
    """A type of verifiable instructions: ``follows`` tells of a non-blank response whether it follows one.

    ``arguments`` is a record of its keywords, by the names in the data.
    """

    id: str
    follows: Callable[..., bool]
    arguments: type[msgspec.Struct]
    reads_english: bool


class Instruction(NamedTuple):
    """An instruction of a prompt."""

    kind: InstructionType
    arguments: msgspec.Struct

    def follows(self, response: str, language: Language) -> bool:
        """Check whether a non-blank ``response`` follows the instruction."""
        texts = (response, language) if self.kind.reads_english else (response,)
        return self.kind.follows(*texts, **msgspec.structs.asdict(self.arguments))


def verifies(instruction_id: str) -> Callable[[Callable[..., bool]], InstructionType]:
    """Make a type of instructions of a function of the response, of a `Language` where it analyses English,
    and of the instruction's arguments as keywords."""

    def made(function: Callable[..., bool]) -> InstructionType:
        parameters = signature(function, eval_str=True).parameters.values()
        keywords = [(p.name, p.annotation) for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
        arguments = msgspec.defstruct(
            function.__name__, keywords, frozen=True, kw_only=True, forbid_unknown_fields=True
        )
        reads_english = len(parameters) - len(keywords) == 2
        return InstructionType(instruction_id, function, arguments, reads_english)

    return made


def compare(count: int, relation: Relation, bound: int) -> bool:
    return count < bound if relation == "less than" else count >= bound
