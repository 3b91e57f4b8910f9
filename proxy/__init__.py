"""Loopline: a stateful WebSocket front for LLM inference servers.

An agent opens one WebSocket and sends only what is new in each turn. Loopline keeps the rest of the conversation in
memory and turns each delta into a call on an upstream that may know nothing of WebSockets, of response ids, or of the
Responses API at all.

One turn, in the order it is travelled. Each arrow is a type; each stop is one file::

    client socket
       │ bytes                 server/websocket.py    upgrade, size limits; server/responses.py: the same road by HTTP
       ▼
    ClientEvent                wire/client_events.py  parsed once; items stay raw bytes
       ▼
    legal now? which lane?     session/state.py       a table, no I/O
       ▼
    Turn                       session/turn.py        the road in one function
       ├─ chain                conversation/          previous_response_id → items and digests
       ├─ model config         models/                cached: dialect, limits
       ├─ UpstreamRequest      translate/<dialect>.py body spliced from cached bytes, never re-encoded
       ▼
    lease                      upstream/              the right to use an endpoint; retried until the first event
       ▼
    UpstreamEvent*             wire/sse.py            incremental, bounded
       ▼
    ServerEvent*               translate/<dialect>.py feed(), finish(): ready-to-send bytes
       ├─ Node                 conversation/          built before the terminal event leaves
       ▼
    bytes                      session/outbox.py      one writer per socket, bounded in bytes, many frames in one write
       ▼
    client socket

Cancelling runs it backwards: last subscriber gone or turn ended → task cancelled → upstream connection closed → lease
released. A turn belongs to the registry, not to the socket: sessions and HTTP requests subscribe to it.
"""

__version__ = "0.1.0"
