"""What accounts say of forwardings: counts of a device, of a fix and of a day."""

from __future__ import annotations

from typing import Any

from waylog.audit.accounts import Accounts
from waylog.audit.days import Day
from waylog.audit.facts import FixFact, Refusal
from waylog.audit.forwarding_accounts import ForwardingReceipt, for_administrators, receipts_of_fix
from waylog.audit.receipts import Receipt, receipt_of, totals_of
from waylog.forwarding.definition import Forwarding, Progress
from waylog.forwarding.pauses import Pause
from waylog.forwarding.reach import LogState, Reach

DAY = Day("1970-01-01", "UTC", 1_000, 2_000)
LOG = LogState({0: 0}, {0: 100}, {0: 5})


def reach(user: str, number: int, progress: Progress, **members: Any) -> Reach:
    values: dict[str, Any] = {"name": f"{user}{number}", "kind": "webhook", "created": 1_100}
    values |= {"url": "https://example.org/secret?key=secret", "since": 1_100}
    pause = members.pop("pause", None)
    forwarding = Forwarding(**(values | members))
    return Reach(user, f"{number:016x}", forwarding, {0: progress}, pause, LOG)


def fix_at(offset: int, device: str = "ada/phone", **more: Any) -> FixFact:
    values: dict[str, Any] = {"id": str(offset), "time": 1_200, "received": 1_200 + offset} | more
    return FixFact(0, offset, device, **values)


def accounts_with(*reaches: Reach, refusals: tuple[Refusal, ...] = ()) -> Accounts:
    return Accounts(
        [], day_from=1_000, late_before=1_500, log_starts={0: 0}, refusals=refusals,
        reaches_of=lambda user: [each for each in reaches if each.user == user],
    )  # fmt: skip


def receipt(accounts: Accounts, device: str = "ada/phone") -> Receipt:
    account = accounts.device(device)
    return receipt_of(account, accounts, DAY, address_missing=False, unknown=())


def forwardings(accounts: Accounts, device: str = "ada/phone") -> list[ForwardingReceipt]:
    found = receipt(accounts, device).forwardings
    assert found is not None
    return found


def test_each_fix_is_counted_at_each_forwarding_that_sends_its_device() -> None:
    home = reach("ada", 1, Progress(offset=3))
    rides = reach("ada", 2, Progress(offset=9), devices=("bike",))
    refusal = Refusal(home.letter_source, "location", 0, 1, "404")
    others = Refusal("forwarding ben/1", "location", 0, 2, "of somebody else")
    accounts = accounts_with(
        *(home, rides, reach("ben", 1, Progress(offset=0))), refusals=(refusal, others)
    )
    for offset in range(5):
        accounts.take(fix_at(offset))
    accounts.take(fix_at(5, stored=1_099, received=1_500))
    found, of_rides = forwardings(accounts)
    assert (found.sent, found.refused, found.waiting, found.not_asked) == (2, 1, 2, 1)
    assert (found.until, found.since) == (1_202, 1_203)
    assert [(each.reason, each.count) for each in found.reasons] == [("404", 1)]
    assert found.url == "https://example.org/..."
    assert not of_rides.forwards and of_rides.sent == of_rides.not_asked == 0
    assert receipt(accounts).lacking == 0, "what another server lacks is its owner's"
    (of_ben,) = forwardings(accounts, "ben/phone")
    assert (of_ben.name, of_ben.sent, of_ben.waiting) == ("ben1", 0, 0)
    assert forwardings(accounts, "eve/phone") == []


def test_what_somebody_wrote_under_the_name_of_another_device_is_not_sent() -> None:
    accounts = accounts_with(reach("ada", 1, Progress(offset=9)))
    accounts.take(fix_at(0, is_own=False))
    (found,) = forwardings(accounts)
    assert (found.sent, found.not_asked) == (0, 1)


def test_a_fix_that_turns_out_to_have_come_before_is_taken_back() -> None:
    accounts = accounts_with(reach("ada", 1, Progress(offset=1)))
    accounts.take(fix_at(0))
    accounts.take(fix_at(1))
    accounts.repeated(fix_at(1))
    (found,) = forwardings(accounts)
    assert (found.sent, found.waiting) == (1, 0)


def test_the_reason_of_a_refusal_is_taken_back_with_it() -> None:
    forwarding = reach("ada", 1, Progress(offset=9))
    accounts = accounts_with(
        forwarding, refusals=(Refusal(forwarding.letter_source, "location", 0, 1, "404"),)
    )
    accounts.take(fix_at(0))
    accounts.take(fix_at(1))
    (found,) = forwardings(accounts)
    assert (found.refused, [each.reason for each in found.reasons]) == (1, ["404"])
    accounts.repeated(fix_at(1))
    (found,) = forwardings(accounts)
    assert (found.sent, found.refused, found.reasons) == (1, 0, [])


def test_of_a_fix_that_came_several_times_one_record_is_enough() -> None:
    forwarding = reach("ada", 1, Progress(offset=2))
    early, sent, waiting = fix_at(0, stored=1_000), fix_at(1), fix_at(2)

    def outcome(*records: tuple[FixFact, dict[str, str]]) -> dict[str, int]:
        (found,) = receipts_of_fix(records, [forwarding])
        names = ("sent", "waiting", "refused", "not_asked")
        return {name: getattr(found, name) for name in names if getattr(found, name)}

    assert outcome((early, {})) == {"not_asked": 1}
    assert outcome((early, {}), (waiting, {})) == {"waiting": 1}
    assert outcome((early, {}), (sent, {}), (waiting, {})) == {"sent": 1}
    refused = {forwarding.letter_source: "404"}
    assert outcome((sent, refused), (waiting, {})) == {"refused": 1}


def test_the_day_has_the_sums_of_all_users() -> None:
    failing = Progress(offset=0, error="down", error_time=5)
    accounts = accounts_with(
        reach("ada", 1, Progress(offset=2, live=True)), reach("ben", 1, failing),
        reach("ben", 2, Progress(offset=0), paused_by="ben"), reach("cid", 1, failing),
    )  # fmt: skip
    for offset in range(4):
        accounts.take(fix_at(offset))
        accounts.take(fix_at(offset + 10, "ben/phone"))
    told = totals_of(accounts, DAY, addresses_missing=0, unknown=()).forwardings
    assert (told.sent, told.waiting, told.unknown) == (4, 8, 0)
    # Of users who have sent nothing that day nothing is told.
    assert (told.forwardings, told.states) == (3, {"live": 1, "failing": 1, "paused": 1})


def test_administrators_are_not_shown_what_the_owners_server_answers() -> None:
    pause = Pause(reason="asked for", by="root", time=7)
    failing = reach("ada", 1, Progress(offset=9, error="down", error_time=5), pause=pause)
    refusal = Refusal(failing.letter_source, "location", 0, 0, "its own words")
    accounts = accounts_with(failing, refusals=(refusal,))
    accounts.take(fix_at(0))
    (own,) = forwardings(accounts)
    assert (own.error, own.refused, own.state) == ("down", 1, "paused")
    shown = for_administrators(own)
    assert (shown.error, shown.error_time, shown.reasons, shown.refused) == (None, None, [], 1)
    assert shown.paused_by_administrator is not None
    assert "root" not in repr(own), "who has paused it is not told"
