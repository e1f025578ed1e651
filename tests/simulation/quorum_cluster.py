"""A quorum on simulated time, network and disks, with the faults that a seed selects."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from broker_core.environment import Environment, SystemClock
from broker_core.quorum.entries import ReplicaKey, Voters
from broker_core.quorum.file_store import FileElectionStore, FileMetadataLog
from broker_core.quorum.leader import VoterChangeRefused
from broker_core.quorum.messages import Answer, FetchAnswer, FetchRequest, Outgoing, Request
from broker_core.quorum.replica import NotLeader, QuorumReplica
from broker_core.quorum.settings import QuorumSettings
from tests.simulation.network import Network, Weather
from tests.simulation.quorum_checker import Checker, Violation, digest_of
from tests.simulation.scheduler import Scheduler
from tests.simulation.simulated_disk import PowerCut, SimulatedDisk

SETTINGS = QuorumSettings(fetch_entries_max=8, snapshot_chunk_bytes=3)
FETCH_WAIT_S = 0.5
RECOVERY_S = 60.0
FAULT_KINDS = 11
_DIRECTORY = Path("/metadata")

ReplicaType = Callable[..., QuorumReplica]


class Node:
    """A process with its disk. It runs, is paused, or is down."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.known = 0
        self.disk = SimulatedDisk(cluster.random)
        self.directory = 0
        self.replica: QuorumReplica | None = None
        self.paused: list[Callable[[], None]] | None = None
        self.clock_rate = 1.0
        self._incarnation = 0
        self._applied = (0, b"")
        self._installed = 0
        self._waiting: list[tuple[FetchRequest, Callable[[Answer], None]]] = []
        self._ticks_at = float("inf")

    @property
    def key(self) -> ReplicaKey:
        """The identity of the node with its present disk."""
        return ReplicaKey(self.node_id, f"disk-{self.node_id}-{self.directory}")

    def clock(self) -> float:
        """Return this node's monotonic time, which has any start and runs too fast or too slow."""
        return 1000.0 * self.node_id + self.cluster.scheduler.now * self.clock_rate

    def start(self) -> None:
        """Start the process."""
        self._incarnation += 1
        self.known, self._waiting = 0, []
        self._ticks_at = float("inf")
        try:
            self.replica = self._open()
        except PowerCut:
            self._power_cut()
            return
        snapshot = self.replica.log.snapshot
        self._installed = 0 if snapshot is None else snapshot.end_offset
        self._applied = (0, b"") if snapshot is None else (snapshot.end_offset, snapshot.data)
        self.run(lambda: None)

    def _open(self) -> QuorumReplica:
        environment = Environment(SystemClock(), self.disk)
        return self.cluster.replica_type(
            self.key,
            FileMetadataLog(_DIRECTORY, environment, is_only_voter=False),
            FileElectionStore(_DIRECTORY, environment, is_only_voter=False),
            self.cluster.bootstrap,
            SETTINGS,
            self.cluster.random,
            self.clock(),
        )

    def crash(self) -> None:
        """Cut the power."""
        self.disk.power_cut()
        self.replica = None
        self.paused = None
        self._waiting = []

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self.crash()
        self.directory += 1
        self.disk = SimulatedDisk(self.cluster.random)

    def resume(self) -> None:
        """Resume from a pause; events that came meanwhile are handled now."""
        if self.paused is None:
            return
        missed, self.paused = self.paused, None
        for action in missed:
            self.run(action)

    def run(self, action: Callable[[], None]) -> None:
        """Run an action in the process, if it is up; afterwards check its state."""
        if self.paused is not None:
            self.paused.append(action)
            return
        if self.replica is None:
            return
        try:
            action()
            for outgoing in self.replica.take_outgoing():
                self._send(outgoing)
            self._after_event(self.replica)
        except PowerCut:
            self._power_cut()

    def _power_cut(self) -> None:
        self.cluster.faults["power cut within a disk step"] += 1
        self.crash()
        self.cluster.scheduler.after(self.cluster.random.random() * 5, self.cluster.start(self))

    def _after_event(self, replica: QuorumReplica) -> None:
        self.known = self.cluster.checker.observe(replica, self.known)
        self.apply(replica)
        for request, answer in self._waiting[:]:
            if replica.has_news(request):
                self._waiting.remove((request, answer))
                answer(replica.handle(request, self.clock()))
        deadline = self.next_deadline(replica)
        wait = max(0.0, (deadline - self.clock()) / self.clock_rate)
        time = self.cluster.scheduler.now + min(wait + 1e-6, 1.0)
        if time < self._ticks_at:
            self._ticks_at = time
            self.cluster.scheduler.at(time, partial(self._tick, self._incarnation, time))

    def next_deadline(self, replica: QuorumReplica) -> float:
        """Return the time at which the process has something to do."""
        return replica.next_deadline()

    def _tick(self, incarnation: int, time: float) -> None:
        if incarnation == self._incarnation and time == self._ticks_at:
            self._ticks_at = float("inf")
            self.run(self.tick)

    def tick(self) -> None:
        """Handle the deadline."""
        if self.replica is not None:
            self.replica.tick(self.clock())

    def apply(self, replica: QuorumReplica) -> None:
        """Apply newly committed entries."""
        snapshot = replica.log.snapshot
        if snapshot is not None and snapshot.end_offset > self._installed:
            self.cluster.checker.snapshot_is(snapshot.end_offset, snapshot.data)
            self._installed = snapshot.end_offset
            if snapshot.end_offset > self._applied[0]:
                self._applied = (snapshot.end_offset, snapshot.data)
        offset, state = self._applied
        for entry in replica.log.read(offset, max(0, self.known - offset)):
            state = digest_of(state, entry)
            offset += 1
        self._applied = (offset, state)

    def take_snapshot(self) -> None:
        """Replace the applied entries by a snapshot."""
        if self.replica is not None and self._applied[0] > self.replica.log.start_offset:
            self.replica.take_snapshot(*self._applied)
            self.cluster.faults["snapshot"] += 1

    # Requests

    def _send(self, outgoing: Outgoing) -> None:
        receiver = self.cluster.nodes[outgoing.node_id]
        answer = partial(self._answered, self._incarnation, outgoing.request, receiver.node_id)
        self.cluster.network.send(
            self.node_id,
            receiver.node_id,
            lambda: receiver.run(lambda: receiver.receive(outgoing.request, answer)),
        )

    def receive(self, request: Request, answer: Callable[[Answer], None]) -> None:
        """Handle a request; a fetch without news waits, as in a long poll."""
        replica = self.replica
        if replica is None:
            return
        first = replica.handle(request, self.clock())
        if isinstance(request, FetchRequest) and isinstance(first, FetchAnswer):
            quiet = first.diverging is None and first.snapshot is None and not first.entries
            if quiet and not replica.has_news(request):
                waiting = (request, answer)
                self._waiting.append(waiting)
                self.cluster.scheduler.after(FETCH_WAIT_S, partial(self._wait_over, waiting))
                return
        answer(first)

    def _wait_over(self, waiting: tuple[FetchRequest, Callable[[Answer], None]]) -> None:
        def over() -> None:
            if waiting in self._waiting and self.replica is not None:
                self._waiting.remove(waiting)
                waiting[1](self.replica.handle(waiting[0], self.clock()))

        self.run(over)

    def _answered(self, incarnation: int, request: Request, source: int, answer: Answer) -> None:
        def arrive() -> None:
            if incarnation == self._incarnation and self.replica is not None:
                self.replica.on_answer(request, answer, self.clock())

        self.cluster.network.send(source, self.node_id, lambda: self.run(arrive))


class Cluster:
    """Five nodes, three of them voters; a client that appends; faults that a seed selects."""

    def __init__(self, seed: int, replica_type: ReplicaType = QuorumReplica) -> None:
        self.random = random.Random(seed)
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, self.random)
        self.checker = self.make_checker()
        self.replica_type = replica_type
        self.faults: Counter[str] = Counter()
        self.nodes = {node_id: self.make_node(node_id) for node_id in range(5)}
        self.bootstrap: Voters = frozenset(self.nodes[number].key for number in range(3))
        self._values = 0
        self._pending: list[tuple[Node, int, int, bytes]] = []
        self._lost_disk = False
        # Not every kind of fault in every run: some bugs need many of one kind, and no others.
        kinds = range(FAULT_KINDS)
        self.kinds = self.random.sample(kinds, self.random.randint(2, len(kinds)))
        self._faults_per_s = self.random.choice([0.3, 1.0, 3.0])
        self._appends_per_s = self.random.choice([2.0, 20.0])
        for node in self.nodes.values():
            node.clock_rate = self.random.uniform(0.9, 1.1)
            node.start()

    def make_checker(self) -> Checker:
        """Return the checker."""
        return Checker()

    def make_node(self, node_id: int) -> Node:
        """Return a new node."""
        return Node(self, node_id)

    def start(self, node: Node) -> Callable[[], None]:
        """Return an action that starts a node if it is down."""
        return lambda: node.start() if node.replica is None else None

    def run(self, chaos_s: float) -> None:
        """Run for some time with faults, then without; raises Violation."""
        self.begin()
        end = chaos_s
        while self.scheduler.now < end:
            self.scheduler.run_until(
                self.scheduler.now + self.random.expovariate(self._faults_per_s)
            )
            self._fault()
        self._heal()
        self.recover()

    # The client

    def begin(self) -> None:
        """Start the clients."""
        self._append_again()

    def _append_again(self) -> None:
        for node in self.nodes.values():
            if node.replica is not None and node.replica.is_leader and node.paused is None:
                node.run(partial(self._append, node))
        self._acknowledge()
        self.scheduler.after(self.random.expovariate(self._appends_per_s), self._append_again)

    def _append(self, node: Node) -> None:
        assert node.replica is not None
        self._values += 1
        value = b"%d" % self._values
        try:
            offset = node.replica.append([value])
        except NotLeader:
            return
        self._pending.append((node, node.replica.epoch, offset, value))

    def _acknowledge(self) -> None:
        still = []
        for node, epoch, offset, value in self._pending:
            replica = node.replica
            if replica is None or not replica.is_leader or replica.epoch != epoch:
                continue
            if (replica.high_watermark or 0) > offset:
                self.checker.acknowledge(offset, value)
            else:
                still.append((node, epoch, offset, value))
        self._pending = still

    # Faults

    def _fault(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        later = self.random.expovariate(0.3)
        match self.random.choice(self.kinds):
            case 0:
                self.faults["crash"] += 1
                node.crash()
                self._break_connections(node)
                self.scheduler.after(later, self.start(node))
            case 1:
                node.disk.steps_left = self.random.randint(0, 30)
            case 2:
                if node.paused is None and node.replica is not None:
                    self.faults["pause"] += 1
                    node.paused = []
                    self.scheduler.after(later, node.resume)
            case 3:
                self.faults["cut"] += 1
                other = self.random.choice(list(self.nodes))
                self.network.cut(node.node_id, other)
            case 4:
                self.faults["isolated"] += 1
                for other in self.nodes:
                    self.network.cut(node.node_id, other)
                    self.network.cut(other, node.node_id)
            case 5:
                self.network.heal()
            case 6:
                self.faults["weather"] += 1
                self.network.weather = Weather(
                    delay_max=self.random.choice([0.005, 0.1, 0.5]),
                    lost=self.random.choice([0.0, 0.05, 0.3]),
                    doubled=self.random.choice([0.0, 0.1]),
                    slow=self.random.choice([0.0, 0.1, 0.3]),
                )
            case 7:
                node.run(node.take_snapshot)
            case 8:
                self._change_voters()
            case 9:
                self._rare_fault(node)
            case 10:
                self.faults["all paused"] += 1
                paused = self.random.uniform(0.5, 10.0)
                for each in self.nodes.values():
                    if each.paused is None and each.replica is not None:
                        each.paused = []
                        self.scheduler.after(paused, each.resume)

    def _break_connections(self, node: Node) -> None:
        """Disconnect most followers of a node; to the others the connection seems to be open."""
        for other in self.nodes.values():
            if other.replica is not None and self.random.random() < 0.8:
                other.run(partial(self._disconnected, other, node.node_id))

    def _disconnected(self, node: Node, leader_id: int) -> None:
        if node.replica is not None and node.replica.leader_id == leader_id:
            node.replica.leader_disconnected(node.clock())

    def _rare_fault(self, node: Node) -> None:
        match self.random.randrange(3):
            case 0:
                # One disk a run: a majority of the voters keeps acknowledged values.
                if not self._lost_disk and not self.faults["voters changed"]:
                    self._lost_disk = True
                    self.faults["disk replaced"] += 1
                    node.wipe()
                    node.start()
            case 1:
                if node.replica is not None and node.replica.is_leader:
                    self.faults["resigned"] += 1
                    replica = node.replica
                    node.run(lambda: replica.resign(node.clock()))
            case 2:
                self.faults["clock rate"] += 1
                rate = self.random.uniform(0.8, 1.25)
                # Never slower than before, since the node's time must not go back.
                node.clock_rate = max(rate, node.clock_rate)

    def _change_voters(self) -> None:
        if self._lost_disk:
            return
        for node in self.nodes.values():
            replica = node.replica
            if replica is None or not replica.is_leader or node.paused is not None:
                continue
            other = self.random.choice(list(self.nodes.values())).key
            voters = replica.voters ^ {other}
            if len(voters) >= 2:

                def change(replica: QuorumReplica = replica, voters: Voters = voters) -> None:
                    try:
                        replica.change_voters(voters)
                        self.faults["voters changed"] += 1
                    except (NotLeader, VoterChangeRefused):
                        pass

                node.run(change)

    # The end

    def _heal(self) -> None:
        self.network.heal()
        for node in self.nodes.values():
            node.disk.steps_left = None
            if node.paused is not None:
                node.resume()
            if node.replica is None:
                node.start()

    def recover(self) -> None:
        """Wait after the last fault until values are committed and all nodes have them."""
        acknowledged = len(self.checker.acknowledged)
        deadline = self.scheduler.now + RECOVERY_S
        while len(self.checker.acknowledged) < acknowledged + 10:
            if self.scheduler.now > deadline:
                raise Violation(f"nothing is acknowledged {RECOVERY_S} s after the last fault")
            self.scheduler.run_until(self.scheduler.now + 0.5)
        self._append_again = lambda: None  # type: ignore[method-assign]
        self.scheduler.run_until(self.scheduler.now + 3.0)
        running = [node.replica for node in self.nodes.values() if node.replica is not None]
        while any(r.high_watermark != len(self.checker.committed) for r in running):
            if self.scheduler.now > deadline:
                break
            self.scheduler.run_until(self.scheduler.now + 0.5)
        self.checker.finish(running)
