"""An answer that is one text goes back without being taken apart; what does is decided as if it had been."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.translate.responses.items import ItemShaper
from proxy.wire.items import parse_item
from tests.unit.translate.turns import create, responses

_ID = st.sampled_from([{}, {"id": None}, {"id": "msg_1"}])
_STATUS = st.sampled_from([{}, {"status": None}, {"status": "completed"}])
_PART = st.one_of(
    st.sampled_from([None, 7, {}, {"type": "refusal", "refusal": "no"}, {"type": "text", "text": "x"}]),
    st.fixed_dictionaries(
        {"type": st.just("output_text"), "text": st.sampled_from(["", "said", 'a "quote"', "\ud83d\ude00", None, 7])},
        optional={
            "annotations": st.sampled_from([None, [], [{"type": "url_citation"}]]),
            "logprobs": st.just([]),
        },
    ),
)
_CONTENT: st.SearchStrategy[Any] = st.one_of(st.sampled_from(["said", "", None, 7, {}]), st.lists(_PART, max_size=2))


@given(_ID, _STATUS, _CONTENT, st.sampled_from(["generic", "vllm", "llamacpp", "openai", "transformers", "xai"]))
@settings(deadline=None, max_examples=300)
def test_one_text_is_kept_as_it_is_just_where_taking_it_apart_would_keep_it(
    named: dict[str, Any], stated: dict[str, Any], content: Any, profile: str
) -> None:
    raw = json.dumps({"type": "message", "role": "assistant", **named, **stated, "content": content}).encode()
    item = parse_item(raw)

    def encoded() -> tuple[bytes, object]:
        translator = responses(create(), profile=profile)
        return translator.encode([item]), translator.left_out

    fast = encoded()
    with patch.object(ItemShaper, "_is_said_so", lambda *_: False):
        assert encoded() == fast
