"""Chat Completions messages as they are built from items, in an order that engines take.

What one answer said (reasoning, text, calls) is one assistant message, and its outputs come right after it: whatever
stood between a call and its output follows the outputs (`in_order`). A request has at most one leading system message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import xxhash

from proxy.errors import Kind, LooplineError
from proxy.models.profile import Chat
from proxy.translate.chat.parts import ChatPart, announced, texts_and_media
from proxy.translate.left_out import LeftOut
from proxy.translate.pieces import separated
from proxy.translate.tools.arguments import TOOL_OF_CALL
from proxy.translate.tools.listed import Tools
from proxy.translate.tools.outputs import TOOL_OF_OUTPUT
from proxy.wire.codec import Raw, decode_text, encode
from proxy.wire.items import Item

_MAX_CALL_ID = 64  # characters (API reference, Chat Completions, tool_calls)
_SYSTEM_ROLES = frozenset({"system", "developer"})


class _Assistant:
    """An assistant message that is still growing; text comes in pieces, which are joined once."""

    __slots__ = ("awaits", "calls", "text", "thoughts")

    def __init__(self) -> None:
        self.text: list[str | Raw] = []
        self.thoughts: list[str] = []
        self.calls: list[dict[str, object]] = []
        self.awaits = False  # has it calls whose outputs are items of their own?


class Messages:
    """The messages of some items; `finish` gives their bytes.

    `search` is where the arguments of a tool search wait that the items' own server did.
    """

    def __init__(
        self, tools: Tools, profile: Chat, open_reasoning: Callable[[str], str | None], left_out: list[LeftOut]
    ) -> None:
        self.tools = tools
        self.profile = profile
        self.open_reasoning = open_reasoning
        self.left_out = left_out
        self.search: str | None = None
        self._done: list[bytes] = []
        self._only_system = True
        self._assistant: _Assistant | None = None
        self._own_outputs: list[bytes] = []
        self._media: list[ChatPart] = []
        self._following: list[tuple[str, str | Raw | list[ChatPart]]] = []
        self._hosted_ids: set[str] = set()

    def say(self, role: str, content: str | Raw | list[ChatPart]) -> None:
        """A message of the user or of the system; a text may be a JSON string already."""
        if self._assistant is not None and not self._assistant.calls:
            self._end_assistant()
        self._following.append((role, content))

    def text(self, text: str | Raw) -> None:
        """Some text of the assistant; it may be a JSON string already."""
        self._grown(ends_text=True).text.append(text)

    def think(self, text: str) -> None:
        """Some reasoning of the assistant."""
        self._grown(ends_text=True).thoughts.append(text)

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """A call that an item answers."""
        grown = self._grown()
        grown.awaits = True
        grown.calls.append(_call(call_id, name, arguments))

    def output(self, call_id: str, content: str | list[ChatPart]) -> None:
        """The answer to a call."""
        self._end_assistant()
        self._add(self._tool(call_id, content))

    def hosted(self, item: Item, item_id: str | None, name: str, arguments: str, content: str | list[ChatPart]) -> None:
        """A call that its own server answered, with its answer."""
        call_id = self._hosted_id(item, item_id)
        grown = self._grown()
        grown.calls.append(_call(call_id, name, arguments))
        self._own_outputs.append(self._tool(call_id, content))
        if not grown.awaits:  # what was said next was said knowing the answer
            self._end_assistant()

    def finish(self) -> bytes:
        """All messages, joined by commas."""
        self._end_assistant()
        self._end_following()
        return b",".join(self._done)

    def _grown(self, *, ends_text: bool = False) -> _Assistant:
        """The growing assistant message, a new one where text is in it and another answer begins.

        Once it has calls it is never left: engines want nothing between calls and their outputs.
        """
        grown = self._assistant
        if grown is not None and ends_text and grown.text and not grown.calls:
            self._end_assistant()
        if self._assistant is None:
            self._end_following()
            self._assistant = _Assistant()
        return self._assistant

    def _end_assistant(self) -> None:
        grown, self._assistant = self._assistant, None
        if grown is None:
            return
        said = grown.text[0] if len(grown.text) == 1 else "".join(map(_text, grown.text))
        message: dict[str, object] = {"role": "assistant", "content": said if grown.text or not grown.calls else None}
        if grown.thoughts:
            message[self.profile.reasoning] = "\n\n".join(grown.thoughts)
        if grown.calls:
            message["tool_calls"] = grown.calls
        self._add(encode(message))
        self._done += self._own_outputs
        self._own_outputs.clear()

    def _end_following(self) -> None:
        media, self._media = self._media, []
        if media:
            self._add(encode({"role": "user", "content": media}))
        following, self._following = self._following, []
        for role, content in following:
            if role not in _SYSTEM_ROLES:
                self._add(encode({"role": role, "content": content}))
            elif self._only_system:
                self._done.append(encode({"role": role, "content": content}))
            else:
                late = "user" if self.profile.late_system == "user" else role
                self._done.append(encode({"role": late, "content": content}))

    def _add(self, message: bytes) -> None:
        self._only_system = False
        self._done.append(message)

    def _tool(self, call_id: str, content: str | list[ChatPart]) -> bytes:
        if not isinstance(content, str):
            texts, media = texts_and_media(content)
            if not media:
                content = "\n".join(texts)
            elif self.profile.tool_images == "user":
                self._media += media
                content = "\n".join(texts) or announced(media)
        return encode({"role": "tool", "tool_call_id": call_id, "content": content})

    def _hosted_id(self, item: Item, item_id: str | None) -> str:
        if not item_id or len(item_id) > _MAX_CALL_ID or item_id in self._hosted_ids:
            # The same in a chain and in a full resend: of the item alone, unless it stands here twice.
            item_id = "call_" + xxhash.xxh3_128_hexdigest(item.raw)
            if item_id in self._hosted_ids:
                item_id = "call_" + xxhash.xxh3_128_hexdigest(b"%d %b" % (len(self._hosted_ids), item.raw))
        self._hosted_ids.add(item_id)
        return item_id


def in_order(items: Sequence[Item]) -> list[tuple[int, Item]]:
    """Items with their places, as `Messages` takes them: once one of some calls is answered, all of them are.

    Outputs of calls that are none of these items' come first: the calls stand at the end of what was said before.
    """
    numbered = list(enumerate(items))
    if not any(item.kind in TOOL_OF_OUTPUT for item in items):
        return numbered
    answers = _answers(items)
    early = [pair for pair in numbered if answers.get(pair[0]) == _EARLIER]
    ordered, moved = early, {at for at, _ in early}
    outputs = {call: at for at, call in answers.items() if call != _EARLIER}
    waiting: list[int] = []
    for at, item in numbered:
        if at in moved:
            continue
        if at in answers:
            together = sorted(outputs[call] for call in waiting if call in outputs)
            ordered += [(each, items[each]) for each in together]
            moved.update(together)
            waiting.clear()
            continue
        ordered.append((at, item))
        if at in outputs:
            waiting.append(at)
    return ordered


_EARLIER = -1


def _answers(items: Sequence[Item]) -> dict[int, int]:
    """The place of each output that answers somebody's call → that of the call, `_EARLIER` for none of these items."""
    made: dict[str, int] = {}
    found: dict[int, int] = {}
    for at, item in enumerate(items):
        if item.call_id is None:
            continue
        if item.kind in TOOL_OF_CALL and not item.unfinished:
            made[item.call_id] = at
        elif item.kind in TOOL_OF_OUTPUT:
            found[at] = made.pop(item.call_id, _EARLIER)
    return found


def _text(said: str | Raw) -> str:
    return said if isinstance(said, str) else decode_text(bytes(said)[1:-1])


Writer = Callable[[Messages, Item, str], None]  # the last is what to call the item in an error: `input[3]`


def finished(write: Writer) -> Writer:
    """A call that was cut off is left out: its arguments are no JSON, nobody answered it, and engines refuse it."""

    def write_finished(messages: Messages, item: Item, param: str) -> None:
        if item.unfinished:
            messages.left_out.append(LeftOut("item", item.kind))
        else:
            write(messages, item, param)

    return write_finished


def _call(call_id: str, name: str, arguments: str) -> dict[str, object]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


# A quote inside a JSON string is escaped, so that this is found between messages alone: see `Messages`, whose
# messages all begin with their role and hold no other object that does.
_NEXT = b',{"role":"'
_SYSTEM = re.compile(rb'\{"role":"(system|developer)","content":"')
_BLANK_LINE = b"\\n\\n"


def join_messages(instructions: bytes | None, fragments: Sequence[bytes], profile: Chat) -> list[bytes]:
    """All messages of a request, commas between them. `instructions` is a JSON string, `fragments` are encoded items.

    Instructions and the system messages right after them become one message: many templates allow one at most, at the
    start. Later ones are what `profile.late_system` says. Raises `LooplineError` (invalid_request) where there is no
    message.
    """
    rest = list(filter(None, fragments))
    role, texts = b"system", [] if instructions is None or instructions == b'""' else [instructions[1:-1]]
    while rest and _SYSTEM.match(rest[0]):
        first_role, found, after = _leading(rest[0])
        if len(texts) + len(found) == 1 and after:
            break  # it is one message already
        role = role if texts else first_role
        texts += found
        rest[:1] = [after] if after else []
    leading = [b'{"role":"%b","content":"%b"}' % (role, _BLANK_LINE.join(texts))] if texts else []
    messages = [*leading, *rest]
    if not messages:
        raise LooplineError(Kind.INVALID_REQUEST, "'input' holds nothing that a model could be told.", param="input")
    if profile.late_system == "user":
        messages[1:] = [_as_user(fragment) for fragment in messages[1:]]
    return separated(messages)


def _leading(fragment: bytes) -> tuple[bytes, list[bytes], bytes]:
    """The role and the texts of the system messages that a fragment begins with (JSON without quotes), and its rest."""
    texts: list[bytes] = []
    role, at = b"system", 0
    while match := _SYSTEM.match(fragment, at):
        role = role if texts else match.group(1)
        end = _end(fragment, match.end())
        texts.append(fragment[match.end() : end - len(b'"}')])
        at = end + 1
    return role, texts, fragment[at:]


def _as_user(fragment: bytes) -> bytes:
    """A fragment whose leading system messages are the user's."""
    pieces: list[bytes] = []
    at = 0
    while match := _SYSTEM.match(fragment, at):
        end = _end(fragment, match.end())
        pieces += (b'{"role":"user","content":"', fragment[match.end() : end + 1])
        at = end + 1
    return b"".join((*pieces, fragment[at:])) if pieces else fragment


def _end(fragment: bytes, start: int) -> int:
    """Where the message ends that `start` lies in."""
    found = fragment.find(_NEXT, start)
    return len(fragment) if found < 0 else found
