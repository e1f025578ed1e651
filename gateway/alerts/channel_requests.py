"""Channels, as users ask for them over HTTP: servers and mailboxes that are told of events."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from gateway.alerts.alert_store import AlertSettings, Channel, ChannelName, ChannelText
from gateway.alerts.quiet_hours import BadQuietHours
from gateway.alerts.smtp_settings import BadAddress, check_address
from waylog.malformed import MALFORMED
from waylog.network.outbound.server_url import BadServerUrl, LoginInUrl, server_url
from waylog.network.outbound.webhook_signature import signing_key

#: What a server is sent: the notice as JSON, or a text for people as Apprise API and ntfy take it.
WEBHOOK: Final = "webhook"
APPRISE: Final = "apprise"
NTFY: Final = "ntfy"
#: A mailbox, where the platform sends e-mail.
EMAIL: Final = "email"
KINDS: Final = (WEBHOOK, APPRISE, NTFY)
_MAILTO: Final = "mailto:"
#: Channels that every user has.
BROWSER: Final = "browser"
MQTT: Final = "mqtt"
OF_ALL: Final = (BROWSER, MQTT)
LANGUAGES: Final = ("en", "de")
#: Standard Webhooks asks for 24 to 64 bytes, of which the longer ones do no harm.
_SIGNING_BYTES_MIN: Final = 24


class BadChannel(ValueError):
    """The body asks for no channel; the message has no secrets."""


class ShownChannel(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A channel, as it is shown to its user: without what may be a secret."""

    id: str
    name: str
    kind: str
    #: The server, without path and query of the URL; of `email` the address.
    server: str
    has_token: bool = False
    has_signing_secret: bool = False
    #: A mailbox that its user has yet to confirm: nothing else is sent there.
    unconfirmed: bool = False
    #: When it was last told of something (ms), and why the last attempt failed.
    told: int | None = None
    error: str | None = None


class _Channel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: ChannelName
    kind: str
    url: ChannelText
    token: ChannelText | None = None
    signing_secret: ChannelText | None = None


class _Settings(AlertSettings, frozen=True, forbid_unknown_fields=True):
    pass


def kinds(*, sends_email: bool) -> tuple[str, ...]:
    """Return the kinds of channels that a platform has."""
    return (*KINDS, EMAIL) if sends_email else KINDS


def mailbox_of(channel: Channel) -> str:
    """Return the address of a channel of kind `email`."""
    return channel.url.removeprefix(_MAILTO)


def read_channel(body: bytes, *, sends_email: bool) -> Channel:
    """Return the channel that a body asks for; raises BadChannel."""
    try:
        asked = msgspec.json.decode(body, type=_Channel)
    except MALFORMED as error:
        raise BadChannel(f"not a channel: {error}") from None
    if not asked.name.isprintable() or not asked.name.strip():
        raise BadChannel("name has characters that cannot be shown")
    offered = kinds(sends_email=sends_email)
    if asked.kind not in offered:
        raise BadChannel(
            "this platform sends no e-mail: its operator has set no --smtp-url"
            if asked.kind == EMAIL
            else f"kind is one of {', '.join(offered)}"
        )
    if asked.kind == EMAIL:
        return _mailbox(asked)
    _check_url(asked.url)
    token = asked.token
    if token is not None and not (token.isascii() and token.isprintable()):
        raise BadChannel("token has characters that cannot be sent")
    if asked.signing_secret is not None:
        if asked.kind != WEBHOOK:
            raise BadChannel(f"signing_secret is for kind {WEBHOOK}")
        try:
            key = signing_key(asked.signing_secret)
        except ValueError as error:
            raise BadChannel(f"signing_secret: {error}") from None
        if len(key) < _SIGNING_BYTES_MIN:
            raise BadChannel(f"signing_secret has to have {_SIGNING_BYTES_MIN} bytes or more")
    return Channel(**_members(asked))


def _mailbox(asked: _Channel) -> Channel:
    if asked.token is not None or asked.signing_secret is not None:
        raise BadChannel("token and signing_secret are not for kind email")
    if not asked.url.startswith(_MAILTO):
        raise BadChannel("url is not mailto:NAME@DOMAIN")
    try:
        check_address(asked.url.removeprefix(_MAILTO))
    except BadAddress as error:
        raise BadChannel(f"url: {error}") from None
    return Channel(name=asked.name, kind=EMAIL, url=asked.url)


def _members(asked: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in asked.__struct_fields__}


def _check_url(url: str) -> None:
    """Raise BadChannel; the message shows nothing of the URL."""
    try:
        server_url(url, ("http", "https"))
    except LoginInUrl:
        raise BadChannel("url: a password belongs into token") from None
    except BadServerUrl as error:
        raise BadChannel(f"url: {error}") from None


def shown_channel(
    channel_id: str, channel: Channel, told: int | None, error: str | None
) -> ShownChannel:
    """Return a channel as its user is shown it."""
    parts = urlsplit(channel.url)
    is_mailbox = channel.kind == EMAIL
    return ShownChannel(
        id=channel_id,
        name=channel.name,
        kind=channel.kind,
        server=mailbox_of(channel) if is_mailbox else f"{parts.scheme}://{parts.netloc}",
        has_token=channel.token is not None,
        has_signing_secret=channel.signing_secret is not None,
        unconfirmed=channel.pending is not None,
        told=told,
        error=error,
    )


def read_settings(body: bytes) -> AlertSettings:
    """Return the settings that a body asks for; raises BadQuietHours."""
    try:
        asked = msgspec.json.decode(body, type=_Settings)
    except MALFORMED as error:
        raise BadQuietHours(f"not the settings of alerts: {error}") from None
    if asked.quiet is not None:
        asked.quiet.check()
    if asked.language not in LANGUAGES:
        raise BadQuietHours(f"language is one of {', '.join(LANGUAGES)}")
    return AlertSettings(**_members(asked))
