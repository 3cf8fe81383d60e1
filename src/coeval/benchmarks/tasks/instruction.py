"""What an instruction of IFEval or IFBench is: a record of its arguments that can be held against a text.

Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models" (IFEval); Pyatkin et
al. 2025, "Generalizing Verifiable Instruction Following" (IFBench). Verdicts follow the verifiers
published with the papers, quirks included, because scores are compared with published ones.
"""

from __future__ import annotations

import string
from typing import ClassVar, Literal, TypeAlias

import msgspec

from coeval.benchmarks.language.text_analysis import Language

PUNCTUATION = string.punctuation
WITHOUT_PUNCTUATION = str.maketrans("", "", PUNCTUATION)
PUNCTUATION_AND_BLANK = PUNCTUATION + " "

Relation: TypeAlias = Literal["less than", "at least"]


class Instruction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One verifiable instruction; its fields are the arguments the data gives under these names.

    A type says what it asks for in `holds`, or in `follows` if it takes knowledge of English.
    """

    id: ClassVar[str] = ""

    def follows(self, response: str, language: Language) -> bool:  # noqa: ARG002 - for those who override it
        """Whether ``response``, which is not blank, follows the instruction."""
        return self.holds(response)

    def holds(self, response: str) -> bool:
        """The same, of the characters alone."""
        raise NotImplementedError


def compare(count: int, relation: Relation, bound: int) -> bool:
    return count < bound if relation == "less than" else count >= bound
