"""What an instruction of IFEval or IFBench is: a record of its arguments that can be held against a text.

Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models" (IFEval); Pyatkin et
al. 2025, "Generalizing Verifiable Instruction Following" (IFBench). Verdicts follow the verifiers
published with the papers, quirks included, because scores are compared with published ones.
"""

from __future__ import annotations

import string
from abc import ABCMeta, abstractmethod
from typing import ClassVar, Literal, TypeAlias

import msgspec

from coeval.benchmarks.language.text_analysis import Language

PUNCTUATION = string.punctuation
WITHOUT_PUNCTUATION = str.maketrans("", "", PUNCTUATION)
PUNCTUATION_AND_BLANK = PUNCTUATION + " "

Relation: TypeAlias = Literal["less than", "at least"]


class _AbstractStruct(msgspec.StructMeta, ABCMeta):
    """Of a struct with abstract methods."""


class Instruction(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=_AbstractStruct
):
    """A verifiable instruction; its fields are the arguments, by the names in the data."""

    id: ClassVar[str] = ""

    @abstractmethod
    def follows(self, response: str, language: Language) -> bool:
        """Check whether a non-blank ``response`` follows the instruction."""


class PlainInstruction(Instruction, frozen=True):
    """An instruction that needs no English analysis."""

    @abstractmethod
    def holds(self, response: str) -> bool:
        """Check whether a non-blank response follows the instruction."""

    def follows(self, response: str, _: Language) -> bool:
        return self.holds(response)


def compare(count: int, relation: Relation, bound: int) -> bool:
    return count < bound if relation == "less than" else count >= bound
