"""Whom a request came from, as proxies in front say it: believed only from addresses that settings name."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

FORWARDED_HEADERS = frozenset(
    {"forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto", "x-real-ip"}
)
_PAIR = re.compile(r'\s*([A-Za-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]*))\s*(?:;|$)')
_ELEMENT = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^",])+')

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request came from: the client's address, and the host that it asked for, where a proxy said so."""

    address: str
    host: str | None = None


class TrustedProxies:
    """Addresses and networks whose forwarded headers are believed. Raises ValueError for one that is neither."""

    def __init__(self, networks: Collection[str] = ()) -> None:
        self._networks = tuple(ip_network(text, strict=False) for text in networks)

    def trusts(self, address: str) -> bool:
        """Is this one of them? IPv4 in IPv6 counts as IPv4."""
        if not self._networks:
            return False
        parsed = _parsed(address)
        return parsed is not None and any(_within(parsed, network) for network in self._networks)

    def origin(self, peer: str, headers: Mapping[str, Sequence[str]]) -> Origin:
        """Where a request from `peer` came from. `headers` has lower-case names, with every value in order.

        From a trusted peer it is the last address of `X-Forwarded-For` (else of `Forwarded`) that is not a trusted
        proxy itself: what stands before it could be the client's own invention.
        """
        if not self.trusts(peer):
            return Origin(peer)
        elements = [_pairs(text) for text in _listed(headers.get("forwarded", ()))]
        said = _listed(headers.get("x-forwarded-for", ())) or [each["for"] for each in elements if "for" in each]
        hosts = _listed(headers.get("x-forwarded-host", ())) or [each["host"] for each in elements if "host" in each]
        return Origin(self._client(peer, said), hosts[-1] if hosts else None)

    def _client(self, peer: str, said: Sequence[str]) -> str:
        nearest = peer
        for text in reversed(said):
            address = _parsed(_without_port(text))
            if address is None:
                break  # "unknown" or a made-up name: nothing before it can be believed
            nearest = str(address)
            if not self.trusts(nearest):
                break
        return nearest


def _listed(values: Sequence[str]) -> list[str]:
    """The elements of a list header, empty ones left out."""
    return [text.strip() for value in values for text in _ELEMENT.findall(value) if text.strip()]


def _pairs(element: str) -> dict[str, str]:
    """The parameters of one element of `Forwarded` (RFC 7239)."""
    return {name.lower(): re.sub(r"\\(.)", r"\1", quoted) or plain for name, quoted, plain in _PAIR.findall(element)}


def _without_port(text: str) -> str:
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def _parsed(address: str) -> Address | None:
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return (parsed.ipv4_mapped or parsed) if isinstance(parsed, IPv6Address) else parsed


def _within(address: Address, network: IPv4Network | IPv6Network) -> bool:
    return address.version == network.version and address in network
