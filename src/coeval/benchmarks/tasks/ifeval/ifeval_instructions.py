"""The 25 instruction types of IFEval (Zhou et al. 2023)."""

from __future__ import annotations

from coeval.benchmarks.tasks.ifeval import case_and_language, keywords, lengths, wholes
from coeval.benchmarks.tasks.ifeval import ifeval_formats as formats
from coeval.benchmarks.tasks.instruction import Instruction

INSTRUCTIONS: tuple[type[Instruction], ...] = (
    keywords.Existence,
    keywords.Frequency,
    keywords.ForbiddenWords,
    keywords.LetterFrequency,
    keywords.NoComma,
    case_and_language.ResponseLanguage,
    case_and_language.EnglishCapital,
    case_and_language.EnglishLowercase,
    case_and_language.CapitalWordFrequency,
    lengths.NumberWords,
    lengths.NumberSentences,
    lengths.NumberParagraphs,
    lengths.NthParagraphFirstWord,
    formats.NumberPlaceholders,
    formats.Postscript,
    formats.NumberBulletLists,
    formats.NumberHighlightedSections,
    formats.MultipleSections,
    formats.ConstrainedResponse,
    formats.JsonFormat,
    formats.Title,
    wholes.RepeatPrompt,
    wholes.TwoResponses,
    wholes.EndChecker,
    wholes.Quotation,
)
