"""Which offsets may be stored: a model of what is acknowledged in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.data.records import SourceRecord
from consumers.connect.tasks.submitted_records import SubmittedRecord, SubmittedRecords


def record(partition: int, offset: int) -> SourceRecord:
    return SourceRecord(topic="t", source_partition={"p": partition}, source_offset={"o": offset})


def test_an_offset_waits_for_all_records_before_it() -> None:
    submitted = SubmittedRecords()
    first, second = (submitted.submit(record(0, number)) for number in (1, 2))
    submitted.acknowledge(second)
    assert submitted.committable() == []
    assert submitted.unacknowledged == 1
    submitted.acknowledge(first)
    submitted.acknowledge(first)
    assert submitted.committable() == [({"p": 0}, {"o": 2})]
    assert submitted.committable() == []
    assert submitted.unacknowledged == 0


def test_source_partitions_do_not_wait_for_each_other() -> None:
    submitted = SubmittedRecords()
    submitted.submit(record(0, 1))
    submitted.acknowledge(submitted.submit(record(1, 7)))
    assert submitted.committable() == [({"p": 1}, {"o": 7})]


def test_a_connector_may_use_one_object_for_a_source_partition() -> None:
    submitted, same = SubmittedRecords(), {"p": 0}
    for number in (1, 2):
        each = SourceRecord(topic="t", source_partition=same, source_offset={"o": number})
        submitted.acknowledge(submitted.submit(each))
        assert submitted.committable() == [(same, {"o": number})]


def test_a_record_that_was_not_sent_is_forgotten() -> None:
    submitted = SubmittedRecords()
    first = submitted.submit(record(0, 1))
    second = submitted.submit(record(0, 2))
    submitted.withdraw(first)
    submitted.withdraw(second)
    submitted.acknowledge(first)
    assert submitted.unacknowledged == 0
    assert submitted.committable() == [({"p": 0}, {"o": 1})]


def test_a_record_without_partition_has_an_offset_too() -> None:
    submitted = SubmittedRecords()
    submitted.acknowledge(submitted.submit(SourceRecord(topic="t")))
    assert submitted.committable() == [({}, None)]


_STEPS = st.lists(
    st.one_of(
        st.integers(0, 2).map(lambda partition: ("submit", partition)),
        st.integers(0, 30).map(lambda number: ("acknowledge", number)),
        st.just(("commit", 0)),
    ),
    max_size=60,
)


@given(_STEPS)
def test_what_is_stored_never_runs_ahead(steps: list[tuple[str, int]]) -> None:
    submitted = SubmittedRecords()
    records: list[tuple[int, SubmittedRecord]] = []
    acknowledged: set[int] = set()
    stored: dict[int, int] = {}
    for step, number in steps:
        if step == "submit":
            # The same partition comes as different objects.
            records.append((number, submitted.submit(record(number, len(records)))))
        elif step == "acknowledge" and number < len(records):
            acknowledged.add(number)
            submitted.acknowledge(records[number][1])
        elif step == "commit":
            for source_partition, offset in submitted.committable():
                assert offset is not None
                stored[source_partition["p"]] = offset["o"]
            for partition in range(3):
                own = [place for place, (each, _) in enumerate(records) if each == partition]
                whole = []
                for place in own:
                    if place not in acknowledged:
                        break
                    whole.append(place)
                assert stored.get(partition) == (whole[-1] if whole else None)
    assert submitted.unacknowledged == len(records) - len(acknowledged)
