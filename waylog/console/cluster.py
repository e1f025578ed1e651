"""`waylog cluster`: shows brokers and leaders, elects leaders and moves replicas, on any Kafka."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from confluent_kafka import KafkaException

from waylog.administration.answers import find_lack
from waylog.administration.cluster_admin import (
    FAILURES,
    ClusterAdmin,
    ClusterError,
    cluster_admin,
    refusal,
)
from waylog.administration.cluster_state import ClusterState, effective
from waylog.administration.placement import check_moves, plan_moves
from waylog.cli import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, CommandError
from waylog.console.common import access_of, add_bootstrap, add_json, connect, print_rows, say
from waylog.console.throttle import throttled
from waylog.kafka.errors import error_text
from waylog.kafka.protocol.cluster_requests import (
    PREFERRED,
    UNCLEAN,
    Members,
    PartitionState,
    Place,
    Quorum,
)
from waylog.kafka.protocol.error_codes import ErrorCode, reason_of
from waylog.kafka.protocol.requests import MalformedAnswer

_EXAMPLES: Final = """examples:
  waylog cluster describe
  waylog cluster describe --bootstrap-servers kafka1:9092 --json
  waylog cluster elect                              every partition to its preferred replica
  waylog cluster elect location:2 --unclean         give up what only dead replicas have
  waylog cluster reassign location:0=2,3,1          these replicas, the first to lead
  waylog cluster reassign location address --brokers 1,2,3,4 --dry-run
  waylog cluster reassign location --brokers 1,2,3,4 --throttle 5000000 --wait
  waylog cluster reassign --list
  waylog cluster reassign location:0 --cancel
"""

_POLL_S: Final = 0.5
_GONE_S: Final = 10.0

#: Seconds that `describe` asks; then it prints what it knows, and names what it does not know.
_DESCRIBE_S: Final = 4.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog cluster`."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    describe = actions.add_parser("describe", help="brokers, controllers, replicas behind")
    elect = actions.add_parser("elect", help="elect leaders")
    reassign = actions.add_parser("reassign", help="move replicas to other brokers")
    for each in (describe, elect, reassign):
        add_json(each)
        add_bootstrap(each)
    elect.add_argument(
        "place", nargs="*", metavar="TOPIC[:PARTITION]", help="default: all partitions"
    )
    elect.add_argument(
        "--unclean",
        action="store_true",
        help="let a replica lead that may lack acknowledged records; they are lost then",
    )
    reassign.add_argument(
        "place",
        nargs="*",
        metavar="TOPIC[:PARTITION[=ID,ID...]]",
        help="what to move; without ids --brokers says where to",
    )
    how = reassign.add_mutually_exclusive_group()
    how.add_argument("--brokers", metavar="ID,...", help="spread evenly over these brokers")
    how.add_argument("--list", action="store_true", help="what is being moved")
    how.add_argument("--cancel", action="store_true", help="take back what is being moved")
    reassign.add_argument(
        "--replication-factor", type=int, metavar="N", help="with --brokers: other than now"
    )
    reassign.add_argument(
        "--throttle", type=int, metavar="BYTES",
        help="what each broker gives and takes a second at most; with --wait, until all has moved",
    )  # fmt: skip
    reassign.add_argument("--dry-run", action="store_true", help="show what would be moved")
    reassign.add_argument("--wait", action="store_true", help="return when everything has moved")


def run(arguments: argparse.Namespace) -> int:
    """Run one of the actions."""
    if arguments.action == "reassign":
        _check_reassign(arguments)
    if arguments.action == "describe":
        return _describe(arguments)
    connect(arguments)
    actions = {"elect": _elect, "reassign": _reassign}
    # For a while the metadata still lists a broker that has just gone, and the client may ask that
    # one. Actions that only read, or may be repeated, are tried again with another broker.
    deadline = time.monotonic() + (0 if arguments.action == "reassign" else _GONE_S)
    while True:
        with _connect(arguments) as admin:
            try:
                return actions[arguments.action](admin, arguments)
            except (OSError, ClusterError) as error:
                can_pass = isinstance(error, OSError) or error.retriable
                if not can_pass or time.monotonic() >= deadline:
                    lack = find_lack(access_of(arguments), ()).text() if can_pass else ""
                    raise CommandError(lack or refusal(error)) from None
            except MalformedAnswer as error:
                raise CommandError(refusal(error)) from None
            except KafkaException as error:
                raise CommandError(error_text(error)) from None
        time.sleep(_POLL_S)


@contextmanager
def _connect(arguments: argparse.Namespace) -> Iterator[ClusterAdmin]:
    with ExitStack() as stack:
        try:
            admin = stack.enter_context(
                cluster_admin(
                    access_of(arguments),
                    find_lack=lambda: find_lack(access_of(arguments), ()).text(),
                )
            )
        except FAILURES as error:
            raise CommandError(
                f"no Kafka broker answers at {arguments.bootstrap_servers}: {refusal(error)}"
            ) from None
        yield admin


# ---------------------------------------------------------------------------------------- describe


def _describe(arguments: argparse.Namespace) -> int:
    state = ClusterState(access_of(arguments))
    state.learn(_DESCRIBE_S)
    cluster = state.cluster
    assert cluster is not None
    silent = state.silent
    partitions = {
        place: effective(each, silent) for place, each in (state.partitions or {}).items()
    }
    behind = [
        {
            "topic": topic,
            "partition": index,
            "leader": each.leader if each.leader >= 0 else None,
            "replicas": _ids(each.replicas),
            "in_sync": _ids(each.in_sync),
        }
        for (topic, index), each in partitions.items()
        if len(each.in_sync) < len(each.replicas) or each.leader < 0
    ]
    if not arguments.json:
        counted = (
            "partitions unknown"
            if state.partitions is None
            else f"{len(partitions)} partitions, {len(behind)} of them under-replicated"
        )
        print(
            f"cluster {cluster.cluster_id}: {len(cluster.brokers)} brokers, {counted}; "
            f"{_controller(state, cluster)}\n"
        )
    sections: list[tuple[str, Sequence[dict[str, Any]]]] = [
        ("brokers", _brokers(cluster, partitions, state.answers)),
        ("controllers", _quorum(state.quorum)),
        ("under-replicated partitions", behind),
    ]
    for title, rows in sections:
        if not rows:
            continue
        if not arguments.json:
            print(title)
        print_rows(rows, as_json=arguments.json)
        if not arguments.json:
            print()
    if silent:
        who = "broker " + ", ".join(map(str, sorted(silent)))
        print(
            f"no answer from {who}: it counts as no leader and as not in sync here, whatever the "
            "metadata still says",
            file=sys.stderr,
        )
    if state.unknown:
        print(
            f"not known: {', '.join(state.unknown)} (nobody answered within {_DESCRIBE_S:.0f} s)",
            file=sys.stderr,
        )
    return EXIT_FAILED if state.unknown else EXIT_DONE


def _controller(state: ClusterState, cluster: Members) -> str:
    if "controllers" in state.unknown:
        return "no active controller answers"
    # Without the right to see the quorum there is only what the brokers' metadata says.
    active = cluster.controller if state.quorum is None else state.quorum.leader
    if active < 0 or active in state.silent:
        return "no active controller answers"
    return f"the active controller is {active}"


def _brokers(
    cluster: Members, places: Mapping[Place, PartitionState], answers: Mapping[int, bool]
) -> list[dict[str, Any]]:
    partitions = places.values()
    leads = Counter(each.leader for each in partitions)
    has = Counter(node for each in partitions for node in each.replicas)
    in_sync = Counter(node for each in partitions for node in each.in_sync)
    rows = []
    for broker_id in sorted(cluster.brokers.keys() | has.keys()):
        broker = cluster.brokers.get(broker_id)
        rows.append(
            {
                "broker": broker_id,
                "address": None if broker is None else "{}:{}".format(*broker.address),
                "rack": None if broker is None else broker.rack,
                # None: the metadata names it, but it does not answer.
                "running": False if broker is None else answers.get(broker_id) or None,
                "answers": answers.get(broker_id, False),
                "leads": leads[broker_id],
                "replicas": has[broker_id],
                "in_sync": in_sync[broker_id],
            }
        )
    return rows


def _quorum(log: Quorum | None) -> list[dict[str, Any]]:
    if log is None:
        return []
    now_ms = time.time() * 1000
    rows = []
    for is_voter, replicas in ((True, log.voters), (False, log.observers)):
        for each in replicas:
            leads = each.node == log.leader
            role = "observer" if not is_voter else "active" if leads else "voter"
            fetched = each.last_fetch_ms
            rows.append(
                {
                    "controller": each.node,
                    "role": role,
                    "epoch": log.epoch,
                    "end_offset": each.end_offset,
                    "behind": max(0, log.high_watermark - each.end_offset),
                    "seen_ms_ago": None if leads or fetched < 0 else int(now_ms - fetched),
                }
            )
    return rows


def _ids(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))


# ------------------------------------------------------------------------------------------- elect


def _elect(admin: ClusterAdmin, arguments: argparse.Namespace) -> int:
    if arguments.unclean and not arguments.place:
        raise CommandError("--unclean gives up records: name the partitions")
    asked: list[Place] | None = None
    if arguments.place:
        asked = _find(arguments.place, admin.partitions())
    kind = UNCLEAN if arguments.unclean else PREFERRED
    rows = [
        {
            "topic": topic,
            "partition": index,
            "elected": error == 0,
            "reason": None if error == 0 else message or reason_of(error),
        }
        for (topic, index), (error, message) in admin.elect_leaders(kind, asked).items()
        if asked is not None or error != ErrorCode.ELECTION_NOT_NEEDED
    ]
    if not rows:
        say([], "every partition is led by its preferred replica", as_json=arguments.json)
        return EXIT_DONE
    print_rows(rows, as_json=arguments.json)
    needed = [row for row in rows if not row["elected"]]
    unmet = [row for row in needed if row["reason"] and "already" not in str(row["reason"])]
    return EXIT_FAILED if unmet else EXIT_DONE


def _find(words: Sequence[str], partitions: Mapping[Place, PartitionState]) -> list[Place]:
    """Return the partitions that TOPIC or TOPIC:PARTITION names; raises CommandError."""
    found: list[Place] = []
    for word in words:
        topic, separator, number = word.partition(":")
        if separator and not number.isdigit():
            raise CommandError(f"{word}: TOPIC or TOPIC:PARTITION is expected")
        meant = [
            place
            for place in partitions
            if place[0] == topic and (not separator or place[1] == int(number))
        ]
        if not meant:
            raise CommandError(f"{word}: there is no such topic or partition")
        found += meant
    return found


# ---------------------------------------------------------------------------------------- reassign


def _check_reassign(arguments: argparse.Namespace) -> None:
    """Raise CommandError for options that others would make useless."""
    only = "--list" if arguments.list else "--cancel" if arguments.cancel else None
    given = {
        "--replication-factor": arguments.replication_factor is not None,
        "--throttle": arguments.throttle is not None,
        "--wait": arguments.wait,
        "--dry-run": arguments.dry_run and arguments.list,
        "TOPIC[:PARTITION]": bool(arguments.place) and arguments.list,
    }
    for option, is_given in given.items():
        if only and is_given:
            raise CommandError(f"{only} goes without {option}", EXIT_USAGE)
    if arguments.cancel and any("=" in word for word in arguments.place):
        raise CommandError("--cancel takes TOPIC[:PARTITION], without =ID", EXIT_USAGE)
    if arguments.dry_run and arguments.wait:
        raise CommandError("--dry-run moves nothing: it goes without --wait", EXIT_USAGE)
    if arguments.throttle is not None and (arguments.throttle <= 0 or not arguments.wait):
        raise CommandError("--throttle BYTES is more than 0, and is taken back after --wait")


def _reassign(admin: ClusterAdmin, arguments: argparse.Namespace) -> int:
    if arguments.list:
        _list(admin, arguments)
        return EXIT_DONE
    partitions = admin.partitions()
    if arguments.cancel:
        moves: dict[Place, list[int] | None] = dict.fromkeys(
            _find(arguments.place, partitions) or admin.reassignments()
        )
    else:
        wished = _moves(arguments, partitions)
        check_moves(admin.members().brokers, wished, partitions)
        moves = dict(wished)
    rows = [
        {
            "topic": topic,
            "partition": index,
            "from": _ids(partitions[topic, index].replicas),
            "to": None if replicas is None else _ids(replicas),
        }
        for (topic, index), replicas in moves.items()
    ]
    if not moves:
        say([], "nothing is to be moved", as_json=arguments.json)
        return EXIT_DONE
    if arguments.dry_run:
        print_rows(rows, as_json=arguments.json)
        return EXIT_DONE
    if arguments.throttle is None:
        return _move(admin, arguments, moves, rows)
    wanted = {
        place: (partitions[place].replicas, replicas)
        for place, replicas in moves.items()
        if replicas is not None
    }
    with throttled(connect(arguments), wanted, arguments.throttle):
        return _move(admin, arguments, moves, rows)


def _move(
    admin: ClusterAdmin,
    arguments: argparse.Namespace,
    moves: dict[Place, list[int] | None],
    rows: list[dict[str, Any]],
) -> int:
    answers = admin.alter_reassignments(moves)
    failed = False
    for row in rows:
        error, message = answers.get((row["topic"], row["partition"]), (0, ""))
        row["refused"] = None if not error else _in_words(error, message)
        failed = failed or error != 0
    print_rows(rows, as_json=arguments.json)
    if arguments.wait and not arguments.cancel:
        _wait(admin, len(moves))
    return EXIT_FAILED if failed else EXIT_DONE


def _in_words(error: int, message: str | None) -> str:
    if error == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
        return "it is not being moved, so there is nothing to cancel"
    return message or reason_of(error)


def _list(admin: ClusterAdmin, arguments: argparse.Namespace) -> None:
    rows = [
        {
            "topic": topic,
            "partition": index,
            "replicas": _ids(each.replicas),
            "adding": _ids(each.adding),
            "removing": _ids(each.removing),
        }
        for (topic, index), each in sorted(admin.reassignments().items())
    ]
    if rows:
        print_rows(rows, as_json=arguments.json)
    else:
        say([], "nothing is being moved", as_json=arguments.json)


def _moves(
    arguments: argparse.Namespace, partitions: Mapping[Place, PartitionState]
) -> dict[Place, list[int]]:
    named = [word for word in arguments.place if "=" in word]
    if named and arguments.brokers:
        raise CommandError("either TOPIC:PARTITION=ID,... or --brokers")
    if arguments.brokers:
        places = _find(arguments.place, partitions) if arguments.place else list(partitions)
        present = {place: list(partitions[place].replicas) for place in places}
        brokers = list(dict.fromkeys(_numbers("--brokers", arguments.brokers)))
        factor = arguments.replication_factor
        if factor is not None and not 1 <= factor <= len(brokers):
            raise CommandError(f"--replication-factor {factor}: there are {len(brokers)} brokers")
        return plan_moves(present, brokers, factor)
    if arguments.replication_factor is not None:
        raise CommandError("--replication-factor goes with --brokers ID,...")
    if not named or len(named) < len(arguments.place):
        raise CommandError("say where to: TOPIC:PARTITION=ID,... or --brokers ID,...")
    moves = {}
    for word in named:
        place, _, ids = word.partition("=")
        for each in _find([place], partitions):
            moves[each] = _numbers(word, ids)
    return moves


def _numbers(what: str, text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isdigit() for word in words):
        raise CommandError(f"{what}: broker ids with commas between them are expected")
    return [int(word) for word in words]


def _wait(admin: ClusterAdmin, count: int) -> None:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task("moving", total=count)
        while True:
            left = len(admin.reassignments())
            progress.update(task, completed=max(0, count - left))
            if not left:
                return
            time.sleep(_POLL_S)
