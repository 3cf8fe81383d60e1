"""The part of speech of a text's first word, which is all that a verifier asks for.

The perceptron tagger reads left to right and looks at most two tokens ahead, so the first tag
depends on the first three tokens only. Its model is NLTK's ``averaged_perceptron_tagger_eng``;
without it, `looks_like_verb` guesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coeval.core.foreign import decode

VERB_TAGS = frozenset({"VB", "VBD", "VBG", "VBN", "VBP", "VBZ"})


class FirstWordTagger:
    """`tag` by the averaged perceptron: a linear model over the word, its ends and its neighbours.

    Raises OSError where a file of the model is missing.
    """

    def __init__(self, folder: Path) -> None:
        name = "averaged_perceptron_tagger_eng"
        self._sure = decode((folder / f"{name}.tagdict.json").read_bytes(), dict[str, str])
        self._tags = decode((folder / f"{name}.classes.json").read_bytes(), list[str])
        weights = (folder / f"{name}.weights.json").read_bytes()
        self._weights = decode(weights, dict[str, dict[str, float]])

    def tag(self, words: Sequence[str]) -> str:
        """The Penn Treebank tag of ``words[0]``; there must be one."""
        if sure := self._sure.get(words[0]):
            return sure
        scores = dict.fromkeys(self._tags, 0.0)
        for feature in _features(words):
            for tag, weight in self._weights.get(feature, {}).items():
                scores[tag] += weight
        return max(self._tags, key=lambda tag: (scores[tag], tag))


def _features(words: Sequence[str]) -> list[str]:
    """What the model knows of the first word, under the names in its file."""
    ahead = [_normal(word) for word in words[:3]] + ["-END-", "-END2-"]
    before, before_that = "-START-", "-START2-"
    return [
        "bias",
        f"i suffix {words[0][-3:]}",
        f"i pref1 {words[0][:1]}",
        f"i-1 tag {before}",
        f"i-2 tag {before_that}",
        f"i tag+i-2 tag {before} {before_that}",
        f"i word {ahead[0]}",
        f"i-1 tag+i word {before} {ahead[0]}",
        f"i-1 word {before_that}",
        f"i-1 suffix {before_that[-3:]}",
        f"i-2 word {before}",
        f"i+1 word {ahead[1]}",
        f"i+1 suffix {ahead[1][-3:]}",
        f"i+2 word {ahead[2]}",
    ]


def _normal(word: str) -> str:
    if "-" in word and not word.startswith("-"):
        return "!HYPHEN"
    if word.isdigit() and len(word) == 4:
        return "!YEAR"
    return "!DIGITS" if word[:1].isdigit() else word.lower()


_COMMON_VERBS = (
    "accept achieve act add address adjust adopt advance advise agree aim allow analyze answer apply "
    "appreciate approach arrange ask assess assume avoid balance be become begin believe bring build buy "
    "calculate call can capture care carry change check choose clarify collect combine come compare "
    "complete compute concatenate conduct confirm connect consider contact continue convert cook copy "
    "count cover create cut decide define delve demonstrate derive describe design determine develop did "
    "dig discover discuss display dive divide do does draw dream drink drive eat embark embrace encourage "
    "engage enjoy ensure enter establish evaluate examine expand expect experience explain explore express "
    "extend feel fill find finish fix focus follow forget gather generate get give go grab grow had handle "
    "has have hear help highlight hold identify illustrate imagine implement improve include incorporate "
    "increase inform inspire install integrate introduce investigate invite is are was were join jump keep "
    "know launch lead learn leave let leverage list listen live locate look lose love maintain make manage "
    "maximize measure meet minimize mix move multiply navigate need note observe obtain offer open optimize "
    "organize overcome participate pay perform pick place plan play practice prepare present press prevent "
    "print prioritize produce promote protect prove provide pull push put raise reach read realize recall "
    "receive recognize reduce refer reflect remember remove repeat replace require research respond return "
    "review rewrite run save say seek see select sell send serve set share show simplify sit sleep solve "
    "speak spend stand start state stay step stir stop strive study submit subtract suggest summarize "
    "support suppose take talk teach tell thank think train transform travel treat try turn uncover "
    "understand unleash unlock update use utilize value verify visit visualize wait walk want watch wear "
    "welcome win witness work write"
)
_VERBS = frozenset(_COMMON_VERBS.split())


def looks_like_verb(word: str) -> bool:
    """A guess without a model: a common verb in its plain form or with -s, or a word in -ing or -ed."""
    plain = word.lower()
    stems = {plain, plain.removesuffix("s"), plain.removesuffix("es")}
    return bool(stems & _VERBS) or (len(plain) > 4 and plain.endswith(("ing", "ed")))
