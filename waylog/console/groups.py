"""`waylog groups`: list consumer groups, show how far they are behind, set their offsets anew."""

from __future__ import annotations

import argparse
from typing import Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from waylog.cli import EXIT_DONE, CommandError
from waylog.console.common import add_bootstrap, add_json, connect, parse_time, print_rows, reason
from waylog.kafka import consumer_config

_EXAMPLES: Final = """examples:
  waylog groups list
  waylog groups describe resolver                          a row a partition, with its lag
  waylog groups reset resolver --topic location --to beginning --dry-run
  waylog groups reset resolver --topic location --to 2026-11-21T08:00:00
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `waylog groups`."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all groups")
    describe = actions.add_parser("describe", help="committed offsets and lag of a group")
    reset = actions.add_parser("reset", help="set a stopped group's offsets anew")
    for each in (listing, describe, reset):
        add_bootstrap(each)
        add_json(each)
    describe.add_argument("group")
    reset.add_argument("group")
    reset.add_argument("--topic", required=True)
    reset.add_argument(
        "--to", required=True, metavar="WHERE", help="beginning, end, an offset, +N, -N or a time"
    )
    reset.add_argument("--dry-run", action="store_true", help="show what would be set")


def run(arguments: argparse.Namespace) -> int:
    """Do one of the actions."""
    admin = connect(arguments.bootstrap_servers)
    try:
        if arguments.action == "list":
            _list(admin, arguments)
        elif arguments.action == "describe":
            _describe(admin, arguments)
        else:
            _reset(admin, arguments)
    except KafkaException as error:
        raise CommandError(reason(error)) from None
    return EXIT_DONE


def _list(admin: AdminClient, arguments: argparse.Namespace) -> None:
    found = admin.list_consumer_groups().result()
    rows = [
        {"group": group.group_id, "state": group.state.name.lower() if group.state else ""}
        for group in sorted(found.valid, key=lambda each: each.group_id)
    ]
    print_rows(rows, as_json=arguments.json)


def _committed(admin: AdminClient, group: str) -> list[TopicPartition]:
    asked = [ConsumerGroupTopicPartitions(group)]
    answer = admin.list_consumer_group_offsets(asked)[group].result()
    return sorted(answer.topic_partitions, key=lambda each: (each.topic, each.partition))


def _describe(admin: AdminClient, arguments: argparse.Namespace) -> None:
    consumer = _consumer(arguments)
    rows = []
    try:
        for each in _committed(admin, arguments.group):
            _, high = consumer.get_watermark_offsets(each, timeout=10.0)
            rows.append(
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "committed": each.offset,
                    "end": high,
                    "lag": max(0, high - max(each.offset, 0)),
                }
            )
    finally:
        consumer.close()
    print_rows(rows, as_json=arguments.json)


def _reset(admin: AdminClient, arguments: argparse.Namespace) -> None:
    topic, group = arguments.topic, arguments.group
    metadata = admin.list_topics(topic, timeout=10.0).topics[topic]
    if metadata.error is not None:
        raise CommandError(f"topic {topic}: {metadata.error.str()}")
    committed = {
        each.partition: each.offset
        for each in _committed(admin, group)
        if each.topic == topic and each.offset >= 0
    }
    consumer = _consumer(arguments)
    rows, offsets = [], []
    try:
        for number in sorted(metadata.partitions):
            before = committed.get(number, 0)
            after = _target(consumer, TopicPartition(topic, number), arguments.to, before)
            offsets.append(TopicPartition(topic, number, after))
            rows.append({"topic": topic, "partition": number, "before": before, "after": after})
    finally:
        consumer.close()
    if not arguments.dry_run:
        wanted = [ConsumerGroupTopicPartitions(group, offsets)]
        admin.alter_consumer_group_offsets(wanted)[group].result()
    print_rows(rows, as_json=arguments.json)


def _target(consumer: Consumer, partition: TopicPartition, where: str, committed: int) -> int:
    low, high = consumer.get_watermark_offsets(partition, timeout=10.0)
    if where == "beginning":
        return low
    if where == "end":
        return high
    if where[:1] in "+-" and where[1:].isdigit():
        return min(max(committed + int(where), low), high)
    # Thirteen digits are milliseconds; an offset that large would take centuries to reach.
    if where.isdigit() and len(where) < 13:
        return min(max(int(where), low), high)
    partition.offset = parse_time(where)
    found: int = consumer.offsets_for_times([partition], timeout=10.0)[0].offset
    return found if found >= 0 else high


def _consumer(arguments: argparse.Namespace) -> Consumer:
    return Consumer(consumer_config(arguments.bootstrap_servers, "waylog-groups", "waylog-console"))
