"""The resolver's logic, which turns fixes into addresses, without a broker, clock or thread.

All records of a device are in one partition, so order is kept by partition. The newest fix of each
device in a batch is resolved; a fix that is older than one already resolved for its device gives no
result. The newest record of a device in topic `address` is therefore always the address of its
newest fix.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from consumers.resolver.newest_fixes import NO_STANDSTILL, NewestFixes, StationaryLimits
from consumers.resolver.renewal import Renewal, ResolvedFix
from consumers.resolver.retries import Retries, RetryTopic, retry_record
from consumers.worker.fix_records import NotAFix, fix_of, passed_on, rejected_record
from consumers.worker.records import InputRecord, OutputRecord, StateRecord
from geoservice.fallback.fallback import Fallback
from geoservice.reverse.address_bytes import AddressBytes, members_of
from geoservice.reverse.geocoder import Geocoder, ReverseResult, is_point
from geoservice.reverse.watch import GeocoderSource
from waylog.kafka.record_headers import headers_of_all
from waylog.kafka.topics import ADDRESS
from waylog.messages import Fix, live_time

logger = logging.getLogger(__name__)

SOURCE: Final = "resolver"

#: The number of devices that may wait for a late answer of the fallback; the address of any other
#: device is completed with its next fix at the earliest.
_AWAITED_MAX: Final = 1000


class _Found(msgspec.Struct, gc=False):
    """A fix to look up."""

    # The partition the fix came from, and its address goes to: the same resolver owns both.
    partition: int | None
    fix: Fix | ResolvedFix
    headers: list[tuple[str, bytes]] | None


class Resolver:
    """Turns batches of fixes into address records."""

    def __init__(
        self,
        geocoders: GeocoderSource,
        fallback: Fallback | None = None,
        *,
        standstill: StationaryLimits = NO_STANDSTILL,
        topic: str = ADDRESS,
        renewal: Renewal | None = None,
        retry_topics: Sequence[RetryTopic] = (),
    ) -> None:
        """Addresses are written to `topic`; `renewal` finds those there from an older index.

        Fixes for which the fallback has no answer yet go to `retry_topics`, one after the other.
        """
        self._geocoders = geocoders
        self._fallback = fallback
        self._renewal = renewal
        self._standstill = standstill
        #: Read when a partition is assigned, to restore its NewestFixes.
        self.state_topic: Final = topic
        self.resolved = 0
        self.rejected = 0
        self.stood_still = 0
        self.renewed = 0
        self._retry_topics = retry_topics
        #: Of the fixes that come back from the retry topics; None without a fallback.
        self.retries: Final = Retries(self._resolve_again, retry_topics) if retry_topics else None
        self._addresses: AddressBytes | None = None  # of the geocoder that was used last
        self._awaited: dict[str, tuple[_Found, ReverseResult]] = {}
        self._answers_seen = 0

    def new_state(self) -> NewestFixes:
        """Return the state of a partition that was just assigned."""
        return NewestFixes(self._standstill)

    def process(
        self,
        batch: Mapping[int, Sequence[InputRecord]],
        states: Mapping[int, NewestFixes],
        now_ms: int,
    ) -> list[OutputRecord]:
        """Return the records to write for a batch, which is in log order by partition."""
        outputs: list[OutputRecord] = []
        winners: list[tuple[InputRecord, Fix]] = []
        partitions: list[int] = []
        # One index for the whole batch, even if the file is replaced meanwhile.
        geocoder = self._geocoders.current
        version = geocoder.index_version
        for partition, records in batch.items():
            state = states[partition]
            accept = state.accept
            newest: dict[str, tuple[InputRecord, Fix]] = {}
            for record in records:
                try:
                    fix = fix_of(record.value())
                except NotAFix as error:
                    self.rejected += 1
                    outputs.append(rejected_record(record, str(error), SOURCE, now_ms))
                    continue
                if accept(fix.device, live_time(fix.time, fix.received), fix.time):
                    newest[fix.device] = (record, fix)
            own = list(newest.values())
            if self._standstill.distance_m > 0:
                own = self._moved(state, own, version)
            winners += own
            partitions += [partition] * len(own)
        all_headers = headers_of_all([record for record, _ in winners])
        found = [
            _Found(partition, fix, passed_on(headers) if headers else None)
            for partition, (_, fix), headers in zip(partitions, winners, all_headers, strict=True)
        ]
        if found:
            self.resolved += len(found)
            self._look_up(geocoder, found, states, outputs, now_ms)
        return outputs

    def _moved(
        self, state: NewestFixes, newest: list[tuple[InputRecord, Fix]], index_version: str
    ) -> list[tuple[InputRecord, Fix]]:
        """Return those for which the device's last address does not stand."""
        moved = []
        for each in newest:
            _, fix = each
            if state.is_stationary(fix, index_version):
                self.stood_still += 1
            else:
                state.set_resolved(fix, index_version)
                moved.append(each)
        return moved

    def late_results(self, states: Mapping[int, NewestFixes], now_ms: int) -> list[OutputRecord]:
        """Return addresses of earlier fixes: answered late, or renewed with a newer index."""
        outputs = self._late_answers(states, now_ms)
        if self._renewal is not None:
            self._renew(self._renewal, states, outputs, now_ms)
        return outputs

    def state_changes(
        self, states: Mapping[int, NewestFixes]
    ) -> Mapping[int, Sequence[StateRecord]]:
        """Return nothing: states are restored from the addresses themselves."""
        return {}

    def _renew(
        self,
        renewal: Renewal,
        states: Mapping[int, NewestFixes],
        outputs: list[OutputRecord],
        now_ms: int,
    ) -> None:
        geocoder = self._geocoders.current
        stale = [
            _Found(partition, fix, None)
            for partition, fix in renewal.take(states, geocoder.index_version, now_ms)
            # Otherwise the device has sent a newer fix.
            if states[partition].time_of(fix.device) == fix.time and is_point(fix.lat, fix.lon)
        ]
        if stale:
            self.renewed += len(stale)
            self._look_up(geocoder, stale, states, outputs, now_ms)

    def _late_answers(self, states: Mapping[int, NewestFixes], now_ms: int) -> list[OutputRecord]:
        fallback = self._fallback
        if fallback is None or not self._awaited or fallback.answered == self._answers_seen:
            return []
        self._answers_seen = fallback.answered
        outputs: list[OutputRecord] = []
        for device, (found, asked) in list(self._awaited.items()):
            state = states.get(found.partition) if found.partition is not None else None
            if state is None or state.time_of(device) != found.fix.time:
                # The partition was revoked, or the device has sent a newer fix.
                del self._awaited[device]
                continue
            result = fallback.answer(asked)
            if result is not None:
                end = _end(now_ms, result.index_version)
                outputs.append(self._record(found, members_of(result), end))
                state.set_completed(device, found.fix.time)
                del self._awaited[device]
            elif not fallback.is_awaited(asked):
                del self._awaited[device]
        return outputs

    def _look_up(
        self,
        geocoder: Geocoder,
        found: list[_Found],
        states: Mapping[int, NewestFixes],
        outputs: list[OutputRecord],
        now_ms: int,
    ) -> None:
        lats = array("d", [each.fix.lat for each in found])
        lons = array("d", [each.fix.lon for each in found])
        if self._addresses is None or self._addresses.geocoder is not geocoder:
            self._addresses = AddressBytes(geocoder)
        if self._fallback is None:
            end = _end(now_ms, geocoder.index_version)
            for each, address in zip(found, self._addresses.batch(lats, lons), strict=True):
                outputs.append(self._record(each, address, end))
            return
        results = self._fallback.complete(geocoder.reverse_batch(lats, lons))
        for each, result in zip(found, results, strict=True):
            self._await_answer(self._fallback, each, result)
            self._retry_later(self._fallback, each, result, states, outputs, now_ms)
            end = _end(now_ms, result.index_version)
            outputs.append(self._record(each, self._addresses.of_result(result), end))

    def _retry_later(
        self,
        fallback: Fallback,
        found: _Found,
        result: ReverseResult,
        states: Mapping[int, NewestFixes],
        outputs: list[OutputRecord],
        now_ms: int,
    ) -> None:
        """Write a fix whose address is not complete to the first retry topic.

        Renewed addresses have no fix to write: they are completed when the index changes again.
        """
        if not self._retry_topics or found.partition is None or not isinstance(found.fix, Fix):
            return
        if fallback.lacks(result):
            outputs.append(retry_record(found.fix, found.partition, 1, now_ms, self._retry_topics))
        elif "+" in result.index_version:
            states[found.partition].set_completed(found.fix.device, found.fix.time)

    def _resolve_again(
        self, fixes: list[tuple[int, Fix, int]], states: Mapping[int, NewestFixes], now_ms: int
    ) -> list[OutputRecord]:
        """Return the addresses of fixes that come from retry topics, or their next retries."""
        fallback = self._fallback
        assert fallback is not None
        outputs: list[OutputRecord] = []
        geocoder = self._geocoders.current
        lats = array("d", [fix.lat for _, fix, _ in fixes])
        lons = array("d", [fix.lon for _, fix, _ in fixes])
        results = fallback.complete(geocoder.reverse_batch(lats, lons))
        for (partition, fix, attempt), result in zip(fixes, results, strict=True):
            found = _Found(partition, fix, None)
            if fallback.lacks(result):
                self._await_answer(fallback, found, result)
                outputs.append(
                    retry_record(fix, partition, attempt + 1, now_ms, self._retry_topics)
                )
            elif "+" in result.index_version:
                end = _end(now_ms, result.index_version)
                outputs.append(self._record(found, members_of(result), end))
                states[partition].set_completed(fix.device, fix.time)
        return outputs

    def _await_answer(self, fallback: Fallback, found: _Found, result: ReverseResult) -> None:
        self._awaited.pop(found.fix.device, None)
        if (
            found.partition is not None
            and len(self._awaited) < _AWAITED_MAX
            and fallback.is_awaited(result)
        ):
            self._awaited[found.fix.device] = (found, result)

    def _record(self, found: _Found, address: bytes, end: bytes) -> OutputRecord:
        """Join parts that are encoded already: the members of messages.Address in their order."""
        fix = found.fix
        begin = _encode(_Beginning(fix.device, fix.id, fix.time, fix.lat, fix.lon))
        value = b"%b,%b%b" % (begin[:-1], address, end)
        return OutputRecord(
            self.state_topic, found.partition, fix.device.encode(), value, found.headers
        )


class _Beginning(msgspec.Struct, gc=False):
    """The members of an address that are copied from its fix."""

    device: str
    fix_id: str
    time: int
    lat: float
    lon: float


_encode = msgspec.json.Encoder().encode


def _end(now_ms: int, index_version: str) -> bytes:
    return b',"resolved":%d,"index_version":%b}' % (now_ms, _encode(index_version))
