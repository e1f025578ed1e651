"""Settings of single groups, which clients change with IncrementalAlterConfigs (KIP-1043)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core import errors
from broker_core.configuration.config import BrokerConfig
from broker_core.coordinator.groups.consumer_group import ConsumerGroupSettings
from broker_core.coordinator.sharing.share_group import ShareGroupSettings
from broker_core.coordinator.sharing.share_partition import SharePartitionSettings

_DURATION: Final = re.compile(
    r"by_duration:P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?"
)
LATEST: Final = "latest"
EARLIEST: Final = "earliest"
READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"


def duration_ms(text: str) -> int:
    """Return the milliseconds of `by_duration:P1DT2H`; raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError("latest, earliest or by_duration:P1DT2H3M4S is expected")
    days, hours, minutes, seconds = (int(each or 0) for each in match.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def _reset(text: str) -> str:
    if text not in {LATEST, EARLIEST}:
        duration_ms(text)
    return text


def _isolation(text: str) -> str:
    if text not in {READ_COMMITTED, READ_UNCOMMITTED}:
        raise ValueError(f"{READ_COMMITTED} or {READ_UNCOMMITTED} is expected")
    return text


def _between(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"{low} to {high} is expected")
        return value

    return parse


class GroupSettings:
    """The groups' own settings by group id, with the broker's settings as defaults."""

    def __init__(self, config: BrokerConfig) -> None:
        self._by_group: dict[str, dict[str, str]] = {}
        #: Called with the id of each group whose settings have changed.
        self.subscribers: list[Callable[[str], None]] = []
        lock_low, lock_high = (
            config.group_share_min_record_lock_ms,
            config.group_share_max_record_lock_ms,
        )
        # Name: (parse, default).
        self._known: dict[str, tuple[Callable[[str], Any], Any]] = {
            "consumer.session.timeout.ms": (
                _between(1, 2**31 - 1),
                config.group_consumer_session_timeout_ms,
            ),
            "consumer.heartbeat.interval.ms": (
                _between(1, 2**31 - 1),
                config.group_consumer_heartbeat_interval_ms,
            ),
            "share.auto.offset.reset": (_reset, LATEST),
            "share.isolation.level": (_isolation, READ_UNCOMMITTED),
            "share.session.timeout.ms": (
                _between(1, 2**31 - 1),
                config.group_share_session_timeout_ms,
            ),
            "share.heartbeat.interval.ms": (
                _between(1, 2**31 - 1),
                config.group_share_heartbeat_interval_ms,
            ),
            "share.record.lock.duration.ms": (
                _between(lock_low, lock_high),
                config.group_share_record_lock_ms,
            ),
            "share.delivery.count.limit": (_between(2, 10), config.group_share_deliveries_max),
            "share.partition.max.record.locks": (
                _between(100, 10_000),
                config.group_share_record_locks_max,
            ),
        }
        self._size_max = config.group_share_max_size
        self._consumers_max = config.group_consumer_max_size

    def of(self, group_id: str) -> dict[str, str]:
        """Return a group's own settings."""
        return self._by_group.get(group_id, {})

    def groups(self) -> list[str]:
        """Return the ids of groups that have settings of their own."""
        return sorted(self._by_group)

    def effective(self, group_id: str) -> dict[str, str]:
        """Return all settings of a group, including defaults."""
        return {name: str(default) for name, (_, default) in self._known.items()} | self.of(
            group_id
        )

    def check(self, properties: Mapping[str, str]) -> None:
        """Check new settings of a group; raises InvalidConfig."""
        for name, text in properties.items():
            if name not in self._known:
                raise errors.InvalidConfig(f"Unknown group config name: {name}")
            try:
                self._known[name][0](text)
            except ValueError as error:
                raise errors.InvalidConfig(
                    f"Invalid value {text} for configuration {name}: {error}"
                ) from None

    def replace(self, group_id: str, properties: Mapping[str, str]) -> None:
        """Replace a group's own settings by ones that have passed `check`."""
        if properties:
            self._by_group[group_id] = dict(properties)
        else:
            self._by_group.pop(group_id, None)
        for subscriber in self.subscribers:
            subscriber(group_id)

    def _value(self, group_id: str, name: str) -> Any:
        parse, default = self._known[name]
        text = self.of(group_id).get(name)
        return default if text is None else parse(text)

    def offset_reset(self, group_id: str) -> str:
        """Return where a share group begins to read a partition."""
        return str(self._value(group_id, "share.auto.offset.reset"))

    def reads_committed(self, group_id: str) -> bool:
        """Tell whether a share group reads only records of committed transactions."""
        return bool(self._value(group_id, "share.isolation.level") == READ_COMMITTED)

    def of_consumers(self, group_id: str) -> ConsumerGroupSettings:
        """Return a consumer group's settings for its members (consumer protocol)."""
        return ConsumerGroupSettings(
            self._value(group_id, "consumer.session.timeout.ms"),
            self._value(group_id, "consumer.heartbeat.interval.ms"),
            self._consumers_max,
        )

    def of_members(self, group_id: str) -> ShareGroupSettings:
        """Return a share group's settings for its members."""
        return ShareGroupSettings(
            self._value(group_id, "share.session.timeout.ms"),
            self._value(group_id, "share.heartbeat.interval.ms"),
            self._size_max,
        )

    def of_records(self, group_id: str) -> SharePartitionSettings:
        """Return a share group's settings for the delivery of records."""
        return SharePartitionSettings(
            self._value(group_id, "share.record.lock.duration.ms"),
            self._value(group_id, "share.delivery.count.limit"),
            self._value(group_id, "share.partition.max.record.locks"),
        )

    def to_stored(self) -> dict[str, Any]:
        """Return the settings in the form that is stored as JSON."""
        return self._by_group

    def load(self, stored: dict[str, dict[str, str]]) -> None:
        """Load what `to_stored` returned, without settings that are no longer known."""
        self._by_group = {
            group_id: {name: text for name, text in properties.items() if name in self._known}
            for group_id, properties in stored.items()
        }
