"""The counts of receipts, compared with a model that keeps every fact."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waylog.audit import accounts as accounts_module
from waylog.audit.accounts import OTHERS, Accounts, ReaderAccount
from waylog.audit.days import Day
from waylog.audit.facts import AddressFact, FixFact, Reader, ReaderKind, Refusal
from waylog.audit.receipts import receipt_of, totals_of

DAY = Day("2026-11-28", "UTC", 1_000, 2_000)
LATE_BEFORE = 1_500
NOW = 1_780_000_000_000
PARTITIONS = 2
OFFSETS = 12
DEVICES = ("a/phone", "b/phone", "c/phone")
NAMES = ("resolver", "connect-files", "history", "others")
STATES = ("taken", "pending", "overdue", "missing", "refused", "unknown")


@dataclass(frozen=True)
class World:
    """A log of a day, and what is known of its readers."""

    #: By partition, in the order of the offsets.
    fixes: tuple[tuple[FixFact, ...], ...]
    readers: tuple[Reader, ...]
    in_history: frozenset[tuple[int, int]]
    refusals: tuple[Refusal, ...]
    log_starts: dict[int, int]
    #: The partition of the next record, while there are records.
    order: tuple[int, ...]


_positions = st.one_of(
    st.none(),
    st.dictionaries(
        st.integers(0, PARTITIONS - 1), st.integers(0, OFFSETS + 1), max_size=PARTITIONS
    ),
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    fixes = tuple(
        tuple(
            FixFact(
                partition,
                offset,
                draw(st.sampled_from(DEVICES)),
                draw(st.sampled_from(("1", "2", "3", "4", "5", "6"))),
                draw(st.integers(900, 2_100)),
                draw(st.integers(1_000, 2_000)),
            )
            for offset in sorted(draw(st.sets(st.integers(0, OFFSETS), max_size=OFFSETS)))
        )
        for partition in range(PARTITIONS)
    )
    kinds = dict(
        zip(
            NAMES,
            (ReaderKind.RESOLVER, ReaderKind.CONNECTOR, ReaderKind.HISTORY, ReaderKind.GROUP),
            strict=True,
        )
    )
    readers = tuple(
        Reader(name, kinds[name], draw(st.booleans()), draw(_positions), draw(st.booleans()))
        for name in NAMES
        if draw(st.booleans())
    )
    places = st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, OFFSETS))
    return World(
        fixes,
        readers,
        draw(st.frozensets(places)),
        tuple(
            Refusal(name, "location", *place, f"reason {place[1] % 2}")
            for name, place in draw(st.sets(st.tuples(st.sampled_from(NAMES), places), max_size=6))
        ),
        draw(st.dictionaries(st.integers(0, PARTITIONS - 1), st.integers(0, OFFSETS))),
        tuple(draw(st.lists(st.integers(0, PARTITIONS - 1), max_size=2 * OFFSETS))),
    )


def interleaved(world: World) -> list[FixFact]:
    """Return all fixes, those of a partition in order."""
    left = [list(fixes) for fixes in world.fixes]
    found = [left[partition].pop(0) for partition in world.order if left[partition]]
    return [*found, *(fix for fixes in left for fix in fixes)]


def expected_state(reader: Reader, fix: FixFact, world: World) -> str:
    """Say what came of a fix, in the words of the documentation."""
    place = (fix.partition, fix.offset)
    is_history = reader.kind is ReaderKind.HISTORY
    if is_history and place in world.in_history:
        return "taken"
    if any((each.reader, each.partition, each.offset) == (reader.name, *place)
           for each in world.refusals):  # fmt: skip
        return "refused"
    if reader.positions is None:
        return "unknown"
    is_late = fix.received < LATE_BEFORE
    if fix.offset < reader.positions.get(fix.partition, 0):
        if not is_history:
            return "taken"
        return "missing" if reader.is_exact or is_late else "pending"
    if fix.offset < world.log_starts.get(fix.partition, 0):
        return "missing"
    return "overdue" if is_late else "pending"


def accounts_of(world: World) -> Accounts:
    return Accounts(
        world.readers,
        day_from=DAY.from_ms,
        late_before=LATE_BEFORE,
        log_starts=world.log_starts,
        refusals=world.refusals,
    )


def counts_of(account: ReaderAccount) -> Counter[str]:
    return Counter({state: getattr(account, state) for state in STATES})


@given(worlds())
def test_any_order_of_facts_gives_the_counts_of_the_model(world: World) -> None:
    accounts = accounts_of(world)
    first: dict[tuple[str, str], FixFact] = {}
    repeats: Counter[str] = Counter()
    for fix in interleaved(world):
        key = (fix.device, fix.id)
        is_new = key not in first
        if is_new:
            first[key] = fix
        else:
            repeats[fix.device] += 1
        place = (fix.partition, fix.offset)
        assert accounts.take(fix, in_history=place in world.in_history) == is_new
    for device in {fix.device for fix in first.values()}:
        own = [fix for fix in first.values() if fix.device == device]
        account = accounts.devices[device]
        assert (account.acknowledged, account.repeats) == (len(own), repeats[device])
        assert account.made_earlier == sum(fix.time < DAY.from_ms for fix in own)
        received, times = [fix.received for fix in own], [fix.time for fix in own]
        assert (account.first_received, account.last_received) == (min(received), max(received))
        assert (account.first_time, account.last_time) == (min(times), max(times))
        for index, reader in enumerate(world.readers):
            states = [(expected_state(reader, fix, world), fix) for fix in own]
            found = account.readers[index]
            assert counts_of(found) == Counter(state for state, _ in states)
            taken = [fix.received for state, fix in states if state == "taken"]
            waiting = [fix.received for state, fix in states if state in {"pending", "overdue"}]
            assert found.until == max(taken, default=None)
            assert found.since == min(waiting, default=None)
            assert sum((found.reasons or Counter()).values()) == found.refused
    for index, total in enumerate(accounts.totals()):
        sums: Counter[str] = Counter()
        for account in accounts.devices.values():
            sums.update(counts_of(account.readers[index]))
        assert counts_of(total) == sums


@given(worlds(), st.data())
def test_a_suspect_that_came_twice_is_a_repeat_and_nothing_else(
    world: World, data: st.DataObject
) -> None:
    accounts = accounts_of(world)
    for fix in interleaved(world):
        accounts.take(fix, in_history=(fix.partition, fix.offset) in world.in_history)
    history = next((r for r in world.readers if r.kind is ReaderKind.HISTORY), None)
    assert all(
        history is not None and expected_state(history, fix, world) == "missing"
        for fix in accounts.suspects
    )
    cleared = (
        data.draw(st.lists(st.sampled_from(accounts.suspects), unique=True))
        if accounts.suspects
        else []
    )
    before = {
        name: (account.acknowledged, account.repeats, [counts_of(r) for r in account.readers])
        for name, account in accounts.devices.items()
    }
    for fix in cleared:
        accounts.repeated(fix)
    for name, account in accounts.devices.items():
        own = [fix for fix in cleared if fix.device == name]
        acknowledged, repeats, readers = before[name]
        assert account.acknowledged == acknowledged - len(own)
        assert account.repeats == repeats + len(own)
        for index, reader in enumerate(world.readers):
            gone = Counter(expected_state(reader, fix, world) for fix in own)
            assert counts_of(account.readers[index]) == Counter(
                {state: readers[index][state] - gone[state] for state in STATES}
            )
            own_reader = account.readers[index]
            reasons = own_reader.reasons or Counter()
            assert sum(reasons.values()) == own_reader.refused
            assert all(number > 0 for number in reasons.values())


def fix_at(offset: int, **more: object) -> FixFact:
    values: dict[str, object] = {"device": "a/phone", "id": str(offset), "time": 1_200}
    values |= {"received": 1_200} | more
    return FixFact(0, offset, **values)  # type: ignore[arg-type]


def reader(name: str, kind: ReaderKind, position: int, *, is_expected: bool = True) -> Reader:
    return Reader(name, kind, is_expected, {0: position})


def test_what_is_missing_counts_only_where_it_should_be() -> None:
    readers = [
        reader("connect-files", ReaderKind.CONNECTOR, 1),
        reader("history", ReaderKind.HISTORY, 3),
        reader("experiment", ReaderKind.GROUP, 0, is_expected=False),
    ]
    refusals = [
        Refusal("connect-files", "location", 0, 0, "404"),
        Refusal("history", "location", 0, 1, "no time"),
    ]
    accounts = Accounts(
        readers, day_from=1_000, late_before=1_500, log_starts={}, refusals=refusals
    )
    accounts.take(fix_at(0), in_history=True)
    accounts.take(fix_at(1))
    accounts.take(fix_at(2))
    receipt = receipt_of(
        accounts.device("a/phone"), accounts, DAY, address_missing=True, unknown=["?"]
    )
    files, history, experiment = receipt.readers
    assert (files.refused, files.overdue, files.reasons[0].reason) == (1, 2, "404")
    assert (history.taken, history.refused, history.missing) == (1, 1, 1)
    assert experiment.overdue == 3
    # What the history refuses is of no use to it; nobody waits for the experiment.
    assert receipt.lacking == 1 + 2 + 1 + 1
    totals = totals_of(accounts, DAY, addresses_missing=1, unknown=[])
    assert (totals.lacking, totals.acknowledged, totals.devices) == (5, 3, 1)


def test_only_devices_with_an_acknowledged_fix_are_counted() -> None:
    accounts = Accounts([], day_from=1_000, late_before=1_500, log_starts={})
    accounts.take(fix_at(0))
    accounts.take_refused("a/phone", "lat is missing")
    for number in range(5):
        accounts.take_refused(f"a/made-up-{number}", "the user has too many devices")
    accounts.take_unreadable("a/broken")
    totals = totals_of(accounts, DAY, addresses_missing=0, unknown=[])
    assert (totals.acknowledged, totals.devices) == (1, 1)
    assert (totals.refused, totals.unreadable) == (6, 1)


def test_the_newest_address_counts_and_devices_without_one_are_found() -> None:
    readers = [reader("resolver", ReaderKind.RESOLVER, 2)]
    accounts = Accounts(readers, day_from=1_000, late_before=1_500, log_starts={})
    accounts.take(fix_at(0))
    accounts.take(fix_at(1, device="b/phone"))
    accounts.take(fix_at(1, device="d/phone", received=1_500))  # it has time
    accounts.take(fix_at(2, device="c/phone"))
    assert accounts.without_address() == ["a/phone", "b/phone"]
    accounts.take_address(AddressFact("a/phone", "0", NOW + 200, NOW + 300))
    # A late fix, and a time that only a wrong clock tells, which counts as that of its arrival.
    accounts.take_address(AddressFact("a/phone", "older", NOW + 100, NOW + 400))
    accounts.take_address(AddressFact("a/phone", "ahead", NOW * 2, NOW + 150))
    accounts.take_address(AddressFact("nobody/phone", "x", NOW + 200, NOW + 300))
    assert accounts.without_address() == ["b/phone"]
    newest = accounts.device("a/phone").address
    assert newest is not None and newest.fix_id == "0"
    assert "nobody/phone" not in accounts.devices


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts_module, "DEVICES_MAX", 3)
    monkeypatch.setattr(accounts_module, "RECENT_IDS", 4)
    monkeypatch.setattr(accounts_module, "SUSPECTS_MAX", 2)
    history = reader("history", ReaderKind.HISTORY, 100)
    accounts = Accounts([history], day_from=0, late_before=0, log_starts={})
    for offset in range(10):
        accounts.take(fix_at(offset, device=f"{offset}/phone"))
        accounts.take_refused("a/phone", f"reason {offset}" * 100)
    assert set(accounts.devices) == {"0/phone", "a/phone", "1/phone", OTHERS}
    assert accounts.device("9/phone").acknowledged == 8
    assert (len(accounts.suspects), accounts.unexamined) == (2, 8)
    assert accounts.totals()[0].missing == 10
    refused = accounts.device("a/phone").refused
    assert refused is not None and len(refused) == 5 and len(max(refused, key=len)) == 300
    # The ids of the newest fixes are known, at least half as many as may be, older ones not.
    for number in (8, 9):
        assert not accounts.take(fix_at(10, device=f"{number}/phone", id=str(number)))
    assert accounts.take(fix_at(11, device="0/phone", id="0"))
