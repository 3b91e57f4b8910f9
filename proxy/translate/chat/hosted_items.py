"""Items of tools that another server ran, as a chat call and its output (tools/hosted.py)."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.translate.chat.call_items import output_content
from proxy.translate.chat.messages import Messages, Writer, finished
from proxy.translate.tools.hosted import HOSTED, read_hosted
from proxy.wire.items import Item


def _write(messages: Messages, item: Item, param: str) -> None:
    ran = read_hosted(item.kind, item.raw, param, messages.tools)
    messages.hosted(item, ran.item_id, ran.name, ran.arguments, output_content(ran.output, param))


HOSTED_WRITERS: Mapping[str, Writer] = dict.fromkeys(sorted(HOSTED), finished(_write))
