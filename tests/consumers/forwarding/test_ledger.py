"""Nothing is lost, whatever happens in whatever order: a model of log, group and crashes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from consumers.connect.data.records import SinkRecord
from consumers.forwarding.ledger import Arrived, Ledger, RouteKey, ToStore
from consumers.forwarding.route import WAITING_MAX, Route
from waylog.forwarding.definition import Forwarding, Progress, changed
from waylog.forwarding.reach import LogState, Outcome, Reach, Stored

KEYS: tuple[RouteKey, ...] = (("anna", "1"), ("anna", "2"), ("bert", "1"))
PARTITIONS = (0, 1)
#: A time after that of all records, which is their offset.
LATE = 1_000_000


def forwarding(**members: object) -> Forwarding:
    """Return one for device `phone`."""
    values = {"name": "x", "kind": "webhook", "url": "https://x", "created": 0, "since": 0}
    return Forwarding(**(values | {"devices": ("phone",)} | members))  # type: ignore[arg-type]


def record_of(partition: int, offset: int, device: str) -> SinkRecord:
    return SinkRecord(
        topic="location",
        partition=partition,
        key=device,
        value=b"{}",
        timestamp=offset,
        offset=offset,
        original_topic="location",
        original_partition=partition,
        original_offset=offset,
    )


class Written(NamedTuple):
    """A transaction: what it has, and under which generation of the group."""

    generation: int
    offsets: dict[int, int]
    progress: list[ToStore]


class World(RuleBasedStateMachine):
    """A log, what it has of the group and of progress, and a worker that may die at any moment.

    What a worker has on its way when it loses its partitions may come to the log at any later time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: dict[int, list[str]] = {each: [] for each in PARTITIONS}  # devices
        self.committed = dict.fromkeys(PARTITIONS, 0)
        # In the first partition all are live, in the second one they have just been made.
        self.progress: dict[tuple[RouteKey, int], Progress] = {
            (key, 0): Progress(offset=0, live=True) for key in KEYS
        }
        self.forwarded: dict[RouteKey, set[tuple[int, int]]] = {key: set() for key in KEYS}
        self.definitions = {key: forwarding(settled=0) for key in KEYS}
        #: The same by server, which is named by when it became the one.
        self.sent_to: dict[tuple[RouteKey, int | None], set[tuple[int, int]]] = defaultdict(set)
        self.changes = 0
        self.paused: set[RouteKey] = set()
        self.now = 0.0
        self.generation = 0
        #: What is on its way to the log: of the worker, and of those before it.
        self.open: Written | None = None
        #: Of the worker, which was not told what has become of it, but before it writes again.
        self.undecided: Written | None = None
        self.late: list[Written] = []
        self.begin()

    # ---- the worker's life ----

    def begin(self) -> None:
        self.lose()
        self.ledger = Ledger()
        self.in_flight: list[tuple[Route, Sequence[SinkRecord], int | None]] = []
        for key, each in self.definitions.items():
            route = self.ledger.put(key, each)
            assert route is not None
            self.ledger.pause(route, is_paused=key in self.paused)
        for partition in PARTITIONS:
            known = {key: each for (key, of), each in self.progress.items() if of == partition}
            end = len(self.log[partition])
            self.ledger.assign(partition, self.committed[partition], 0, end, known)

    def lose(self) -> None:
        """Have the group go on without what is on its way."""
        self.generation += 1
        self.late += [each for each in (self.open, self.undecided) if each is not None]
        self.open = self.undecided = None

    @rule()
    def crash(self) -> None:
        self.begin()

    @rule()
    def stop(self) -> None:
        self.write(PARTITIONS)
        self.is_stored()
        self.begin()

    @rule(partition=st.sampled_from(PARTITIONS), is_told=st.booleans(), is_late=st.booleans())
    def rebalance(self, partition: int, is_told: bool, is_late: bool) -> None:
        self.write((partition,))
        if is_told:
            self.is_stored()
        else:
            self.is_not_told()
            if not is_late:
                # The next owner of the partition waits for it.
                self.is_decided(True)
        self.lose()
        self.ledger.revoke(partition)
        known = {key: each for (key, of), each in self.progress.items() if of == partition}
        end = len(self.log[partition])
        self.ledger.assign(partition, self.committed[partition], 0, end, known)

    # ---- records ----

    @rule(
        partition=st.sampled_from(PARTITIONS),
        device=st.sampled_from(["anna/phone", "bert/phone", "anna/watch", "eve/phone"]),
        count=st.sampled_from([1, 3, 50, WAITING_MAX]),
    )
    def append(self, partition: int, device: str, count: int) -> None:
        self.log[partition] += [device] * count

    def arrived(self, partition: int, start: int, end: int) -> list[Arrived]:
        found = []
        for offset in range(start, end):
            user, _, name = self.log[partition][offset].partition("/")
            record = record_of(partition, offset, f"{user}/{name}")
            found.append(Arrived(user, name, offset, record))
        return found

    @rule(partition=st.sampled_from(PARTITIONS), count=st.sampled_from([1, 7, 1000]))
    def read(self, partition: int, count: int) -> None:
        start = self.ledger.position(partition)
        assert start is not None
        end = min(start + count, len(self.log[partition]))
        self.ledger.take_live(partition, self.arrived(partition, start, end), end, self.now)

    @rule(partition=st.sampled_from(PARTITIONS), count=st.sampled_from([1, 7, 1000]))
    def read_again(self, partition: int, count: int) -> None:
        self.place()
        chosen = list(self.ledger.eligible(partition))
        if not chosen:
            return
        entry = chosen[0][1]
        self.ledger.had_turn(entry)
        start = entry.offset
        assert start is not None
        end = max(min(start + count, len(self.log[partition])), start)
        self.ledger.take_behind(
            *(partition, start, end, self.arrived(partition, start, end), chosen, self.now)
        )

    def place(self) -> None:
        for route, entry in list(self.ledger.unplaced()):
            entry.offset = min(route.forwarding.since, len(self.log[entry.partition]))

    # ---- sending ----

    @rule(data=st.data(), most=st.sampled_from([1, 5, 400]))
    def send(self, data: st.DataObject, most: int) -> None:
        waiting = [each for each in self.ledger.routes() if each.waiting_count]
        if waiting:
            route = data.draw(st.sampled_from(waiting))
            if not route.is_in_flight:
                route.is_in_flight = True
                self.in_flight.append((route, route.batch(most), route.forwarding.settled))

    @rule(is_whole=st.booleans())
    def answered(self, is_whole: bool) -> None:
        if not self.in_flight:
            return
        route, records, server = self.in_flight.pop(0)
        route.is_in_flight = False
        done = records if is_whole else records[::2]
        places = {(each.original_partition or 0, each.offset) for each in done}
        self.forwarded[route.user, route.id] |= places
        self.sent_to[(route.user, route.id), server] |= places
        self.ledger.done(route, done, self.now)

    @rule()
    def not_answered(self) -> None:
        if self.in_flight:
            self.in_flight.pop(0)[0].is_in_flight = False

    @rule()
    def give_up_waiting(self) -> None:
        self.now += 31
        self.ledger.give_up_waiting(self.now)

    @rule(most=st.sampled_from([5, 400]))
    def work(self, most: int) -> None:
        """Do all that a worker does, once."""
        for partition in PARTITIONS:
            self.read(partition, 1000)
            self.read_again(partition, 1000)
        for route in self.ledger.routes():
            if not route.is_in_flight:
                self.in_flight.append((route, route.batch(most), route.forwarding.settled))
                self.answered(True)
        self.keep(True)

    @rule(key=st.sampled_from(KEYS), is_paused=st.booleans())
    def pause(self, key: RouteKey, is_paused: bool) -> None:
        self.put(key, paused_by="anna" if is_paused else None)

    @rule(key=st.sampled_from(KEYS), devices=st.sampled_from([("phone",), ("phone", "watch")]))
    def change(self, key: RouteKey, devices: tuple[str, ...]) -> None:
        """Let it lead to another server, of some devices."""
        self.changes += 1
        # Later than any record: only what the worker says tells what went where.
        self.put(key, devices=devices, settled=LATE + self.changes)

    def put(self, key: RouteKey, **members: Any) -> None:
        self.definitions[key] = changed(self.definitions[key], **members)
        self.ledger.put(key, self.definitions[key])

    @rule(key=st.sampled_from(KEYS), is_paused=st.booleans())
    def pause_by_administrator(self, key: RouteKey, is_paused: bool) -> None:
        (self.paused.add if is_paused else self.paused.discard)(key)
        route = self.ledger.route(key)
        assert route is not None
        self.ledger.pause(route, is_paused=is_paused)

    # ---- what the log is told ----

    @rule(is_stored=st.booleans())
    def keep(self, is_stored: bool) -> None:
        self.write(())
        if is_stored:
            self.is_stored()

    def write(self, leaving: Sequence[int]) -> None:
        """Begin a transaction; what the one before it has become is known then."""
        self.is_stored()
        self.is_decided(True)
        offsets = self.ledger.commits()
        self.now += 3
        self.open = Written(self.generation, offsets, self.ledger.to_store(self.now, leaving))

    @rule()
    def is_stored(self) -> None:
        written, self.open = self.open, None
        if written is not None:
            assert self.take(written)
            for each in written.progress:
                self.ledger.stored(each, self.now)

    @rule()
    def is_not_told(self) -> None:
        """Let the worker not learn whether the log has it."""
        if self.open is not None:
            for each in self.open.progress:
                self.ledger.not_stored(each)
            self.open, self.undecided = None, self.open

    @rule(has_it=st.booleans())
    def is_decided(self, has_it: bool) -> None:
        written, self.undecided = self.undecided, None
        assert written is None or not has_it or self.take(written)

    @rule()
    def comes_late(self) -> None:
        if self.late:
            assert not self.take(self.late.pop())

    def take(self, written: Written) -> bool:
        """Take a transaction as the log does: as a whole, and of the group's generation only."""
        if written.generation != self.generation:
            return False
        self.committed.update(written.offsets)
        for each in written.progress:
            self.progress[(each.route.user, each.route.id), each.entry.partition] = each.progress
        return True

    # ---- what holds ----

    @invariant()
    def nothing_would_be_lost_by_a_crash_now(self) -> None:
        """What a new worker would not send again has been forwarded."""
        for key in KEYS:
            for partition, devices in self.log.items():
                stored = self.progress.get((key, partition))
                if stored is None:
                    continue  # it would be placed by its time
                begin = self.committed[partition] if stored.live else stored.offset
                wanted = {
                    (partition, offset)
                    for offset, device in enumerate(devices[:begin])
                    if device == f"{key[0]}/phone"
                }
                assert wanted <= self.forwarded[key]

    @invariant()
    def receipts_say_of_nothing_that_it_was_sent_that_was_not(self) -> None:
        """Nor that something waits which a new worker would not send."""
        log = LogState(
            dict.fromkeys(PARTITIONS, 0),
            {partition: len(devices) for partition, devices in self.log.items()},
            self.committed,
        )
        for key in KEYS:
            of_key = {of: each for (whose, of), each in self.progress.items() if whose == key}
            reach = Reach(*key, self.definitions[key], of_key, None, log)
            for partition, devices in self.log.items():
                sent = [
                    reach.forwards(device)
                    and reach.judge(Stored(partition, offset, offset)).outcome is Outcome.SENT
                    for offset, device in enumerate(devices)
                ]
                settled = self.definitions[key].settled
                for offset, is_sent in enumerate(sent):
                    if is_sent:
                        assert (partition, offset) in self.sent_to[key, settled]
                stored = of_key.get(partition)
                if stored is not None and settled in (0, stored.settled):
                    begin = self.committed[partition] if stored.live else stored.offset
                    assert all(
                        is_sent or not reach.forwards(device)
                        for is_sent, device in list(zip(sent, devices, strict=True))[
                            stored.settled_from : begin
                        ]
                    )

    @invariant()
    def what_waits_is_bounded(self) -> None:
        routes = list(self.ledger.routes())
        assert all(each.waiting_count <= WAITING_MAX for each in routes)
        assert self.ledger.waiting_bytes == sum(each.waiting_bytes for each in routes)
        assert all(
            each.waiting_count == sum(len(of.waiting) for of in each.entries.values())
            for each in routes
        )

    def teardown(self) -> None:
        """Everything comes in the end, once nothing fails any more."""
        for key in KEYS:
            self.pause(key, False)
            self.pause_by_administrator(key, False)
        for _ in range(200):
            for partition in PARTITIONS:
                self.read(partition, 1000)
                for _ in range(3):
                    self.read_again(partition, 1000)
            for route in self.ledger.routes():
                route.is_in_flight = False
                self.in_flight = [(route, route.batch(400), route.forwarding.settled)]
                self.answered(True)
            self.keep(True)
            if self.is_done():
                break
        assert self.is_done()
        assert all(each.live for each in self.progress.values())
        self.nothing_would_be_lost_by_a_crash_now()

    def is_done(self) -> bool:
        return (
            all(
                self.forwarded[key]
                >= {
                    (partition, offset)
                    for partition, devices in self.log.items()
                    for offset, device in enumerate(devices)
                    if device == f"{key[0]}/phone"
                }
                for key in KEYS
            )
            and len(self.progress) == len(KEYS) * len(PARTITIONS)
            and all(each.live for each in self.progress.values())
        )


World.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestWorld = World.TestCase


def test_what_was_sent_before_it_began_is_left_out() -> None:
    ledger = Ledger()
    ledger.put(("anna", "1"), forwarding(since=5))
    ledger.assign(0, 0, 0, 10, {("anna", "1"): Progress(offset=0, live=True)})
    arrived = [
        Arrived("anna", "phone", each, record_of(0, each, "anna/phone")) for each in range(10)
    ]
    ledger.take_live(0, arrived, 10, 0.0)
    (route,) = ledger.routes()
    assert [each.offset for each in route.batch(100)] == [5, 6, 7, 8, 9]


def test_an_older_acknowledgement_does_not_end_what_holds_the_group_back() -> None:
    ledger = Ledger()
    ledger.put(("anna", "1"), forwarding())
    ledger.assign(0, 0, 0, 0, {("anna", "1"): Progress(offset=0)})
    ledger.take_behind(0, 0, 0, [], list(ledger.eligible(0)), 0.0)
    ledger.commits()
    [says_live] = ledger.to_store(0.0)
    assert says_live.progress.live
    # Before the log has said that it has this, the forwarding falls behind again.
    arrived = [
        Arrived("anna", "phone", each, record_of(0, each, "anna/phone")) for each in range(10)
    ]
    ledger.take_live(0, arrived, 10, 0.0)
    ledger.give_up_waiting(31.0)
    ledger.stored(says_live, 31.0)
    assert ledger.commits() == {0: 0}, "a new worker would take it for live, and begin there"
    [says_behind] = ledger.to_store(31.0)
    assert says_behind.progress == Progress(offset=0)
    ledger.stored(says_behind, 31.0)
    assert ledger.commits() == {0: 10}


def test_the_groups_offset_does_not_go_back_for_what_was_read_again() -> None:
    ledger = Ledger()
    ledger.put(("anna", "1"), forwarding())
    ledger.assign(0, 10, 0, 10, {("anna", "1"): Progress(offset=5)})
    arrived = [
        Arrived("anna", "phone", each, record_of(0, each, "anna/phone")) for each in range(5, 10)
    ]
    ledger.take_behind(0, 5, 10, arrived, list(ledger.eligible(0)), 0.0)
    (route,) = ledger.routes()
    assert route.entries[0].is_live and route.waiting_count == 5
    assert ledger.commits() == {0: 10}


def test_what_is_being_sent_is_not_given_up() -> None:
    ledger = Ledger()
    ledger.put(("anna", "1"), forwarding())
    ledger.assign(0, 0, 0, 1, {("anna", "1"): Progress(offset=0, live=True)})
    ledger.take_live(0, [Arrived("anna", "phone", 0, record_of(0, 0, "anna/phone"))], 1, 0.0)
    (route,) = ledger.routes()
    route.is_in_flight = True
    ledger.give_up_waiting(31.0)
    assert route.waiting_count == 1
    route.is_in_flight = False
    ledger.give_up_waiting(31.0)
    assert route.waiting_count == 0


def test_what_was_refused_is_counted_once_wherever_its_partition_goes() -> None:
    first, second = Ledger(), Ledger()
    stored: dict[int, Progress] = {}

    def refuse(ledger: Ledger, partition: int, offset: int) -> None:
        arrived = Arrived("anna", "phone", offset, record_of(partition, offset, "anna/phone"))
        ledger.take_live(partition, [arrived], offset + 1, 0.0)
        (route,) = ledger.routes()
        ledger.done(route, [arrived.record], 0.0)
        ledger.refused(route, arrived.record, f"why {offset}")

    def store(ledger: Ledger) -> None:
        for each in ledger.to_store(100.0, (0, 1)):
            stored[each.entry.partition] = each.progress
            ledger.stored(each, 100.0)

    def assign(ledger: Ledger, partition: int) -> None:
        known = {} if partition not in stored else {("anna", "1"): stored[partition]}
        begin = 0 if partition not in stored else stored[partition].offset
        ledger.assign(partition, begin, 0, 10, known)

    for ledger in (first, second):
        ledger.put(("anna", "1"), forwarding())
    stored = {each: Progress(offset=0, live=True) for each in (0, 1)}
    for partition in (0, 1):
        assign(first, partition)
        refuse(first, partition, 0)
    store(first)
    first.revoke(0)
    assign(second, 0)
    refuse(second, 0, 1)
    refuse(first, 1, 1)
    store(first)
    store(second)
    second.revoke(0)
    assign(first, 0)
    refuse(first, 0, 2)
    store(first)
    assert {each: (of.refused, of.refusal) for each, of in stored.items()} == {
        0: (3, "why 2"),
        1: (2, "why 1"),
    }


def test_what_the_log_may_have_or_not_is_written_again() -> None:
    ledger = Ledger()
    ledger.put(("anna", "1"), forwarding())
    ledger.assign(0, 0, 0, 10, {("anna", "1"): Progress(offset=0, live=True)})
    (route,) = ledger.routes()
    ledger.pause(route, is_paused=True)
    ledger.commits()
    [says_behind] = ledger.to_store(0.0)
    assert not says_behind.progress.live
    ledger.pause(route, is_paused=False)
    ledger.take_behind(0, 0, 0, [], list(ledger.eligible(0)), 0.0)
    # It is as the log had it before, and the log may say that it is behind.
    ledger.not_stored(says_behind)
    ledger.commits()
    [says_live] = ledger.to_store(0.0)
    assert says_live.progress == Progress(offset=0, live=True)


def told_every_second(ledger: Ledger, first: int, last: int) -> list[tuple[int, Progress]]:
    """Store what is to be stored in each second; return when that was what."""
    told = []
    for second in range(first, last):
        ledger.commits()
        for each in ledger.to_store(float(second)):
            told.append((second, each.progress))
            ledger.stored(each, float(second))
    return told


def test_the_log_is_told_soon_what_a_live_forwarding_was_refused() -> None:
    ledger = Ledger()
    ledger.put(("anna", "1"), forwarding())
    ledger.assign(0, 0, 0, 10, {("anna", "1"): Progress(offset=0, live=True)})
    (route,) = ledger.routes()
    told = []
    for offset in range(20):
        each = Arrived("anna", "phone", offset, record_of(0, offset, "anna/phone"))
        ledger.take_live(0, [each], offset + 1, float(offset))
        ledger.done(route, [each.record], float(offset))
        ledger.refused(route, each.record, f"why {offset}")
        told += told_every_second(ledger, offset, offset + 1)
    told += told_every_second(ledger, 20, 120)
    assert [(second, each.refused) for second, each in told] == [
        *((0, 1), (5, 6), (10, 11), (15, 16), (20, 20))
    ]
    assert told[-1][1].refusal == "why 19"


def judged(stored: Progress, made: Forwarding, offsets: Sequence[int], first: int) -> list[str]:
    """Return what receipts say of records of a log that begins at `first`."""
    log = LogState({0: first}, {0: 1000}, {0: stored.offset})
    reach = Reach("anna", "1", made, {0: stored}, None, log)
    return [reach.judge(Stored(0, each, LATE)).outcome.value for each in offsets]


def test_where_records_were_missed_is_told() -> None:
    ledger = Ledger()
    made = forwarding()
    ledger.put(("anna", "1"), made)
    ledger.assign(0, 3, 0, 100, {("anna", "1"): Progress(offset=3)}, 3)
    ((_, entry),) = ledger.eligible(0)
    ledger.skip_deleted(0, 3, 6)
    ledger.skip_deleted(0, 6, 7)  # it goes on at once
    (told,) = ledger.to_store(0.0)
    assert (told.progress.gaps, told.progress.missed) == (((3, 7),), 4)
    assert judged(told.progress, made, (0, 2, 3, 6), 7) == ["sent", "sent", "missed", "missed"]
    # Of many only the newest are kept; what is before them is known no more.
    for start in range(10, 100, 10):
        entry.offset = start
        ledger.skip_deleted(0, start, start + 5)
    (told,) = ledger.to_store(10.0)
    assert len(told.progress.gaps) == 8 and told.progress.missed == 49
    assert judged(told.progress, made, (2, 10, 14, 15, 20, 94), 95) == [
        *("unknown", "unknown", "unknown", "sent", "missed", "missed"),
    ]  # fmt: skip
    again = Ledger()
    again.put(("anna", "1"), made)
    again.assign(0, 0, 0, 100, {("anna", "1"): told.progress}, 0)
    assert next(iter(again.routes())).entries[0].gaps == told.progress.gaps


def test_what_an_earlier_version_has_missed_somewhere_stays_unknown() -> None:
    ledger = Ledger()
    made = forwarding()
    ledger.put(("anna", "1"), made)
    before = Progress(offset=8, missed=2)
    assert judged(before, made, (0, 7), 7) == ["unknown", "sent"]
    ledger.assign(0, 8, 7, 100, {("anna", "1"): before}, 8)
    ledger.skip_deleted(0, 8, 12)
    (told,) = ledger.to_store(0.0)
    assert judged(told.progress, made, (0, 8, 11), 12) == ["unknown", "missed", "missed"]


def test_what_the_log_deletes_of_a_live_forwarding_while_no_worker_runs_is_missed() -> None:
    made = forwarding()
    stored = Progress(offset=5, live=True)
    for committed, expected in ((8, "missed"), (None, "unknown")):
        ledger = Ledger()
        ledger.put(("anna", "1"), made)
        ledger.assign(0, 20, 20, 100, {("anna", "1"): stored}, committed)
        (told,) = ledger.to_store(100.0)
        assert told.progress.missed == (12 if committed else 0)
        assert judged(told.progress, made, (8, 19), 20) == [expected, expected]


def test_what_was_deleted_before_a_new_forwarding_found_its_place_is_missed() -> None:
    ledger = Ledger()
    made = forwarding(created=10, since=10)
    ledger.assign(0, 30, 20, 100, {}, 30)
    ledger.put(("anna", "1"), made)
    ((_, entry),) = ledger.unplaced()
    ledger.place(entry, 20, 20)
    (told,) = ledger.to_store(0.0)
    assert judged(told.progress, made, (19,), 20) == ["missed"]
    ledger.put(("bert", "1"), made)
    ((_, entry),) = ledger.unplaced()
    ledger.place(entry, 21, 20)  # the log has more than was asked for
    assert entry.gaps == ()


def test_what_goes_to_a_changed_server_is_told_by_offsets() -> None:
    ledger = Ledger()
    ledger.put(("anna", "1"), forwarding(settled=0))
    ledger.assign(0, 0, 0, 100, {("anna", "1"): Progress(offset=0, live=True, settled=0)}, 0)
    (route,) = ledger.routes()
    arrived = [Arrived("anna", "phone", 0, record_of(0, each, "anna/phone")) for each in range(6)]
    ledger.take_live(0, arrived[:4], 4, 0.0)
    ledger.done(route, [each.record for each in arrived[:1]], 0.0)
    route.is_in_flight = True
    in_flight = route.batch(2)
    made = changed(route.forwarding, url="https://y", settled=LATE + 1)
    ledger.put(("anna", "1"), made)
    route.is_in_flight = False
    ledger.done(route, in_flight, 0.0)
    ledger.done(route, route.batch(10), 0.0)
    (told,) = ledger.to_store(0.0)
    expected = ["unknown", "unknown", "unknown", "sent"]
    assert judged(told.progress, made, range(4), 0) == expected
    # With another device, what was read of it before was left out.
    ledger.take_live(0, arrived[4:5], 8, 0.0)
    made = changed(made, devices=None, settled=LATE + 2)
    ledger.put(("anna", "1"), made)
    ledger.done(route, route.batch(10), 0.0)
    (told,) = ledger.to_store(0.0)
    assert judged(told.progress, made, (4, 7), 0) == ["unknown", "unknown"]
    assert told.progress.settled_from == 8


def test_the_log_is_told_what_a_live_forwarding_has_missed() -> None:
    ledger = Ledger()
    ledger.put(("anna", "1"), forwarding())
    stored = Progress(offset=0, live=True, forwarded=1)
    ledger.assign(0, 0, 0, 10, {("anna", "1"): stored})
    (route,) = ledger.routes()
    ledger.pause(route, is_paused=True)
    ledger.pause(route, is_paused=False)
    ledger.skip_deleted(0, 0, 7)
    # It is live again before the log was told that it was behind.
    ledger.take_behind(0, 7, 7, [], list(ledger.eligible(0)), 0.0)
    told = told_every_second(ledger, 0, 120)
    assert [each.missed for _, each in told] == [7]
    assert told[0][1].live


def test_a_removed_forwarding_sends_nothing_more() -> None:
    ledger = Ledger()
    ledger.put(("anna", "1"), forwarding())
    ledger.assign(0, 0, 0, 10, {("anna", "1"): Progress(offset=0, live=True)})
    ledger.take_live(0, [Arrived("anna", "phone", 0, record_of(0, 0, "anna/phone"))], 1, 0.0)
    (route,) = ledger.routes()
    ledger.put(("anna", "1"), None)
    assert (route.batch(10), ledger.waiting_bytes, ledger.has_user("anna")) == ([], 0, False)
    assert ledger.commits() == {0: 1}
