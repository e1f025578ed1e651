"""Events that topologies write to topic `event`."""

from __future__ import annotations

from typing import Any

from consumers.streams.processor import Context
from consumers.worker.records import InputRecord
from waylog.kafka.topics import EVENT
from waylog.messages import STREAMS, Event, Fix, encode, fix_id


def forward_event(
    context: Context,
    record: InputRecord | None,
    fix: Fix,
    kind: str,
    transition: str,
    time: int,
    attributes: dict[str, Any],
    *,
    about: str = "",
) -> None:
    """Write an event that a fix has brought about, for example `geofence` with `enter`.

    `time` is when it happened, in ms since 1970; `about` tells it from others of the same fix, for
    example by the fence. The id depends on these, the device and the fix alone: an event that is
    written again after a kill has the same id.
    """
    event = Event(
        id=fix_id(
            fix.device, time, 0.0, 0.0, message_id=f"{kind}\0{transition}\0{about}\0{fix.id}"
        ),
        device=fix.device,
        user=fix.device.partition("/")[0],
        type=kind,
        time=time,
        received=fix.received,
        source=STREAMS,
        attributes={"transition": transition, **attributes, "fix_id": fix.id},
    )
    context.forward(EVENT, fix.device, encode(event), record)
