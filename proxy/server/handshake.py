"""What a request for a WebSocket must bring (RFC 6455, section 4.2.1), and what it is told where it does not; what is
agreed on compression (RFC 7692, section 7.1).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import lru_cache

from aiohttp import HttpVersion11, web
from websockets.exceptions import InvalidHandshake
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.headers import build_extension, parse_extension

from proxy.errors import Kind, LooplineError
from proxy.server.door import error_response

_KEY, _VERSION = "Sec-WebSocket-Key", "Sec-WebSocket-Version"
_KEY_BYTES = 16
# 7 and 8 are drafts whose frames are those of 13; aiohttp speaks them.
_VERSIONS = frozenset({"13", "8", "7"})
_EXTENSIONS = "Sec-WebSocket-Extensions"
_OF_THE_HANDSHAKE = frozenset({"connection", "upgrade", *(name.lower() for name in (_KEY, _VERSION, _EXTENSIONS))})
_DEFLATE = ServerPerMessageDeflateFactory()
_SPOKEN = {"Upgrade": "websocket", _VERSION: "13"}


def refused_handshake(request: web.Request) -> web.Response | None:
    """The answer to an upgrade that cannot be one; None where it can. Raises `LooplineError` (invalid_request)."""
    if request.version < HttpVersion11:
        raise _bad("A WebSocket needs HTTP/1.1.")
    if request.body_exists:  # it may still be on its way, and what of it is no frame?
        raise _bad("A request for a WebSocket has no body.")
    tokens = {token.strip().lower() for value in request.headers.getall("Connection", ()) for token in value.split(",")}
    if "upgrade" not in tokens:
        raise _bad("A WebSocket needs the header 'Connection: Upgrade'.")
    versions, keys = request.headers.getall(_VERSION, ()), request.headers.getall(_KEY, ())
    if len(versions) != 1 or versions[0] not in _VERSIONS:
        error = LooplineError(Kind.WEBSOCKET_OFF, f"{_VERSION} must be 13, given once.")
        return error_response(error, _SPOKEN)
    if len(keys) != 1 or not _is_key(keys[0]):
        raise _bad(f"{_KEY} must be the base64 of {_KEY_BYTES} bytes, given once.")
    return None


def agreed_compression(request: web.Request) -> dict[str, str]:
    """The header that accepts the client's first offer of permessage-deflate that can be accepted; else none."""
    answer = _answer_to(", ".join(request.headers.getall(_EXTENSIONS, ())))
    return {_EXTENSIONS: answer} if answer else {}


def lasting_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Those of an upgrade that say more than how to shake hands, by lower-case name: a socket keeps them."""
    return {name: value for name, value in headers.items() if name not in _OF_THE_HANDSHAKE}


@lru_cache(maxsize=32)  # clients of one kind all offer the same
def _answer_to(offers: str) -> str:
    try:
        parsed = parse_extension(offers)
    except InvalidHandshake:
        return ""
    for name, offered in parsed:
        if name != _DEFLATE.name:
            continue
        try:
            accepted, _ = _DEFLATE.process_request_params(offered, [])
        except (InvalidHandshake, ValueError):  # a window of 8 bits is legal, and too small for zlib
            continue
        return build_extension([(name, list(accepted))])
    return ""


def _is_key(value: str) -> bool:
    try:
        return len(base64.b64decode(value, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        return False


def _bad(message: str) -> LooplineError:
    return LooplineError(Kind.INVALID_REQUEST, message)
