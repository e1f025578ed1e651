"""Who may ask: not pages of other sites, which a browser on this machine may have open.

Without passwords, as in Kafka, whoever can reach the address may do everything. A page could send
requests, or have its own name resolve to this machine. So Host has to be this machine, and Origin
this interface or `access.control.allow.origin`. Programs send no Origin.
"""

from __future__ import annotations

from typing import Final

from aiohttp import hdrs, web

from consumers.connect.rest.bodies import Handler, refusal
from waylog.network.served_hosts import ServedHosts

_DEFAULT_METHODS: Final = "GET,POST,HEAD"


class Origins:
    """The rule of one listener."""

    def __init__(self, hosts: ServedHosts, allowed_origin: str, allowed_methods: str) -> None:
        """`allowed_origin` is an origin, * or empty; `allowed_methods` are separated by commas."""
        self._hosts: Final = hosts
        self._origin: Final = allowed_origin
        self._methods: Final = allowed_methods or _DEFAULT_METHODS

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests of pages of other sites."""
        host = request.headers.get(hdrs.HOST)
        if not self._hosts.serves(host):
            return refusal(403, "This worker is not reached by that name")
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is None or self._hosts.is_own_origin(origin, host or ""):
            return await handler(request)
        if self._origin != "*" and origin.lower() != self._origin.lower():
            return refusal(403, "Pages of other sites may not use this interface")
        if request.method == hdrs.METH_OPTIONS:
            response: web.StreamResponse = web.Response(status=200)
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_METHODS] = self._methods
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = "content-type,accept"
        else:
            response = await handler(request)
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = self._origin
        return response
