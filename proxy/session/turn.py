"""The road of one turn: from its create to its terminal event, in one function, `Turn._travel`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from proxy.conversation import chain
from proxy.conversation.chain import Node
from proxy.conversation.listing import Context
from proxy.errors import Kind, LooplineError, kind_of
from proxy.http_client import HttpRequest, HttpResponse, read_all
from proxy.session.prepared import Prepared, find_parent, prepare, translator_for
from proxy.session.reading import read_next, read_tail
from proxy.session.registry import RunningTurn
from proxy.session.services import Caller, Holder, Services
from proxy.session.stopping import Stoppable, Stopped, Timer
from proxy.telemetry.observer import TurnRecord
from proxy.translate.base import Brief, Result, Translator
from proxy.translate.failures import upstream_error
from proxy.translate.left_out import describe
from proxy.upstream.endpoint import Endpoint
from proxy.wire import server_events as events
from proxy.wire.client_events import Create
from proxy.wire.error_events import failed_error
from proxy.wire.items import calls_after, require_answers
from proxy.wire.server_events import Shown

_MAX_ERROR_BODY_BYTES = 256 * 1024
# Our own refusals and a client's own wish say nothing about the parent: it stays (ARCHITECTURE, eviction).
_KEEPS_PARENT = frozenset({Kind.QUEUE_FULL, Kind.SHUTTING_DOWN, Kind.CANCELLED, Kind.UNAUTHORIZED})


class Turn:
    """One turn. `run` is its task; it ends with exactly one terminal event or refusal, unless nobody follows it."""

    def __init__(self, services: Services, caller: Caller, create: Create, holder: Holder, record: TurnRecord) -> None:
        self._services = services
        self._caller = caller
        self._create = create
        self._holder = holder
        self._record = record
        self._parent: Node | None = None
        self._brief: Brief | None = None
        self._translator: Translator | None = None
        self._created_at = 0  # seconds since 1970
        self._snapshot: events.Snapshot | None = None
        self._begun = False
        self._steered = False
        self._whole = False  # has the answer ended by itself? Then nothing can stop it any more
        self._upstream_part = Stoppable()  # what `steer` ends
        self._unsent: list[bytes] = []  # what leaves with the next events
        self._history: chain.Pieces | None = None  # what the turn continues, in the upstream's dialect
        self._node: Node | None = None  # what has become of it

    async def run(self, running: RunningTurn) -> None:
        """Travel the road; whatever goes wrong ends in one event."""
        observer, record = self._services.observer, self._record
        observer.turn_started(record)
        try:
            await self._travel(running)
            await self._join()
        except LooplineError as error:
            await self._fail(running, error)
        except asyncio.CancelledError:
            record.outcome = record.outcome or "cancelled"
            if running.cancel_reason is not None:
                await self._fail(running, running.cancel_reason)
            raise
        except Exception as error:  # a bug of ours must reach the client as an event, not as silence
            observer.crashed("turn", error)
            await self._fail(running, LooplineError(Kind.INTERNAL, "Internal error.", cause=kind_of(error)))
        finally:
            record.ended_s = record.ended_s or self._services.clock()
            record.events_out, record.bytes_out = running.events_out, running.bytes_out
            if record.outcome not in ("completed", "incomplete"):
                self._charge()
            running.end()
            observer.turn_ended(record)

    async def _travel(self, running: RunningTurn) -> None:
        services, record = self._services, self._record
        if running.congested:
            await running.drained()  # a client that reads nothing gets nothing more to read
        record.started_s = services.clock()
        prepared = await self.prepare()
        record.prepared_s = services.clock()
        endpoint, brief, open_calls = prepared.endpoint, prepared.brief, prepared.open_calls
        create, parent = self._create, self._parent
        self._created_at = int(services.wall())
        is_long = brief.is_long
        self._translator = translator = translator_for(prepared, untold=is_long)
        if is_long:
            await services.portions.do(translator.tell())
        self._note(endpoint, translator, brief)
        record.model_known = services.names.knows(brief.model, prepared.catalog)
        record.answers_calls = parent is not None and bool(parent.open_calls)
        if create.generate:
            require_answers(open_calls)
        self._history = history = chain.history(parent, translator.encoding, translator.encode)
        if not create.generate:
            self._check_warm_up(translator, history)
            self._describe()
            self._begin(running)
            await self._conclude(running, _NOTHING, open_calls)
            return
        body = translator.request(history)
        self._describe()
        record.bytes_history = history.size
        record.bytes_upstream = sum(map(len, body.parts))
        if create.background:
            self._begin(running)  # its client is told of what can be polled, not of what an upstream says first
        request = endpoint.request(
            "POST",
            body.path,
            self._caller.headers,
            body=body.parts,
            repeatable=body.repeatable,
            times=record,
            watch=record.watch,
        )
        with endpoint.lease(), self._begun_in_time(running):
            record.sent_s = services.clock()
            try:
                with self._upstream_part:
                    await self._ask(running, request, translator, open_calls)
            except Stopped:
                self._begin(running)
                self._unsent += translator.interrupt()
                record.upstream_end_s = services.clock()
                await self._conclude(running, translator.result(), open_calls)

    async def _ask(
        self, running: RunningTurn, request: HttpRequest, translator: Translator, open_calls: frozenset[str]
    ) -> None:
        """Send the request and pass its answer on, to its end."""
        services, record = self._services, self._record
        self._stop_if_steered()
        async with services.client.open(request) as response:
            record.attempts, record.accepted_s = response.attempts, services.clock()
            if response.status != 200:
                error_body = await read_all(response, _MAX_ERROR_BODY_BYTES)
                hint = services.endpoints[0].context_hint
                raise upstream_error(response.status, response.headers, error_body, hint)
            self._begin(running, more_follows=response.is_ready)
            last = await self._relay(running, response, translator)  # takes what is unsent itself
            self._unsent += last
            self._unsent += translator.finish()
            self._whole = True
            record.upstream_end_s = services.clock()
            await self._conclude(running, translator.result(), open_calls)
            await read_tail(response)

    async def prepare(self) -> Prepared:
        """Bind what the turn continues, and make it ready. Raises `LooplineError` for what is wrong with it."""
        self._parent = await find_parent(self._services, self._caller, self._create, self._holder)
        self._record.chained_s = self._services.clock()
        prepared = await prepare(self._services, self._caller, self._create, self._parent, self._record.response)
        self._brief, self._create = prepared.brief, prepared.brief.create
        return prepared

    @property
    def context(self) -> Context:
        """What the response is made from."""
        return Context(self._record.response, self._parent, self._create.items)

    def show(self) -> bytes | None:
        """The response as it is now, while it runs; None before anything can be said of it."""
        if self._snapshot is None:
            return None
        return self._snapshot.render(b"queued" if self._record.accepted_s is None else b"in_progress")

    @property
    def create(self) -> Create:
        """What was asked for."""
        return self._create

    def steer(self) -> None:
        """Stop the generation, unless the answer is whole or a call has begun: then it completes."""
        self._record.steers += 1
        if self._steered or self._whole or (self._translator is not None and self._translator.call_begun):
            return
        self._steered = True
        self._upstream_part.stop()

    def _stop_if_steered(self) -> None:
        """Before the upstream is asked in vain, and before more is said of what has been read."""
        if self._steered:
            raise Stopped

    def _check_warm_up(self, translator: Translator, history: Sequence[bytes]) -> None:
        """What the next turn's request would be refused for is said now; that there is nothing to ask yet is not."""
        if translator.delta or history or "instructions" in self._create.terms.members:
            translator.request(history)

    def _describe(self) -> None:
        """Make the response object, with what the upstream could not be told as far as it is known."""
        brief, translator, record = self._brief, self._translator, self._record
        assert brief is not None
        assert translator is not None
        self._note_left_out(translator)
        model = self._create.model or brief.model
        self._snapshot = events.Snapshot(
            record.response, self._create, model, brief.tools.echo, self._created_at, describe(record.left_out)
        )

    def _note_left_out(self, translator: Translator) -> None:
        if left_out := translator.left_out:
            self._record.left_out = tuple(dict.fromkeys(left_out))

    async def _relay(self, running: RunningTurn, response: HttpResponse, translator: Translator) -> list[bytes]:
        """Pass on what arrives until the answer's last event; its own events are returned, not yet published."""
        size, limit, record = 0, self._services.max_output_bytes, self._record
        while data := await read_next(response, translator):
            self._stop_if_steered()
            size += len(data)
            running.grow(len(data))
            if size > limit:
                raise LooplineError(
                    Kind.UPSTREAM_GARBLED,
                    f"The upstream's answer is larger than {limit} bytes (upstream.max_output_bytes).",
                )
            made = translator.feed(data)
            if record.first_output_s is None and translator.has_output:
                record.first_output_s = self._services.clock()
            if translator.ended:
                return made
            if made or self._unsent:
                made, self._unsent = [*self._unsent, *made], []
                running.publish(made)
                if running.congested:
                    await self._stall(running)
        return []

    async def _stall(self, running: RunningTurn) -> None:
        """Wait for a client that does not read: its time, not the upstream's."""
        record, since_s = self._record, self._services.clock()
        record.stall_began_s = since_s
        try:
            await running.drained()
        finally:
            record.stall_began_s = None
            record.stalled_s += self._services.clock() - since_s

    def _begin(self, running: RunningTurn, *, more_follows: bool = False) -> None:
        """Publish created and in_progress, once: the parent is bound and an upstream has accepted, or takes long.

        Where more follows at once they leave with it: for a short turn a write is what costs most.
        """
        if self._begun or self._snapshot is None:
            return
        self._begun = True
        started = b'"response":' + self._snapshot.render(b"in_progress")
        begun = [events.event(b"response.created", 0, started), events.event(b"response.in_progress", 1, started)]
        if more_follows:
            self._unsent = begun
        else:
            running.publish(begun)

    def _begun_in_time(self, running: RunningTurn) -> Timer:
        """What is open while the upstream is asked: created and in_progress leave then, if it takes long."""
        passed_s = self._services.clock() - (self._record.started_s or 0.0)  # asking for the models took some of it
        return self._services.timers.after(max(0.0, self._services.early_events_s - passed_s), self._begin, running)

    async def _conclude(self, running: RunningTurn, result: Result, open_calls: frozenset[str]) -> None:
        """Keep the answer, then say that it is whole: a client continues the moment it reads the terminal event."""
        services, create, translator = self._services, self._create, self._translator
        assert translator is not None
        assert self._snapshot is not None
        told = b",".join(filter(None, (translator.delta, translator.encode(result.items))))
        shown = self._snapshot.shown(
            result.status,
            usage=result.usage,
            incomplete=result.incomplete,
            completed_at=int(services.wall()) if result.status == b"completed" else None,
        )
        node = chain.link(
            self._parent,
            tenant=self._caller.tenant,
            response=self._record.response,
            items=create.items,
            output=result.items,
            open_calls=calls_after(open_calls, result.items),
            stored=create.store,
            endpoint=self._record.endpoint,
            upstream_id=result.upstream_id,
            fragments={translator.encoding: told},
            before=self._history,
            shown=_kept(shown, result) if create.store else None,
        )
        self._note_left_out(translator)  # of the answer, too, something may be nothing that could be told again
        if create.store:
            await services.store.put(node, services.clock())
        self._record.stored_s = services.clock()
        self._holder.advance(node)
        self._node = node
        ended = shown.render(result.output)
        self._unsent.append(events.event(b"response." + result.status, translator.sequence, b'"response":' + ended))
        running.publish(self._unsent)
        self._account(result)
        running.end()

    async def _join(self) -> None:
        """Learn which turn this one followed, where no lane told: by its parent, or by what its whole history says."""
        known, record, node = self._services.known, self._record, self._node
        if known is None or node is None or not (node.parent is None or record.previous_end_s is None):
            return
        if record.session and node.parent is None and len(node.items) == 1:
            return  # a conversation that begins on a socket goes on there
        await asyncio.sleep(0)  # the client hears of the end first
        await self._services.portions.do(known.reading(node))
        previous = known.previous(node)
        known.ended(node, record.ended_s or self._services.clock())
        if previous is not None:
            record.answers_calls = previous.is_waiting
            if record.previous_end_s is None and previous.ended_s <= record.received_s:
                record.previous_end_s = previous.ended_s

    async def _fail(self, running: RunningTurn, error: LooplineError) -> None:
        record = self._record
        if record.outcome in ("completed", "incomplete"):
            return  # only reading the tail of the answer failed
        if self._parent is not None and error.kind not in _KEEPS_PARENT:
            self._holder.evict(self._parent)
        if error.kind is Kind.UPSTREAM_NOT_FOUND:
            self._services.catalogs.doubt(self._services.endpoints[0], self._caller.tenant)
        error.message = self._services.endpoints[0].hide(error.message)
        running.failure = error.bare()
        record.error, record.cause = error.kind.value, error.cause or ""
        record.outcome = "failed" if self._begun else "refused"
        if error.kind.value.startswith("upstream"):
            self._services.observer.upstream_failed(record.endpoint, error.kind.value)
        cancelled = error.kind is Kind.CANCELLED
        if cancelled:
            record.outcome = "cancelled"
            self._begin(running)
        if self._begun and self._snapshot is not None and self._translator is not None:
            owed = self._unsent + _owed(self._translator)
            output = self._translator.partial()
            shown = self._snapshot.shown(
                b"cancelled" if cancelled else b"failed", error=b"null" if cancelled else failed_error(error)
            )
            if self._create.background:
                await self._keep_failed(replace(shown, output=output))
            failed = shown.render(output)
            owed.append(events.event(b"response.failed", self._translator.sequence, b'"response":' + failed))
            running.publish(owed)
        else:
            running.refuse(error)

    async def _keep_failed(self, shown: Shown) -> None:
        """Whoever polls must find the end, although nothing can continue it."""
        node = chain.link(
            self._parent,
            tenant=self._caller.tenant,
            response=self._record.response,
            items=self._create.items,
            output=(),
            open_calls=frozenset(),
            stored=True,
            endpoint=self._record.endpoint,
            shown=shown,
        )
        await self._services.store.put(node, self._services.clock())

    def _note(self, endpoint: Endpoint, translator: Translator, brief: Brief) -> None:
        record, create = self._record, self._create
        record.endpoint, record.dialect, record.upstream_model = endpoint.name, translator.dialect, brief.model
        record.model = create.model or brief.model
        record.warm_up = not create.generate

    def _account(self, result: Result) -> None:
        record = self._record
        record.outcome = result.status.decode()
        record.ended_s = self._services.clock()
        record.items_out = len(result.items)
        if result.tokens is not None:
            record.tokens_in, record.tokens_cached = result.tokens.input, result.tokens.cached
            record.tokens_out = result.tokens.output
        self._charge()

    def _charge(self) -> None:
        """What the turn has cost; what an upstream did not count is taken to be a token for every four bytes."""
        record = self._record
        # One that leaves while the upstream is silent has been asked for all the same; one that was refused has not.
        if record.sent_s is None or (record.accepted_s is None and record.outcome != "cancelled"):
            return
        told = record.tokens_in + record.tokens_out
        self._caller.grant.account.spent(
            told or (record.bytes_upstream + record.bytes_out) // 4, self._services.clock()
        )


_NOTHING = Result(items=(), output=b"", status=b"completed", usage=events.NO_USAGE)


def _kept(shown: Shown, result: Result) -> Shown:
    """What is kept to be shown: the output only where the items' bytes are not what the client was told."""
    same = result.output == b",".join(item.raw for item in result.items)
    return shown if same else replace(shown, output=result.output)


def _owed(translator: Translator) -> list[bytes]:
    """Events that were made in the same read that then reported the failure."""
    try:
        return translator.feed(b"")
    except Exception:  # what has failed once may fail again; that must not keep the failure from being told
        return []
