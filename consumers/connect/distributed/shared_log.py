"""The clients of the topics in which workers keep what they share."""

from __future__ import annotations

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.distributed.distributed_settings import DistributedSettings
from consumers.connect.tasks.client_properties import ClientProperties
from consumers.connect.topics.config_store import ConfigStore
from consumers.connect.topics.leader_writer import LeaderWriter, leader_properties
from consumers.connect.topics.offset_store import OffsetTopicStore
from consumers.connect.topics.status_store import StatusTopicStore
from waylog.kafka.clients import client_config, consumer_config
from waylog.kafka.topic_log import TopicLog


def shared_log(
    settings: DistributedSettings,
    config: ConfigStore,
    statuses: StatusTopicStore,
    offsets: OffsetTopicStore,
) -> TopicLog:
    """Return the log of the three topics, which their stores use from now on.

    Raises KafkaException, ConfigException for properties that are not valid.
    """
    servers, group = settings.worker.bootstrap_servers, settings.group_id
    security = ClientProperties(servers, settings.worker.properties, {}).security()
    consumer = consumer_config(
        servers,
        f"{group}-topics",
        group,
        enable_partition_eof=True,
        queued_max_messages_kbytes=2 * 1024,
    )
    # Repetitions do no harm here: the newest record of a key counts.
    producer = client_config(
        servers,
        f"{group}-topics",
        acks="all",
        linger_ms=2,
        compression_type="none",
        max_in_flight_requests_per_connection=1,
        delivery_timeout_ms=0,
        partitioner="murmur2_random",
    )
    log = TopicLog(
        {each.topic: each.handle for each in (config, statuses, offsets)},
        consumer=consumer | security,
        producer=producer | security,
        admin=client_config(servers, f"{group}-topics") | security,
        name="connect-topics",
        error=ConnectException,
    )
    transactional_id = settings.leader_transactional_id
    writer = None
    if transactional_id is not None:
        properties = leader_properties(servers, transactional_id) | security
        writer = LeaderWriter(config.topic, properties)
    config.use(log, writer)
    statuses.use(log)
    offsets.use(log)
    return log
