"""IFEval: how the response begins and ends, and what it is made of."""

from __future__ import annotations

from coeval.benchmarks.tasks.instruction import PlainInstruction


class RepeatPrompt(PlainInstruction, frozen=True):
    """ "First repeat the request word for word without change, then give your answer", in any case."""

    id = "combination:repeat_prompt"
    prompt_to_repeat: str

    def holds(self, response: str) -> bool:
        return response.strip().lower().startswith(self.prompt_to_repeat.strip().lower())


class TwoResponses(PlainInstruction, frozen=True):
    """ "Give two different responses. Responses and only responses should be separated by 6 asterisk
    symbols: ******.": a blank part is passed over at either end, and fails anywhere else."""

    id = "combination:two_responses"

    def holds(self, response: str) -> bool:
        parts = [part.strip() for part in response.split("******")]
        if not all(parts[1:-1]):
            return False
        match [part for part in parts if part]:
            case [first, second]:
                return first != second
            case _:
                return False


class EndChecker(PlainInstruction, frozen=True):
    """ "Finish your response with this exact phrase {end_phrase}.", in any case; quotes may follow it."""

    id = "startend:end_checker"
    end_phrase: str

    def holds(self, response: str) -> bool:
        return response.strip().strip('"').lower().endswith(self.end_phrase.strip().lower())


class Quotation(PlainInstruction, frozen=True):
    """ "Wrap your entire response with double quotation marks."""

    id = "startend:quotation"

    def holds(self, response: str) -> bool:
        text = response.strip()
        return len(text) > 1 and text[0] == text[-1] == '"'
