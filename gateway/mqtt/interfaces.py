"""Protocols: what the MQTT listener needs of the other parts of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from gateway.formats import Parsed
from waylog.messages import Address, Event, Fix, Rejected


class Identity(Protocol):
    """A user, restricted to one device if its token is good for one device only."""

    @property
    def user(self) -> str: ...

    @property
    def device(self) -> str | None: ...

    @property
    def admin(self) -> bool: ...


class Authenticator(Protocol):
    """Decides who may connect."""

    async def authenticate(self, user: str, password: str, address: str = "") -> Identity | None:
        """Return the identity; None for an unknown user or a wrong password.

        Raises TooManyFailedLogins.
        """

    async def authenticate_certificate(self, name: str) -> Identity | None:
        """Return the identity for a verified common name, `user` or `user/device`."""


class ProofRefused(Exception):
    """A client has failed to prove its identity."""


class Progress(NamedTuple):
    """The next message to a client, and its identity once that is proven."""

    data: bytes
    identity: Identity | None = None


class Proof(Protocol):
    """One client's authentication with a mechanism."""

    async def step(self, data: bytes) -> Progress:
        """Handle a message of the client; raises ProofRefused."""


class Mechanism(Protocol):
    """A mechanism for enhanced authentication (MQTT 5.0, section 4.12)."""

    name: str

    def begin(self) -> Proof:
        """Begin the authentication of a client."""


class Completion(Protocol):
    """A future, or a lighter object, that is done when all in-sync replicas have a record."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> object: ...

    def cancelled(self) -> bool: ...

    def exception(self) -> BaseException | None: ...


class Submitter(Protocol):
    """Appends records to the log."""

    def submit_location(self, fix: Fix) -> Completion: ...

    def submit_event(self, event: Event) -> asyncio.Future[None]: ...

    def submit_rejected(
        self, rejected: Rejected, *, sender: str | None = None, stranger: str | None = None
    ) -> asyncio.Future[None]: ...

    def event_receipt(self, event: Event) -> Completion: ...

    def rejected_receipt(self, rejected: Rejected, *, sender: str | None = None) -> Completion: ...

    def submit_message(
        self, topic: str, key: bytes, payload: bytes, headers: list[tuple[str, bytes]]
    ) -> Completion: ...


class AddressView(Protocol):
    """The newest address of each device."""

    def latest(self, device: str) -> Address | None: ...

    def devices(self, user: str | None) -> Iterable[str]:
        """Return the names (`user/device`) of a user's, or all, devices that have an address."""


class LocationView(Protocol):
    """The newest fix of each device."""

    def latest(self, device: str) -> Fix | None: ...

    def devices(self, user: str | None) -> Iterable[str]:
        """Return the names (`user/device`) of a user's, or all, devices."""


class AddressChannel(Protocol):
    """Delivers addresses to subscribers."""

    def address_changed(self, device: str, value: bytes) -> None:
        """Deliver the newest address of a device, as JSON."""

    def arrived(self, device: str, transition: bytes) -> None:
        """Deliver the OwnTracks transition of a device that has arrived at a favourite place."""

    def noticed(self, device: str, notice: bytes) -> None:
        """Deliver the JSON of a notice to the owner of a device."""


class Pusher(Protocol):
    """Notifies channels of new addresses."""

    def register(self, channel: AddressChannel) -> None: ...

    def unregister(self, channel: AddressChannel) -> None: ...


#: parse(body, context) -> Parsed, see gateway.formats.
Parse = Callable[[bytes, Any], Parsed]
