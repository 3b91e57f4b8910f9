"""`loopline serve` as a newcomer meets it: what it prints, what goes wrong on start, how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from proxy.tools import simulate
from proxy.tools.snippets import SNIPPETS
from tests.program import READY, ROOT, Program, free_port, is_listening, loopline
from tests.wire_client import open_socket, user

SIMULATED = ("serve", "--port", "0", "--simulate")


async def serves(program: Program) -> None:
    """One turn over WebSocket with the program that has just announced itself."""
    async with open_socket(program.url, "none") as client:
        await client.says("hello")


async def ended_well(program: Program) -> None:
    """It has ended by 5 s from now: with 0, without a traceback, without a port left open."""
    assert await program.ended(5) == 0
    assert "Traceback" not in program.out + program.err
    assert not is_listening(program.url)


async def test_it_prints_its_address_its_upstream_and_what_to_paste() -> None:
    async with loopline(*SIMULATED) as program:
        await program.prints(READY)
        assert re.match(
            r"loopline \d\S* on http://127\.0\.0\.1:\d+/v1\n  upstream http://127\.0\.0\.1:\d+/v1\n", program.out
        )
        assert "simulated: scripted answers" in program.out
        assert "it answers: simulated upstream, asked in the chat dialect; models: simulated\n" in program.out
        for snippet in SNIPPETS.values():
            assert snippet.headed(program.url, "simulated") in program.out
        assert program.err == ""
        await serves(program)


async def test_with_client_keys_what_to_paste_has_a_place_for_one(tmp_path: Path) -> None:
    keys = tmp_path / "keys.jsonl"
    async with loopline("keys", "create", "--file", str(keys), "--name", "alice") as making:
        assert await making.ended(20) == 0
    async with loopline(*SIMULATED, env={"LOOPLINE_ACCESS_KEYS_FILE": str(keys)}) as program:
        await program.prints(READY)
        assert "What to paste, by client, with one of the client keys in place of CLIENT_KEY (" in program.out
        for snippet in SNIPPETS.values():
            assert snippet.headed(program.url, "simulated", "CLIENT_KEY") in program.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
async def test_a_signal_ends_it_though_a_client_is_connected(number: signal.Signals) -> None:
    async with loopline(*SIMULATED) as program:
        await program.prints(READY)
        async with open_socket(program.url, "none") as client:
            await client.works()
            program.signal(number)
            await ended_well(program)
        assert not is_listening(program.upstream)


async def test_ctrl_c_ends_it_in_the_middle_of_an_answer() -> None:
    async with loopline(*SIMULATED) as program:
        await program.prints(READY)
        async with open_socket(program.url, "none") as client:
            await client.create([user("[[stall 3]]")])
            await client.until("response.output_text.delta")
            program.signal(signal.SIGINT)
            await ended_well(program)
        assert not is_listening(program.upstream)


async def test_sigterm_lets_an_answer_end_and_a_second_signal_does_not() -> None:
    async with loopline(*SIMULATED) as program:
        await program.prints(READY)
        async with open_socket(program.url, "none") as client:
            await client.create([user("[[stall 3]]")])
            await client.until("response.output_text.delta")
            program.signal(signal.SIGTERM)
            await program.prints("a second signal stops at once")
            program.signal(signal.SIGTERM)
            await ended_well(program)


async def test_an_upstream_that_is_down_is_waited_for() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1"
    async with loopline("serve", "--port", "0", "--upstream", url) as program:
        await program.prints("Trying on.")
        assert program.upstream == url
        assert "it does not answer yet (The upstream refused the connection)" in program.out
        async with open_socket(program.url, "none") as client:
            refused = await client.turn("hello")
            assert refused.error["message"].startswith("The upstream refused the connection")
        async with await simulate.start(port=port):
            await program.prints(READY)
            assert "it answers: " in program.out
            assert SNIPPETS["openai-websocket"].fill(program.url, "simulated") in program.out
            await serves(program)
        program.signal(signal.SIGINT)
        await ended_well(program)


@pytest.mark.parametrize(("key", "advice"), [("", "--api-key-env"), ("wrong", "check its key")])
async def test_an_upstream_that_wants_a_key_says_what_to_do(key: str, advice: str) -> None:
    flags = ("--api-key-env", "UPSTREAM_KEY") if key else ()
    async with await simulate.start(simulate.Options(api_key="right")) as upstream:
        arguments = ("serve", "--port", "0", "--upstream", upstream.url, *flags)
        async with loopline(*arguments, env={"UPSTREAM_KEY": key}) as program:
            await program.prints(READY)
            (said,) = re.findall(r"^  GET \S+/models was answered with 401: (.*)$", program.out, re.MULTILINE)
            assert advice in said
            assert "in place of MODEL" in program.out
            assert 'model="MODEL"' in program.out


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://loopline.invalid/v1", "The upstream's host name could not be resolved"),
        ("https://127.0.0.1:{port}/v1", "The upstream's certificate was not accepted, or it does not speak TLS"),
    ],
)
async def test_why_an_upstream_cannot_be_reached(url: str, said: str) -> None:
    async with await simulate.start() as plain:
        upstream = url.format(port=plain.port)
        async with loopline("serve", "--port", "0", "--upstream", upstream) as program:
            await program.prints("Trying on.")
    assert f"it does not answer yet ({said})" in program.out


async def test_a_url_without_its_v1_is_noticed() -> None:
    async with await simulate.start() as upstream:
        url = upstream.url.removesuffix("/v1")
        async with loopline("serve", "--port", "0", "--upstream", url) as program:
            await program.prints(READY)
            assert re.search(r"^  GET \S+/models was answered with 404: .* /v1$", program.out, re.MULTILINE)


@pytest.mark.parametrize("flag", ["--simulate", "--upstream=http://127.0.0.1:9/v1"])
async def test_a_taken_port_is_one_line(flag: str) -> None:
    async with await simulate.start() as other:
        async with loopline("serve", f"--port={other.port}", flag) as program:
            assert await program.ended() == 1
    assert program.out == ""
    assert program.err == (
        f"loopline: cannot listen on 127.0.0.1:{other.port}: Address already in use "
        "(server.port: --port takes another)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--port", "70000"), "server.port from flag --port: '70000' is not allowed"),
        (("--upstream", "localhost:8000"), "endpoints[0].url from flag --upstream"),
        (("--config", "missing.toml"), "missing.toml"),
        (("--api-key-env", "NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE"),
        (("--host", "0.0.0.0"), "--insecure"),
        (("--embedded", "--simulate"), "exclude each other"),
    ],
)
async def test_a_bad_setting_ends_it_with_2(arguments: tuple[str, ...], said: str) -> None:
    async with loopline("serve", *arguments) as program:
        assert await program.ended() == 2
    assert said in program.err
    assert "Traceback" not in program.err
    assert program.out == ""


async def test_on_every_address_it_shows_one_that_can_be_connected_to() -> None:
    async with loopline(*SIMULATED, "--host", "0.0.0.0", "--insecure") as program:
        await program.prints(READY)
        port = program.url.removesuffix("/v1").rpartition(":")[2]
        assert SNIPPETS["curl"].fill(f"http://127.0.0.1:{port}/v1", "simulated") in program.out


async def test_without_its_model_it_serves_the_simulated_upstream_and_says_so() -> None:
    """A cache folder that cannot be made stands for whatever keeps the model away."""
    async with loopline("serve", "--port", "0", "--embedded", env={"XDG_CACHE_HOME": "/dev/null"}) as program:
        await program.prints(READY)
        assert "the built-in model cannot be had here: the cache folder cannot be used" in program.err
        assert "serving the simulated upstream instead" in program.err
        assert "make run UPSTREAM=" in program.err
        assert "simulated: scripted answers" in program.out
        await serves(program)


@pytest.mark.parametrize(
    ("variables", "flags"),
    [
        ((), "--embedded"),
        (("SIMULATE=1",), "--simulate"),
        (("UPSTREAM=http://host:8000/v1",), "--upstream http://host:8000/v1"),
        (("UPSTREAM=http://host:8000/v1", "ARGS=--port 9000"), "--upstream http://host:8000/v1 --port 9000"),
    ],
)
def test_make_run_is_the_command_that_the_pages_say(variables: tuple[str, ...], flags: str, tmp_path: Path) -> None:
    command = ["make", "--dry-run", "--no-print-directory", "run", *variables, f"VENV={tmp_path}"]
    own = {name: value for name, value in os.environ.items() if name not in ("ARGS", "MAKEFLAGS", "MAKEOVERRIDES")}
    said = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1].rstrip() == f"{tmp_path}/bin/loopline serve {flags}"
