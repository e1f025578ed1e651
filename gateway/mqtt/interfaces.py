"""Protocols of the parts of the gateway that the MQTT listener needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from gateway.formats import Parsed
from waylog.messages import Address, Event, Fix, Rejected


class Identity(Protocol):
    """An identity: a user, perhaps with a token that is good for one device only."""

    @property
    def user(self) -> str: ...

    @property
    def device(self) -> str | None: ...

    @property
    def admin(self) -> bool: ...


class Authenticator(Protocol):
    """Decides who may connect."""

    async def authenticate(self, user: str, password: str, address: str = "") -> Identity | None:
        """The identity, or None for an unknown user or a wrong password; raises TooManyGuesses."""

    async def authenticate_certificate(self, name: str) -> Identity | None:
        """The identity of a verified certificate's common name, `user` or `user/device`."""


class ProofRefused(Exception):
    """Somebody has not proven to be who they say."""


class Progress(NamedTuple):
    """The next word to a client, and its identity once that is proven."""

    data: bytes
    identity: Identity | None = None


class Proof(Protocol):
    """One client's way through a mechanism."""

    async def step(self, data: bytes) -> Progress:
        """Take a message of the client; raises ProofRefused."""


class Mechanism(Protocol):
    """A way to prove who one is that takes more than a password (MQTT 5.0, section 4.12)."""

    name: str

    def begin(self) -> Proof:
        """Begin with a client."""


class Completion(Protocol):
    """A future, or something lighter, that is done when all replicas have a record."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> object: ...

    def cancelled(self) -> bool: ...

    def exception(self) -> BaseException | None: ...


class Submitter(Protocol):
    """Appends to the log."""

    def submit_location(self, fix: Fix) -> Completion: ...

    def submit_event(self, event: Event) -> asyncio.Future[None]: ...

    def submit_rejected(
        self, rejected: Rejected, *, authenticated: bool = True
    ) -> asyncio.Future[None]: ...

    def event_receipt(self, event: Event) -> Completion: ...

    def rejected_receipt(self, rejected: Rejected) -> Completion: ...

    def submit_message(
        self, topic: str, key: bytes, payload: bytes, headers: list[tuple[str, bytes]]
    ) -> Completion: ...


class AddressView(Protocol):
    """The newest address of each device."""

    def latest(self, device: str) -> Address | None: ...

    def devices(self, user: str | None) -> Iterable[str]:
        """Names (`user/device`) of the devices of a user, or of all, that have an address."""


class LocationView(Protocol):
    """The newest fix of each device."""

    def latest(self, device: str) -> Fix | None: ...

    def devices(self, user: str | None) -> Iterable[str]:
        """Names (`user/device`) of the devices of a user, or of all."""


class AddressChannel(Protocol):
    """Takes addresses to devices."""

    def address_changed(self, device: str, value: bytes) -> None:
        """Take the JSON of the newest address of a device."""

    def arrived(self, device: str, transition: bytes) -> None:
        """Take OwnTracks' transition of a device that has come to a favourite place."""


class Pusher(Protocol):
    """Tells channels about new addresses."""

    def register(self, channel: AddressChannel) -> None: ...

    def unregister(self, channel: AddressChannel) -> None: ...


#: parse(body, context) -> Parsed, see gateway.formats.
Parse = Callable[[bytes, Any], Parsed]
