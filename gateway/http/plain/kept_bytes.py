"""Bytes of a connection that cannot be served yet, at the expense of whoever has sent them."""

from __future__ import annotations

from gateway.http.plain.origin import Origin
from waylog.network.shares import Shares


class KeptBytes:
    """The bytes of an incomplete request, or of requests that wait."""

    __slots__ = ("_holder", "_origin", "_shares", "data")

    def __init__(self, shares: Shares, origin: Origin) -> None:
        self._shares = shares
        self._origin = origin
        self._holder = ""
        self.data = b""

    def replace(self, data: bytes, holder: str | None = None) -> bool:
        """Keep these bytes instead, at the expense of a user if it is known whose they are.

        Return False, and keep nothing, if that is more than the holder may have.
        """
        shares, kept = self._shares, len(self.data)
        if not kept:
            self._holder = self._origin.party
        if holder is not None and holder != self._holder:
            shares.pass_on(self._holder, holder, kept)
            self._holder = holder
        more = len(data) - kept
        if more > 0:
            if shares.is_pressed:
                self._find_account()
            if not shares.take(self._holder, more):
                shares.give_back(self._holder, kept)
                self.data = b""
                return False
        elif more < 0:
            shares.give_back(self._holder, -more)
        self.data = data
        return True

    def _find_account(self) -> None:
        """Charge a local client's account, not its connection, with what is here already, too."""
        origin = self._origin
        if self._holder == origin.party:
            origin.find_account()
            if origin.party != self._holder:
                self._shares.pass_on(self._holder, origin.party, len(self.data))
                self._holder = origin.party
