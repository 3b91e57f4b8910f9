"""When two items are the same, though their bytes differ: the canonical form, and digests of prefixes.

Clients send an answer back in their own words: without ids, without status, a text for a list of one part, members in
another order. `canonical` keeps what means something and drops what `DROPPED` lists; everything else counts, members
that nobody here knows included. docs/caches.md has the same as a table.

A digest only finds. xxh3 is no cryptographic hash: whoever acts on a hit compares canonical forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import xxhash

from proxy.wire.items import Item

# Kinds of items that are read; any other counts whole, as do encrypted contents.
READ = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call",
        "local_shell_call_output",
        "shell_call",
        "shell_call_output",
        "apply_patch_call",
        "apply_patch_call_output",
    }
)
# Members of an item that clients leave out or alter when they send it again.
DROPPED: frozenset[str] = frozenset({"id", "parsed_arguments", "status"})
# Members of a part of a content.
DROPPED_OF_PARTS: frozenset[str] = frozenset({"annotations", "logprobs", "parsed"})
# Members that are JSON in a text: some clients read it, and write it anew.
WRITTEN: frozenset[str] = frozenset({"arguments"})
# A status of these means something: the call was cut off; the patch did not apply.
TELLING: frozenset[str] = frozenset({"incomplete", "failed"})
# Members that are a text or a list of parts.
SAID: frozenset[str] = frozenset({"content", "output", "summary"})
# Types of a part that is a text and nothing else: input to one side is output of the other.
TEXTS: frozenset[str] = frozenset({"input_text", "output_text", "text"})

_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_MEMBERS = msgspec.json.Decoder(dict[str, Any])
_CANONICAL = msgspec.json.Encoder(order="sorted").encode
# Above it a JSON number is no exact number to every client: it counts as it is written.
_EXACT = 2**53


def canonical(item: Item) -> bytes:
    """The canonical form: JSON with sorted members. Raises nothing: what cannot be read counts as it is.

    Dropped: `id` (but where it names the call that is answered) and a `status` that says nothing beyond "done";
    `annotations` and `logprobs` of parts, and what a client has parsed itself; members that are null or, in a content,
    empty lists; a `type` of message. Made equal: a text and a list with that one text; texts of input and output; `1`,
    `1.0` and `1e0`; white space, order and escapes of JSON, that in `arguments` included; `local_shell_call_output`'s
    `id` and `call_id`.
    """
    if item.kind not in READ:
        return _whole(item.raw)
    try:
        members = _MEMBERS.decode(item.raw)
        made = {name: _MADE.get(name, _value)(value) for name, value in members.items()}
    except (msgspec.DecodeError, RecursionError):
        return item.raw
    if not _is_any(made.get("status"), TELLING):
        made.pop("status", None)
    made.pop("id", None)
    made.pop("parsed_arguments", None)
    if item.kind == "local_shell_call_output":
        made["call_id"] = item.call_id
    if item.unfinished is not (members.get("status") == "incomplete"):
        made["status"] = "answered"  # a cut call that was answered all the same
    made["type"] = item.kind
    return _canonical({name: value for name, value in made.items() if value is not None}, item.raw)


def _whole(raw: bytes) -> bytes:
    """An opaque item: every member counts, only how it is written does not."""
    try:
        return _canonical(_value(_DECODER.decode(raw)), raw)
    except (msgspec.DecodeError, RecursionError):
        return raw


def _canonical(value: Any, raw: bytes) -> bytes:
    try:
        return _CANONICAL(value)
    except (RecursionError, ValueError, OverflowError):
        return raw


def _said(value: Any) -> Any:
    """A text, or parts; one text alone is a text, nothing said is none."""
    if not isinstance(value, list):
        return None if value == "" else _value(value)
    parts = [_part(part) if isinstance(part, dict) else _value(part) for part in value]
    if len(parts) == 1 and isinstance(parts[0], dict):
        part = parts[0]
        if part.keys() == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str):
            return part["text"] or None
    return parts or None


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    made = {name: _value(value) for name, value in part.items() if name not in DROPPED_OF_PARTS}
    made = {name: value for name, value in made.items() if value is not None}
    return {**made, "type": "text"} if _is_any(made.get("type"), TEXTS) else made


def _written(value: Any) -> Any:
    """A text that is JSON, as what it says; one that is none, as it is."""
    try:
        return [_value(_DECODER.decode(value))] if isinstance(value, str) else _value(value)
    except (msgspec.DecodeError, RecursionError):
        return value


def _is_any(value: Any, names: frozenset[str]) -> bool:
    return isinstance(value, str) and value in names


def _value(value: Any) -> Any:
    """Any value: nulls left out of objects, numbers in one spelling."""
    if isinstance(value, dict):
        return {name: _value(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_value(each) for each in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return value


_MADE: Mapping[str, Callable[[Any], Any]] = {**dict.fromkeys(SAID, _said), **dict.fromkeys(WRITTEN, _written)}


def item_digest(item: Item) -> bytes:
    """16 bytes that are equal for equal canonical forms."""
    return xxhash.xxh3_128_digest(canonical(item))


START = b"\0" * 16


def rolled(digests: Iterable[bytes], before: bytes = START) -> Iterator[bytes]:
    """The digest of the prefix that ends with each item, of the items' digests; `before` is that of what precedes."""
    for digest in digests:
        before = xxhash.xxh3_128_digest(before + digest)
        yield before


def same(one: Item, other: Item) -> bool:
    """Are two items equal in what they mean?"""
    return one is other or one == other or canonical(one) == canonical(other)
