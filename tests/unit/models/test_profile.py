from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

from proxy.errors import Kind, LooplineError
from proxy.models.profile import EVERYTHING, GENERIC, Chat, Responses, Signs, Written, profiles, read_profile, takes
from proxy.settings.model import Endpoint

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "proxy" / "models" / "profiles").glob("*.toml"))
EFFORTS = {"none", "minimal", "low", "medium", "high", "xhigh", "max"}
# What a create may set and a chat request can carry. Source: API reference, Responses, create.
CARRIED = {
    "temperature", "top_p", "presence_penalty", "frequency_penalty", "max_output_tokens", "parallel_tool_calls",
    "top_logprobs", "reasoning.effort", "text.verbosity", "service_tier", "prompt_cache_key", "prompt_cache_retention",
    "safety_identifier", "user",
}  # fmt: skip


def test_the_built_in_profiles_are_the_files() -> None:
    assert [file.stem for file in FILES] == list(profiles()) == [profile.name for profile in profiles().values()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_is_a_profile_that_says_where_it_is_from(file: Path) -> None:
    profile = read_profile(file.read_bytes(), file.stem)
    assert profile.title
    assert file.read_text().startswith("# "), "say where its values are known from"
    assert set(profile.chat.fields) <= CARRIED
    assert set(profile.chat.efforts) <= EFFORTS
    assert set(profile.chat.ignored) <= CARRIED | {"text.format", "tool_choice"}
    assert {"message", "function_call", "function_call_output"} <= set(profile.responses.items) or takes(
        profile.responses.items, "anything"
    )
    assert takes(profile.responses.tools, "function")
    assert profile.signs != Signs() or profile.name == GENERIC


def test_no_two_profiles_have_a_sign_in_common() -> None:
    signs = [profile.signs for profile in profiles().values()]
    for values in ([s.hosts for s in signs], [s.owners for s in signs], [tuple(s.answers.items()) for s in signs]):
        flat = [sign for each in values for sign in each]
        assert len(flat) == len(set(flat))


@pytest.mark.parametrize(
    "text",
    ["", "title = 1", 'title = "x"\nname = "y"', 'title = "x"\nfoo = 1', 'title = "x"\ndialect = "grpc"',
     'title = "x"\n[chat]\nreasoning = "thinking"', 'title = "x"\n[chat]\nusagee = true',
     'title = "x"\n[responses]\ntools = "function"', 'title = "x', '\ufeff'],
)  # fmt: skip
def test_a_file_that_is_no_profile_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(LooplineError, match="profile 'mine' is not valid") as raised:
        read_profile(text.encode(), "mine")
    assert raised.value.kind is Kind.INVALID_REQUEST


def test_a_file_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(LooplineError):
        read_profile(b'title = "\xff"', "mine")


def test_a_file_of_one_line_is_the_generic_server_by_another_name() -> None:
    mine = read_profile(b'title = "Mine"', "mine")
    assert (mine.chat, mine.responses, mine.name) == (Chat(), Responses(), "mine")
    assert profiles()[GENERIC].chat == Chat()


def test_everything_is_taken_where_a_list_says_so() -> None:
    assert takes((EVERYTHING,), "unheard-of")
    assert takes(("a",), "a")
    assert not takes(("a",), "b")


# What profiles and their tables are called where they are read.
HOLDERS = {"profile", "_profile", "chat", "responses", "signs"}


def test_no_knob_is_dead() -> None:
    read = {
        node.attr
        for file in (ROOT / "proxy").rglob("*.py")
        if file.parts[-2:] != ("models", "profile.py") and "tools" not in file.parts
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).rpartition(".")[2] in HOLDERS
    }
    knobs = {field for table in (Signs, Chat, Responses, Written) for field in table.__struct_fields__}
    assert knobs - read == {"title"}  # people read it


def test_the_setting_names_every_profile() -> None:
    description = Endpoint.model_fields["profile"].description or ""
    assert all(f" {name}," in description for name in ("generic", *profiles()))


def test_profiles_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        profiles()[GENERIC].title = "x"  # type: ignore[misc]
    assert msgspec.structs.replace(profiles()[GENERIC], title="x") != profiles()[GENERIC]
