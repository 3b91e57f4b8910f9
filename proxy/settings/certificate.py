"""The server's certificate and key, as files: whether they can be used, and the TLS context that they make."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class BadCertificate(ValueError):
    """A certificate or key that cannot be used: `key` is the setting at fault, the message says what to do."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def server_context(cert: str, key: str, minimum: str) -> ssl.SSLContext:
    """A context for a server. `minimum` is 1.2 or 1.3. Raises `BadCertificate`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[minimum]
    context.set_alpn_protocols(["http/1.1"])
    load_into(context, cert, key)
    return context


def load_into(context: ssl.SSLContext, cert: str, key: str) -> None:
    """Have new connections of `context` use these files. Raises `BadCertificate`, and then changes nothing."""
    for name, path in (("server.tls_cert", cert), ("server.tls_key", key)):
        _check_readable(name, path)
    # A pair that does not match would leave the context with one half of it.
    for tried in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
        try:
            tried.load_cert_chain(Path(cert).expanduser(), Path(key).expanduser(), password=_no_password)
        except ssl.SSLError as error:
            raise _explained(error) from None
        except ValueError:  # of the password
            raise BadCertificate("server.tls_key", "it is encrypted; write it without a passphrase") from None


def _check_readable(name: str, path: str) -> None:
    try:
        with Path(path).expanduser().open("rb"):
            pass
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a path"
        raise BadCertificate(name, f"it cannot be read ({reason}); name a file in PEM form") from None


def _explained(error: ssl.SSLError) -> BadCertificate:
    if error.reason == "KEY_VALUES_MISMATCH":
        return BadCertificate("server.tls_key", "it does not belong to the certificate in server.tls_cert")
    if error.reason in ("NO_START_LINE", "PEM_LIB", None):
        return BadCertificate(
            "server.tls_cert", "it, or server.tls_key, holds no certificate or key in PEM form, the chain's leaf first"
        )
    return BadCertificate("server.tls_cert", f"it, or server.tls_key, is not accepted ({error.reason})")


def _refuse_password() -> str:
    raise ValueError("an encrypted key")


# Without one OpenSSL would ask whoever sits at the terminal.
_no_password: Callable[[], str] = _refuse_password
