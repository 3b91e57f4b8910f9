"""Whose word on where a request came from is taken."""

from __future__ import annotations

import pytest

from proxy.access.forwarded import Origin, TrustedProxies

PROXIES = TrustedProxies(["10.0.0.0/8", "::1", "192.168.1.1"])


@pytest.mark.parametrize(
    ("said", "client"),
    [
        ({}, "10.0.0.1"),
        ({"x-forwarded-for": ["1.2.3.4"]}, "1.2.3.4"),
        ({"x-forwarded-for": ["6.6.6.6, 1.2.3.4"]}, "1.2.3.4"),
        ({"x-forwarded-for": ["6.6.6.6", "1.2.3.4 , 10.9.9.9"]}, "1.2.3.4"),
        ({"x-forwarded-for": ["10.1.1.1,10.2.2.2"]}, "10.1.1.1"),
        ({"x-forwarded-for": ["1.2.3.4, unknown, 10.2.2.2"]}, "10.2.2.2"),
        ({"x-forwarded-for": ["nonsense"]}, "10.0.0.1"),
        ({"x-forwarded-for": ["1.2.3.4:5678"]}, "1.2.3.4"),
        ({"x-forwarded-for": ["[2001:db8::1]:443"]}, "2001:db8::1"),
        ({"x-forwarded-for": ["2001:db8::1"]}, "2001:db8::1"),
        ({"forwarded": ['for="[2001:db8::1]:47";proto=https, For=10.3.3.3']}, "2001:db8::1"),
        ({"forwarded": ["for=1.2.3.4; by=10.0.0.1"]}, "1.2.3.4"),
        ({"forwarded": ["for=_hidden"]}, "10.0.0.1"),
        ({"forwarded": ["for=6.6.6.6"], "x-forwarded-for": ["1.2.3.4"]}, "1.2.3.4"),
    ],
)
def test_the_last_address_that_is_no_proxy_counts(said: dict[str, list[str]], client: str) -> None:
    assert PROXIES.origin("10.0.0.1", said).address == client
    assert PROXIES.origin("::ffff:10.0.0.1", said).address in (client, "::ffff:10.0.0.1")


def test_from_others_nothing_is_believed() -> None:
    said = {"x-forwarded-for": ["1.2.3.4"], "x-forwarded-host": ["a"], "forwarded": ["for=1.2.3.4;host=a"]}
    for peer in ("11.0.0.1", "::2", "", "unix"):
        assert PROXIES.origin(peer, said) == Origin(peer)
    assert TrustedProxies().origin("127.0.0.1", said) == Origin("127.0.0.1")


def test_the_host_is_the_nearest_proxys() -> None:
    assert PROXIES.origin("::1", {"x-forwarded-host": ["evil, good"]}).host == "good"
    assert PROXIES.origin("::1", {"forwarded": ['for=1.1.1.1;host="a:80"']}).host == "a:80"
