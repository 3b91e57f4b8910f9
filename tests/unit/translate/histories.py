"""Conversations as clients send them whole: drawn from every kind of item, in orders that pairing allows."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

TEXT = st.sampled_from(["", "a", "b", 'say "hi"', "é\u2028"])
_IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
CONTENT = st.one_of(
    TEXT,
    st.lists(st.one_of(TEXT.map(lambda text: {"type": "input_text", "text": text}), st.just(_IMAGE)), max_size=3),
)
ANSWERED = st.one_of(
    TEXT,
    st.lists(TEXT.map(lambda text: {"type": "output_text", "text": text, "annotations": []}), max_size=2),
    TEXT.map(lambda text: [{"type": "refusal", "refusal": text}]),
)
SPOKEN = st.one_of(
    st.builds(lambda role, content: {"role": role, "content": content},
              st.sampled_from(["user", "user", "system", "developer"]), CONTENT),
    st.builds(lambda content, status: {"type": "message", "role": "assistant", "content": content, **status},
              ANSWERED, st.sampled_from([{}, {"id": "msg_1", "status": "completed"}])),
    st.builds(lambda said, sealed: {"type": "reasoning", "summary": said, **sealed},
              st.lists(TEXT.map(lambda text: {"type": "summary_text", "text": text}), max_size=2),
              st.sampled_from([{}, {"encrypted_content": "SEALED thought"}, {"encrypted_content": "foreign"},
                               {"content": [{"type": "reasoning_text", "text": "raw"}]}])),
    st.sampled_from([
        {"type": "additional_tools", "role": "developer", "tools": []},
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []},
        {"type": "function_call", "call_id": "cut", "name": "f", "arguments": "{\"a", "status": "incomplete"},
    ]),
)  # fmt: skip
HOSTED = st.sampled_from([
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
    {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "1", "outputs": None},
    {"type": "tool_search_call", "execution": "server", "call_id": None, "arguments": {}},
    {"type": "tool_search_output", "execution": "server", "call_id": None, "tools": []},
])  # fmt: skip
_CALLS: tuple[tuple[Json, Json], ...] = (
    ({"type": "function_call", "name": "f", "arguments": "{}"}, {"type": "function_call_output"}),
    ({"type": "custom_tool_call", "name": "exec", "input": "ls"}, {"type": "custom_tool_call_output"}),
    ({"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"]}}, {"type": "local_shell_call_output"}),
    ({"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "p"}},
     {"type": "apply_patch_call_output", "status": "completed"}),
)  # fmt: skip
TOOLS: list[Json] = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}},
    {"type": "custom", "name": "exec"},
    {"type": "local_shell"},
    {"type": "apply_patch"},
]


@st.composite
def rounds(draw: st.DrawFn) -> list[Json]:
    """Some calls and all their outputs, with something said among them."""
    made: list[tuple[Json, Json]] = []
    for _ in range(draw(st.integers(1, 3))):
        call, output = draw(st.sampled_from(_CALLS))
        call_id = draw(st.sampled_from(["call_1", "call_2", "call_3"]))
        if any(call_id == each["call_id"] for each, _ in made):
            continue
        said = draw(TEXT if output["type"] != "function_call_output" else CONTENT)
        made.append(({**call, "call_id": call_id}, {**output, "call_id": call_id, "output": said}))
    items = [call for call, _ in made]
    for _, output in draw(st.permutations(made)):
        items += draw(st.lists(SPOKEN, max_size=1))
        items.append(output)
    return items


@st.composite
def histories(draw: st.DrawFn, hosted: bool = True) -> list[Json]:
    """A whole conversation."""
    alone = st.one_of(SPOKEN, SPOKEN, HOSTED) if hosted else SPOKEN
    parts = draw(st.lists(st.one_of(alone.map(lambda item: [item]), rounds()), min_size=1, max_size=6))
    return [item for part in parts for item in part]
