"""What every upstream dialect does for one turn: the same methods.

    request(...)     the turn as an upstream request
    feed(data)       bytes that arrived from the upstream → events for the client
    finish()         the upstream's stream ended → the last events; the answer is whole, or LooplineError
    result()         what is kept and told of the whole answer

An answer that is no success is the same in every dialect: `failures.upstream_error`.
A translator lives for one turn and does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Protocol

import msgspec

from proxy.models.profile import Profile
from proxy.translate.fragments import Encoder, Fragments
from proxy.translate.left_out import LeftOut
from proxy.translate.tools.listed import Tools
from proxy.wire.client_events import Create
from proxy.wire.items import Item
from proxy.wire.portions import MANY

STEERED = "steered"


class Brief(msgspec.Struct, frozen=True, eq=False):
    """What a translator is told of its turn.

    `model` is the upstream's name. `seed` makes the item ids, `sequence` is the number of the first event.
    `max_event_bytes` bounds one event of the upstream. `lasting` are earlier items of the conversation whose effect
    lasts (`chain.LASTING`). `open_reasoning` gives the text in encrypted content that was sealed here, None for any
    other; `seal_reasoning` makes such content, and is None where the client did not ask for it. `is_sealed_here` says
    whether content was sealed by a Loopline, also where it does not open: no upstream can read that.
    `context_hint` is added to what is said of a prompt too long. `known` are translations of items that came before,
    for a request with its whole history.
    """

    create: Create
    model: str
    tools: Tools
    profile: Profile
    seed: str
    sequence: int
    max_event_bytes: int
    lasting: Sequence[Item] = ()
    open_reasoning: Callable[[str], str | None] = lambda _: None
    seal_reasoning: Callable[[str], str] | None = None
    context_hint: str = ""
    is_sealed_here: Callable[[str], bool] = lambda _: False
    known: Fragments | None = None

    @property
    def is_long(self) -> bool:
        """Are there so many items that they are told in portions?"""
        return len(self.create.items) > MANY and self.known is not None

    def told(self, encoding: str, encoder: Encoder) -> bytes:
        """The turn's items in the upstream's dialect."""
        items, known = self.create.items, self.known
        return encoder.encode(items) if known is None else known.encoded(items, encoding, self.tools.names, encoder)

    def telling(self, encoding: str, encoder: Encoder) -> Generator[None, None, bytes]:
        """The same of many items, a portion after each step."""
        assert self.known is not None
        return self.known.in_portions(self.create.items, encoding, self.tools.names, encoder)


class Body(msgspec.Struct, frozen=True, eq=False):
    """What is sent upstream: the path under the endpoint's url, and the body in parts.

    `repeatable` says that sending it twice does no harm.
    """

    path: str
    parts: Sequence[bytes]
    repeatable: bool


class Tokens(msgspec.Struct):
    """Usage as the upstream counted it, in tokens."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    total: int = 0


def _at_least_0(count: int | None) -> int:
    return count if count is not None and count > 0 else 0


# The largest count that every client's JSON library reads exactly.
_MAX_TOKENS = 2**53


def counted(
    tokens_in: int | None, cached: int | None, tokens_out: int | None, reasoning: int | None, total: int | None
) -> Tokens | None:
    """An upstream's counts as numbers of tokens: negative ones are 0; with an absurd one, nothing is known."""
    made = Tokens(_at_least_0(tokens_in), _at_least_0(cached), _at_least_0(tokens_out), _at_least_0(reasoning))
    if total == made.input + made.output + made.reasoning:
        made.output += made.reasoning  # some count it beside the output
    made.total = made.input + made.output
    largest = max(made.total, made.cached, made.reasoning, total or 0)
    return made if largest <= _MAX_TOKENS else None


class Result(msgspec.Struct):
    """A whole answer.

    `status` is `completed` or `incomplete`, `incomplete` the JSON of its details. `output` are the items' bytes joined
    by commas. `usage` is the JSON for the client, null where the upstream did not count.
    """

    items: tuple[Item, ...]
    output: bytes
    status: bytes
    incomplete: bytes = b"null"
    usage: bytes = b"null"
    tokens: Tokens | None = None
    upstream_id: str | None = None


class Translator(Protocol):
    """One turn's translation; see the module.

    `encoding` names the form that `encode` gives: fragments of one encoding fit each other. `left_out` is what could
    not be carried, complete after `request`. `sequence` is the number of the next event. `ended` turns true with the
    upstream's last event, `whole` turns true when nothing of the answer is missing any more: what may follow is usage
    or an end mark, so that `finish` is in order although reading fails. `has_output` turns true with the first event
    that carries output. `delta` is the turn's items in the upstream's dialect.
    """

    dialect: str
    encoding: str
    delta: bytes

    @property
    def left_out(self) -> Sequence[LeftOut]: ...

    @property
    def sequence(self) -> int: ...

    @property
    def ended(self) -> bool: ...

    @property
    def whole(self) -> bool: ...

    @property
    def has_output(self) -> bool: ...

    def tell(self) -> Generator[None, None, None]:
        """Make `delta`, a portion after each step, for a translator that was made `untold` of a brief that `is_long`.

        Raises what making the translator raises otherwise.
        """
        ...

    def encode(self, items: Sequence[Item]) -> bytes:
        """Items in the upstream's dialect, joined by commas. Raises `LooplineError` naming an item it cannot carry."""
        ...

    def request(self, history: Sequence[bytes]) -> Body:
        """The turn after `history` (fragments made by `encode`). Raises `LooplineError` (invalid_request)."""
        ...

    def feed(self, data: bytes) -> list[bytes]:
        """Events for what arrived. Raises `LooplineError` where the upstream reports or commits an error."""
        ...

    def finish(self) -> list[bytes]:
        """Events that were still owed. Raises `LooplineError` (upstream_closed) for an answer that is not whole."""
        ...

    @property
    def call_begun(self) -> bool: ...

    def interrupt(self) -> list[bytes]:
        """End the answer early: what was said stays, an unfinished thought or call is dropped. `result` follows."""
        ...

    def result(self) -> Result:
        """The whole answer, after `finish`."""
        ...

    def partial(self) -> bytes:
        """The items finished so far, joined by commas, for a response that fails."""
        ...
