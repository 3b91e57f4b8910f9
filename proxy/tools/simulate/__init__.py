"""A simulated upstream: a deterministic scripted model server, in the dialects Chat Completions and Responses.

    async with await start(Options(tokens_per_s=50)) as upstream:
        client = AsyncOpenAI(base_url=upstream.url, api_key="unused")

What it answers is written in the last user message (`[[say 20]]`, `[[call get_weather {"city": "Paris"}]]`, ...);
without directives it plays an agent. See `docs/simulate.md`.

    script, sample      the notation; values for a JSON schema          pure
    tokens, model       tokenizer, prefix cache; what to answer         pure
    strict*, chat,      the checks; the two dialects; frames, faults    pure
    responses, stream
    sending, server     HTTP
"""

from .journal import Request
from .options import Options
from .server import Simulated, run, start

__all__ = ["Options", "Request", "Simulated", "run", "start"]
