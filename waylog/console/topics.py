"""`waylog topics`: lists, creates, describes, alters and deletes topics of any Kafka cluster."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from waylog.administration.answers import result_of
from waylog.administration.cluster_admin import REQUEST_S
from waylog.administration.log_access import TIMEOUT_S, partitions_of
from waylog.administration.offsets import watermarks
from waylog.administration.topics import alter_topic, create_topics, topic_settings
from waylog.cli import EXIT_DONE, CommandError
from waylog.console.common import (
    access_of,
    add_bootstrap,
    add_json,
    connect,
    count,
    pairs,
    print_rows,
    say,
    security,
)
from waylog.kafka.clients import LogUnreachable, ensure_topics
from waylog.kafka.errors import error_text

_EXAMPLES: Final = """examples:
  waylog topics list
  waylog topics create trips --partitions 4 --config retention.ms=86400000
  waylog topics describe location
  waylog topics alter location --config retention.ms=1209600000 --partitions 8
  waylog topics alter location --delete-config retention.ms --dry-run
  waylog topics delete trips tours --if-exists
  waylog topics ensure --bootstrap-servers kafka1:9092     before a gateway starts there
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog topics`."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all topics with their partitions and records")
    create = actions.add_parser("create", help="create topics")
    describe = actions.add_parser("describe", help="partitions and settings of a topic")
    alter = actions.add_parser("alter", help="change settings, add partitions")
    delete = actions.add_parser("delete", help="delete topics and their records")
    ensure = actions.add_parser("ensure", help="create the platform's own topics, if missing")
    for each in (listing, create, describe, alter, delete, ensure):
        add_json(each)
        add_bootstrap(each)
    for each in (describe, alter):
        each.add_argument("topic")
    for each in (create, delete):
        each.add_argument("topic", nargs="+")
    for each in (create, alter):
        each.add_argument("--partitions", type=count, metavar="N")
        each.add_argument(
            "--config", action="append", default=[], metavar="NAME=VALUE", help="Kafka's names"
        )
        each.add_argument("--dry-run", action="store_true", help="ask whether it could be done")
    create.add_argument("--replication-factor", type=count, default=-1, metavar="N")
    create.add_argument(
        "--if-not-exists", action="store_true", help="a topic that is there is no error"
    )
    alter.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="NAME",
        help="back to the broker's default",
    )
    delete.add_argument(
        "--if-exists", action="store_true", help="a topic that is not there is no error"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run one of the actions."""
    if arguments.action == "ensure":
        return _ensure(arguments)
    admin = connect(arguments)
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
        raise CommandError(error_text(error)) from None
    return EXIT_DONE


def _ensure(arguments: argparse.Namespace) -> int:
    connect(arguments)
    try:
        created = ensure_topics(
            arguments.bootstrap_servers,
            security=security(arguments),
            result_of=partial(result_of, access_of(arguments)),
        )
    except LogUnreachable as error:
        raise CommandError(str(error)) from None
    except KafkaException as error:
        raise CommandError(error_text(error)) from None
    text = f"created {', '.join(created)}" if created else "all topics were there"
    say([{"topic": name} for name in created], text, as_json=arguments.json)
    return EXIT_DONE


def _watermarks(
    arguments: argparse.Namespace, topics: dict[str, list[int]]
) -> dict[tuple[str, int], tuple[int, int]]:
    consumer = access_of(arguments).open_consumer()
    try:
        return {
            (topic, number): watermarks(access_of(arguments), consumer, topic, number)
            for topic, numbers in topics.items()
            for number in numbers
        }
    finally:
        consumer.close()


def _list(admin: AdminClient, arguments: argparse.Namespace) -> None:
    found = admin.list_topics(timeout=TIMEOUT_S).topics
    topics = {name: sorted(metadata.partitions) for name, metadata in sorted(found.items())}
    marks = _watermarks(arguments, topics)
    rows = []
    for name, numbers in topics.items():
        records = sum(marks[name, number][1] - marks[name, number][0] for number in numbers)
        rows.append({"topic": name, "partitions": len(numbers), "records": records})
    print_rows(rows, as_json=arguments.json)


def _create(admin: AdminClient, arguments: argparse.Namespace) -> None:
    results = create_topics(
        admin,
        arguments.topic,
        partitions=arguments.partitions,
        replication_factor=arguments.replication_factor,
        settings=pairs(arguments.config, "--config"),
        is_dry=arguments.dry_run,
    )
    created, refused = _sort(
        arguments, results, KafkaError.TOPIC_ALREADY_EXISTS if arguments.if_not_exists else None
    )
    verb = "could create" if arguments.dry_run else "created"
    _tell(created, refused, verb, "all topics were there", as_json=arguments.json)


def _describe(admin: AdminClient, arguments: argparse.Namespace) -> None:
    topic = arguments.topic
    marks = _watermarks(arguments, {topic: partitions_of(admin, topic)})
    partitions = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    rows = [
        {
            "partition": number,
            "leader": partition.leader,
            "replicas": ",".join(map(str, partition.replicas)),
            "in_sync": ",".join(map(str, partition.isrs)),
            "first_offset": marks[topic, number][0],
            "end_offset": marks[topic, number][1],
        }
        for number, partition in sorted(partitions.items())
    ]
    configs = topic_settings(access_of(arguments), admin, topic)
    settings = [
        {"setting": name, "value": entry.value, "default": entry.is_default}
        for name, entry in sorted(configs.items())
    ]
    print_rows(rows, as_json=arguments.json)
    print_rows(settings, as_json=arguments.json)


def _alter(admin: AdminClient, arguments: argparse.Namespace) -> None:
    settings = pairs(arguments.config, "--config")
    if not settings and not arguments.delete_config and arguments.partitions is None:
        raise CommandError("nothing to change: give --config, --delete-config or --partitions")
    alter_topic(
        access_of(arguments),
        admin,
        arguments.topic,
        settings=settings,
        defaults=arguments.delete_config,
        partitions=arguments.partitions,
        is_dry=arguments.dry_run,
    )
    verb = "could alter" if arguments.dry_run else "altered"
    say([{"topic": arguments.topic}], f"{verb} {arguments.topic}", as_json=arguments.json)


def _delete(admin: AdminClient, arguments: argparse.Namespace) -> None:
    deleted, refused = _sort(
        arguments,
        admin.delete_topics(arguments.topic, request_timeout=REQUEST_S),
        KafkaError.UNKNOWN_TOPIC_OR_PART if arguments.if_exists else None,
    )
    _tell(deleted, refused, "deleted", "no such topic was there", as_json=arguments.json)


def _sort(
    arguments: argparse.Namespace, answers: Mapping[str, Future[None]], allowed_error: int | None
) -> tuple[list[str], list[str]]:
    """Return the topics for which it succeeded, and a message for each that was refused."""
    done, refused = [], []
    for name, future in answers.items():
        try:
            result_of(access_of(arguments), future)
            done.append(name)
        except KafkaException as error:
            if error.args[0].code() != allowed_error:
                refused.append(f"topic {name}: {error_text(error)}")
    return done, refused


def _tell(
    done: Sequence[str], refused: Sequence[str], verb: str, nothing: str, *, as_json: bool
) -> None:
    if done or not refused:
        text = f"{verb} {', '.join(done)}" if done else nothing
        say([{"topic": name} for name in done], text, as_json=as_json)
    if refused:
        raise CommandError("; ".join(refused))
