from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.access.accounts import Quota
from proxy.access.gate import Gate, Grant, unbounded
from proxy.access.keys import KeyLimits, Keys, make_key
from proxy.errors import Kind, LooplineError
from tests.unit.access.encoded import encoded, plain_text

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """A gate, its keys and its clocks."""

    def __init__(self) -> None:
        self.keys = Keys()
        self.wall = NOW.timestamp()
        self.gate = Gate(
            b"s" * 32,
            self.keys,
            each=Quota(turns=5, requests_per_minute=7),
            whole=Quota(),
            clock=lambda: 0.0,
            wall=lambda: self.wall,
        )
        self._known: list[Any] = []

    def key(self, name: str, **options: Any) -> str:
        key, token = make_key(name, NOW, secrets.token_bytes, **options)
        self._known.append(key)
        self.keys.replace(self._known)
        return token

    def revoke(self, name: str) -> None:
        self._known = [key for key in self._known if key.name != name]
        self.keys.replace(self._known)

    def grant(self, token: str) -> Grant:
        return self.gate.grant({"authorization": f"Bearer {token}"})


@pytest.fixture
def world() -> World:
    return World()


def message(caught: pytest.ExceptionInfo[LooplineError]) -> tuple[object, ...]:
    error = caught.value
    return error.kind, error.message, error.status, error.code, dict(error.headers)


def test_every_reason_to_refuse_looks_the_same(world: World) -> None:
    revoked, expired = world.key("revoked"), world.key("expired", expires=timedelta(hours=1))
    world.revoke("revoked")
    world.wall += 3600
    answers = set()
    for headers in (
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Basic abc"},
        {"authorization": "Bearer llk_unknown"},
        {"authorization": f"Bearer {revoked}"},
        {"authorization": f"Bearer {expired}"},
        {"x-api-key": world.key("elsewhere")},
    ):
        with pytest.raises(LooplineError) as caught:
            world.gate.grant(headers)
        answers.add(str(message(caught)))
        assert caught.value.kind is Kind.UNAUTHORIZED
        assert caught.value.headers["www-authenticate"].startswith("Bearer")
    assert len(answers) == 1


def test_a_key_is_asked_again_with_every_frame(world: World) -> None:
    token = world.key("a", expires=timedelta(hours=1))
    grant = world.grant(token)
    grant.check()
    world.wall += 3600
    with pytest.raises(LooplineError):
        grant.check()
    world.wall -= 1
    grant.check()
    world.revoke("a")
    with pytest.raises(LooplineError):
        grant.check()


def test_tenants_are_the_keys_unless_they_share_a_name(world: World) -> None:
    one, two = world.grant(world.key("one")), world.grant(world.key("two"))
    team = [world.grant(world.key(name, tenant="team")) for name in ("three", "four")]
    assert len({one.tenant, two.tenant, team[0].tenant}) == 3
    assert team[0].tenant == team[1].tenant
    assert team[0].account is not team[1].account, "limits are the keys', whatever they share"
    assert all(len(each.tenant) == 32 and "team" not in each.tenant for each in (one, two, *team))


def test_no_credential_gives_the_tenant_of_a_key(world: World) -> None:
    key = world.grant(world.key("one", tenant="team"))
    open_gate = Gate(b"s" * 32, None, each=Quota(), whole=Quota(), clock=lambda: 0.0, wall=lambda: 0.0)
    for headers in (
        {"openai-organization": "tenant", "openai-project": "team"},
        {"authorization": "tenant", "openai-organization": "team"},
        {"openai-project": "team"},
    ):
        assert open_gate.grant(headers).tenant != key.tenant


def test_our_keys_are_taken_out_of_the_headers_wherever_they_stand(world: World) -> None:
    token = world.key("a")
    headers = {"authorization": f"Bearer {token}", "x-api-key": token, "x-mine": f"a={token};b", "x-other": "stays"}
    assert world.gate.kept_back(headers) == {"x-other": "stays"}


@given(encoded("llk_c2VjcmV0-c2VjcmV0_c2VjcmV0c2VjcmV0c2VjcmV0YQ"), plain_text, st.data())
def test_no_spelling_of_a_key_passes_in_a_header_or_an_address(said: str, other: str, data: st.DataObject) -> None:
    gate = World().gate
    header = data.draw(
        st.sampled_from([(f"x-{said}", other), ("x-mine", other + said), ("x-mine", f'k="{said}";{other}')])
    )
    assert gate.kept_back(dict([header, ("x-other", "stays")])) == {"x-other": "stays"}
    for address in (f"/v1/audio/{said}", f"/v1/embeddings?a={other}&key={said}&b=1", f"/v1/embeddings?{said}=1"):
        with pytest.raises(LooplineError) as caught:
            gate.check_address(address)
        assert caught.value.kind is Kind.INVALID_REQUEST
    gate.check_address(f"/v1/embeddings?a={other}")


def test_without_keys_headers_stay_and_a_credential_is_a_tenant() -> None:
    gate = Gate(b"s" * 32, None, each=Quota(turns=1), whole=Quota(), clock=lambda: 0.0, wall=lambda: 0.0)
    headers = {"authorization": "Bearer sk-1"}
    assert gate.kept_back(headers) == headers
    assert gate.grant(headers).tenant != gate.grant({"authorization": "Bearer sk-2"}).tenant
    assert gate.grant(headers).account is gate.grant(headers).account
    gate.grant(headers).check()
    assert gate.grant(headers).allows("any")


def test_a_keys_own_limits_come_before_the_general_ones(world: World) -> None:
    own = world.grant(world.key("own", limits=KeyLimits(turns=2, tools=3, history_bytes=10**12)))
    plain = world.grant(world.key("plain"))
    assert (own.account.quota.turns, own.account.quota.requests_per_minute) == (2, 7)
    assert plain.account.quota.turns == 5
    assert own.bound("tools", 512) == 3
    assert plain.bound("tools", 512) == 512
    assert own.bound("history_bytes", 1000) == 1000, "a key cannot have more than the process keeps"


def test_a_grant_without_a_gate_bounds_nothing() -> None:
    grant = unbounded("t")
    grant.check()
    assert grant.bound("tools", 5) == 5
    assert grant.rate_headers() == {}
    assert grant.id == ""
