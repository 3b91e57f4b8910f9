"""`GET /v1/models` and `/v1/models/{id}`: what the upstream serves, and the names added here."""

from __future__ import annotations

from aiohttp import web

from proxy.errors import Kind, LooplineError
from proxy.server.door import JSON, Door
from proxy.session.services import Services
from proxy.wire.codec import encode


class ModelsRoute:
    """Serves the list of models as the caller may see it."""

    def __init__(self, services: Services, door: Door) -> None:
        self._services = services
        self._door = door

    async def handle_list(self, request: web.Request) -> web.Response:
        """Every model."""
        entries = await self._entries(request)
        body = b'{"object":"list","data":[' + b",".join(entries.values()) + b"]}"
        return web.Response(body=body, content_type=JSON)

    async def handle_one(self, request: web.Request) -> web.Response:
        """One model by name."""
        name = request.match_info["name"]
        entry = (await self._entries(request)).get(name)
        if entry is None:
            raise LooplineError(Kind.MODEL_NOT_FOUND, f"The model '{name}' does not exist here.", param="model")
        return web.Response(body=entry, content_type=JSON)

    async def _entries(self, request: web.Request) -> dict[str, bytes]:
        services = self._services
        caller = self._door.admit(request)
        catalog = await services.catalogs.get(services.endpoints[0], caller.tenant, caller.headers)
        entries = dict(catalog.entries)
        for name in (*services.names.exact, services.names.default):
            if name and name not in entries:
                entries[name] = encode({"id": name, "object": "model", "created": 0, "owned_by": "loopline"})
        return {name: entry for name, entry in entries.items() if caller.grant.allows(name)}
