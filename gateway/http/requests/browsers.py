"""Headers of the browser's own (Host, Origin, Sec-Fetch-*, cookies): how far they are believed.

A browser can be made to ask us by any page it shows. Such a request has no credentials that the
page does not know; but it has the cookies of this host, and its Host is whatever name the page
found us by.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.http.requests.responses import Refused
from gateway.http.requests.services import SERVICES
from gateway.users.auth import AuthenticationUnavailable, Identity

#: What Sec-Fetch-Site says of requests that no other page has made (W3C Fetch Metadata).
_OWN_SITES: Final = frozenset(("same-origin", "none"))
_SAFE_METHODS: Final = frozenset(("GET", "HEAD"))


def require_served_host(request: web.Request) -> None:
    """Raises Refused (421) unless the request asks for one of the names that are ours."""
    host = request.headers.get("Host")
    if not request.app[SERVICES].hosts.serves(host):
        raise Refused(
            421,
            f"{(host or '')[:200]!a} is not served here; the gateway's option --host adds a name",
        )


def is_of_other_site(request: web.Request) -> bool:
    """Tell whether a page of another site makes the browser ask."""
    site = request.headers.get("Sec-Fetch-Site")
    return site is not None and site not in _OWN_SITES


def same_origin(request: web.Request) -> bool:
    """Tell whether a browser's page, if it is one that asks, came from here (RFC 6454)."""
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    hosts = request.app[SERVICES].hosts
    return hosts.is_own_origin(origin, request.headers.get("Host", ""))


def require_own_page(request: web.Request) -> None:
    """Raises Refused unless, as far as a browser says, nobody's page but ours asks.

    What changes something must say so (Origin), since it needs nothing but the cookie.
    """
    require_served_host(request)
    unsaid = request.method not in _SAFE_METHODS and "Origin" not in request.headers
    if unsaid or is_of_other_site(request) or not same_origin(request):
        raise Refused(403, "a page of another site may not do that for you")


def session_secret(request: web.Request) -> str | None:
    """The secret in the session's cookie; None if there is none."""
    return request.cookies.get(request.app[SERVICES].session_cookie) or None


def session_of(request: web.Request) -> Identity | None:
    """Whose session it is; None without one, or with one that has ended. Raises Refused."""
    secret = session_secret(request)
    if secret is None:
        return None
    require_own_page(request)
    try:
        return request.app[SERVICES].authenticator.authenticate_session(secret)
    except AuthenticationUnavailable as error:
        raise Refused(503, str(error), {"Retry-After": "2"}) from error
