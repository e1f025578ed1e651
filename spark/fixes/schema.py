"""Fixes of the log as rows of the history (waylog.history.row_layout)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from waylog.history.plausible_times import IMPLAUSIBLE, is_plausible_time
from waylog.history.row_layout import DATE, FIX_FIELDS, HISTORY_SCHEMA

# The times that a calendar date can represent: the years 1 to 9999.
_TIME_MIN_MS: Final = -62_135_596_800_000
_TIME_MAX_MS: Final = 253_402_300_799_999

DAY_MS: Final = 86_400_000

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_NO_ATTRIBUTES: Final = msgspec.Raw()

Time = Annotated[int, msgspec.Meta(ge=_TIME_MIN_MS, le=_TIME_MAX_MS)]


class StoredFix(msgspec.Struct, kw_only=True, gc=False):
    """A Fix as it is stored in the history: its attributes stay JSON text."""

    id: str
    device: str
    user: str
    lat: Annotated[float, msgspec.Meta(ge=-90, le=90)]
    lon: Annotated[float, msgspec.Meta(ge=-180, le=180)]
    time: Time
    received: Time
    accuracy: float | None = None
    altitude: float | None = None
    vertical_accuracy: float | None = None
    speed: float | None = None
    course: float | None = None
    battery: float | None = None
    charging: bool | None = None
    trigger: str | None = None
    source: str | None = None
    # msgspec does not allow Raw in a union; null stays `null`.
    attributes: msgspec.Raw = _NO_ATTRIBUTES


#: Columns that Parquet stores as a dictionary, since their values repeat (ids never do).
DICTIONARY: Final = (
    *("device", "user", "trigger", "source", "attributes", "kafka_partition"),
    DATE,
)

_decode: Final[Callable[[bytes], StoredFix]] = msgspec.json.Decoder(StoredFix).decode


_MEMBERS: Final = [attrgetter(field.name) for field in FIX_FIELDS[:-1]]


class Unreadable(NamedTuple):
    """A record that is not a fix, or a fix with an implausible time."""

    offset: int
    key: bytes | None
    value: bytes | None
    reason: str


class LogRecord(NamedTuple):
    """A record as it was read from the log."""

    offset: int
    key: bytes | None
    value: bytes | None


def decode_records(
    partition: int, records: Sequence[LogRecord]
) -> tuple[pa.RecordBatch, list[Unreadable]]:
    """Decode records of one partition: return the fixes as rows, and the unreadable records."""
    fixes: list[StoredFix] = []
    offsets: list[int] = []
    unreadable: list[Unreadable] = []
    for record in records:
        try:
            fix = _decode(record.value)  # type: ignore[arg-type]
            if is_plausible_time(fix.time, fix.received):
                fixes.append(fix)
                offsets.append(record.offset)
            else:
                unreadable.append(Unreadable(record.offset, record.key, record.value, IMPLAUSIBLE))
        except Exception as error:  # no record in the log may stop the history
            reason = "no value" if record.value is None else f"not a fix: {error}"
            unreadable.append(Unreadable(record.offset, record.key, record.value, reason))
    return _rows(partition, fixes, offsets), unreadable


def _rows(partition: int, fixes: list[StoredFix], offsets: list[int]) -> pa.RecordBatch:
    if not fixes:
        return pa.RecordBatch.from_pylist([], schema=HISTORY_SCHEMA)
    # Built column by column, because tuples of whole rows take three times as long.
    columns = [
        pa.array(list(map(member, fixes)), field.type)
        for member, field in zip(_MEMBERS, FIX_FIELDS[:-1], strict=True)
    ]
    # msgspec checks Raw as JSON but not as UTF-8.
    columns.append(pa.array([_attributes(fix.attributes) for fix in fixes], pa.string()))
    columns.append(pa.array(np.full(len(fixes), partition, np.int32)))
    columns.append(pa.array(offsets, pa.int64()))
    return pa.RecordBatch.from_arrays(columns, schema=HISTORY_SCHEMA)


def _attributes(raw: msgspec.Raw) -> str | None:
    text = str(raw, "utf-8", "replace")
    return None if text in {"", "null"} else text


def date_text(day: int) -> str:
    """Return the UTC date of a day since 1970-01-01, as YYYY-MM-DD."""
    date = _EPOCH + timedelta(days=day)
    # strftime does not pad years below 1000.
    return f"{date.year:04d}-{date.month:02d}-{date.day:02d}"


# Odd constants of splitmix64 (Vigna): the multiplication spreads every input bit upwards.
_MIX: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_ID_LENGTH: Final = 24


def fix_hashes(rows: pa.Table) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each row's device and id, the same in every process and version.

    An id is its device's alone: another device may have sent the same one, as an import of
    exported fixes does.
    """
    if rows.num_rows == 0:
        return np.empty(0, np.uint64)
    devices = rows["device"].combine_chunks().dictionary_encode()
    names = np.array([_text_hash(name) for name in devices.dictionary.to_pylist()], np.uint64)
    hashes: NDArray[np.uint64] = id_hashes(rows["id"].combine_chunks())
    hashes ^= names[devices.indices.to_numpy()]
    return hashes


def id_hashes(ids: pa.Array) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each id, the same in every process and version."""
    count = len(ids)
    if count == 0:
        return np.empty(0, np.uint64)
    _, offsets_buffer, values_buffer = ids.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[ids.offset : ids.offset + count + 1]
    if values_buffer is None or (np.diff(offsets) != _ID_LENGTH).any():
        return np.array([_odd_hash(identity) for identity in ids.to_pylist()], np.uint64)
    # A normal id has 24 hexadecimal digits: three 64-bit words, mixed for all rows at once.
    values = np.frombuffer(values_buffer, np.uint8)[offsets[0] : offsets[-1]]
    words = values.reshape(count, _ID_LENGTH).view("<u8")
    return _mix(words[:, 0], words[:, 1], words[:, 2])


def _mix(
    first: NDArray[np.uint64], second: NDArray[np.uint64], third: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    shift = np.uint64(31)
    mixed = np.zeros(len(first), np.uint64)
    for word, factor in zip((first, second, third), _MIX, strict=True):
        mixed = (mixed ^ word) * np.uint64(factor)
        mixed ^= mixed >> shift
    return mixed


def _odd_hash(identity: str) -> int:
    encoded = identity.encode()
    if len(encoded) == _ID_LENGTH:
        # Must agree with the vectorised computation, whatever other ids are in the batch.
        words = np.frombuffer(encoded, "<u8")
        return int(_mix(words[0:1], words[1:2], words[2:3])[0])
    return _text_hash(identity)


def _text_hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
