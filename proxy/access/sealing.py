"""Raw reasoning sealed into `encrypted_content`, and opened again when its tenant sends it back.

A sealed text is `lpr1.<key id>.<URL-safe base64 of nonce and ciphertext>`, AES-256-GCM with version, key id and
tenant as associated data. Nothing is compressed first: the length of a compressed text tells of what is in it.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable, Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# The longest text that is sealed (bytes of UTF-8), and the longest that is opened (characters).
MAX_TEXT_BYTES = 128 * 2**20
MAX_SEALED_CHARS = 4 * (MAX_TEXT_BYTES // 3) + 256
_VERSION = "lpr1"
_NONCE_BYTES, _TAG_BYTES = 12, 16
# Of any version: what another release of Loopline sealed is no upstream's either.
_OURS = re.compile(r"lpr[0-9]{1,3}\.")


class Sealer:
    """Seals and opens texts. `keys` is key id → 32 bytes: the first seals, all open. Its repr shows ids alone."""

    __slots__ = ("_active", "_ciphers", "_nonce")

    def __init__(self, keys: Mapping[str, bytes], nonce: Callable[[int], bytes] = secrets.token_bytes) -> None:
        """`nonce` gives that many random bytes. Raises ValueError without a key or with one of another size."""
        if not keys or any(len(key) != 32 for key in keys.values()):
            raise ValueError("a sealer needs keys of 32 bytes")
        self._ciphers = {name: AESGCM(key) for name, key in keys.items()}
        self._active = next(iter(keys))
        self._nonce = nonce

    def __repr__(self) -> str:
        return f"Sealer({', '.join(self._ciphers)})"

    def seal(self, tenant: str, text: str) -> str:
        """`text`, to be opened for `tenant` alone. Raises ValueError above `MAX_TEXT_BYTES`."""
        plain = text.encode("utf-8", "surrogatepass")
        if len(plain) > MAX_TEXT_BYTES:
            raise ValueError(f"a text of {len(plain)} bytes is too long to be sealed")
        nonce = self._nonce(_NONCE_BYTES)
        cipher = self._ciphers[self._active]
        encrypted = cipher.encrypt(nonce, plain, _associated(self._active, tenant))
        return f"{_VERSION}.{self._active}.{_encode(nonce + encrypted)}"

    def open(self, tenant: str, sealed: str) -> str | None:
        """What `seal` was given; None for anything else: foreign, altered, another tenant's, of an unknown key."""
        if len(sealed) > MAX_SEALED_CHARS:
            return None
        version, name, encoded, *_ = (*sealed.split(".", 2), "", "")
        cipher = self._ciphers.get(name)
        if version != _VERSION or cipher is None:
            return None
        data = _decode(encoded)
        if len(data) < _NONCE_BYTES + _TAG_BYTES:
            return None
        try:
            plain = cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _associated(name, tenant))
        except InvalidTag:
            return None
        return plain.decode("utf-8", "surrogatepass")

    def is_ours(self, sealed: str) -> bool:
        """Whether a Loopline sealed it, by its prefix: then no upstream can read it, whether or not it opens here."""
        return _OURS.match(sealed) is not None


def _associated(name: str, tenant: str) -> bytes:
    # A key's id has no dot: no two triples give the same bytes.
    return f"{_VERSION}.{name}.{tenant}".encode("utf-8", "surrogatepass")


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(encoded: str) -> bytes:
    """Nothing unless it is exactly what `_encode` writes: base64 has several texts for the same bytes."""
    try:
        data = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except ValueError:  # not base64, or not even ASCII
        return b""
    return data if _encode(data) == encoded else b""
