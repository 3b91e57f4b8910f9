"""Counted tokens are those that the server then reports."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI

from proxy.app import Loopline
from proxy.tools import embedded
from tests.wire_client import function

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.parametrize("members", [{}, {"instructions": "Be brief."}, {"tools": [function()]}])
async def test_the_count_is_what_the_turn_then_costs(members: dict[str, Any], server: Loopline) -> None:
    async with AsyncOpenAI(api_key="test", base_url=server.url) as client:
        first = await client.responses.create(model=embedded.MODEL, input="Say hello.", max_output_tokens=8)
        asked = {"model": embedded.MODEL, "input": "And now?", "previous_response_id": first.id, **members}
        raw = await client.responses.input_tokens.with_raw_response.count(**asked)
        assert "x-loopline-estimated" not in raw.headers
        turn = await client.responses.create(**asked, max_output_tokens=1)
        assert turn.usage is not None
        assert raw.parse().input_tokens == turn.usage.input_tokens
