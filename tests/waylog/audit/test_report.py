"""What people read of receipts."""

from __future__ import annotations

import pytest

from waylog.audit.receipts import FixPlace, FixReceipt, ReaderReceipt
from waylog.audit.report import print_fix


def waiting(name: str, *, overdue: int = 0) -> ReaderReceipt:
    """Return the receipt of a group that has not passed the fix."""
    return ReaderReceipt(
        name=name, kind="group", expected=False, taken=0, pending=1 - overdue, overdue=overdue,
        missing=0, refused=0, unknown=0, until=None, since=1, reasons=[],
    )  # fmt: skip


@pytest.mark.parametrize("overdue", [0, 1])
def test_a_fix_is_not_said_to_wait_because_some_forwarding_does(
    capsys: pytest.CaptureFixture[str], overdue: int
) -> None:
    readers = [waiting("forwarding", overdue=overdue), waiting("others", overdue=overdue)]
    print_fix(
        FixReceipt(
            id="1", device="anna/phone", time=0, received=1, places=[FixPlace(0, 0)],
            readers=readers, resolved=None, lacking=0, unknown=[], forwardings=[],
        ),
        "UTC",
    )  # fmt: skip
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert "waits" in lines["others"]
    assert "waits" not in lines["forwarding"]
    assert "of each forwarding" in lines["forwarding"]
