from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from proxy.upstream.endpoint import Endpoint

CLIENT = {
    "authorization": "Bearer client",
    "cookie": "session=1",
    "content-type": "application/json",
    "x-request-id": "req_1",
    "traceparent": "00-1",
    "openai-organization": "org",
    "openai-beta": "responses_websockets=2026-02-06",
    "x-mine": "1",
    "host": "proxy",
}


def sent(
    client: Mapping[str, str] = CLIENT, body: tuple[bytes, ...] = (b"{}",), **settings: Any
) -> list[tuple[str, str]]:
    endpoint = Endpoint("e", "http://up/v1", **settings)
    return list(endpoint.request("POST", "/responses", client, body=body).headers)


def test_only_what_means_something_upstream_leaves_the_house() -> None:
    assert dict(sent()) == {
        "authorization": "Bearer client",
        "x-request-id": "req_1",
        "traceparent": "00-1",
        "openai-organization": "org",
        "openai-beta": "responses_websockets=2026-02-06",
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
    }


def test_a_get_has_no_body_headers() -> None:
    assert "content-type" not in dict(sent(body=()))
    assert "accept" not in dict(sent(body=()))


@pytest.mark.parametrize("forward", [(), ("authorization",), ("Authorization", "X-Mine")])
def test_an_endpoints_own_key_never_meets_a_clients(forward: tuple[str, ...]) -> None:
    headers = sent(key="own", forward=forward)
    assert [value for name, value in headers if name == "authorization"] == ["Bearer own"]
    assert "Bearer client" not in dict(headers).values()


@pytest.mark.parametrize("settings", [{"key": "own"}, {"client_credentials": False}])
def test_a_clients_organization_never_goes_beside_an_endpoints_own_key(settings: dict[str, Any]) -> None:
    headers = dict(sent({**CLIENT, "openai-project": "p"}, **settings))
    assert not {"openai-organization", "openai-project"} & headers.keys()
    assert "Bearer client" not in headers.values()


def test_a_text_is_told_without_the_endpoints_secrets() -> None:
    endpoint = Endpoint("e", "http://up/v1", key="sk-very-long-key", headers={"x-a": "a-long-secret", "x-v": "2"})
    assert endpoint.hide("sk-very-long-key, a-long-secret, 2") == "(hidden), (hidden), 2"


def test_without_any_credential_none_is_sent() -> None:
    assert "authorization" not in dict(sent({}))
    assert dict(sent({}, key="own"))["authorization"] == "Bearer own"


def test_further_headers_are_forwarded_once_and_absent_ones_not_at_all() -> None:
    names = [name for name, _ in sent(forward=("X-Mine", "x-request-id", "x-absent"))]
    assert names.count("x-mine") == names.count("x-request-id") == 1
    assert "x-absent" not in names


@pytest.mark.parametrize("name", ["content-type", "host", "content-length", "transfer-encoding", "connection"])
def test_what_describes_the_clients_own_message_is_never_forwarded(name: str) -> None:
    headers = sent({name: "clients"}, forward=(name,))
    assert "clients" not in dict(headers).values()


def test_configured_headers_win_over_everything_whatever_their_case() -> None:
    headers = sent(headers={"Authorization": "Basic x", "X-Request-ID": "fixed", "api-key": "k"})
    assert [value for name, value in headers if name.lower() == "authorization"] == ["Basic x"]
    assert [value for name, value in headers if name.lower() == "x-request-id"] == ["fixed"]
    assert ("api-key", "k") in headers


@pytest.mark.parametrize(
    ("url", "path", "root", "wanted"),
    [
        ("http://up/v1", "/responses", False, "http://up/v1/responses"),
        ("http://up/v1/", "/models", False, "http://up/v1/models"),
        ("http://up/v1", "/version", True, "http://up/version"),
        ("http://up/v1/", "/props", True, "http://up/props"),
        ("http://up/api", "/version", True, "http://up/api/version"),
        ("http://up", "/models", False, "http://up/models"),
    ],
)
def test_urls_join_whatever_slashes_they_have(url: str, path: str, root: bool, wanted: str) -> None:
    assert Endpoint("e", url).request("GET", path, {}, root=root).url == wanted


def test_a_request_carries_the_endpoints_settings() -> None:
    endpoint = Endpoint(
        "e", "http://up", query={"api-version": "1"}, ca_bundle="/ca", proxy="http://p", first_byte_s=1.0, idle_s=2.0
    )
    request = endpoint.request("POST", "/x", {}, body=[b"a", b"b"], repeatable=False)
    assert (request.query, request.ca_bundle, request.proxy) == ({"api-version": "1"}, "/ca", "http://p")
    assert (request.first_byte_s, request.idle_s, request.repeatable) == (1.0, 2.0, False)
    assert b"".join(request.body) == b"ab"


def test_a_lease_is_given_back_on_every_way_out() -> None:
    endpoint = Endpoint("e", "http://up")
    with endpoint.lease(), endpoint.lease():
        assert endpoint.in_flight == 2
    with pytest.raises(RuntimeError), endpoint.lease():
        raise RuntimeError
    assert endpoint.in_flight == 0
    assert not endpoint.has_key
    assert Endpoint("e", "http://up", key="k").has_key
