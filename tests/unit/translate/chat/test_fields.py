"""The settings of a create as a chat server is told them, and what it cannot be told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from proxy.errors import Kind, LooplineError
from proxy.models.profile import Chat
from proxy.translate.chat.fields import ChatFields, own_members, wants_logprobs
from proxy.wire.items import Item
from tests.unit.strategies import dumped
from tests.unit.translate.turns import create

EVERYTHING = {
    "temperature": "temperature", "top_p": "top_p", "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty", "max_output_tokens": "max_completion_tokens",
    "parallel_tool_calls": "parallel_tool_calls", "reasoning.effort": "reasoning_effort",
    "text.verbosity": "verbosity", "top_logprobs": "top_logprobs", "service_tier": "service_tier",
    "prompt_cache_key": "cache_salt", "metadata": "metadata",
}  # fmt: skip
FULL, BARE = Chat(fields=EVERYTHING), Chat(fields={})


def told(profile: Chat, *lasting: Item, has_tools: bool = True, **members: Any) -> tuple[dict[str, Any], list[str]]:
    """The members of the request, and the names of what is left out."""
    given = create(**members)
    fields = ChatFields(given.terms, profile, lasting, has_tools=has_tools)
    assert {each.what for each in fields.left_out} <= {"field"}
    said = [*fields.members, *own_members(given.own, profile)]
    made = json.loads(b"{" + b",".join(said) + b"}", object_pairs_hook=_once)
    return made, [each.name for each in fields.left_out]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), "a member stands twice"
    return dict(pairs)


SETTINGS: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = [
    ({"temperature": 0.5}, {"temperature": 0.5}),
    ({"top_p": 0.25}, {"top_p": 0.25}),
    ({"presence_penalty": 1}, {"presence_penalty": 1}),
    ({"frequency_penalty": -1}, {"frequency_penalty": -1}),
    ({"max_output_tokens": 9}, {"max_completion_tokens": 9}),
    ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
    ({"text": {"verbosity": "low"}}, {"verbosity": "low"}),
    ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
    ({"service_tier": "flex"}, {"service_tier": "flex"}),
    ({"top_logprobs": 3}, {"top_logprobs": 3, "logprobs": True}),
]


@pytest.mark.parametrize(("asked", "sent"), SETTINGS)
def test_a_setting_is_told_by_the_servers_name_or_said_to_be_left_out(asked: Any, sent: Any) -> None:
    assert told(FULL, **asked) == (sent, [])
    made, left = told(BARE, **asked)
    (name,) = asked
    assert (made, [each.partition(".")[0] for each in left]) == ({}, [name])


def test_other_members_go_along_where_a_profile_names_them_and_change_no_answer_where_not() -> None:
    asked: dict[str, Any] = {
        "prompt_cache_key": "k",
        "metadata": {"a": "b"},
        "user": "u",
        "safety_identifier": "s",
        "store": False,
    }
    assert told(FULL, **asked) == ({"cache_salt": "k", "metadata": {"a": "b"}}, [])
    assert told(BARE, **asked) == ({}, [])


@pytest.mark.parametrize(
    "asked",
    [
        {"truncation": "disabled"}, {"service_tier": "auto"}, {"service_tier": "default"}, {"presence_penalty": 0.0},
        {"frequency_penalty": 0}, {"top_logprobs": 0}, {"parallel_tool_calls": True}, {"text": {"verbosity": "medium"}},
        {"temperature": None}, {"reasoning": {"effort": None}}, {"reasoning": None}, {"text": None}, {"include": []},
        {"reasoning": {"summary": "auto"}}, {"include": ["reasoning.encrypted_content"]},
    ],
)  # fmt: skip
def test_what_happens_anyhow_is_not_left_out(asked: Any) -> None:
    assert told(BARE, **asked) == ({}, [])


def test_what_a_server_takes_and_does_not_obey_is_told_and_said() -> None:
    profile = Chat(fields=EVERYTHING, ignored=("temperature", "top_logprobs"))
    assert told(profile, temperature=0.5, top_p=0.5) == ({"temperature": 0.5, "top_p": 0.5}, ["temperature"])
    assert told(profile, top_logprobs=2) == ({}, ["top_logprobs"])
    assert not wants_logprobs(create(top_logprobs=2).terms, profile)


def test_how_to_call_tools_is_told_only_where_there_are_any() -> None:
    for profile in (FULL, BARE):
        assert told(profile, has_tools=False, parallel_tool_calls=False) == ({}, [])


INCLUDE = "message.output_text.logprobs"


def test_log_probabilities_may_be_asked_for_without_alternatives() -> None:
    assert told(FULL, include=[INCLUDE]) == ({"logprobs": True}, [])
    assert told(FULL, include=[INCLUDE], top_logprobs=0) == ({"logprobs": True}, [])
    assert told(FULL, include=[INCLUDE], top_logprobs=2) == ({"logprobs": True, "top_logprobs": 2}, [])
    assert told(BARE, include=[INCLUDE]) == ({}, [INCLUDE])
    asked, unasked = create(include=[INCLUDE]).terms, create(top_logprobs=0).terms
    assert [wants_logprobs(*each) for each in ((asked, FULL), (asked, BARE), (unasked, FULL))] == [True, False, False]


@pytest.mark.parametrize(
    ("effort", "sent", "left"),
    [("low", "little", []), ("xhigh", "much", []), ("none", None, ["reasoning.effort"])],
)
def test_an_effort_is_told_in_the_servers_words(effort: str, sent: str | None, left: list[str]) -> None:
    profile = Chat(fields=EVERYTHING, efforts={"low": "little", "xhigh": "much"})
    assert told(profile, reasoning={"effort": effort}) == ({"reasoning_effort": sent} if sent else {}, left)


def update(**members: Any) -> Item:
    return Item("configuration_update", dumped({"type": "configuration_update", **members}))


SCHEMA = {"type": "json_schema", "name": "n", "schema": {"a": 1}}


def test_later_updates_of_the_configuration_replace_what_came_before_setting_by_setting() -> None:
    made, left = told(
        FULL, update(reasoning={"effort": "low"}, text={"format": SCHEMA}), update(reasoning={"effort": "high"}),
        Item("additional_tools", b"{}"), update(reasoning={"effort": None}, text=None),
        reasoning={"effort": "medium"}, text={"verbosity": "low", "format": {"type": "json_object"}},
    )  # fmt: skip
    assert (made["reasoning_effort"], made["verbosity"], left) == ("high", "low", [])
    assert made["response_format"] == {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}}}


def test_an_update_may_go_back_to_plain_text() -> None:
    assert "response_format" not in told(FULL, update(text={"format": {"type": "text"}}), text={"format": SCHEMA})[0]


@pytest.mark.parametrize("odd", [{"reasoning": 7}, {"text": []}, {"reasoning": {"effort": 7}}, {"text": {"format": 7}}])
def test_an_update_that_is_none_is_an_error_with_a_name(odd: Any) -> None:
    with pytest.raises(LooplineError) as raised:
        told(FULL, update(**odd))
    assert raised.value.status == 400
    assert raised.value.param in ("input", "reasoning.effort", "text.format")


def test_a_template_that_only_its_own_server_has_is_refused() -> None:
    with pytest.raises(LooplineError) as raised:
        told(FULL, prompt={"id": "p"})
    assert (raised.value.kind, raised.value.param) == (Kind.UNSUPPORTED_PARAMETER, "prompt")


# --- members that no API here knows ---

OWN_WORDS: dict[str, Any] = {
    "seed": 42,
    "stop": ["x"],
    "top_k": 20,
    "min_p": 0.1,
    "chat_template_kwargs": {"enable_thinking": False},
}


def test_members_of_a_servers_own_are_carried_as_they_are() -> None:
    assert told(Chat(fields={}, unknown="carried"), **OWN_WORDS) == (OWN_WORDS, [])


def test_members_that_a_server_might_refuse_are_left_out_and_named() -> None:
    assert told(BARE, **OWN_WORDS) == ({}, list(OWN_WORDS))


@pytest.mark.parametrize("unknown", ["carried", "left_out"])
def test_what_is_not_a_clients_to_set_is_never_carried(unknown: Any) -> None:
    given: dict[str, Any] = {
        "context_management": [],
        "moderation": {},
        "messages": [],
        "max_completion_tokens": 9,
        "n": 4,
        "n_cmpl": 4,
    }
    assert told(Chat(unknown=unknown), **given) == ({}, list(given))


@pytest.mark.parametrize("unknown", ["carried", "left_out"])
def test_nothing_is_said_of_what_changes_no_answer(unknown: Any) -> None:
    given: dict[str, Any] = {
        "type": "response.create", "stream": True, "store": False, "model": "m", "background": False, "user": "u",
        "metadata": {"a": "b"}, "safety_identifier": "s", "prompt_cache_key": "k", "prompt_cache_retention": "24h",
        "client_metadata": {"a": "b"}, "stream_options": {}, "include": ["reasoning.encrypted_content"],
        "max_tool_calls": 3, "reasoning": {"summary": "auto", "context": "auto"}, "instructions": "i",
    }  # fmt: skip
    assert told(Chat(fields={}, unknown=unknown), **given) == ({}, [])


def test_a_member_stands_once_whichever_name_it_was_given_by() -> None:
    given: dict[str, Any] = {
        "reasoning": {"effort": "low"},
        "reasoning_effort": "high",
        "response_format": {"type": "json_object"},
    }
    made, left_out = told(Chat(unknown="carried"), **given, text={"format": {"type": "json_object"}})
    assert made == {"reasoning_effort": "low", "response_format": {"type": "json_object"}}
    assert left_out == ["reasoning_effort", "response_format"]


def test_settings_inside_others_that_cannot_be_told_are_named() -> None:
    assert told(BARE, reasoning={"context": "current_turn"}, text={"tone": "dry"})[1] == [
        "reasoning.context",
        "text.tone",
    ]


def test_a_clients_own_words_are_bounded() -> None:
    given: dict[str, Any] = {f"{number:03}" + "x" * 100: 1 for number in range(100)}
    left_out = told(BARE, **given)[1]
    assert len(left_out) == 32
    assert max(map(len, left_out)) == 64


@pytest.mark.parametrize("context", ["auto", "all_turns"])
def test_reasoning_of_all_turns_is_what_servers_are_told_anyhow(context: str) -> None:
    assert told(BARE, reasoning={"context": context}) == ({}, [])
