"""Answers where the fixes of a device's day are, from offsets of the log and files of the history.

A separate process answers (gateway.tracks.receipts_process): reading the log and Parquet takes more
memory than a gateway should, and a question may take seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.tracks.asking import Asking
from waylog.audit.days import Day
from waylog.audit.facts import AddressFact
from waylog.audit.receipts import Receipt

_receipt: Final = msgspec.json.Decoder(Receipt)


class ReceiptQuestion(msgspec.Struct, frozen=True):
    """A question to the process, one line of JSON."""

    device: str
    day: Day
    #: What the gateway's view knows.
    address: AddressFact | None = None


class Receipts:
    """The client of the answering process; users (`party`) take turns."""

    def __init__(
        self,
        bootstrap_servers: str,
        history: str | None = None,
        resolver_group: str = "resolver",
        dead_letters: Sequence[str] = (),
    ) -> None:
        self._asking = Asking(
            "the audit",
            *("gateway.tracks.receipts_process", bootstrap_servers, history or "", resolver_group),
            *dead_letters,
        )

    async def of_device(
        self, device: str, day: Day, address: AddressFact | None, party: str
    ) -> Receipt:
        """Return the receipt of a device; raises AnswerUnavailable and AnswerRefused."""
        question = ReceiptQuestion(device, day, address)
        pieces = await self._asking.ask(msgspec.json.encode(question), party)
        return _receipt.decode(b"".join(pieces))

    async def close(self) -> None:
        """End the process, if it runs."""
        await self._asking.close()
