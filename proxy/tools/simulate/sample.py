"""Deterministic values that satisfy a JSON schema; pure.

Made for tool arguments and structured output. Not honoured: `pattern`, `not`, `if`, `dependent*`, `uniqueItems`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

# Values that real agents' tools can act on without harm.
BY_NAME: Mapping[str, str] = {
    "cmd": "echo hello",
    "command": "echo hello",
    "script": "echo hello",
    "code": "print('hello')",
    "path": "README.md",
    "file": "README.md",
    "file_path": "README.md",
    "city": "Paris",
    "location": "Paris",
    "url": "http://localhost/",
    "query": "hello",
    "name": "Ada",
}
BY_FORMAT: Mapping[str, str] = {
    "date": "2026-01-02",
    "date-time": "2026-01-02T03:04:05Z",
    "time": "03:04:05Z",
    "email": "ada@example.com",
    "uri": "http://localhost/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "127.0.0.1",
}
_MAX_DEPTH = 24  # a schema may refer to itself


def sample(schema: Schema) -> Any:
    """A value for `schema`: required properties only, the first of an enum, the least of a range."""
    return _value(schema, schema, "", 0)


def _value(schema: Any, root: Schema, name: str, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return None if depth > _MAX_DEPTH else "text"
    if "$ref" in schema:
        return _value(_resolve(schema["$ref"], root), root, name, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if schema.get(key):
            return schema[key][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _value(_first(schema[key]), root, name, depth + 1)
    if schema.get("allOf"):
        return _value(_merged(schema, root), root, name, depth + 1)
    return _of_type(schema, root, name, depth)


def _first(choices: list[Any]) -> Any:
    """The first alternative that is not null."""
    return next((c for c in choices if not (isinstance(c, Mapping) and c.get("type") == "null")), choices[0])


def _resolve(ref: Any, root: Schema) -> Any:
    node: Any = root
    for key in str(ref).removeprefix("#").split("/")[1:]:
        node = node.get(key.replace("~1", "/").replace("~0", "~"), {}) if isinstance(node, Mapping) else {}
    return node


def _merged(schema: Schema, root: Schema) -> Schema:
    merged: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
    for part in schema["allOf"]:
        if "$ref" in part:
            part = _resolve(part["$ref"], root)
        for key, value in part.items():
            if key == "properties":
                merged[key] = {**merged.get(key, {}), **value}
            elif key == "required":
                merged[key] = [*merged.get(key, []), *value]
            else:
                merged[key] = value
    return merged


def _of_type(schema: Schema, root: Schema, name: str, depth: int) -> Any:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if kind is None:
        kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
    if kind == "object":
        properties = schema.get("properties") or {}
        return {key: _value(properties.get(key, {}), root, key, depth + 1) for key in schema.get("required") or ()}
    if kind == "array":
        length = max(schema.get("minItems", 0), min(1, schema.get("maxItems", 1)))
        return [_value(schema.get("items", {}), root, name, depth + 1) for _ in range(length)]
    if kind in ("integer", "number"):
        return _number(schema, kind == "integer")
    return _string(schema, name) if kind == "string" else True if kind == "boolean" else None


def _number(schema: Schema, integer: bool) -> float:
    step = schema.get("multipleOf", 1)
    low = schema.get("minimum")
    if "exclusiveMinimum" in schema:
        low = schema["exclusiveMinimum"] + (step if integer else step / 2)
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    value = low if low is not None else min(1, high - 1) if high is not None else 1
    if "multipleOf" in schema:
        value = -(-value // step) * step
    return int(value) if integer and value == int(value) else value


def _string(schema: Schema, name: str) -> str:
    text = BY_FORMAT.get(schema.get("format", "")) or BY_NAME.get(name, "text")
    text = text.ljust(schema.get("minLength", 0), "x")
    return text[: schema.get("maxLength", len(text))]
