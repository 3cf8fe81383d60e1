"""IFEval: detectable formats and contents."""

from __future__ import annotations

import json
import re

from coeval.benchmarks.tasks.instruction import PlainInstruction


class NumberPlaceholders(PlainInstruction, frozen=True):
    """ "The response must contain at least {num_placeholders} placeholders represented by square
    brackets, such as [address].": each opens and closes on one line."""

    id = "detectable_content:number_placeholders"
    num_placeholders: int

    def holds(self, response: str) -> bool:
        found = 0
        for line in response.split("\n"):
            opening = line.find("[")
            while opening >= 0 and (closing := line.find("]", opening)) >= 0:
                found += 1
                opening = line.find("[", closing)
        return found >= self.num_placeholders


class Postscript(PlainInstruction, frozen=True):
    """ "At the end of your response, please explicitly add a postscript starting with
    {postscript_marker}": it stands anywhere, in any case; P.S. and P.P.S may have blanks inside."""

    id = "detectable_content:postscript"
    postscript_marker: str

    def holds(self, response: str) -> bool:
        match self.postscript_marker.strip():
            case "P.P.S":
                pattern = r"p\.\s?p\.\s?s"
            case "P.S.":
                pattern = r"p\.\s?s\."
            case marker:
                pattern = re.escape(marker.lower())
        return re.search(pattern, response.lower()) is not None


class NumberBulletLists(PlainInstruction, frozen=True):
    """ "Your answer must contain exactly {num_bullets} bullet points. Use the markdown bullet points
    such as: * This is a point.": lines that begin with one star, or with a hyphen."""

    id = "detectable_format:number_bullet_lists"
    num_bullets: int

    def holds(self, response: str) -> bool:
        stars = re.findall(r"^[^\S\n]*\*[^*].*$", response, re.MULTILINE)
        hyphens = re.findall(r"^[^\S\n]*-", response, re.MULTILINE)
        return len(stars) + len(hyphens) == self.num_bullets


class NumberHighlightedSections(PlainInstruction, frozen=True):
    """ "Highlight at least {num_highlights} sections in your answer with markdown, i.e. *highlighted
    section*.": a pair of single or of double stars with something between, on one line."""

    id = "detectable_format:number_highlighted_sections"
    num_highlights: int

    def holds(self, response: str) -> bool:
        single = re.findall(r"\*([^\n*]*)\*", response)
        double = re.findall(r"\*\*([^\n*]*)\*\*", response)
        return sum(bool(inside.strip()) for inside in single + double) >= self.num_highlights


class MultipleSections(PlainInstruction, frozen=True):
    """ "Your response must have {num_sections} sections. Mark the beginning of each section with
    {section_spliter} X": at least as many marks followed by a number, in this case of letters."""

    id = "detectable_format:multiple_sections"
    section_spliter: str
    num_sections: int

    def holds(self, response: str) -> bool:
        marks = re.findall(rf"{re.escape(self.section_spliter.strip())}\s?\d+", response)
        return len(marks) >= self.num_sections


class ConstrainedResponse(PlainInstruction, frozen=True):
    """ "Answer with one of the following options: My answer is yes. My answer is no. My answer is
    maybe.": one of them stands in the answer as it is written."""

    id = "detectable_format:constrained_response"

    def holds(self, response: str) -> bool:
        return any(f"My answer is {choice}." in response for choice in ("yes", "no", "maybe"))


class JsonFormat(PlainInstruction, frozen=True):
    """ "Entire output should be wrapped in JSON format. You can use markdown ticks such as ```."

    Nesting too deep for the parser fails.
    """

    id = "detectable_format:json_format"

    def holds(self, response: str) -> bool:
        text = response.strip()
        for fence in ("```json", "```Json", "```JSON", "```"):
            text = text.removeprefix(fence)
        try:
            json.loads(text.removesuffix("```").strip())
        except (ValueError, RecursionError):
            return False
        return True


class Title(PlainInstruction, frozen=True):
    """ "Your answer must contain a title, wrapped in double angular brackets, such as <<poem of joy>>."

    On a line, everything from the first << to the last >> is the title.
    """

    id = "detectable_format:title"

    def holds(self, response: str) -> bool:
        for line in response.split("\n"):
            opening, closing = line.find("<<"), line.rfind(">>")
            if 0 <= opening < closing - 2 and line[opening:closing].lstrip("<").rstrip(">").strip():
                return True
        return False
