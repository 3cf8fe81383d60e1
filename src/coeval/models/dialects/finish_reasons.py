"""How an answer ended, in the words of every house: one table for all dialects.

A gateway hands on the words of the house behind it, so that any dialect meets those of any other. Sources:
the references of OpenAI, Azure, Anthropic, Google, Cohere, AWS (Converse, Titan), Mistral, DeepSeek, Zhipu,
Tencent, Baidu, IBM watsonx, Ollama, llama.cpp, TGI, vLLM, SGLang and xAI.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

from coeval.core.errors import ContentFiltered, ServerFault, Unreadable
from coeval.core.records import Usage

Ending: TypeAlias = Literal["stop", "length", "tool_calls", "filtered", "broken_off", "unusable"]

# Letters alone, in small: ``MAX_TOKENS``, ``maxTokens`` and ``max-tokens`` are one word.
_WORDS: Mapping[Ending, str] = {
    "stop": "stop stopsequence stoptoken endturn eos eostoken endoftext end complete completed finish "
    "finished done normal unspecified",
    "length": "length lengthlimit maxlen maxlength maxtoken maxtokens maxnewtokens maxoutputtokens "
    "maxcontext modellength tokenlimit tokenlimitreached contextlength contextlengthexceeded "
    "contextwindowexceeded modelcontextwindowexceeded continuation errorlimit incomplete",
    "tool_calls": "toolcalls toolcall tooluse functioncall",
    # Google's reasons that speak of images come with its models that paint as well.
    "filtered": "contentfilter contentfiltered contentfiltering contentpolicy contentpolicyviolation safety "
    "recitation prohibitedcontent blocklist blocked spii sensitive language escalation modelarmor "
    "puplimiteddisabled imagesafety imageprohibitedcontent imagerecitation guardrail guardrailintervened "
    "guardrails moderation flagged refusal errortoxic datainspectionfailed",
    # By the host, which may well answer next time.
    "broken_off": "error abort aborted cancel cancelled canceled usercancel failed timeout timelimit "
    "networkerror servererror internalerror engineerror insufficientsystemresource",
    # By the model, which made what its host cannot hand over.
    "unusable": "malformedfunctioncall malformedresponse malformedmodeloutput malformedtooluse imageother "
    "noimage missingthoughtsignature other toomanytoolcalls unexpectedtoolcall",
}
_ENDINGS: Mapping[str, Ending] = {word: ending for ending, words in _WORDS.items() for word in words.split()}
_NO_LETTER = re.compile(r"[^a-z]")
# Of enumerations: ``FinishReason.SAFETY``, ``FINISH_REASON_UNSPECIFIED``, xAI's ``REASON_MAX_LEN``.
_ENUM = re.compile(r"^(?:finish|stop)?reason")


def finish_of(reason: str | None, usage: Usage, why: str = "", text: str | None = None) -> str:
    """Return ``stop``, ``length`` or ``tool_calls`` for a host's finish reason, or an unknown one as it came.

    ``why`` is what the host says of it, redacted. With a ``text``, "other" says nothing against it.

    Raises ContentFiltered: the host withheld the answer; ServerFault, Unreadable: it broke it off.
    """
    if not reason:
        return "stop"
    ending = _ENDINGS.get(reason) or _ENDINGS.get(_ENUM.sub("", _NO_LETTER.sub("", reason.lower())))
    detail = f"{reason}: {why}" if why else reason
    match ending:
        case "filtered":
            raise ContentFiltered(f"the host's content filter withheld the answer ({detail})", usage=usage)
        case "broken_off":
            raise ServerFault(f"the host broke off its answer (finish reason {detail})", usage=usage)
        case "unusable" if not (text and reason.lower() == "other"):
            raise Unreadable(f"the host broke off its answer (finish reason {detail})", usage=usage)
        case "unusable" | None:
            return reason
    return ending
