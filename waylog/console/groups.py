"""`waylog groups`: lists consumer groups, shows their lag, resets their offsets."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from waylog.administration.answers import result_of
from waylog.administration.cluster_admin import REQUEST_S
from waylog.administration.groups import (
    assigned_to,
    committed_offsets,
    find_group,
    list_groups,
    offset_targets,
    require_group,
    running,
    set_offsets,
)
from waylog.administration.offsets import WHERE_HELP, find_offset, watermarks
from waylog.cli import EXIT_DONE, CommandError
from waylog.console.common import access_of, add_bootstrap, add_json, connect, print_rows, say
from waylog.kafka.errors import error_text
from waylog.kafka.protocol.cluster_requests import Place

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
    rows = [each._asdict() for each in list_groups(access_of(arguments), admin)]
    if rows or arguments.json:
        print_rows(rows, as_json=arguments.json)
    else:
        print(
            "nothing to show; groups on which this user has no right DESCRIBE are left out",
            file=sys.stderr,
        )


def _describe(admin: AdminClient, arguments: argparse.Namespace) -> None:
    if arguments.members:
        _describe_members(admin, arguments)
        return
    require_group(access_of(arguments), admin, arguments.group)
    consumer = access_of(arguments).open_consumer()
    rows = []
    try:
        for (topic, partition), offset in committed_offsets(
            access_of(arguments), admin, arguments.group
        ).items():
            low, high = watermarks(access_of(arguments), consumer, topic, partition)
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
    group = require_group(access_of(arguments), admin, arguments.group)
    rows = [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": " ".join(
                f"{topic}:{','.join(map(str, numbers))}"
                for topic, numbers in assigned_to(member).items()
            ),
        }
        for member in group.members
    ]
    print_rows(rows, as_json=arguments.json)


def _reset(admin: AdminClient, arguments: argparse.Namespace) -> None:
    access, name = access_of(arguments), arguments.group
    if arguments.file is not None and (arguments.topic or arguments.all_topics):
        raise CommandError("--file names the partitions: it goes without --topic, --all-topics")
    if arguments.file is None and not arguments.topic and not arguments.all_topics:
        raise CommandError("which topics? --topic NAME or --all-topics is needed")
    places = None if arguments.file is None else _read_file(arguments.file)
    group = find_group(access, admin, name)
    committed = committed_offsets(access, admin, name)
    if group is not None and group.members and not arguments.dry_run:
        raise running(group)
    if not committed and (group is None or group.state == ConsumerGroupState.DEAD):
        if arguments.all_topics and not arguments.topic:
            require_group(access, admin, name)
        print(f"group {name} has no members and no offsets yet: new", file=sys.stderr)
    topics = list(arguments.topic or ())
    if arguments.all_topics:
        topics += sorted({topic for topic, _ in committed} - set(topics))
    consumer = access.open_consumer()
    try:
        if places is not None:
            targets = {
                place: find_offset(access, consumer, *place, str(offset))
                for place, offset in places.items()
            }
        else:
            where = arguments.to or f"{arguments.shift:+d}"
            targets = offset_targets(access, consumer, topics, where, committed)
    finally:
        consumer.close()
    if not targets:
        raise CommandError("there is nothing to set: no topic has been committed by this group")
    if not arguments.dry_run:
        set_offsets(access, admin, name, targets)
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


def _read_file(path: Path) -> dict[Place, int]:
    """Read offsets as Kafka's tools or `groups describe --json` write them."""
    targets: dict[Place, int] = {}
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
            result_of(access_of(arguments), future)
        except KafkaException as error:
            raise CommandError(f"group {name}: {error_text(error)}") from None
    rows = [{"group": name} for name in arguments.group]
    say(rows, f"deleted {', '.join(arguments.group)}", as_json=arguments.json)
