"""`waylog topics`: list, create, describe, alter and delete topics of any Kafka cluster."""

from __future__ import annotations

import argparse
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from waylog.cli import EXIT_DONE, CommandError
from waylog.console.common import add_bootstrap, add_json, connect, print_rows, reason
from waylog.kafka import LogUnreachable, consumer_config, ensure_topics

_EXAMPLES: Final = """examples:
  waylog topics list
  waylog topics create trips --partitions 4 --config retention.ms=86400000
  waylog topics describe location
  waylog topics alter location --config retention.ms=1209600000 --partitions 8
  waylog topics delete trips
  waylog topics ensure --bootstrap-servers kafka1:9092     before a gateway starts there
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `waylog topics`."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all topics with their partitions and records")
    create = actions.add_parser("create", help="create a topic")
    describe = actions.add_parser("describe", help="partitions and settings of a topic")
    alter = actions.add_parser("alter", help="change settings, add partitions")
    delete = actions.add_parser("delete", help="delete a topic and its records")
    ensure = actions.add_parser("ensure", help="create the platform's own topics, if missing")
    for each in (listing, create, describe, alter, delete, ensure):
        add_bootstrap(each)
    for each in (listing, describe):
        add_json(each)
    for each in (create, describe, alter, delete):
        each.add_argument("topic")
    for each in (create, alter):
        each.add_argument("--partitions", type=int, metavar="N")
        each.add_argument(
            "--config", action="append", default=[], metavar="NAME=VALUE", help="Kafka's names"
        )
    create.add_argument("--replication-factor", type=int, default=-1, metavar="N")


def run(arguments: argparse.Namespace) -> int:
    """Do one of the actions."""
    if arguments.action == "ensure":
        return _ensure(arguments)
    admin = connect(arguments.bootstrap_servers)
    actions = {
        "list": _list,
        "create": _create,
        "describe": _describe,
        "alter": _alter,
        "delete": _delete,
    }
    try:
        actions[arguments.action](admin, arguments)
    except KafkaException as error:
        raise CommandError(reason(error)) from None
    return EXIT_DONE


def _ensure(arguments: argparse.Namespace) -> int:
    try:
        created = ensure_topics(arguments.bootstrap_servers)
    except (LogUnreachable, KafkaException) as error:
        raise CommandError(str(error)) from None
    print(f"created {', '.join(created)}" if created else "all topics were there")
    return EXIT_DONE


def _settings(words: list[str]) -> dict[str, str]:
    settings = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator:
            raise CommandError(f"--config {word}: NAME=VALUE is expected")
        settings[name] = value
    return settings


def _partitions(admin: AdminClient, topic: str) -> dict[int, Any]:
    metadata = admin.list_topics(topic, timeout=10.0).topics[topic]
    if metadata.error is not None:
        raise CommandError(f"topic {topic}: {metadata.error.str()}")
    partitions: dict[int, Any] = metadata.partitions
    return partitions


def _watermarks(bootstrap_servers: str, topic: str, partitions: list[int]) -> dict[int, Any]:
    consumer = Consumer(consumer_config(bootstrap_servers, "waylog-console", "waylog-console"))
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10.0)
            for number in partitions
        }
    finally:
        consumer.close()


def _list(admin: AdminClient, arguments: argparse.Namespace) -> None:
    rows = []
    for name, metadata in sorted(admin.list_topics(timeout=10.0).topics.items()):
        marks = _watermarks(arguments.bootstrap_servers, name, sorted(metadata.partitions))
        records = sum(high - low for low, high in marks.values())
        rows.append({"topic": name, "partitions": len(marks), "records": records})
    print_rows(rows, as_json=arguments.json)


def _create(admin: AdminClient, arguments: argparse.Namespace) -> None:
    topic = NewTopic(
        arguments.topic,
        num_partitions=arguments.partitions or -1,
        replication_factor=arguments.replication_factor,
        config=_settings(arguments.config),
    )
    admin.create_topics([topic])[arguments.topic].result()
    print(f"created {arguments.topic}")


def _describe(admin: AdminClient, arguments: argparse.Namespace) -> None:
    partitions = _partitions(admin, arguments.topic)
    marks = _watermarks(arguments.bootstrap_servers, arguments.topic, sorted(partitions))
    rows = [
        {
            "partition": number,
            "leader": partition.leader,
            "replicas": ",".join(map(str, partition.replicas)),
            "in_sync": ",".join(map(str, partition.isrs)),
            "first_offset": marks[number][0],
            "end_offset": marks[number][1],
        }
        for number, partition in sorted(partitions.items())
    ]
    resource = ConfigResource(ResourceType.TOPIC, arguments.topic)
    configs = admin.describe_configs([resource])[resource].result()
    settings = [
        {"setting": name, "value": entry.value, "default": entry.is_default}
        for name, entry in sorted(configs.items())
    ]
    print_rows(rows, as_json=arguments.json)
    print_rows(settings, as_json=arguments.json)


def _alter(admin: AdminClient, arguments: argparse.Namespace) -> None:
    settings = _settings(arguments.config)
    if not settings and arguments.partitions is None:
        raise CommandError("nothing to change: give --config or --partitions")
    if settings:
        resource = ConfigResource(
            ResourceType.TOPIC,
            arguments.topic,
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in settings.items()
            ],
        )
        admin.incremental_alter_configs([resource])[resource].result()
    if arguments.partitions is not None:
        wanted = NewPartitions(arguments.topic, arguments.partitions)
        admin.create_partitions([wanted])[arguments.topic].result()
    print(f"altered {arguments.topic}")


def _delete(admin: AdminClient, arguments: argparse.Namespace) -> None:
    admin.delete_topics([arguments.topic])[arguments.topic].result()
    print(f"deleted {arguments.topic}")
