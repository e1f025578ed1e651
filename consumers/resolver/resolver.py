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
from typing import Final, NamedTuple

import msgspec

from consumers.resolver.newest_fixes import NO_STANDSTILL, NewestFixes, StationaryLimits
from consumers.resolver.renewal import Renewal, ResolvedFix
from consumers.worker.records import InputRecord, OutputRecord
from geoservice.fallback.fallback import Fallback
from geoservice.reverse.address_bytes import AddressBytes, members_of
from geoservice.reverse.geocoder import Geocoder, ReverseResult, is_point
from geoservice.reverse.watch import GeocoderSource
from waylog.kafka.record_headers import headers_of, headers_of_all
from waylog.kafka.topics import ADDRESS, ERROR
from waylog.malformed import MALFORMED
from waylog.messages import Fix, Rejected, decode_fix, encode, live_time

logger = logging.getLogger(__name__)

SOURCE: Final = "resolver"
TRACEPARENT: Final = "traceparent"

# Bounds that make every result fit into a record, whatever other producers have put into the log.
NAME_CHARACTERS_MAX: Final = 1000
RAW_BYTES_MAX: Final = 500_000
TRACEPARENT_BYTES_MAX: Final = 256
#: Of times, in ms: what the readers of addresses keep in 64 bits.
_TIME_MAX: Final = (1 << 63) - 1

#: The number of devices that may wait for a late answer of the fallback; the address of any other
#: device is completed with its next fix at the earliest.
_AWAITED_MAX: Final = 1000


class _Found(NamedTuple):
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
    ) -> None:
        """Addresses are written to `topic`; `renewal` finds those there from an older index."""
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
        # One index for the whole batch, even if the file is replaced meanwhile.
        geocoder = self._geocoders.current
        version = geocoder.index_version
        for partition, records in batch.items():
            state = states[partition]
            newest: dict[str, tuple[InputRecord, Fix]] = {}
            for record in records:
                fix = self._decode(record, outputs, now_ms)
                if fix is not None and state.accept(
                    fix.device, live_time(fix.time, fix.received), fix.time
                ):
                    newest[fix.device] = (record, fix)
            if self._standstill.distance_m > 0:
                for record, fix in newest.values():
                    if state.is_stationary(fix, version):
                        self.stood_still += 1
                    else:
                        state.set_resolved(fix, version)
                        winners.append((record, fix))
            else:
                winners.extend(newest.values())
        if winners:
            self.resolved += len(winners)
            all_headers = headers_of_all([record for record, _ in winners])
            found = [
                _Found(record.partition(), fix, _passed_on(headers) if headers else None)
                for (record, fix), headers in zip(winners, all_headers, strict=True)
            ]
            self._look_up(geocoder, found, outputs, now_ms)
        return outputs

    def _decode(self, record: InputRecord, outputs: list[OutputRecord], now_ms: int) -> Fix | None:
        value = record.value()
        if value is None:
            reason = "the record has no value"
        else:
            try:
                fix = decode_fix(value)
            except MALFORMED as error:
                reason = f"not a fix: {error}"
            else:
                # Comparisons that are also false for NaN and infinity.
                if not (-90.0 <= fix.lat <= 90.0 and -180.0 <= fix.lon <= 180.0):
                    reason = "latitude or longitude is not on earth"
                elif not 0 < len(fix.device) <= NAME_CHARACTERS_MAX:
                    reason = f"the device needs a name of 1 to {NAME_CHARACTERS_MAX} characters"
                # The first half spares nearly all fixes four comparisons of large numbers.
                elif (fix.time | fix.received) >> 63 and not (
                    abs(fix.time) <= _TIME_MAX and abs(fix.received) <= _TIME_MAX
                ):
                    reason = "a time takes more than 64 bits"
                elif len(fix.id) > NAME_CHARACTERS_MAX:
                    reason = f"the id is longer than {NAME_CHARACTERS_MAX} characters"
                else:
                    return fix
        outputs.append(self._reject(record, reason, now_ms))
        return None

    def _reject(self, record: InputRecord, reason: str, now_ms: int) -> OutputRecord:
        self.rejected += 1
        key = record.key()
        if key is not None and len(key) > NAME_CHARACTERS_MAX:
            key = None
        raw = record.value() or b""
        if len(raw) > RAW_BYTES_MAX:
            reason += f" (raw: the first {RAW_BYTES_MAX} of {len(raw)} bytes)"
        rejected = Rejected(
            reason=reason,
            source=SOURCE,
            time=now_ms,
            raw=raw[:RAW_BYTES_MAX],
            device=key.decode("utf-8", "replace") if key is not None else None,
            headers={
                "topic": record.topic() or "",
                "partition": str(record.partition()),
                "offset": str(record.offset()),
            },
        )
        # The reason is not logged: its text may quote what a device sent.
        logger.warning(
            "record %s-%s at %s goes to topic error",
            record.topic(),
            record.partition(),
            record.offset(),
        )
        return OutputRecord(ERROR, None, key, encode(rejected), _passed_on(headers_of(record)))

    def late_results(self, states: Mapping[int, NewestFixes], now_ms: int) -> list[OutputRecord]:
        """Return addresses of earlier fixes: answered late, or renewed with a newer index."""
        outputs = self._late_answers(states, now_ms)
        if self._renewal is not None:
            self._renew(self._renewal, states, outputs, now_ms)
        return outputs

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
            self._look_up(geocoder, stale, outputs, now_ms)

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
                del self._awaited[device]
            elif not fallback.is_awaited(asked):
                del self._awaited[device]
        return outputs

    def _look_up(
        self,
        geocoder: Geocoder,
        found: list[_Found],
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
            end = _end(now_ms, result.index_version)
            outputs.append(self._record(each, self._addresses.of_result(result), end))

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
        partition, fix, headers = found
        begin = _encode(_Beginning(fix.device, fix.id, fix.time, fix.lat, fix.lon))
        value = b"%b,%b%b" % (begin[:-1], address, end)
        return OutputRecord(self.state_topic, partition, fix.device.encode(), value, headers)


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


def _passed_on(headers: list[tuple[str, bytes]]) -> list[tuple[str, bytes]] | None:
    """Return the headers that a result inherits from its fix."""
    for name, value in headers:
        if name == TRACEPARENT and value and len(value) <= TRACEPARENT_BYTES_MAX:
            return [(name, value)]
    return None
