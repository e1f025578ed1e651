"""Favourite places as their user has edited them, before the job has taken the edits."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from gateway.alerts.log_table import LogTable
from waylog.history.place_edits import PlaceEdit, apply_edits
from waylog.kafka.clients import LogUnreachable
from waylog.process.log_throttle import LogThrottle, since_last_line

logger = logging.getLogger(__name__)


class EditedPlaces:
    """Used on one event loop."""

    def __init__(self, edits: LogTable[PlaceEdit]) -> None:
        self.edits: Final = edits
        self._unedited: Final = LogThrottle()

    async def of_device(self, device: str) -> list[PlaceEdit]:
        """Return the edits of a device's places; none while the log does not answer."""
        try:
            known = await self.edits.of(device.partition("/")[0])
        except LogUnreachable as error:
            unsaid = self._unedited.count(time.monotonic())
            if unsaid is not None:
                logger.warning(
                    "places are shown without their edits: %s%s", error, since_last_line(unsaid)
                )
            return []
        return [edit for edit in known.values() if edit.device == device]

    async def places(self, device: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows of a device's places as edited; the rows themselves stay."""
        edits = await self.of_device(device)
        if not edits:
            return rows
        edited = [dict(row) for row in rows]
        apply_edits(edited, edits, by_id=True)
        return edited

    async def parts(self, device: str, rows: list[dict[str, Any]]) -> dict[str, str]:
        """Return the ids of places that are parts of others, with the ids of these."""
        edits = await self.of_device(device)
        if not any(edit.merged_into for edit in edits):
            return {}
        return apply_edits([dict(row) for row in rows], edits, by_id=True)
