"""`waylog groups`: lists consumer groups, shows their lag, resets their offsets."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConsumerGroupDescription,
)

from waylog.cli import EXIT_DONE, CommandError
from waylog.console.answers import answer_to, find_offset, result_of, watermarks
from waylog.console.cluster_admin import REQUEST_S
from waylog.console.common import (
    WHERE_HELP,
    add_bootstrap,
    add_json,
    connect,
    open_consumer,
    partitions_of,
    print_rows,
    say,
)
from waylog.console.share_groups import list_share_groups
from waylog.kafka.errors import error_text

_EXAMPLES: Final = """examples:
  waylog groups list                                       share groups too
  waylog groups describe resolver                          a row a partition, with its lag
  waylog groups describe resolver --members
  waylog groups reset resolver --topic location --to beginning --dry-run
  waylog groups reset resolver --topic location --to 2026-11-21T08:00:00
  waylog groups reset resolver --all-topics --shift -1000
  waylog groups describe resolver --json > offsets.jsonl   keep them, and set them again
  waylog groups reset resolver --file offsets.jsonl
  waylog groups delete old-group
"""

_Place = tuple[str, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog groups`."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all groups with their state and members")
    describe = actions.add_parser("describe", help="committed offsets and lag of a group")
    reset = actions.add_parser("reset", help="set a stopped group's offsets anew")
    delete = actions.add_parser("delete", help="delete stopped groups")
    for each in (listing, describe, reset, delete):
        add_json(each)
        add_bootstrap(each)
    for each in (describe, reset):
        each.add_argument("group")
    describe.add_argument(
        "--members", action="store_true", help="who is in the group, and what each one reads"
    )
    reset.add_argument(
        "--topic", action="append", metavar="NAME", help="may be given several times"
    )
    reset.add_argument(
        "--all-topics", action="store_true", help="all topics that the group has committed"
    )
    target = reset.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", metavar="WHERE", help=f"{WHERE_HELP}; +N or -N: shift")
    target.add_argument("--shift", type=int, metavar="N", help="by N records, back with -N")
    target.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        help="lines topic,partition,offset, or the output of `groups describe --json`",
    )
    reset.add_argument("--dry-run", action="store_true", help="show what would be set")
    delete.add_argument("group", nargs="+")


def run(arguments: argparse.Namespace) -> int:
    """Run one of the actions."""
    admin = connect(arguments)
    actions = {"list": _list, "describe": _describe, "reset": _reset, "delete": _delete}
    try:
        actions[arguments.action](admin, arguments)
    except KafkaException as error:
        raise CommandError(error_text(error)) from None
    return EXIT_DONE


def _list(admin: AdminClient, arguments: argparse.Namespace) -> None:
    def ask(seconds: float) -> dict[str, Any]:
        # Asked anew each time: librdkafka goes on asking a broker that has died meanwhile.
        client = connect(arguments)
        found = client.list_consumer_groups(request_timeout=seconds).result()
        if found.errors:
            error = found.errors[0]
            raise error if isinstance(error, KafkaException) else KafkaException(error)
        return {group.group_id: group.type for group in found.valid}

    types = answer_to(arguments, ask)
    described = (
        admin.describe_consumer_groups(list(types), request_timeout=REQUEST_S) if types else {}
    )
    rows: list[dict[str, Any]] = []
    for name, kind in types.items():
        group = result_of(arguments, described[name])
        rows.append(
            {
                "group": name,
                "type": kind.name.lower() if kind else "",
                "state": group.state.name.lower() if group.state else "",
                "members": len(group.members),
            }
        )
    for name, state in list_share_groups(arguments).items():
        # No client library can ask for the number of members yet.
        rows.append({"group": name, "type": "share", "state": state, "members": None})
    rows.sort(key=lambda row: row["group"])
    if rows or arguments.json:
        print_rows(rows, as_json=arguments.json)
    else:
        print(
            "nothing to show; groups on which this user has no right DESCRIBE are left out",
            file=sys.stderr,
        )


def _committed(admin: AdminClient, arguments: argparse.Namespace, group: str) -> dict[_Place, int]:
    asked = [ConsumerGroupTopicPartitions(group)]
    answers = admin.list_consumer_group_offsets(asked, request_timeout=REQUEST_S)
    answer = result_of(arguments, answers[group])
    places = sorted(answer.topic_partitions, key=lambda each: (each.topic, each.partition))
    return {(each.topic, each.partition): each.offset for each in places}


def _describe(admin: AdminClient, arguments: argparse.Namespace) -> None:
    if arguments.members:
        _describe_members(admin, arguments)
        return
    _require_group(admin, arguments)
    consumer = open_consumer(arguments)
    rows = []
    try:
        for (topic, partition), offset in _committed(admin, arguments, arguments.group).items():
            low, high = watermarks(arguments, consumer, topic, partition)
            rows.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "committed": offset,
                    "end": high,
                    # Records that retention has deleted are not part of the lag.
                    "lag": max(0, high - max(offset, low)),
                }
            )
    finally:
        consumer.close()
    print_rows(rows, as_json=arguments.json)


def _describe_members(admin: AdminClient, arguments: argparse.Namespace) -> None:
    group = _require_group(admin, arguments)
    rows = []
    for member in group.members:
        assigned: dict[str, list[int]] = {}
        for each in member.assignment.topic_partitions if member.assignment else ():
            assigned.setdefault(each.topic, []).append(each.partition)
        reads = [
            f"{topic}:{','.join(map(str, sorted(numbers)))}"
            for topic, numbers in sorted(assigned.items())
        ]
        rows.append(
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": " ".join(reads),
            }
        )
    print_rows(rows, as_json=arguments.json)


def _require_group(admin: AdminClient, arguments: argparse.Namespace) -> ConsumerGroupDescription:
    name = arguments.group
    group = _find_group(admin, arguments)
    # A group that has only offsets may be described as dead.
    if group is None or (
        group.state == ConsumerGroupState.DEAD and not _committed(admin, arguments, name)
    ):
        raise CommandError(f"there is no consumer group {name}; `waylog groups list` shows all")
    return group


def _find_group(
    admin: AdminClient, arguments: argparse.Namespace
) -> ConsumerGroupDescription | None:
    """Return the coordinator's description of a group, None if there is none.

    Raises KafkaException.
    """
    try:
        answers = admin.describe_consumer_groups([arguments.group], request_timeout=REQUEST_S)
        group: ConsumerGroupDescription = result_of(arguments, answers[arguments.group])
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        raise
    return group


def _reset(admin: AdminClient, arguments: argparse.Namespace) -> None:
    group = _find_group(admin, arguments)
    if group is not None and group.members and not arguments.dry_run:
        raise CommandError(
            f"group {arguments.group} is running, with {len(group.members)} members: stop them, "
            "then set its offsets"
        )
    committed = _committed(admin, arguments, arguments.group)
    if not committed and (group is None or group.state == ConsumerGroupState.DEAD):
        if arguments.all_topics and not arguments.topic:
            _require_group(admin, arguments)
        print(f"group {arguments.group} has no members and no offsets yet: new", file=sys.stderr)
    consumer = open_consumer(arguments)
    try:
        targets = _targets(consumer, arguments, committed)
    finally:
        consumer.close()
    if not targets:
        raise CommandError("there is nothing to set: no topic has been committed by this group")
    if not arguments.dry_run:
        offsets = [TopicPartition(*place, offset) for place, offset in targets.items()]
        wanted = [ConsumerGroupTopicPartitions(arguments.group, offsets)]
        answers = admin.alter_consumer_group_offsets(wanted, request_timeout=REQUEST_S)
        answer = result_of(arguments, answers[arguments.group])
        for each in answer.topic_partitions:
            if each.error is not None:
                raise CommandError(
                    f"{each.topic}:{each.partition} was not set, others may have been: "
                    f"{each.error.str()}"
                )
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "before": max(committed.get((topic, partition), 0), 0),
            "after": after,
        }
        for (topic, partition), after in targets.items()
    ]
    print_rows(rows, as_json=arguments.json)


def _targets(
    consumer: Consumer, arguments: argparse.Namespace, committed: dict[_Place, int]
) -> dict[_Place, int]:
    """Return the new offset of each partition; raises CommandError."""
    if arguments.file is not None:
        if arguments.topic or arguments.all_topics:
            raise CommandError("--file names the partitions: it goes without --topic, --all-topics")
        return {
            place: find_offset(arguments, consumer, *place, str(offset))
            for place, offset in _read_file(arguments.file).items()
        }
    topics = list(arguments.topic or ())
    if arguments.all_topics:
        topics += sorted({topic for topic, _ in committed} - set(topics))
    elif not topics:
        raise CommandError("which topics? --topic NAME or --all-topics is needed")
    shift = arguments.shift
    where = arguments.to or ""
    if where[:1] in {"+", "-"} and where[1:].isdigit():
        shift = int(where)
    targets = {}
    for topic in topics:
        for partition in partitions_of(consumer, topic):
            if shift is None:
                offset = find_offset(arguments, consumer, topic, partition, where)
            else:
                moved = max(committed.get((topic, partition), 0), 0) + shift
                offset = find_offset(arguments, consumer, topic, partition, str(max(moved, 0)))
            targets[topic, partition] = offset
    return targets


def _read_file(path: Path) -> dict[_Place, int]:
    """Read offsets as Kafka's tools or `groups describe --json` write them."""
    targets: dict[_Place, int] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            if line.lstrip().startswith("{"):
                row: dict[str, Any] = msgspec.json.decode(line)
                offset = row.get("after", row.get("committed"))
                targets[row["topic"], int(row["partition"])] = int(str(offset))
            else:
                topic, partition, offset = line.rsplit(",", 2)
                targets[topic.strip(), int(partition)] = int(offset)
        except (ValueError, KeyError):
            raise CommandError(
                f"{path}, line {number}: topic,partition,offset is expected"
            ) from None
    return targets


def _delete(admin: AdminClient, arguments: argparse.Namespace) -> None:
    answers = admin.delete_consumer_groups(arguments.group, request_timeout=REQUEST_S)
    for name, future in answers.items():
        try:
            result_of(arguments, future)
        except KafkaException as error:
            raise CommandError(f"group {name}: {error_text(error)}") from None
    rows = [{"group": name} for name in arguments.group]
    say(rows, f"deleted {', '.join(arguments.group)}", as_json=arguments.json)
