"""Topology `geofences`: devices enter and leave geofences, and dwell in them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Final

import msgspec

from consumers.streams.events import forward_event
from consumers.streams.fix_processor import DeviceState, FixProcessor
from consumers.streams.geofences.fence_index import Fence, FenceIndex
from consumers.streams.geofences.stays import Stay, take_fix
from consumers.streams.global_table import GlobalTable
from consumers.streams.processor import Context
from consumers.streams.properties import Properties
from consumers.streams.store import Store
from consumers.worker.records import InputRecord
from waylog.geofences.definition import Geofence, InvalidGeofence, decode_geofence
from waylog.geofences.shape import INSIDE
from waylog.kafka.topics import GEOFENCE, GEOFENCE_TOPIC, Topic
from waylog.messages import Fix

logger = logging.getLogger(__name__)

TYPE: Final = "geofence"
#: m; a fix that is known no better decides nothing.
_ACCURACY_M_MAX: Final = 10_000_000.0
#: Candidates of a fix, up to which a look through them is cheaper than a set.
_FEW: Final = 8
_NO_CANDIDATES: Final[Sequence[Fence]] = ()


class GeofencesState(DeviceState):
    """The fences that a device is in, by their keys."""

    stays: dict[str, Stay] = msgspec.field(default_factory=dict)


class Geofences(FixProcessor[GeofencesState]):
    """Tells when devices enter and leave geofences."""

    name: ClassVar[str] = "geofences"
    summary: ClassVar[str] = "devices enter, leave and dwell in geofences, to topic event"
    value_type = GeofencesState

    def __init__(self, properties: Properties) -> None:
        """Read `accuracy_m`, the accuracy that counts for a fix that has none."""
        super().__init__(properties)
        self._accuracy_m = properties.number("accuracy_m", 10.0, least=0.0)
        self.fences = FenceIndex()
        self._table: GlobalTable[Geofence] | None = None
        # Candidates for the fixes of a batch, by the identity of the fix.
        self._candidates: dict[int, list[Fence]] = {}

    def topics(self) -> Sequence[Topic]:
        """Return the topic of definitions."""
        return (GEOFENCE_TOPIC,)

    def start(self, bootstrap_servers: str, stopping: threading.Event) -> None:
        """Read the definitions; raises LogUnreachable."""
        self._table = GlobalTable(
            bootstrap_servers, GEOFENCE, lambda _key, value: decode_geofence(value)
        )
        self._table.load(stopping, self.define)
        logger.info("%d geofences", len(self.fences))

    def close(self) -> None:
        """Stop following the definitions."""
        if self._table is not None:
            self._table.close()

    def punctuate(self, store: Store[GeofencesState], context: Context) -> None:
        """Take new definitions while no fixes come."""
        self._follow()

    def _follow(self) -> None:
        if self._table is not None:
            self._table.follow(self.define)

    def prepare(self, fixes: Sequence[Fix]) -> None:
        """Find the fences that the fixes of a batch may be in."""
        self._follow()
        found = self.fences.candidates(fixes, [self._margin_m(fix) for fix in fixes])
        self._candidates = {id(fixes[number]): fences for number, fences in found.items()}

    def _margin_m(self, fix: Fix) -> float:
        return self._accuracy_m if fix.accuracy is None else fix.accuracy

    def observe(
        self,
        fix: Fix,
        time: int,
        state: GeofencesState | None,
        record: InputRecord,
        context: Context,
    ) -> GeofencesState | None:
        """Compare a fix with the fences of its device."""
        device, fences = fix.device, self.fences
        if not fences.has_fences_for(device):
            return None
        if state is None:
            state = GeofencesState(time)
        candidates = self._candidates.get(id(fix), _NO_CANDIDATES)
        if not candidates and not state.stays:
            return state
        lat, lon = fix.lat, fix.lon
        margin_m = self._margin_m(fix)
        # False for NaN, which decides nothing.
        if not 0.0 <= margin_m <= _ACCURACY_M_MAX:
            return state

        def fence_of(key: str) -> Fence | None:
            fence = fences.get(key)
            return fence if fence is not None and fence.is_for(device) else None

        holding: Collection[Fence] = candidates if len(candidates) <= _FEW else set(candidates)

        def side_of(fence: Fence) -> int:
            if fence.is_circle and fence in holding:
                return INSIDE
            return fence.shape.side(lat, lon, margin_m)

        transitions = take_fix(state.stays, time, candidates, fence_of, side_of)
        for kind, fence, since in transitions:
            attributes: dict[str, Any] = {
                "fence": fence.name, "owner": fence.owner, "since": since, "lat": lat, "lon": lon,
            }  # fmt: skip
            if fence.id is not None:
                attributes["fence_id"] = fence.id
            forward_event(context, record, fix, TYPE, kind, time, attributes, about=fence.key)
        return state

    def define(self, key: str, definition: Geofence | None) -> None:
        """Take a definition, or the end of one.

        One that is wrong is the end of the one before it, with a line in the log.
        """
        self.fences.remove(key)
        if definition is None:
            return
        try:
            self.fences.put(Fence.of(key, definition))
        except InvalidGeofence as error:
            logger.warning("a record of topic %s is no geofence: key %r: %s", GEOFENCE, key, error)
