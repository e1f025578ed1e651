"""A run of one seed: brokers, clients and faults; then a time without faults and final checks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from broker_core.server.partitions.replicated_partition import ReplicatedPartition
from broker_core.server.runtime import Broker
from tests.simulation.joined.admin import PARTITIONS, Admin
from tests.simulation.joined.brokers import Node, properties
from tests.simulation.joined.checker import Checker, Violation, compare_logs
from tests.simulation.joined.client import Client
from tests.simulation.joined.consumers import (
    ClassicMember,
    ConsumerMember,
    Reader,
    committed_offset,
)
from tests.simulation.joined.machine import Machine
from tests.simulation.joined.producers import Producer, TransactionalProducer
from tests.simulation.joined.share_members import ShareMember
from tests.simulation.joined.sockets import Network, Weather
from tests.simulation.joined.world import SimulatedLoop, World

CHAOS_S = (1.5, 2.5, 5.0)
RECOVERY_S = 60.0


class _Log(logging.Handler):
    """Copies the brokers' log to the history; an exception logged by a broker is an error."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        from asyncio import events

        loop = events._get_running_loop()
        name = loop.name if isinstance(loop, SimulatedLoop) else "?"
        if isinstance(loop, SimulatedLoop) and loop.is_over:
            return
        if record.exc_info is not None:
            text = logging.Formatter().formatException(record.exc_info)
            self._world.errors.append(f"{name}: {record.getMessage()}\n{text}")
        self._world.note(f"{name} {record.levelname.lower()}: {record.getMessage()}")


class Platform:
    """A simulated platform of one seed; see the module."""

    def __init__(
        self,
        seed: int,
        *,
        is_verbose: bool = False,
        chaos_s_max: float = max(CHAOS_S),
        has_share_group: bool = False,
        brokers: int | None = None,
    ) -> None:
        """`brokers` is their number; None lets the seed decide."""
        self.seed = seed
        self._has_share_group = has_share_group
        self._chaos_s_max = chaos_s_max
        self.world = world = World(seed)
        self.network = Network(world)
        self.checker = Checker()
        self.is_verbose = is_verbose
        chance = world.random
        #: True if brokers acknowledge only what all in-sync replicas have synced to disk.
        self.flushes = chance.random() < 0.5 or brokers == 1
        drawn = 5 if chance.random() < 0.2 else 3
        count = brokers or drawn
        self.nodes = [
            Node(
                world,
                self.network,
                properties(world, node_id, count, flushes=self.flushes),
            )
            for node_id in range(1, count + 1)
        ]
        self.clients = self._make_clients()
        self._machines: dict[int, Machine] = {}
        world.after_step = self._after_step
        kinds: list[Callable[[Node], None]] = [
            self._kill,
            self._stop,
            self._pause,
            self._cut,
            self._isolate,
            self._weather,
            self._heal,
            self._break,
            self._clock,
            self._slow,
            self._client_fault,
        ]
        if self.flushes:
            kinds += [self._power, self._power_within, self._full, self._sync_fails]
        else:
            # Acknowledged records are in the memory of all in-sync replicas: one may lose them.
            self._victim = chance.choice(self.nodes)
            kinds += [self._power_of_one]
        # Not every kind of fault in every run: some bugs need many faults of one kind.
        self._kinds = chance.sample(kinds, chance.randint(2, len(kinds)))
        self._faults_per_s = chance.choice((0.5, 1.5, 4.0))

    def _make_clients(self) -> list[Client]:
        brokers = {each.node_id: each.endpoint for each in self.nodes}
        world, network, checker = self.world, self.network, self.checker
        clients: list[Client] = [Admin(world, network, checker, brokers, "admin")]
        for index in range(PARTITIONS):
            producer = Producer(world, network, checker, brokers, f"p{index}")
            producer.place = "data", index
            clients.append(producer)
        clients.append(TransactionalProducer(world, network, checker, brokers, "tx"))
        for number in range(2):
            reader = Reader(world, network, checker, brokers, f"r{number}")
            reader.reads_committed = number == 1
            clients.append(reader)
        kind = world.random.choice((ClassicMember, ConsumerMember))
        for number in range(2):
            clients.append(kind(world, network, checker, brokers, f"m{number}"))
        if self._has_share_group:
            for number in range(2):
                clients.append(ShareMember(world, network, checker, brokers, f"s{number}"))
        return clients

    def _after_step(self, loop: SimulatedLoop) -> None:
        if self.world.errors:
            raise Violation(self.world.errors[0])
        if loop.is_over:
            for node in self.nodes:
                if node.machine.loop is loop:
                    node.machine.after_step()

    # ----------------------------------------------------------------------------------------- life

    def run(self) -> Counter[str]:
        """Run the simulation; return counters of what happened. Raises Violation."""
        logger = logging.getLogger("broker_core")
        handler = _Log(self.world)
        level, logger.propagate = logger.level, False
        logger.addHandler(handler)
        logger.setLevel(logging.INFO if self.is_verbose else logging.ERROR)
        try:
            self._run()
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = True
            for machine in self.machines:
                machine.bury()
        return self.world.faults

    @property
    def machines(self) -> list[Machine]:
        """All machines."""
        return [each.machine for each in self.nodes] + [each.machine for each in self.clients]

    def _run(self) -> None:
        world = self.world
        for machine in self.machines:
            machine.start()
        world.run_until(0.5)
        end = min(world.random.choice(CHAOS_S), self._chaos_s_max)
        while world.now < end:
            world.run_until(world.now + world.random.expovariate(self._faults_per_s))
            world.random.choice(self._kinds)(world.random.choice(self.nodes))
        self._end_of_faults()
        for client in self.clients:
            client.is_stopping = True
        deadline = world.now + RECOVERY_S
        while (missing := self._missing()) is not None:
            if world.now > deadline:
                raise Violation(f"no progress {RECOVERY_S:.0f} s after the last fault: {missing}")
            world.run_until(world.now + 0.25)
        world.note("everything is as it should be")
        self.checker.finish(self._ends())
        compare_logs(self._brokers())
        self._check_copied()

    def _end_of_faults(self) -> None:
        self.world.note("--- no faults any more")
        self.network.heal()
        for machine in self.machines:
            machine.slow_s = 0.0
            machine.disk.room = None
            machine.disk.sync_fails = False
            machine.disk.steps_left = None
            if machine.loop is not None and machine.loop.stalled is not None:
                machine.loop.go_on()
            machine.start()

    def _brokers(self) -> list[Broker]:
        return [each.broker for each in self.nodes if each.broker is not None]

    def _ends(self) -> dict[tuple[str, int], int]:
        ends = {}
        for broker in self._brokers():
            for index in range(PARTITIONS):
                partition = broker.topics.partition("data", index)
                if isinstance(partition, ReplicatedPartition) and partition.is_led:
                    ends["data", index] = partition.log.log_end_offset
        return ends

    def _missing(self) -> str | None:
        """Return what has not settled yet, None if everything has."""
        if len(self._brokers()) < len(self.nodes):
            return "not all brokers serve"
        for client in self.clients:
            finishes = isinstance(client, Admin | Producer | TransactionalProducer)
            if finishes and not client.is_done:
                return f"{client.name} has not ended"
        for broker in self._brokers():
            for partition in broker.topics.partitions():
                assert isinstance(partition, ReplicatedPartition)
                image = partition.image
                if len(image.isr) < len(image.replicas) or image.is_reassigning:
                    return f"{partition} at broker {broker.node_id}: {image}"
                if partition.high_watermark != partition.log.log_end_offset:
                    return f"{partition} at broker {broker.node_id} is behind"
        ends = self._ends()
        if len(ends) < PARTITIONS:
            return "a partition has no leader"
        for client in self.clients:
            if isinstance(client, Reader):
                for place, end in ends.items():
                    if client.positions.get(place, 0) < end:
                        return f"{client.name} has read {client.positions} of {ends}"
            elif isinstance(client, ClassicMember | ConsumerMember):
                for place, end in ends.items():
                    if self.checker.promised(client.group, place) < end:
                        return f"{client.group} has not committed {place} up to {end}"
            elif isinstance(client, ShareMember):
                left = self.checker.not_shared(client.group)
                if left:
                    return f"nobody of {client.group} was given {left[:5]}"
        return None

    def _check_copied(self) -> None:
        """Check the offset that transactions have committed."""
        admin = self.clients[0]
        found: list[int] = []

        async def look() -> None:
            while not found:
                offset = await committed_offset(admin, "copies", ("data", 0))
                if offset is None:
                    await admin.pause(0.1)
                else:
                    found.append(offset)

        assert admin.machine.loop is not None
        admin.machine.loop.create_task(look())
        deadline = self.world.now + RECOVERY_S
        while not found:
            if self.world.now > deadline:
                raise Violation("nobody says what the transactions' group has committed")
            self.world.run_until(self.world.now + 0.05)
        self.checker.check_copied(found[0])

    # --------------------------------------------------------------------------------------- faults

    def _fault(self, name: str, what: object = "") -> None:
        self.world.faults[name] += 1
        self.world.note(f"*** {name} {what}")

    def _later(self, action: Callable[[], object]) -> None:
        self.world.after(self.world.random.expovariate(1.0), action)

    def _kill(self, node: Node) -> None:
        if node.machine.is_running:
            self._fault("kill", node.machine)
            node.machine.kill(power=False)

    def _stop(self, node: Node) -> None:
        if node.machine.stop is not None:
            self._fault("stop", node.machine)
            node.machine.stop()

    def _power(self, node: Node) -> None:
        if node.machine.is_running:
            self._fault("power cut", node.machine)
            node.machine.kill(power=True, rots=self.world.random.random() < 0.2)

    def _power_of_one(self, node: Node) -> None:
        victim = self._victim
        others = {each.node_id for each in self.nodes if each.broker is not None} - {victim.node_id}
        for broker in self._brokers():
            for partition in broker.topics.partitions():
                assert isinstance(partition, ReplicatedPartition)
                in_sync = set(partition.image.isr)
                if victim.node_id in in_sync and not in_sync & others:
                    return
                if partition.leader_proposal is not None:
                    return
        if victim.broker is not None:
            self._power(victim)

    def _power_within(self, node: Node) -> None:
        node.machine.disk.steps_left = self.world.random.randrange(40)

    def _pause(self, node: Node) -> None:
        loop = node.machine.loop
        if loop is not None:
            self._fault("pause", node.machine)
            loop.stall()
            self._later(lambda: loop.go_on() if loop.stalled is not None else None)

    def _cut(self, node: Node) -> None:
        other = self.world.random.choice(self.machines)
        if other is not node.machine:
            self._fault("one-way cut", f"{node.machine} to {other}")
            self.network.cut(node.machine.name, other.name)

    def _isolate(self, node: Node) -> None:
        self._fault("isolated", node.machine)
        for other in self.machines:
            self.network.cut(node.machine.name, other.name)
            self.network.cut(other.name, node.machine.name)
        self._later(self.network.heal)

    def _heal(self, node: Node) -> None:
        self.world.note("the network is healed")
        self.network.heal()

    def _weather(self, node: Node) -> None:
        chance = self.world.random
        self._fault("weather")
        self.network.weather = Weather(
            delay_max=chance.choice((0.002, 0.02, 0.1)),
            lost=chance.choice((0.0, 0.02, 0.1)),
            slow=chance.choice((0.0, 0.05)),
            broken=chance.choice((0.0, 0.01, 0.05)),
            split=chance.choice((0.0, 0.1)),
        )

    def _break(self, node: Node) -> None:
        ends = [each for each in self.network.ends if each.local[0] == node.machine.name]
        for end in ends:
            if self.world.random.random() < 0.5 and not end.peer_is_gone:
                self._fault("connection broken")
                end.break_()

    def _clock(self, node: Node) -> None:
        self._fault("wall clock jumps", node.machine)
        node.machine.clock.skew_ms = self.world.random.choice((-3_000_000, -5_000, 0, 3_000_000))

    def _slow(self, node: Node) -> None:
        self._fault("slow disk", node.machine)
        machine = node.machine
        machine.slow_s = self.world.random.choice((0.05, 0.5))

        def end() -> None:
            machine.slow_s = 0.0

        self._later(end)

    def _full(self, node: Node) -> None:
        self._fault("disk full", node.machine)
        machine = node.machine
        machine.disk.room = self.world.random.choice((0, 500))

        def end() -> None:
            machine.disk.room = None

        self._later(end)

    def _sync_fails(self, node: Node) -> None:
        if node.machine.is_running:
            self._fault("sync fails", node.machine)
            node.machine.fail_syncs()

    def _client_fault(self, node: Node) -> None:
        client = self.world.random.choice(self.clients)
        other = self.world.random.choice(self.nodes).machine
        self._fault("client cut off", f"{client.name} from {other}")
        self.network.cut(client.machine.name, other.name)
        if self.world.random.random() < 0.5:
            self.network.cut(other.name, client.machine.name)
