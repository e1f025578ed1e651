"""A forwarding: which devices of a user are sent on, to which server, and with which secrets.

Topic `forwarding` has one record for each, key = user LF id, sealed with a key of the owner's
forwardings (waylog.forwarding.keys). A gateway writes it, the worker of `waylog forwarding run`
follows it. The topic also has what administrators have paused (waylog.forwarding.pauses).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec

#: What a server is sent; those of HTTP but for the webhook are templates of the connector HttpSink.
WEBHOOK: Final = "webhook"
MQTT: Final = "mqtt"
TEMPLATES: Final = (
    *("traccar", "traccar-json", "dawarich", "dawarich-owntracks", "home-assistant"),
    *("home-assistant-gpslogger", "phonetrack", "owntracks-recorder"),
)
KINDS: Final = (*TEMPLATES, WEBHOOK, MQTT)

#: The consumer group of the workers, which commits no offset that some forwarding has yet to send.
GROUP: Final = "forwarding"

#: What the id of a forwarding, and of what belongs to it, looks like.
ID: Final = re.compile(r"[0-9a-f]{16}")

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
Url = Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
Secret = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
#: Names without the user's.
Devices = Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=100)]
DeviceNames = Annotated[dict[Name, Name], msgspec.Meta(max_length=100)]


class Forwarding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of a record; units are ms since 1970."""

    name: Name
    kind: str
    url: Url
    #: None: all devices of the user, also those that come later.
    devices: Devices | None = None
    #: What the server calls a device, where that is not USER/DEVICE.
    device_names: DeviceNames = {}
    username: Secret | None = None
    password: Secret | None = None
    token: Secret | None = None  # sent as Bearer
    signing_secret: Secret | None = None  # of webhooks
    created: Milliseconds
    #: Records from before are not forwarded.
    since: Milliseconds
    #: Since when devices and server are what they are; None: written by an earlier version.
    settled: Milliseconds | None = None
    paused_by: str | None = None
    #: Grows with each change.
    revision: Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)] = 0

    def __repr__(self) -> str:
        """Return a text without secrets, which the URL may hold too."""
        return f"Forwarding({self.name!r}, {self.kind})"

    def has(self, device: str) -> bool:
        """Tell whether a device, named without its user, is to be forwarded."""
        return self.devices is None or device in self.devices


#: The members that nobody is shown again.
SECRETS: Final = ("password", "token", "signing_secret")


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of a record of topic `forwarding-progress`, key = user LF id LF partition."""

    #: All records of the partition before this one are forwarded, refused or none of the user's.
    offset: Milliseconds
    #: Whether it goes on where the group does, which may be further than `offset`.
    live: bool = False
    #: When the gateway stored the newest record that was forwarded.
    forwarded: Milliseconds | None = None
    #: Why the last attempt failed, and when; None: it did not.
    error: str | None = None
    error_time: Milliseconds | None = None
    #: Records that the server will never take, and why it did not take the last one.
    refused: Milliseconds = 0
    refusal: str | None = None
    #: Records that the log's retention had deleted before they could be forwarded.
    missed: Milliseconds = 0
    #: Where they were: the first offset, and that behind the last; the newest ones, in order.
    gaps: tuple[tuple[Milliseconds, Milliseconds], ...] = ()
    #: Of what is below nobody knows where records were missed.
    gaps_from: Milliseconds = 0
    #: `Forwarding.settled` of the devices and the server to which everything is forwarded from
    #: `settled_from` on; None: it is not known.
    settled: Milliseconds | None = None
    settled_from: Milliseconds = 0


def record_key(user: str, forwarding_id: str, partition: int | None = None) -> bytes:
    """Return the key of a forwarding, or of its progress in a partition."""
    text = f"{user}\n{forwarding_id}"
    return (text if partition is None else f"{text}\n{partition}").encode()


def letter_source(user: str, forwarding_id: str) -> str:
    """Return what the dead letters of a forwarding name as their connector."""
    return f"forwarding {user}/{forwarding_id}"


def parse_key(key: bytes) -> tuple[str, str]:
    """Return user and id of a forwarding's key; raises ValueError."""
    user, _, forwarding_id = key.decode().partition("\n")
    if not user or "/" in user or not ID.fullmatch(forwarding_id):
        raise ValueError("the key is user LF id")
    return user, forwarding_id


def parse_progress_key(key: bytes) -> tuple[str, str, int]:
    """Return user, id and partition of a progress's key; raises ValueError."""
    head, _, partition = key.rpartition(b"\n")
    if not re.fullmatch(rb"[0-9]{1,9}", partition):
        raise ValueError("the key is user LF id LF partition")
    return *parse_key(head), int(partition)


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Forwarding).decode
_decode_progress: Final = msgspec.json.Decoder(Progress).decode


def encode(value: msgspec.Struct) -> bytes:
    """Return the value of a record."""
    return _encode(value)


def decode_forwarding(value: bytes) -> Forwarding:
    """Return the forwarding of a value; raises MALFORMED."""
    found = _decode(value)
    if found.kind not in KINDS:
        raise ValueError("the kind is unknown")
    return found


def decode_progress(value: bytes) -> Progress:
    """Return the progress of a value; raises MALFORMED."""
    return _decode_progress(value)


def changed(forwarding: Forwarding, **members: Any) -> Forwarding:
    """Return the forwarding with some members changed, and the next revision."""
    revision = forwarding.revision + 1
    return msgspec.structs.replace(forwarding, **members, revision=revision)
