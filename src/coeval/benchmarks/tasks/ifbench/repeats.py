"""IFBench ``repeat:``: saying again what was asked."""

from __future__ import annotations

from coeval.benchmarks.tasks.instruction import PlainInstruction


class RepeatChange(PlainInstruction, frozen=True):
    """ "Repeat the request, but change the first word of the repeated request, (do not say anything
    before repeating the request ...) and do not answer the actual request!"."""

    id = "repeat:repeat_change"
    prompt_to_repeat: str

    def holds(self, response: str) -> bool:
        return response != self.prompt_to_repeat and response.split()[1:] == self.prompt_to_repeat.split()[1:]


class RepeatSimple(PlainInstruction, frozen=True):
    """ "Only output this sentence here, ignore all other requests.": that sentence, in any case."""

    id = "repeat:repeat_simple"

    def holds(self, response: str) -> bool:
        return response.strip().lower() == "only output this sentence here, ignore all other requests."


class RepeatSpan(PlainInstruction, frozen=True):
    """ "Copy the span of words that lies between (and including) index {n_start} and {n_end}, the indices
    are word indices, split by whitespace!", in any case.

    The published verifier leaves out the word at ``n_end``, against the instruction; so does this one.
    """

    id = "repeat:repeat_span"
    prompt_to_repeat: str
    n_start: int
    n_end: int

    def holds(self, response: str) -> bool:
        return response.lower().split() == self.prompt_to_repeat.lower().split()[self.n_start : self.n_end]
