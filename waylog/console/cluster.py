"""`waylog cluster`: shows brokers and leaders, elects leaders and moves replicas, on any Kafka."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import KafkaError, RetriableError

from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError
from waylog.console.cluster_admin import cluster_admin, refusal
from waylog.console.cluster_state import ClusterState, Place, partitions_of
from waylog.console.common import add_bootstrap, add_json, connect, print_rows, say
from waylog.console.placement import plan_moves
from waylog.console.throttle import throttled

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

_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_ELECTION_NOT_NEEDED: Final = 84
_POLL_S: Final = 0.5
_GONE_S: Final = 10.0
_BOOTSTRAP_MS: Final = 3000

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
            except RetriableError as error:
                if time.monotonic() >= deadline:
                    raise CommandError(refusal(error)) from None
            except KafkaError as error:
                raise CommandError(refusal(error)) from None
        time.sleep(_POLL_S)


@contextmanager
def _connect(arguments: argparse.Namespace) -> Iterator[KafkaAdminClient]:
    with ExitStack() as stack:
        try:
            admin = stack.enter_context(
                cluster_admin(arguments, bootstrap_timeout_ms=_BOOTSTRAP_MS)
            )
        except (KafkaError, OSError, ValueError) as error:
            raise CommandError(
                f"no Kafka broker answers at {arguments.bootstrap_servers}: {refusal(error)}"
            ) from None
        yield admin


# ---------------------------------------------------------------------------------------- describe


def _describe(arguments: argparse.Namespace) -> int:
    state = ClusterState(arguments)
    state.learn(_DESCRIBE_S)
    cluster, partitions = state.cluster, state.partitions or {}
    assert cluster is not None
    silent = {each for each, answers in state.answers.items() if not answers}
    behind = [
        {
            "topic": topic,
            "partition": index,
            "leader": each["leader_id"] if each["leader_id"] >= 0 else None,
            "replicas": _ids(each["replica_nodes"]),
            "in_sync": _ids(each["isr_nodes"]),
        }
        for (topic, index), each in sorted(partitions.items())
        if len(each["isr_nodes"]) < len(each["replica_nodes"])
        or each["leader_id"] < 0
        or silent.intersection(each["replica_nodes"])
    ]
    if not arguments.json:
        counted = (
            "partitions unknown"
            if state.partitions is None
            else f"{len(partitions)} partitions, {len(behind)} of them under-replicated"
        )
        print(
            f"cluster {cluster['cluster_id']}: {len(cluster['brokers'])} brokers, {counted}; "
            f"the active controller is {cluster['controller_id']}\n"
        )
    sections: list[tuple[str, Sequence[dict[str, Any]]]] = [
        ("brokers", _brokers(cluster, partitions, state.answers)),
        ("controllers", _quorum(state.quorum or {})),
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
        print(f"no answer from {who}: what the metadata says of it is out of date", file=sys.stderr)
    if state.unknown:
        print(
            f"not known: {', '.join(state.unknown)} (nobody answered within {_DESCRIBE_S:.0f} s)",
            file=sys.stderr,
        )
    return EXIT_FAILED if state.unknown else EXIT_DONE


def _brokers(
    cluster: dict[str, Any],
    partitions: dict[Place, dict[str, Any]],
    answers: Mapping[int, bool],
) -> list[dict[str, Any]]:
    leads = Counter(each["leader_id"] for each in partitions.values())
    has = Counter(node for each in partitions.values() for node in each["replica_nodes"])
    in_sync = Counter(node for each in partitions.values() for node in each["isr_nodes"])
    running = {each["broker_id"]: each for each in cluster["brokers"]}
    rows = []
    for broker_id in sorted(running.keys() | has.keys()):
        broker = running.get(broker_id)
        rows.append(
            {
                "broker": broker_id,
                "address": None if broker is None else f"{broker['host']}:{broker['port']}",
                "rack": None if broker is None else broker["rack"],
                "running": broker is not None,
                "answers": answers.get(broker_id, False),
                "leads": leads[broker_id],
                "replicas": has[broker_id],
                "in_sync": in_sync[broker_id],
            }
        )
    return rows


def _quorum(log: Mapping[str, Any]) -> list[dict[str, Any]]:
    now_ms = time.time() * 1000
    rows = []
    for kind in ("current_voters", "observers"):
        for each in log.get(kind, ()):
            leads = each["replica_id"] == log["leader_id"]
            role = "observer" if kind == "observers" else "active" if leads else "voter"
            fetched = each["last_fetch_timestamp"]
            rows.append(
                {
                    "controller": each["replica_id"],
                    "role": role,
                    "epoch": log["leader_epoch"],
                    "end_offset": each["log_end_offset"],
                    "behind": max(0, log["high_watermark"] - each["log_end_offset"]),
                    "seen_ms_ago": None if leads or fetched < 0 else int(now_ms - fetched),
                }
            )
    return rows


def _ids(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))


# ------------------------------------------------------------------------------------------- elect


def _elect(admin: KafkaAdminClient, arguments: argparse.Namespace) -> int:
    if arguments.unclean and not arguments.place:
        raise CommandError("--unclean gives up records: name the partitions")
    asked: dict[str, list[int]] | None = None
    if arguments.place:
        asked = {}
        for topic, index in _find(arguments.place, partitions_of(admin)):
            asked.setdefault(topic, []).append(index)
    kind = _UNCLEAN if arguments.unclean else _PREFERRED
    response = admin.elect_leaders(kind, asked, raise_errors=False)
    rows = [
        {
            "topic": topic.topic,
            "partition": each.partition_id,
            "elected": each.error_code == 0,
            "reason": None if each.error_code == 0 else each.error_message,
        }
        for topic in response.replica_election_results
        for each in topic.partition_result
        if asked is not None or each.error_code != _ELECTION_NOT_NEEDED
    ]
    if not rows:
        say([], "every partition is led by its preferred replica", as_json=arguments.json)
        return EXIT_DONE
    print_rows(rows, as_json=arguments.json)
    needed = [row for row in rows if not row["elected"]]
    unmet = [row for row in needed if row["reason"] and "already" not in str(row["reason"])]
    return EXIT_FAILED if unmet else EXIT_DONE


def _find(words: Sequence[str], partitions: dict[Place, dict[str, Any]]) -> list[Place]:
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


def _reassign(admin: KafkaAdminClient, arguments: argparse.Namespace) -> int:
    if arguments.list:
        _list(admin, arguments)
        return EXIT_DONE
    if arguments.throttle is not None and (arguments.throttle <= 0 or not arguments.wait):
        raise CommandError("--throttle BYTES is more than 0, and is taken back after --wait")
    partitions = partitions_of(admin)
    if arguments.cancel:
        moves: dict[Place, list[int] | None] = dict.fromkeys(
            _find(arguments.place, partitions) or _moving(admin)
        )
    else:
        wished = _moves(arguments, partitions)
        _check_brokers(admin, wished, partitions)
        moves = dict(wished)
    rows = [
        {
            "topic": topic,
            "partition": index,
            "from": _ids(partitions[topic, index]["replica_nodes"]),
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
        place: (partitions[place]["replica_nodes"], replicas)
        for place, replicas in moves.items()
        if replicas is not None
    }
    with throttled(admin, wanted, arguments.throttle):
        return _move(admin, arguments, moves, rows)


def _move(
    admin: KafkaAdminClient,
    arguments: argparse.Namespace,
    moves: dict[Place, list[int] | None],
    rows: list[dict[str, Any]],
) -> int:
    answers = admin.alter_partition_reassignments(
        {TopicPartition(*place): replicas for place, replicas in moves.items()}
    )
    failed = False
    for row in rows:
        error = answers.get(TopicPartition(row["topic"], row["partition"]))
        row["refused"] = None if error is None else error.__name__
        failed = failed or error is not None
    print_rows(rows, as_json=arguments.json)
    if arguments.wait and not arguments.cancel:
        _wait(admin, len(moves))
    return EXIT_FAILED if failed else EXIT_DONE


def _moving(admin: KafkaAdminClient) -> list[Place]:
    return [(each.topic, each.partition) for each in admin.list_partition_reassignments()]


def _list(admin: KafkaAdminClient, arguments: argparse.Namespace) -> None:
    rows = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "replicas": _ids(each["replicas"]),
            "adding": _ids(each["adding_replicas"]),
            "removing": _ids(each["removing_replicas"]),
        }
        for place, each in sorted(admin.list_partition_reassignments().items())
    ]
    if rows:
        print_rows(rows, as_json=arguments.json)
    else:
        say([], "nothing is being moved", as_json=arguments.json)


def _check_brokers(
    admin: KafkaAdminClient,
    moves: Mapping[Place, Sequence[int]],
    partitions: Mapping[Place, Mapping[str, Any]],
) -> None:
    """Raise CommandError unless each replica is on a known broker, and no two on the same."""
    running = {each["broker_id"] for each in admin.describe_cluster()["brokers"]}
    known = running.union(*(each["replica_nodes"] for each in partitions.values()))
    for (topic, index), replicas in moves.items():
        unknown = sorted(set(replicas) - known)
        if unknown:
            raise CommandError(
                f"{topic}:{index}: there is no broker {_ids(unknown)}; running are "
                f"{_ids(sorted(running))}"
            )
        if len(set(replicas)) < len(replicas):
            raise CommandError(f"{topic}:{index}: {_ids(replicas)} names a broker twice")


def _moves(
    arguments: argparse.Namespace, partitions: dict[Place, dict[str, Any]]
) -> dict[Place, list[int]]:
    named = [word for word in arguments.place if "=" in word]
    if named and arguments.brokers:
        raise CommandError("either TOPIC:PARTITION=ID,... or --brokers")
    if arguments.brokers:
        places = _find(arguments.place, partitions) if arguments.place else list(partitions)
        present = {place: list(partitions[place]["replica_nodes"]) for place in places}
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


def _wait(admin: KafkaAdminClient, count: int) -> None:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task("moving", total=count)
        while True:
            left = len(admin.list_partition_reassignments())
            progress.update(task, completed=max(0, count - left))
            if not left:
                return
            time.sleep(_POLL_S)
