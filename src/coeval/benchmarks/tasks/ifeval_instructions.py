"""The 25 instruction types of IFEval (Zhou et al. 2023)."""

from __future__ import annotations

from coeval.benchmarks.tasks import ifeval_checks
from coeval.benchmarks.tasks.instruction import Instruction

INSTRUCTIONS: tuple[type[Instruction], ...] = (
    ifeval_checks.Existence,
    ifeval_checks.Frequency,
    ifeval_checks.ForbiddenWords,
    ifeval_checks.LetterFrequency,
    ifeval_checks.NoComma,
    ifeval_checks.ResponseLanguage,
    ifeval_checks.EnglishCapital,
    ifeval_checks.EnglishLowercase,
    ifeval_checks.CapitalWordFrequency,
    ifeval_checks.NumberWords,
    ifeval_checks.NumberSentences,
    ifeval_checks.NumberParagraphs,
    ifeval_checks.NthParagraphFirstWord,
    ifeval_checks.NumberPlaceholders,
    ifeval_checks.Postscript,
    ifeval_checks.NumberBulletLists,
    ifeval_checks.NumberHighlightedSections,
    ifeval_checks.MultipleSections,
    ifeval_checks.ConstrainedResponse,
    ifeval_checks.JsonFormat,
    ifeval_checks.Title,
    ifeval_checks.RepeatPrompt,
    ifeval_checks.TwoResponses,
    ifeval_checks.EndChecker,
    ifeval_checks.Quotation,
)
