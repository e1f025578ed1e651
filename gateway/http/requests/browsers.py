"""Checks of headers that a browser sets itself: Host, Origin, Sec-Fetch-*, cookies.

Any page that a browser shows can make it send requests here. Such a request has no credentials that
the page does not know, but it carries the cookies of this host, and its Host is the name by which
the page reached this server.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from aiohttp import HttpVersion10, HttpVersion11, web

from gateway.factors.site import Site
from gateway.http.requests.responses import Refused, too_large_head
from gateway.http.requests.services import SERVICES
from gateway.users.auth import AuthenticationUnavailable, Identity
from gateway.users.browser_sessions import SESSION_LIFETIME_S
from waylog.network.served_hosts import is_authority

#: Values of Sec-Fetch-Site in requests that no foreign page has made (W3C Fetch Metadata).
_OWN_SITES: Final = frozenset(("same-origin", "none"))
_SAFE_METHODS: Final = frozenset(("GET", "HEAD"))
_VERSIONS: Final = frozenset((HttpVersion10, HttpVersion11))


def require_sound_head(request: web.Request) -> None:
    """Raise Refused for a request that no HTTP/1 client sends, whatever its credentials.

    505 for another version of HTTP: an HTTP/0.9 request has no headers to judge it by. 400 for a
    Host that is no host, or several of them (RFC 9112, section 3.2): a proxy or a browser may take
    another part of it for the name than we do. 400 also for several Authorization headers, for the
    same reason. 431 for a head that is larger than all of them need.
    """
    bytes_max = request.app[SERVICES].limits.head_bytes_max
    if sum(len(name) + len(value) for name, value in request.raw_headers) > bytes_max:
        raise Refused(431, too_large_head(bytes_max), {"Connection": "close"})
    if request.version not in _VERSIONS:
        raise Refused(505, "only HTTP/1.1 and HTTP/1.0 are served", {"Connection": "close"})
    hosts = request.headers.getall("Host", ())
    if len(hosts) > 1 or not all(map(is_authority, hosts)):
        raise Refused(400, "Host is not the name of one host", {"Connection": "close"})
    if len(request.headers.getall("Authorization", ())) > 1:
        raise Refused(400, "there are several Authorization headers", {"Connection": "close"})


def require_served_host(request: web.Request) -> None:
    """Raise Refused (421) unless the Host header names this gateway."""
    host = request.headers.get("Host")
    if not request.app[SERVICES].hosts.serves(host):
        raise Refused(
            421,
            f"{(host or '')[:200]!a} is not served here; the gateway's option --host adds a name",
        )


def is_of_other_site(request: web.Request) -> bool:
    """Tell whether a page of another site made the browser send the request."""
    site = request.headers.get("Sec-Fetch-Site")
    return site is not None and site not in _OWN_SITES


def same_origin(request: web.Request) -> bool:
    """Tell whether the request comes from a page of this host, or from no page (RFC 6454)."""
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    hosts = request.app[SERVICES].hosts
    return hosts.is_own_origin(origin, request.headers.get("Host", ""))


def url_of_platform(request: web.Request) -> str:
    """Return the URL by which others reach the platform: as the asker does."""
    origin = request.headers.get("Origin")
    return origin if origin and same_origin(request) else f"{request.scheme}://{request.host}"


def site_of(request: web.Request) -> Site:
    """Return the site that passkeys of this page belong to. Raises Refused for other pages."""
    origin = request.headers.get("Origin")
    host = urlsplit(origin or "").hostname
    if origin is None or host is None or not same_origin(request) or is_of_other_site(request):
        raise Refused(403, "passkeys are for the page of this platform")
    return Site(origin, host)


def require_own_page(request: web.Request) -> None:
    """Raise Refused if the browser's headers show that a foreign page sent the request.

    A request that changes something must have an Origin, since it needs nothing but the cookie.
    """
    require_served_host(request)
    unsaid = request.method not in _SAFE_METHODS and "Origin" not in request.headers
    if unsaid or is_of_other_site(request) or not same_origin(request):
        raise Refused(403, "a page of another site may not do that for you")


def session_secret(request: web.Request) -> str | None:
    """Return the secret in the session's cookie, or None."""
    return request.cookies.get(request.app[SERVICES].session_cookie) or None


def set_session_cookie(request: web.Request, answer: web.Response, secret: str) -> None:
    """Let the browser keep a session: no script can read it, no other site can use it."""
    answer.set_cookie(
        *(request.app[SERVICES].session_cookie, secret),
        max_age=SESSION_LIFETIME_S,
        path="/",
        httponly=True,
        samesite="Strict",
        secure=is_over_tls(request),
    )


def is_over_tls(request: web.Request) -> bool:
    """Tell whether the page came over TLS, which a reverse proxy may have ended."""
    return request.headers.get("Origin", "").startswith("https://")


def session_of(request: web.Request) -> Identity | None:
    """Return the identity of the session; None if there is none or it has ended. Raises Refused."""
    secret = session_secret(request)
    if secret is None:
        return None
    require_own_page(request)
    try:
        return request.app[SERVICES].authenticator.authenticate_session(secret)
    except AuthenticationUnavailable as error:
        raise Refused(503, str(error), {"Retry-After": "2"}) from error
