"""Sends one answer over HTTP: paces it, and makes its faults real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from .journal import Journal, Request
from .model import Reply
from .script import Fail, Fault
from .stream import Course, Stream, course, encode, writes

NAME = "loopline-simulate"
_JSON = {"Content-Type": "application/json", "Server": NAME}
_SSE = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "Server": NAME}
_WRITES_PER_TURN = 32  # an answer without pace lets other requests run, and sees a lost client, this often
_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
}


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=encode(value), status=status, headers={**_JSON, **(headers or {})})


def error_response(status: int, message: str, kind: str = "", param: str | None = None, code: str = "") -> web.Response:
    """vLLM's error body; its `code` is the status, where OpenAI has a word."""
    kind = kind or _TYPES.get(status, "InternalServerError" if status >= 500 else "BadRequestError")
    return json_response({"error": {"message": message, "type": kind, "param": param, "code": code or status}}, status)


def failure_response(fail: Fail) -> web.Response:
    """What `[[fail ...]]` asks for."""
    if fail.plain:
        response = web.Response(text=fail.message, status=fail.status, headers={"Server": NAME})
    else:
        response = error_response(fail.status, fail.message, fail.type, code=fail.code)
    if fail.retry_after:
        response.headers["Retry-After"] = fail.retry_after
    return response


class Sending:
    """One answer on its way. A lost client cancels the handler, and with it whatever waits here."""

    def __init__(self, request: web.BaseRequest, entry: Request, journal: Journal, reply: Reply) -> None:
        self._request, self._entry, self._journal, self._reply = request, entry, journal, reply
        options, usage = reply.options, reply.usage
        self._tokens_per_s = options.tokens_per_s
        prefill = (usage.prompt - usage.cached) / options.prefill_tokens_per_s if options.prefill_tokens_per_s else 0.0
        self._loop = asyncio.get_running_loop()
        self._first_at = self._loop.time() + options.ttft_s + prefill

    async def stream(self, encode_stream: Callable[[Reply], Stream]) -> web.StreamResponse:
        fault = self._reply.answer.fault
        plan = course(encode_stream(self._reply), fault, self._reply.answer.done)
        response = web.StreamResponse(headers=_SSE)
        if fault is not None and fault.after == 0 and plan.ending in ("drop", "stall"):
            return await self._end_badly(plan, response)
        self._entry.status = 200
        await response.prepare(self._request)
        if plan.opening:
            await response.write(plan.opening)
        await self._send_frames(plan, response)
        if plan.ending in ("drop", "stall"):
            return await self._end_badly(plan, response)
        await response.write_eof(plan.closing)
        return response

    async def _send_frames(self, plan: Course, response: web.StreamResponse) -> None:
        await self._sleep_until(self._first_at)
        rate = self._tokens_per_s
        for number, write in enumerate(writes(plan.frames, self._reply.options.chunks_per_write), 1):
            if rate and write.last_token > 0:
                await self._sleep_until(self._first_at + write.last_token / rate)
            elif number % _WRITES_PER_TURN == 0:
                await asyncio.sleep(0)
            await response.write(write.data)
            self._entry.tokens_sent += write.tokens
            self._journal.changed()

    async def _sleep_until(self, due: float) -> None:
        """Deadlines are absolute, so that a late wake-up does not delay the rest."""
        delay = due - self._loop.time()
        if delay > 0:
            await asyncio.sleep(delay)

    async def _end_badly(self, plan: Course, response: web.StreamResponse) -> web.StreamResponse:
        if plan.ending == "stall":
            await self._stall()
        self._drop()
        return response

    async def _stall(self) -> None:
        await asyncio.Event().wait()

    def _drop(self) -> None:
        """Close the connection in the middle. Not `abort`: what was written before must arrive."""
        if self._request.transport is not None:
            self._request.transport.close()

    async def whole(self, encode_body: Callable[[Reply], bytes]) -> web.StreamResponse:
        answer = self._reply.answer
        fault, tokens = answer.fault, answer.tokens()
        if fault is not None:
            tokens = min(tokens, fault.after)
        pace = max(0, tokens - 1) / self._tokens_per_s if self._tokens_per_s else 0.0
        await self._sleep_until(self._first_at + pace)
        body = encode_body(self._reply)
        if fault is not None:
            return await self._whole_fault(fault, body)
        self._entry.status, self._entry.tokens_sent = 200, tokens
        return web.Response(body=body, headers=_JSON)

    async def _whole_fault(self, fault: Fault, body: bytes) -> web.StreamResponse:
        """A fault in an answer that is not streamed: half a body, no body, or another one."""
        half = body[: len(body) // 2]
        if fault.kind == "stall":
            await self._stall()
        if fault.kind == "drop":
            return await self._drop_whole(fault, body, half)
        if fault.kind == "error":
            response = error_response(500, "scripted failure")
        else:
            response = web.Response(body=b"null" if fault.kind == "null" else half, headers=_JSON)
        self._entry.status = response.status
        return response

    async def _drop_whole(self, fault: Fault, body: bytes, half: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={**_JSON, "Content-Length": str(len(body))})
        if fault.after:
            self._entry.status = 200
            await response.prepare(self._request)
            await response.write(half)
        self._drop()
        return response
