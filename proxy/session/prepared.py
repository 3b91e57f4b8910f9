"""A turn before it is sent: who is asked, what for, and in which dialect."""

from __future__ import annotations

from typing import NamedTuple

from proxy.models.catalog import RESPONSES, Catalog
from proxy.translate.base import Brief, Translator
from proxy.translate.chat.translator import ChatTranslator
from proxy.translate.responses.translator import ResponsesTranslator
from proxy.upstream.endpoint import Endpoint


class Prepared(NamedTuple):
    """A turn that is ready to be translated. `open_calls` are those that no output has answered."""

    endpoint: Endpoint
    catalog: Catalog
    brief: Brief
    open_calls: frozenset[str]


def translator_for(prepared: Prepared) -> Translator:
    """A translator into the dialect that the endpoint is asked in."""
    if prepared.catalog.dialect == RESPONSES:
        return ResponsesTranslator(prepared.brief, faithful=prepared.endpoint.faithful)
    return ChatTranslator(prepared.brief)
