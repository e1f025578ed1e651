"""Properties of the Kafka clients of tasks, out of those of the worker and of the connector.

Names are those of Kafka's Java clients, which configurations for Connect have. Those that
librdkafka calls otherwise are translated; those that have no meaning for it are left out; any other
goes to librdkafka, which refuses the ones that it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from consumers.connect.configuration.exceptions import ConfigException, invalid_value
from consumers.connect.configuration.plugin_properties import with_prefix
from consumers.connect.java.number_text import parse_integer
from consumers.connect.storage.states import TaskId
from waylog.config import ConfigError
from waylog.kafka.clients import client_config, consumer_config, producer_config
from waylog.kafka.connection.properties import client_properties

_RENAMED: Final = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "max.request.size": "message.max.bytes",
}
#: Values that librdkafka calls otherwise.
_VALUES: Final = {("auto.offset.reset", "none"): "error"}
#: Properties of Java's clients that change nothing here, or are heeded by the task itself.
_DROPPED: Final = frozenset(
    {
        *("key.serializer", "value.serializer", "key.deserializer", "value.deserializer"),
        *("max.block.ms", "buffer.memory", "interceptor.classes", "metric.reporters"),
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        *("auto.include.jmx.reporter", "enable.metrics.push", "exclude.internal.topics"),
        *("default.api.timeout.ms", "max.poll.records", "partitioner.class", "client.dns.lookup"),
        *("partitioner.ignore.keys", "partitioner.adaptive.partitioning.enable"),
        *("partitioner.availability.timeout.ms", "request.timeout.ms", "security.providers"),
        *("metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms"),
        *("socket.connection.setup.timeout.max.ms", "metadata.max.idle.ms"),
    }
)
_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
#: What producers of Kafka Connect and idempotence ask for.
_ALL_ACKS: Final = ("all", "-1")
_MAX_POLL_RECORDS: Final = 500
POLL_RECORDS: Final = "max.poll.records"
#: Topics of the cluster's own that an expression for topics does not mean.
INTERNAL_TOPICS: Final = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state")
)
#: As Kafka's producers have it, unless transactions are to last longer; the most that brokers
#: allow.
_TRANSACTION_MS: Final = 60_000
_TRANSACTION_INTERVALS: Final = 2
_TRANSACTION_MS_MAX: Final = 900_000
_OF_CLASSIC_GROUPS: Final = (
    *("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"),
)
#: What is fetched at once, and waits for the task. A MiB of small compressed records expands to
#: more than 30 MB in librdkafka; more at once does not make a task faster.
_PARTITION_FETCH_BYTES: Final = 256 * 1024
#: Kafka's `max.request.size`; librdkafka's own default is less.
_MAX_REQUEST_BYTES: Final = 1_048_576
_QUEUED_RECORDS_MIN: Final = 2_000
_QUEUED_KBYTES_MAX: Final = 2 * 1024


def librdkafka_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Translate properties of Java's clients; raises ConfigException."""
    try:
        translated = client_properties(given)
    except ConfigError as error:
        raise ConfigException(str(error)) from error
    properties: dict[str, str] = {}
    for name, value in translated.items():
        if name in _DROPPED or (value == "" and name != "ssl.endpoint.identification.algorithm"):
            continue
        properties[_RENAMED.get(name, name)] = _VALUES.get((name, value), value)
    assignors = properties.get("partition.assignment.strategy")
    if assignors is not None:
        names = [each.strip().removeprefix("class ") for each in assignors.strip("[]").split(",")]
        known = [_ASSIGNORS.get(each, each) for each in names]
        # librdkafka has either strategies that take all partitions away, or the one that does not.
        if "cooperative-sticky" in known:
            known = ["cooperative-sticky"]
        properties["partition.assignment.strategy"] = ",".join(known)
    return properties


def poll_records(text: str) -> int:
    """Return the value of `max.poll.records`; raises ConfigException."""
    number = parse_integer(text.strip(), 32)
    if number is None or number < 1:
        raise invalid_value(POLL_RECORDS, text, "Value must be a number of at least 1")
    return number


class ClientProperties:
    """The properties of all clients of one connector."""

    def __init__(
        self, bootstrap_servers: str, worker: Mapping[str, str], connector: Mapping[str, str]
    ) -> None:
        """`worker` and `connector` are all their properties, with variables replaced."""
        self._bootstrap_servers: Final = bootstrap_servers
        self._worker: Final = worker
        self._connector: Final = connector

    def _given(self, kind: str) -> dict[str, str]:
        return {
            **with_prefix(self._worker, f"{kind}."),
            **with_prefix(self._connector, f"{kind}.override."),
        }

    def group_id(self, connector: str) -> str:
        """Return the consumer group of a sink connector."""
        return self._given("consumer").get("group.id", f"connect-{connector}")

    @property
    def poll_records_max(self) -> int:
        """The most records that a sink task gets at once; raises ConfigException."""
        return poll_records(self._given("consumer").get(POLL_RECORDS, str(_MAX_POLL_RECORDS)))

    def consumer(self, task: TaskId) -> dict[str, Any]:
        """Return the properties of a sink task's consumer; raises ConfigException."""
        base = consumer_config(
            self._bootstrap_servers,
            f"connector-consumer-{task}",
            f"connect-{task.connector}",
            # As Kafka's consumers do unless they are told otherwise.
            allow_auto_create_topics=True,
            isolation_level="read_uncommitted",
            topic_metadata_refresh_interval_ms=10_000,
            max_partition_fetch_bytes=_PARTITION_FETCH_BYTES,
            queued_min_messages=_QUEUED_RECORDS_MIN,
            queued_max_messages_kbytes=_QUEUED_KBYTES_MAX,
        )
        given = librdkafka_properties(self._given("consumer"))
        if given.get("group.protocol", "").lower() == "consumer":
            # The broker decides on these (KIP-848), and librdkafka refuses them.
            for name in _OF_CLASSIC_GROUPS:
                base.pop(name, None)
        return base | given

    def producer(self, client_id: str) -> dict[str, Any]:
        """Return the properties of a producer; raises ConfigException.

        It waits for all replicas, and for as long as the cluster is away. It is idempotent, unless
        properties are given that this would not allow.
        """
        given = librdkafka_properties(self._given("producer"))
        base = producer_config(
            self._bootstrap_servers,
            client_id,
            allow_auto_create_topics=True,
            delivery_timeout_ms=0,
            queue_buffering_max_messages=20_000,
            queue_buffering_max_kbytes=16 * 1024,
            message_max_bytes=_MAX_REQUEST_BYTES,
        )
        in_flight = given.get("max.in.flight.requests.per.connection", "5")
        if (
            given.get("acks", "all") not in _ALL_ACKS
            or not in_flight.isdigit()
            or (int(in_flight) > 5)
        ):
            base["enable.idempotence"] = False
        return base | given

    def transactional_producer(
        self, client_id: str, transactional_id: str, lasts_s: float = 0.0
    ) -> dict[str, Any]:
        """Return the properties of an exactly-once source's producer; raises ConfigException.

        `lasts_s` is for how long a transaction is to last. What was not acknowledged when one times
        out is void with it.
        """
        given = librdkafka_properties(self._given("producer"))
        longer_ms = round(_TRANSACTION_INTERVALS * lasts_s * 1000)
        default_ms = min(max(_TRANSACTION_MS, longer_ms), _TRANSACTION_MS_MAX)
        timeout_ms = given.get("transaction.timeout.ms", str(default_ms))
        own = {
            "enable.idempotence": True,
            "acks": "all",
            "max.in.flight.requests.per.connection": 5,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "delivery.timeout.ms": timeout_ms,
        }
        return self.producer(client_id) | own

    def admin(self, client_id: str) -> dict[str, Any]:
        """Return the properties of an admin client; raises ConfigException.

        Properties of security of the worker count here without a prefix, as in Kafka.
        """
        given = librdkafka_properties({**self._security(), **self._given("admin")})
        return client_config(self._bootstrap_servers, client_id) | given

    def security(self) -> dict[str, str]:
        """Return the worker's own properties of security, for its group and its topics.

        Raises ConfigException.
        """
        return librdkafka_properties(self._security())

    def _security(self) -> dict[str, str]:
        return {
            name: value
            for name, value in self._worker.items()
            if name.startswith(("security.", "sasl.", "ssl."))
        }
