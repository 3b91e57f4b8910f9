"""/status and /status.json: the numbers of /metrics, nothing of a conversation, and only for whoever may see them."""

from __future__ import annotations

import base64
import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from proxy.server.status import MOST_SESSIONS
from proxy.settings import BadSetting, load
from proxy.telemetry import families, recent
from tests.house import House, open_house
from tests.integration.test_operations import scrape, value
from tests.keyed import keyed_house
from tests.wire_client import function, tool_output, user

KEY = "a-key-for-the-page"
PATHS = ("/status", "/status.json")


async def told(house: House, session: str = "") -> dict[str, Any]:
    """The document."""
    async with house.http.get(f"{house.root}/status.json", params={"session": session}) as response:
        assert response.status == 200
        document: dict[str, Any] = await response.json()
        return document


async def statuses(house: House, url: str, **headers: str) -> list[int]:
    """How the page and its data are answered."""
    answers = []
    for path in PATHS:
        async with house.http.get(url + path, headers=headers) as response:
            answers.append(response.status)
            text = await response.text()
            assert ("uptime_s" in text or "<title>" in text) == (response.status == 200)
    return answers


# --- What it says ----------------------------------------------------------------------------------------------------


async def test_totals_are_what_metrics_say(house: House) -> None:
    async with house.connect() as client, house.connect():
        first = await client.says("one")
        await client.says("two", previous_response_id=first.id)
        await client.turn([user("[[fail 500]]")])
        await client.turn([user("[[length 3]]")])
        async with house.post({"input": "[[say 1]]"}) as response:
            await response.read()
        await house.watcher.wait_for(lambda: len(house.watcher.turns) == 5)
        totals, samples = (await told(house))["totals"], await scrape(house)
    for member, name, labels in (
        ("sessions_open", "loopline_session_open", {}),
        ("sessions_ended", "loopline_session_ended_total", {}),
        ("lanes_open", "loopline_lane_open", {}),
        ("turns_running", "loopline_turn_running", {}),
        ("forks", "loopline_turn_forks_total", {}),
        ("steers", "loopline_turn_steers_total", {}),
        ("tokens_in", "loopline_turn_tokens_total", {"direction": "input"}),
        ("tokens_cached", "loopline_turn_tokens_total", {"direction": "cached"}),
        ("tokens_out", "loopline_turn_tokens_total", {"direction": "output"}),
        ("bytes_in", "loopline_turn_bytes_total", {"direction": "in"}),
        ("bytes_out", "loopline_turn_bytes_total", {"direction": "out"}),
        ("bytes_history_saved", "loopline_turn_history_saved_bytes_total", {}),
    ):
        assert totals[member] == value(samples, name, **labels), member
    for outcome, count in {"completed": 3, "incomplete": 1, "failed": 0, "refused": 1, "cancelled": 0}.items():
        assert totals["turns"][outcome] == count
        assert value(samples, "loopline_turn_ended_total", outcome=outcome) == count
    assert totals["errors"] == {"upstream_failed": 1}
    assert totals["sessions_open"] == 2
    for stage, took_s in totals["loop_s"].items():
        assert took_s == pytest.approx(value(samples, "loopline_loop_stage_seconds_sum", stage=stage)), stage


async def test_caches_and_endpoints_are_what_metrics_say(house: House) -> None:
    async with house.connect() as client:
        first = await client.says("one", store=True)
        await client.says("two", previous_response_id=first.id)
        document, samples = await told(house), await scrape(house)
    assert {"store", "catalog", "terms", "tools"} <= {cache["name"] for cache in document["caches"]}
    for cache in document["caches"]:
        assert f"`{cache['name']}`" in families.CACHE_HITS.labels["cache"], "a cache that docs/metrics.md does not name"
        for member, name in (
            ("hits", "loopline_cache_hits_total"),
            ("misses", "loopline_cache_misses_total"),
            ("entries", "loopline_cache_entries"),
            ("bytes", "loopline_cache_bytes"),
            ("evicted", "loopline_cache_evictions_total"),
        ):
            assert cache[member] == value(samples, name, cache=cache["name"]), (cache["name"], member)
    assert document["memory"]["limit_bytes"] == value(samples, "loopline_memory_limit_bytes")
    assert document["endpoints"] == [{"name": "default", "health": "up", "error": None, "turns": 0}]
    assert document["process"]["uptime_s"] > 0


async def test_a_chosen_session_tells_its_loop(house: House) -> None:
    async with house.connect() as client:
        first = await client.turn("[[call get_weather]]", tools=[function()])
        second = await client.turn([tool_output(first.calls[0]["call_id"], "x")], previous_response_id=first.id)
        await client.create([user("[[stall 1]]")], stream_id="secret-lane")
        await client.create([user("[[say 1]]")], stream_id="secret-lane")
        await client.until("response.output_text.delta")
        [session] = (await told(house))["sessions"]
        chosen = (await told(house, session["id"]))["chosen"]
    await house.empty()
    assert (session["turns"], session["lanes"], session["running"], session["waiting"]) == (3, 2, 1, 1)
    assert (session["client"], session["ended"]) == ("127.0.0.1", False)
    assert chosen["lanes"] == [
        {"number": 1, "state": "idle", "waiting": 0},
        {"number": 2, "state": "busy", "waiting": 1},
    ]
    turns, records = chosen["turns"], house.watcher.turns
    assert [turn["response"] for turn in turns] == [first.id, second.id]
    for turn, record in zip(turns, records, strict=False):
        assert record.ended_s is not None
        took_s = record.ended_s - record.received_s
        assert sum(turn["parts_s"].values()) == pytest.approx(took_s)
        assert turn["parts_s"] == record.stages()._asdict()
        assert (turn["tokens_in"], turn["tokens_out"]) == (record.tokens_in, record.tokens_out)
    assert (turns[0]["client_s"], turns[0]["tools"]) == (None, False)
    assert turns[1]["tools"]
    assert records[0].ended_s is not None
    round_s = turns[1]["client_s"] + turns[1]["proxy_s"] + turns[1]["upstream_s"]
    assert records[1].ended_s is not None
    assert round_s == pytest.approx(records[1].ended_s - records[0].ended_s)


async def test_a_session_that_ended_and_turns_by_http_can_still_be_seen(house: House) -> None:
    async with house.connect() as client:
        await client.says("x")
    async with house.post({"input": "[[say 1]]"}) as response:
        await response.read()
    await house.empty()
    sessions = {session["id"]: session for session in (await told(house))["sessions"]}
    [ended] = sessions.keys() - {recent.BY_HTTP}
    assert sessions[ended]["ended"]
    assert len((await told(house, ended))["chosen"]["turns"]) == 1
    assert len((await told(house, recent.BY_HTTP))["chosen"]["turns"]) == 1
    assert (await told(house, "sess_unknown"))["chosen"] is None


async def test_a_turn_that_runs_is_told_as_far_as_it_came(house: House) -> None:
    async with house.connect() as client:
        first = await client.turn("[[call get_weather]]", tools=[function()])
        output = tool_output(first.calls[0]["call_id"], "x")
        await client.create([output, user("[[stall 2]]")], previous_response_id=first.id, tools=[function()])
        running = await client.until("response.output_text.delta")
        [session] = (await told(house))["sessions"]
        chosen, later = [(await told(house, session["id"]))["chosen"] for _ in range(2)]
        assert session["running"] == 1
        assert [turn["response"] for turn in chosen["turns"]] == [first.id]
        [told_turn], [told_later] = chosen["running"], later["running"]
        assert told_turn["response"] == running.events[0]["response"]["id"]
        assert (told_turn["part"], told_turn["tools"], told_turn["endpoint"]) == ("upstream", True, "default")
        assert sum(told_turn["parts_s"].values()) == pytest.approx(told_turn["began_ago_s"])
        assert told_turn["client_s"] > 0
        own_s = told_turn["proxy_s"] + told_turn["upstream_s"]
        assert own_s == pytest.approx(told_turn["began_ago_s"])
        assert 0 < told_turn["first_token_s"] < told_turn["began_ago_s"]
        assert told_later["upstream_s"] > told_turn["upstream_s"], "it grows"
        assert {**told_later["parts_s"], "upstream": 0} == {**told_turn["parts_s"], "upstream": 0}
    await house.empty()
    chosen = (await told(house, session["id"]))["chosen"]
    assert chosen["running"] == []
    assert [turn["outcome"] for turn in chosen["turns"]] == ["completed", "cancelled"]


async def test_a_turn_by_http_that_runs_is_told_before_any_has_ended(house: House) -> None:
    async with house.post({"input": "[[stall 2]]", "stream": True}) as response:
        await response.content.readuntil(b"event: response.output_text.delta")
        [session] = (await told(house))["sessions"]
        assert (session["id"], session["turns"], session["running"]) == (recent.BY_HTTP, 0, 1)
        assert session["age_s"] > 0
        chosen = (await told(house, recent.BY_HTTP))["chosen"]
        assert [turn["part"] for turn in chosen["running"]] == ["upstream"]
        response.close()
    await house.empty()


async def test_a_session_whose_only_turn_was_cut_can_be_seen(house: House) -> None:
    async with house.connect() as client:
        await client.create([user("[[stall 2]]")])
        await client.until("response.output_text.delta")
        client.vanish(reset=True)
    await house.empty()
    [session] = (await told(house))["sessions"]
    assert (session["ended"], session["turns"], session["running"]) == (True, 1, 0)
    [turn] = (await told(house, session["id"]))["chosen"]["turns"]
    assert turn["outcome"] == "cancelled"
    assert turn["upstream_s"] > 0


async def test_it_is_bounded_and_lists_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_SESSIONS == 200
    monkeypatch.setattr("proxy.server.status.MOST_SESSIONS", 3)
    async with open_house("chat") as house:
        async with house.connect(), house.connect(), house.connect(), house.connect():
            await house.watcher.wait_for(lambda: len(house.server.sockets.sessions) == 4)
            document = await told(house)
            opened = sorted((each.record.opened_s, each.record.id) for each in house.server.sockets.sessions)
    assert document["totals"]["sessions_open"] == 4
    assert [session["id"] for session in document["sessions"]] == [name for _, name in reversed(opened)][:3]


# --- What it does not say --------------------------------------------------------------------------------------------

SAID = ("the user's words", "the model's words", "the tool's words", "get_weather", "secret-lane")
SECRETS = ("sk-very-secret", "org-secret", "key-of-the-page-1", "header-secret", "query-secret")


async def test_neither_content_nor_secrets_are_in_it(dialect: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("key-of-the-page-1\n")
    settings = {
        "server.status": "key",
        "server.status_key_file": str(tmp_path / "key"),
        "endpoints[0].headers": {"X-Team": "header-secret"},
        "endpoints[0].query": {"version": "query-secret"},
    }
    key = {"Authorization": "Bearer key-of-the-page-1"}
    async with open_house(dialect, settings) as house:
        headers = {"OpenAI-Organization": "org-secret"}
        async with house.connect("sk-very-secret", headers=headers) as client:
            words = "the user's words [[say \"the model's words\"]] [[call get_weather]]"
            first = await client.turn(words, tools=[function()], instructions="the user's words")
            answers = [tool_output(first.calls[0]["call_id"], "the tool's words")]
            await client.turn(answers, previous_response_id=first.id)
            await client.create(words, stream_id="secret-lane")
            await client.until_ended()
            await client.turn([user("the user's words [[garbage 3]]")])
            text = ""
            for session in house.server.sockets.sessions:
                for path in ("/status", f"/status.json?session={session.record.id}"):
                    async with house.http.get(house.root + path, headers=key) as response:
                        text += await response.text() + str(response.headers)
    assert first.id in text
    for said in (*SAID, *SECRETS):
        assert said not in text, said


async def test_a_model_of_a_strange_name_is_shown_short_and_does_no_harm(house: House) -> None:
    name = "<script>alert(1)</script>\u202e" + "x" * 5000
    async with house.connect() as client:
        await client.turn("[[say 1]]", model=name)
        [session] = (await told(house))["sessions"]
        [turn] = (await told(house, session["id"]))["chosen"]["turns"]
    assert turn["model"] == name[:200]


# --- Who sees it -----------------------------------------------------------------------------------------------------


async def test_as_metrics_for_this_machine_and_for_no_other_site(house: House) -> None:
    assert await statuses(house, house.root) == [200, 200]
    assert await statuses(house, house.root, Host="rebound.example") == [403, 403]
    assert await statuses(house, house.root, Origin="https://elsewhere.example") == [403, 403]


@pytest.mark.parametrize("exposed", [{"server.host": "0.0.0.0"}, {"server.trusted_proxies": ("10.0.0.0/8",)}])
async def test_not_on_a_port_that_strangers_reach_but_with_its_key(exposed: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    with_key = {"server.status": "key", "server.status_key_file": str(tmp_path / "key")}
    for settings, wanted in ((exposed, [404, 404]), ({**exposed, **with_key}, [401, 401])):
        async with keyed_house(tmp_path, settings) as (house, ring):
            url = f"http://127.0.0.1:{house.server.port}"
            assert await statuses(house, url) == wanted
            assert await statuses(house, url, Authorization=f"Bearer {ring.make('alice')}") == wanted
            ring.revoke("alice")
            found = wanted if settings is exposed else [200, 200]
            assert await statuses(house, url, Authorization=f"Bearer {KEY}", Host="loopline.example") == found


async def test_on_the_admin_port_alone_where_there_is_one(unused_tcp_port: int) -> None:
    async with open_house("chat", {"server.admin_port": unused_tcp_port}) as house:
        assert await statuses(house, house.root) == [404, 404]
        assert await statuses(house, f"http://127.0.0.1:{unused_tcp_port}") == [200, 200]


async def test_off_is_off_on_every_port(unused_tcp_port: int) -> None:
    for more in ({}, {"server.admin_port": unused_tcp_port}):
        async with open_house("chat", {"server.status": "off", **more}) as house:
            async with house.connect() as client:
                await client.says("x")
            assert (
                await statuses(house, f"http://127.0.0.1:{house.server.admin_port or house.server.port}") == [404] * 2
            )
            assert house.server.recent.by_second(1e9) == [0] * (recent.WINDOW_S - 1), "nothing is kept for it either"


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "Basic !", "Basic eA==", f"Digest {KEY}", "Bearer \udcff"],
)
async def test_a_wrong_key_is_refused_and_a_browser_is_asked_for_it(authorization: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    settings = {"server.status": "key", "server.status_key_file": str(tmp_path / "key")}
    async with open_house("chat", settings) as house:
        headers = {"Authorization": authorization} if authorization else {}
        assert await statuses(house, house.root, **headers) == [401, 401]
        async with house.http.get(f"{house.root}/status", headers=headers) as response:
            assert response.headers["WWW-Authenticate"].startswith("Basic realm=")
            assert KEY not in await response.text()
        right = base64.b64encode(f"me:{KEY}".encode()).decode()
        assert await statuses(house, house.root, Authorization=f"Basic {right}") == [200, 200]


def test_a_key_is_needed_and_not_too_short(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"server.status .* it needs a key in server.status_key_file"):
        load(None, {"server.status": "key"}, {})
    (tmp_path / "key").write_text("short-secret")
    with pytest.raises(BadSetting, match="fewer than 16 characters") as caught:
        load(None, {"server.status": "key", "server.status_key_file": str(tmp_path / "key")}, {})
    assert "short-secret" not in str(caught.value)
    settings = load(None, {"server.status": "key", "server.status_key_env": "STATUS"}, {"STATUS": KEY})
    assert KEY not in repr(settings)


# --- The page --------------------------------------------------------------------------------------------------------


async def test_the_page_is_small_and_may_run_nothing_but_itself(house: House) -> None:
    async with house.http.get(f"{house.root}/status") as response:
        page, headers = await response.read(), response.headers
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert len(page) < 60_000
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    for name, tag in (("script-src", b"script"), ("style-src", b"style")):
        [inside] = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), page, re.DOTALL)
        assert policy[name] == f"'sha256-{base64.b64encode(sha256(inside).digest()).decode()}'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert b"http://" not in page.replace(b"http://www.w3.org/2000/svg", b"")
    assert b"https://" not in page
    assert b"innerHTML" not in page
    assert not re.search(rb"\son\w+=|\sstyle=", page), "the policy would refuse it"


async def test_every_member_is_in_the_document_about_it(house: House) -> None:
    page = (Path(__file__).parents[2] / "docs" / "status.md").read_text()
    async with house.connect() as client:
        await client.says("x")
        await client.create([user("[[stall 1]]")])
        await client.until("response.output_text.delta")
        [session] = (await told(house))["sessions"]
        document = await told(house, session["id"])

    def names(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set(value) | {name for each in value.values() for name in names(each)}
        return {name for each in value for name in names(each)} if isinstance(value, list) else set()

    assert len(json.dumps(document)) < 10_000
    assert {name for name in names(document) if f"`{name}`" not in page} == set()
