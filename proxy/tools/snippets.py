"""What a newcomer pastes, for each client. The pages in `docs/clients/` show the same; a test runs them from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NO_KEY = "none"
_BEARER = " -H 'authorization: Bearer {key}'"


class Snippet(NamedTuple):
    """Lines to paste. `page` is in docs/clients/.

    `{url}`, `{model}` and `{key}` stand for the base URL, a model's name and a client key, `{bearer}` for curl's header
    with that key, where there is one.
    """

    title: str
    language: str
    page: str
    text: str

    def fill(self, url: str, model: str, key: str = NO_KEY) -> str:
        """The lines for one server."""
        bearer = "" if key == NO_KEY else _BEARER
        filled = self.text.replace("{bearer}", bearer).replace("{key}", key)
        return filled.replace("{url}", url).replace("{model}", model)

    def headed(self, url: str, model: str, key: str = NO_KEY) -> str:
        """The same below its title."""
        return f"# {self.title.replace('{key}', key)}\n{self.fill(url, model, key)}"


SNIPPETS: Mapping[str, Snippet] = {
    "openai-websocket": Snippet(
        "openai Python, WebSocket (pip install 'openai[realtime]')",
        "python",
        "openai-python.md",
        """\
from openai import OpenAI

client = OpenAI(base_url="{url}", api_key="{key}")
with client.responses.connect() as socket:
    socket.response.create(model="{model}", input="Say hello.")
    for event in socket:
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
        if event.type in ("response.completed", "response.incomplete", "response.failed", "error"):
            break
""",
    ),
    "openai-http": Snippet(
        "openai Python, HTTP (pip install openai)",
        "python",
        "openai-python.md",
        """\
from openai import OpenAI

client = OpenAI(base_url="{url}", api_key="{key}")
print(client.responses.create(model="{model}", input="Say hello.").output_text)
""",
    ),
    "openai-agents": Snippet(
        "openai-agents, WebSocket (pip install openai-agents)",
        "python",
        "openai-agents.md",
        """\
import asyncio
from agents import Agent, responses_websocket_session, set_tracing_disabled

set_tracing_disabled(True)

async def main():
    async with responses_websocket_session(base_url="{url}", api_key="{key}") as session:
        result = await session.run(Agent(name="hello", model="{model}"), "Say hello.")
        print(result.final_output)

asyncio.run(main())
""",
    ),
    "codex": Snippet(
        "Codex, in ~/.codex/config.toml (then: AGENT_KEY={key} codex)",
        "toml",
        "codex.md",
        """\
model = "{model}"
model_provider = "loopline"

[model_providers.loopline]
name = "loopline"
base_url = "{url}"
env_key = "AGENT_KEY"
wire_api = "responses"
supports_websockets = true
""",
    ),
    "curl": Snippet(
        "curl",
        "sh",
        "curl.md",
        """\
curl -N {url}/responses -H 'content-type: application/json'{bearer} \\
  -d '{"model": "{model}", "input": "Say hello.", "stream": true}'
""",
    ),
}


def banner(url: str, model: str, key: str = NO_KEY) -> str:
    """All of them, for the screen: not indented, since Python would refuse what is pasted with a margin."""
    return "\n".join(snippet.headed(url, model, key) for snippet in SNIPPETS.values())
