"""A turn before it is sent: what it continues, who is asked, and in which terms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from proxy.conversation import chain
from proxy.conversation.chain import Node
from proxy.errors import Kind, LooplineError
from proxy.models.catalog import RESPONSES, Catalog
from proxy.session.references import any_references, resolve
from proxy.session.services import Caller, Holder, Services
from proxy.translate.base import Brief, Translator
from proxy.translate.chat.translator import ChatTranslator
from proxy.translate.responses.translator import ResponsesTranslator
from proxy.translate.tools.listed import Tools
from proxy.upstream.endpoint import Endpoint
from proxy.wire import ids
from proxy.wire.client_events import Create
from proxy.wire.items import Item, pair_calls, revive_cut_calls

# created and in_progress come before anything that a translator makes.
_FIRST_SEQUENCE = 2


class Prepared(msgspec.Struct, frozen=True, eq=False):
    """A turn that is ready to be translated. `open_calls` are those that no output has answered."""

    endpoint: Endpoint
    catalog: Catalog
    brief: Brief
    open_calls: frozenset[str]


async def find_parent(services: Services, caller: Caller, create: Create, holder: Holder) -> Node | None:
    """The response that a create continues. Raises `LooplineError` (parent_not_found)."""
    parent_id = create.parent_id
    if parent_id is None:
        return None
    node = holder.find(parent_id)
    if node is None and ids.is_ours(parent_id):
        node = await services.store.get(caller.tenant, parent_id, services.clock())
    if node is None or not node.continues:
        raise LooplineError(
            Kind.PARENT_NOT_FOUND,
            f"Previous response with id '{parent_id}' not found.",
            param="previous_response_id",
        )
    return node


async def prepare(services: Services, caller: Caller, create: Create, parent: Node | None, response: str) -> Prepared:
    """Bring a create into the terms of the upstream that will get it; `response` is the id of its answer.

    Its items are settled first: references resolved, cut calls that were answered all the same taken for made. Raises
    `LooplineError` for whatever is wrong with the request.
    """
    endpoint = services.endpoints[0]
    items = create.items
    if any_references(items):
        items = await resolve(items, parent, lambda item: services.store.holder(caller.tenant, item, services.clock()))
    items = revive_cut_calls(items, parent.output if parent else ())
    create = create.limited(endpoint.max_output_tokens)
    if items is not create.items:
        create = replace(create, items=items)
    open_calls = pair_calls(parent.open_calls if parent else frozenset(), create.items)
    _check_size(parent, create, caller.grant.bound("history_bytes", services.history_bytes))
    catalog, model = await _model(services, caller, create, endpoint)
    lasting = chain.lasting(parent, create.items)
    brief = Brief(
        create=create,
        model=model,
        tools=_tools(services, caller, create, lasting),
        profile=catalog.profile,
        seed=ids.seed(response),
        sequence=_FIRST_SEQUENCE,
        max_event_bytes=services.max_event_bytes,
        lasting=lasting,
        open_reasoning=partial(services.sealer.open, caller.tenant),
        seal_reasoning=partial(services.sealer.seal, caller.tenant) if create.wants_sealed else None,
        is_sealed_here=services.sealer.is_ours,
        context_hint=endpoint.context_hint,
        known=None if services.known is None else services.known.translations(caller.tenant, create),
    )
    return Prepared(endpoint, catalog, brief, open_calls)


async def _model(services: Services, caller: Caller, create: Create, endpoint: Endpoint) -> tuple[Catalog, str]:
    """What the endpoint serves, and which of it is meant; a name that it did not list has it asked once more."""
    while True:
        catalog = services.catalogs.known(endpoint, caller.tenant)
        if catalog is None:
            catalog = await services.catalogs.get(endpoint, caller.tenant, caller.headers)
        try:
            return catalog, services.names.resolve(create.model, catalog, caller.grant.allows)
        except LooplineError as error:
            if error.kind is not Kind.MODEL_NOT_FOUND or not services.catalogs.doubt(endpoint, caller.tenant):
                raise


def _tools(services: Services, caller: Caller, create: Create, lasting: Sequence[Item]) -> Tools:
    def read() -> Tools:
        return services.tools.read(caller.tenant, create.raw("tools"), lasting)

    return read() if lasting else create.terms.made("tools", (), read)


def _check_size(parent: Node | None, create: Create, limit: int) -> None:
    size = (parent.total_bytes if parent else 0) + chain.items_bytes(create.items)
    if size > limit:
        raise LooplineError(
            Kind.HISTORY_TOO_LARGE,
            f"The conversation is {size} bytes, more than the {limit} kept here (limits.history_bytes).",
            param="input",
            limit="limits.history_bytes",
        )


def translator_for(prepared: Prepared, *, untold: bool = False) -> Translator:
    """A translator into the dialect that the endpoint is asked in; an `untold` one has yet to `tell` its items."""
    if prepared.catalog.dialect == RESPONSES:
        return ResponsesTranslator(prepared.brief, faithful=prepared.endpoint.faithful, untold=untold)
    return ChatTranslator(prepared.brief, untold=untold)
