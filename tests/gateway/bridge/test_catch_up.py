"""A bridge whose log is still being read: fixes that the log may have wait, all others do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.bridge.catch_up import CatchUpSubmitter
from gateway.fixes.known_fixes import KnownFixes
from gateway.views.snapshots.key_view import KeyView
from gateway.views.snapshots.view_keeper import ViewKeeper
from tests.gateway.records import NOW, MemoryTelemetry, fix
from tests.gateway.views.snapshots.test_view_keeper import Log, broker, fixes, log, until
from waylog.messages import Fix, decode_fix

__all__ = ["broker", "log"]

STARTED_MS = NOW + 1_000_000


class Appended:
    """A log that confirms each record at once."""

    def __init__(self) -> None:
        self.fixes: list[Fix] = []

    def send(self, _topic: str, value: bytes, _key: Any, _headers: Any, on_delivery: Any) -> None:
        self.fixes.append(decode_fix(value))
        on_delivery(None, None)


class Bridge:
    """The parts of a bridge that decide what is stored."""

    def __init__(self, log: Log, folder: Path, waiting_max: int = 100) -> None:
        self.appended = Appended()
        known_fixes = KnownFixes()
        self.keeper = ViewKeeper(
            *(log.broker.address, "test", KeyView(known_fixes), None),
            folder=folder,
            tail=5,
            behind_max=10,
        )
        self.submitter = CatchUpSubmitter(
            *(self.appended, MemoryTelemetry(), asyncio.get_running_loop()),
            known_fixes=known_fixes,
            all_known=self.keeper.all_known,
            before_ms=STARTED_MS,
            waiting_max=waiting_max,
        )


@asynccontextmanager
async def started(log: Log, folder: Path, **options: int) -> AsyncIterator[Bridge]:
    bridge = Bridge(log, folder, **options)
    try:
        await bridge.keeper.start()
        yield bridge
    finally:
        await bridge.keeper.close()


async def test_a_repeated_fix_waits_until_it_is_known_whether_the_log_has_it(
    log: Log, tmp_path: Path
) -> None:
    sent = fixes(range(1000))
    log.append(*sent)
    late = fix("u1/phone", NOW - 3_600_000)
    async with started(log, tmp_path / "keys") as bridge:
        submitter, appended = bridge.submitter, bridge.appended
        assert bridge.keeper.unread
        receipts = [submitter.submit_location(each) for each in (*sent[:50], late)]
        assert not any(each.done() for each in receipts)
        new = fix("u1/phone", STARTED_MS + 1)
        assert submitter.submit_location(new).done()
        assert appended.fixes == [new]
        waiting = asyncio.create_task(submitter.submit_waiting())
        await until(lambda: all(each.done() for each in receipts), "some wait for ever")
        await waiting
        assert appended.fixes == [new, late]
        # From now on no fix waits.
        assert submitter.submit_location(sent[60]).done()
        assert submitter.submit_location(fix("u2/phone", NOW - 7_200_000)).done()
        assert len(appended.fixes) == 3
        assert not submitter.unchecked


async def test_what_waits_is_bounded_and_the_oldest_goes_on(log: Log, tmp_path: Path) -> None:
    log.append(*fixes(range(1000)))
    async with started(log, tmp_path / "keys", waiting_max=2) as bridge:
        late = [fix("u1/phone", NOW - 3_600_000 - number) for number in range(3)]
        receipts = [bridge.submitter.submit_location(each) for each in late]
        assert [each.done() for each in receipts] == [True, False, False]
        assert bridge.submitter.unchecked == 1
        await bridge.submitter.submit_waiting()
        assert bridge.appended.fixes == late


async def test_where_nothing_can_be_kept_nothing_waits(log: Log, tmp_path: Path) -> None:
    log.append(*fixes(range(1000)))
    (tmp_path / "keys").write_text("a file")
    async with started(log, tmp_path / "keys") as bridge:
        assert bridge.submitter.submit_location(fix("u1/phone", NOW - 3_600_000)).done()
