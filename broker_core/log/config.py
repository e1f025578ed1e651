"""The settings of one topic's logs, under Kafka's names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from broker_core.errors import InvalidConfig

FOREVER: Final = 2**63 - 1
#: The value of `compression.type` that keeps the producer's compression.
PRODUCERS_CHOICE: Final = "producer"
_DAY_MS: Final = 24 * 60 * 60 * 1000
_CODECS: Final = frozenset({PRODUCERS_CHOICE, "uncompressed", "gzip", "snappy", "lz4", "zstd"})
_POLICIES: Final = frozenset({"delete", "compact"})
_THROTTLED: Final = re.compile(r"(\*|(\s*\d+:\d+\s*(,|$))*)")
_TIMESTAMP_TYPES: Final = frozenset({"CreateTime", "LogAppendTime"})

# Minimum of each setting, as in Kafka; settings that are not listed have 0. -1 is "no limit".
_AT_LEAST: Final = {
    "segment_bytes": 14,
    "segment_ms": 1,
    "segment_index_bytes": 4,
    "retention_ms": -1,
    "retention_bytes": -1,
    "flush_messages": 1,
    "max_compaction_lag_ms": 1,
    "min_insync_replicas": 1,
}


@lru_cache
def _split(cleanup_policy: str) -> frozenset[str]:
    return frozenset(part.strip() for part in cleanup_policy.split(",") if part.strip())


def _settings(config: LogConfig | type[LogConfig]) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(config) if field.init]


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Kafka's topic settings with `_` for `.`; times in ms, sizes in bytes.

    Raises InvalidConfig for a value that Kafka would refuse.
    """

    cleanup_policy: str = "delete"
    compression_type: str = PRODUCERS_CHOICE
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = FOREVER  # used by the server, which decides when to flush
    flush_ms: int = FOREVER  # likewise
    # Replicas whose catch-up traffic is throttled; used by the server.
    follower_replication_throttled_replicas: str = ""
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: str = ""
    max_compaction_lag_ms: int = FOREVER
    max_message_bytes: int = 1_048_588  # of one batch
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = FOREVER
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1024 * 1024 * 1024
    segment_index_bytes: int = 10 * 1024 * 1024
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS
    unclean_leader_election_enable: bool = False
    producer_id_expiration_ms: int = _DAY_MS  # in Kafka a broker setting, not a topic setting
    # What follows from the settings is asked for at each append.
    #: Whether old segments are deleted.
    deletes: bool = dataclasses.field(init=False, repr=False, compare=False)
    #: Whether only the newest record of a key is kept.
    compacts: bool = dataclasses.field(init=False, repr=False, compare=False)
    #: Whether any batch of a producer is expanded or compressed.
    opens_batches: bool = dataclasses.field(init=False, repr=False, compare=False)
    #: The age at which the active segment is closed; only closed segments can be compacted.
    roll_ms: int = dataclasses.field(init=False, repr=False, compare=False)
    #: Whether the broker's clock replaces the producer's timestamps.
    uses_log_append_time: bool = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        policies = _split(self.cleanup_policy)
        compacts = "compact" in policies
        roll_ms = min(self.segment_ms, self.max_compaction_lag_ms) if compacts else self.segment_ms
        set_once = object.__setattr__
        set_once(self, "deletes", "delete" in policies)
        set_once(self, "compacts", compacts)
        set_once(self, "opens_batches", compacts or self.compression_type != PRODUCERS_CHOICE)
        set_once(self, "roll_ms", roll_ms)
        set_once(self, "uses_log_append_time", self.message_timestamp_type == "LogAppendTime")

    def _check(self) -> None:
        for field in _settings(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and value < _AT_LEAST.get(field.name, 0):
                raise InvalidConfig(
                    f"{_property_name(field.name)}={value}: at least "
                    f"{_AT_LEAST.get(field.name, 0)} is required"
                )
        if self.min_cleanable_dirty_ratio > 1:
            raise InvalidConfig(
                f"min.cleanable.dirty.ratio={self.min_cleanable_dirty_ratio}: at most 1 is allowed"
            )
        if self.segment_bytes > 2**31 - 1:
            raise InvalidConfig(f"segment.bytes={self.segment_bytes}: at most 2147483647")
        # An empty policy keeps everything (KIP-1161).
        if _split(self.cleanup_policy) - _POLICIES:
            raise InvalidConfig(
                f"cleanup.policy={self.cleanup_policy}: delete, compact or both are allowed"
            )
        if self.compression_type not in _CODECS:
            raise InvalidConfig(
                f"compression.type={self.compression_type}: one of {', '.join(sorted(_CODECS))}"
            )
        for text in (
            self.leader_replication_throttled_replicas,
            self.follower_replication_throttled_replicas,
        ):
            if not _THROTTLED.fullmatch(text):
                raise InvalidConfig(f"{text!r}: '*' or PARTITION:BROKER,... is expected")
        if self.message_timestamp_type not in _TIMESTAMP_TYPES:
            raise InvalidConfig(
                f"message.timestamp.type={self.message_timestamp_type}: "
                "CreateTime or LogAppendTime is allowed"
            )

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], base: LogConfig | None = None
    ) -> LogConfig:
        """Read Kafka's topic properties ("retention.ms") on top of `base`, or of the defaults.

        Raises InvalidConfig for an unknown name or a value that cannot be read.
        """
        values: dict[str, Any] = {}
        for name, text in properties.items():
            field = _FIELDS.get(name)
            if field is None:
                raise InvalidConfig(f"unknown topic setting {name}")
            values[field.name] = _parse(name, text.strip(), field.default)
        base = base or cls()
        return dataclasses.replace(base, **values) if values else base

    def to_properties(self) -> dict[str, str]:
        """Return all settings under Kafka's names, in the form `from_properties` reads."""
        return {name: _text(getattr(self, field.name)) for name, field in _FIELDS.items()}


def _property_name(field_name: str) -> str:
    return field_name.replace("_", ".")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse(name: str, text: str, default: object) -> object:
    if isinstance(default, bool):
        if text.lower() not in {"true", "false"}:
            raise InvalidConfig(f"{name}={text}: true or false is expected")
        return text.lower() == "true"
    if isinstance(default, int | float):
        try:
            return type(default)(text)
        except ValueError:
            raise InvalidConfig(f"{name}={text}: a number is expected") from None
    return text


_FIELDS: Final = {
    _property_name(field.name): field
    for field in _settings(LogConfig)
    if field.name != "producer_id_expiration_ms"
}
