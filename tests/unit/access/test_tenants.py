from __future__ import annotations

import itertools

import pytest

from proxy.access.tenants import check_host, check_origin, tenant_of
from proxy.errors import Kind, LooplineError

SECRET = b"s" * 32


def test_a_tenant_is_the_same_each_time_and_tells_nothing() -> None:
    headers = {"authorization": "Bearer sk-very-secret", "user-agent": "x"}
    tenant = tenant_of(headers, SECRET)
    assert tenant == tenant_of({**headers, "user-agent": "y"}, SECRET)
    assert len(tenant) == 32
    assert int(tenant, 16) >= 0
    assert "secret" not in tenant


def test_every_part_of_a_credential_and_the_secret_make_another_tenant() -> None:
    names = ("authorization", "openai-organization", "openai-project")
    credentials = [dict(zip(names, values, strict=True)) for values in itertools.product(("", "a", "b"), repeat=3)]
    assert len({tenant_of(each, SECRET) for each in credentials}) == 27
    assert tenant_of({}, SECRET) != tenant_of({}, b"t" * 32)


def test_parts_of_a_credential_cannot_run_into_each_other() -> None:
    assert tenant_of({"authorization": "ab"}, SECRET) != tenant_of(
        {"authorization": "a", "openai-organization": "b"}, SECRET
    )
    assert tenant_of({"openai-organization": "a"}, SECRET) != tenant_of({"openai-project": "a"}, SECRET)


def test_a_credential_of_odd_bytes_is_a_tenant_too() -> None:
    assert tenant_of({"authorization": b"Bearer \xff\xe9".decode(errors="surrogateescape")}, SECRET)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8080", "localhost", "LocalHost:80", "[::1]", "[::1]:8080", "localhost:"]
)
def test_loopback_names_may_come(host: str) -> None:
    check_host(host, insecure=False)


@pytest.mark.parametrize(
    "host",
    [
        None, "", "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0",
        "127.0.0.1@evil.example", "evil.example/127.0.0.1", "[::1", "::1", "\udcff", "[::2]", "10.0.0.1",
    ],
)  # fmt: skip
def test_other_names_may_not_unless_it_was_allowed(host: str | None) -> None:
    with pytest.raises(LooplineError) as raised:
        check_host(host, insecure=False)
    assert (raised.value.kind, raised.value.status) == (Kind.FORBIDDEN, 403)
    raised.value.message.encode()
    check_host(host, insecure=True)


def test_browsers_may_come_from_listed_origins_alone() -> None:
    check_origin(None, ())
    check_origin("https://app.example", ("https://app.example",))
    check_origin("https://any.example", ("*",))
    for origin in ("https://evil.example", "null", "", "https://app.example.evil"):
        with pytest.raises(LooplineError, match=r"server\.allowed_origins") as raised:
            check_origin(origin, ("https://app.example",))
        assert raised.value.kind is Kind.FORBIDDEN
