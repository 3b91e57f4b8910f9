"""Headers as text: `name=value`, one in each line or with commas between, as OTEL_EXPORTER_OTLP_HEADERS has them.

Messages say which one is wrong and why. They never show it: its value may be a secret.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from proxy.settings.keys import BadKeys

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x20-\x7e]+")
_ENDS = re.compile(r"[\r\n,]+")


def parse_headers(text: str) -> dict[str, str]:
    """Name, in lower case → value, percent-decoded. Raises `BadKeys`."""
    headers: dict[str, str] = {}
    for number, pair in enumerate((pair for pair in map(str.strip, _ENDS.split(text)) if pair), 1):
        name, equals, value = pair.partition("=")
        name, value = name.strip().lower(), unquote(value.strip())
        if not equals or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadKeys(f"number {number} is not name=value, with what a header can carry; %2C stands for a comma")
        headers[name] = value
    if not headers:
        raise BadKeys("there is none; write name=value")
    return headers
