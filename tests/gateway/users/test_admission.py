"""Quotas and device limits of users: what is counted, and which processes share it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.formats import Parsed
from gateway.limits.token_buckets import TokenBuckets
from gateway.users.admission import (
    NAMED_USERS_PER_MINUTE,
    REFUSALS_PER_MINUTE,
    REGISTRATIONS_PER_MINUTE,
    Admission,
    QuotaExceeded,
    SendingNotAllowed,
)
from gateway.users.rights import USUAL_RIGHTS, Rights
from gateway.users.sender_devices import SenderDevices
from tests.gateway.records import NOW, fix
from tests.manual_clock import ManualClock
from waylog.messages import Event, Rejected

DAY_S = 86_400


def test_a_bucket_is_shared_by_all_who_have_the_file(tmp_path: Path) -> None:
    clock = ManualClock()
    one, other = (TokenBuckets(tmp_path / "quotas", clock) for _ in range(2))
    assert one.take("ada", 10, 6) == 0
    assert other.take("ada", 10, 4) == 0
    assert one.take("ada", 10, 1) == 6
    assert other.take("bob", 10, 10) == 0
    clock.now += 6
    assert other.take("ada", 10, 1) == 0
    assert one.take("ada", 10, 1) > 0
    one.close()
    other.close()


def test_a_bucket_outlives_its_process_and_the_machine(tmp_path: Path) -> None:
    clock = ManualClock()
    first = TokenBuckets(tmp_path / "quotas", clock)
    assert first.take("ada", 60, 60) == 0
    first.close()
    clock.now = 5.0  # the machine was restarted
    again = TokenBuckets(tmp_path / "quotas", clock)
    assert again.take("ada", 60, 1) == 1
    clock.now += 2
    assert again.take("ada", 60, 1) == 0
    again.close()


def test_more_than_a_bucket_holds_is_owed() -> None:
    clock = ManualClock()
    buckets = TokenBuckets(clock=clock)
    assert buckets.take("ada", 60, 150) == 0
    assert buckets.take("ada", 60, 1) == 91
    clock.now += 91
    assert buckets.take("ada", 60, 1) == 0


def test_a_process_that_is_killed_lets_go_of_its_lock(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from gateway.limits.token_buckets import TokenBuckets\n"
        "buckets = TokenBuckets(Path(sys.argv[1]))\n"
        "buckets.take('ada', 10, 3)\n"
        "with buckets._locked(0): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "quotas")], check=False)
    buckets = TokenBuckets(tmp_path / "quotas")
    assert buckets.take("ada", 10, 8) > 0
    assert buckets.take("ada", 10, 7) == 0
    with buckets._locked(0):
        pass
    buckets.close()


def test_a_bucket_that_another_process_changes_is_waited_for(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from gateway.limits.token_buckets import _SIZE, TokenBuckets\n"
        "import fcntl\n"
        "buckets = TokenBuckets(Path(sys.argv[1]))\n"
        "fcntl.lockf(buckets._file, fcntl.LOCK_EX, _SIZE)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    buckets = TokenBuckets(tmp_path / "quotas")
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "quotas")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with ThreadPoolExecutor(1) as threads:
            taken = threads.submit(buckets.take, "ada", 10, 1)
            with pytest.raises(TimeoutError):
                taken.result(0.1)
            other.stdin.close()
            assert taken.result(60) == 0
    buckets.close()


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(1, 9), st.floats(0, 20)), min_size=1, max_size=40
    )
)
def test_no_more_than_a_bucket_and_what_it_gets_is_ever_taken(
    steps: list[tuple[int, int, float]],
) -> None:
    clock = ManualClock()
    buckets = TokenBuckets(clock=clock)
    taken = [0, 0]
    for user, count, pause_s in steps:
        if not buckets.take(f"user{user}", 9, count):
            taken[user] += count
        clock.now += pause_s
        assert taken[user] <= 9 + 9 / 60 * (clock.now - 1_000) + 1e-6


def test_so_many_devices_and_no_more(tmp_path: Path) -> None:
    clock = ManualClock(100 * DAY_S)
    one, other = (SenderDevices(tmp_path / "devices", b"key", clock) for _ in range(2))
    assert [one.admits("ada", f"ada/{n}", 3) for n in range(4)] == [True, True, True, False]
    assert not other.admits("ada", "ada/9", 3)
    assert other.admits("ada", "ada/2", 3)
    assert other.admits("bob", "bob/1", 3)
    # A higher limit takes effect at once.
    assert one.admits("ada", "ada/3", 4)
    one.close()
    other.close()


def test_a_device_that_is_erased_or_long_silent_frees_its_place(tmp_path: Path) -> None:
    clock = ManualClock(100 * DAY_S)
    devices = SenderDevices(tmp_path / "devices", b"key", clock)
    assert devices.admits("ada", "ada/1", 2)
    assert devices.admits("ada", "ada/2", 2)
    devices.forget("ada/1")
    clock.now += 2
    assert devices.admits("ada", "ada/3", 2)
    assert not devices.admits("ada", "ada/1", 2)
    for _ in range(31):
        clock.now += DAY_S
        assert devices.admits("ada", "ada/3", 2)
    assert devices.admits("ada", "ada/4", 2)
    # A device that has sent every day keeps its place.
    assert not devices.admits("ada", "ada/5", 2)
    devices.close()


def test_the_file_holds_no_names_and_a_damaged_one_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "devices"
    devices = SenderDevices(path, b"key")
    assert devices.admits("somebody", "somebody/somewhere", 1)
    devices.close()
    content = path.read_bytes()
    assert b"some" not in content
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"x" * len(content))
    devices = SenderDevices(path, b"key")
    assert devices.admits("somebody", "somebody/else", 1)
    devices.close()


MakeAdmission = Callable[..., Admission]


@pytest.fixture
def in_memory() -> Iterator[MakeAdmission]:
    """Make instances without files, and close them after the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(closing(Admission.in_memory(**options)))


@dataclass(frozen=True)
class Sender:
    """An identity."""

    rights: Rights
    user: str = "ada"
    admin: bool = False


def parsed(*devices: str) -> Parsed:
    """Return a request with one rejected item and then a fix of each device, with client ids."""
    return Parsed(
        fixes=[fix(f"ada/{name}", NOW + number) for number, name in enumerate(devices)],
        rejected=[Rejected(reason="rubbish", source="test", time=NOW, raw=b"")],
        rejected_at=[0],
        client_ids=[f"id {number}" for number in range(1, 1 + len(devices))],
    )


def test_who_may_not_send_uses_up_no_quota_and_no_places_of_devices(
    in_memory: MakeAdmission,
) -> None:
    admission = in_memory()
    looking = Sender(Rights(may_send=False, fixes_per_minute=2, devices_max=2))
    for _ in range(5):
        with pytest.raises(SendingNotAllowed):
            admission.admit(looking, parsed("a", "b"))
    assert admission.is_metered(looking)
    sending = Sender(Rights(fixes_per_minute=3, devices_max=2))
    assert admission.admit(sending, parsed("c", "d")) == 0


def test_what_is_refused_for_its_device_is_kept_and_costs_a_fix(
    in_memory: MakeAdmission,
) -> None:
    admission = in_memory()
    sender = Sender(Rights(fixes_per_minute=6, devices_max=1))
    held = parsed("a", "b", "a", "c")
    assert admission.admit(sender, held) == 2
    assert [each.device for each in held.fixes] == ["ada/a", "ada/a"]
    # Rejected items keep their index in the batch, and accepted fixes keep their client id.
    assert held.rejected_at == [0, 2, 4]
    assert [each.device for each in held.rejected[1:]] == ["ada/b", "ada/c"]
    assert held.client_ids == ["id 1", "id 3"]
    admission.admit(sender, Parsed(fixes=[fix("ada/a", NOW)]))
    with pytest.raises(QuotaExceeded):
        admission.admit(sender, Parsed(fixes=[fix("ada/a", NOW)]))


def test_a_quota_refuses_all_of_a_message_or_nothing(in_memory: MakeAdmission) -> None:
    admission = in_memory()
    sender = Sender(Rights(fixes_per_minute=5))
    admission.admit(sender, parsed("a", "b"))
    with pytest.raises(QuotaExceeded):
        admission.admit(sender, parsed("a", "b"))
    admission.admit(sender, parsed("a"))


def test_events_and_rejected_items_cost_as_much_as_fixes(in_memory: MakeAdmission) -> None:
    admission = in_memory()
    sender = Sender(Rights(fixes_per_minute=3))
    admission.admit(sender, parsed())
    event = Event(id="e", device="ada/a", user="ada", type="lwt", time=NOW, received=NOW)
    admission.admit(sender, Parsed(events=[event]))
    admission.take_refused(sender)
    for nothing_left in (parsed(), Parsed(events=[event])):
        with pytest.raises(QuotaExceeded):
            admission.admit(sender, nothing_left)
    with pytest.raises(QuotaExceeded):
        admission.take_refused(sender)


def test_what_is_refused_of_a_user_without_a_quota_is_bounded_too(
    in_memory: MakeAdmission,
) -> None:
    admission = in_memory(clock=lambda: 1.0)
    for sender in (Sender(USUAL_RIGHTS, "bob"), Sender(Rights(may_send=False), "eve")):
        for _ in range(REFUSALS_PER_MINUTE):
            admission.take_refused(sender)
        with pytest.raises(QuotaExceeded):
            admission.take_refused(sender)


def test_devices_beyond_the_limit_are_refused_no_oftener_than_other_items(
    in_memory: MakeAdmission,
) -> None:
    now = [1.0]
    admission = in_memory(devices_per_user=1, clock=lambda: now[0])
    sender = Sender(USUAL_RIGHTS)

    def beyond(*names: str) -> int:
        return admission.admit(sender, Parsed(fixes=[fix(f"ada/{name}", NOW) for name in names]))

    assert beyond("a", "b") == 1
    others = [f"invented{number}" for number in range(REFUSALS_PER_MINUTE - 1)]
    assert beyond(*others) == len(others)
    with pytest.raises(QuotaExceeded):
        beyond("b")
    assert beyond("a") == 0
    # However many items a message has, it uses up no more than a minute.
    now[0] += 60
    assert beyond(*others, "b", "c", "d") == REFUSALS_PER_MINUTE + 2
    now[0] += 60
    assert beyond(*others, "b") == REFUSALS_PER_MINUTE


def test_a_message_beyond_the_quota_takes_no_places_of_devices(in_memory: MakeAdmission) -> None:
    admission = in_memory()
    sender = Sender(Rights(fixes_per_minute=2, devices_max=2))
    admission.admit(sender, parsed("a"))
    for number in range(5):
        with pytest.raises(QuotaExceeded):
            admission.admit(sender, parsed(f"invented{number}"))
    other_day = Sender(Rights(devices_max=2))
    assert admission.admit(other_day, parsed("b")) == 0


def test_a_device_is_known_from_its_first_accepted_fix_on(in_memory: MakeAdmission) -> None:
    admission = in_memory(devices_per_user=2)
    sender = Sender(USUAL_RIGHTS)
    for number in range(5):
        assert not admission.knows_device(sender, f"ada/invented{number}")
    assert admission.admit(sender, parsed("a", "b", "c")) == 1
    assert [admission.knows_device(sender, f"ada/{name}") for name in "abc"] == [True, True, False]
    assert admission.knows_device(Sender(USUAL_RIGHTS, "root", admin=True), "ada/c")


def test_another_worker_knows_the_device_too(tmp_path: Path) -> None:
    clock = ManualClock(100 * DAY_S)
    one, other = (SenderDevices(tmp_path / "devices", b"key", clock) for _ in range(2))
    assert one.admits("ada", "ada/1", 3)
    assert other.knows("ada", "ada/1")
    assert not other.knows("ada", "ada/2")
    # A device is noted again on each day, by the way that counts.
    clock.now += DAY_S
    assert not one.knows("ada", "ada/1")
    one.close()
    other.close()


def test_a_bound_of_devices_is_the_users_own_or_that_of_all(in_memory: MakeAdmission) -> None:
    admission = in_memory(devices_per_user=1)
    own, usual, unbounded = (
        Sender(Rights(devices_max=2), "own"),
        Sender(USUAL_RIGHTS, "usual"),
        Sender(USUAL_RIGHTS, "root", admin=True),
    )
    admitted = {
        sender.user: [admission.admits_device(sender, f"x/{number}") for number in range(4)]
        for sender in (own, usual, unbounded)
    }
    assert {user: sum(each) for user, each in admitted.items()} == {"own": 2, "usual": 1, "root": 4}
    assert not admission.is_metered(unbounded)
    bounded = Sender(Rights(devices_max=1), "root", admin=True)
    assert admission.devices_max(bounded) == 1


def test_devices_that_register_themselves_have_a_quota_of_their_own(
    in_memory: MakeAdmission,
) -> None:
    admission = in_memory()
    sender = Sender(Rights(fixes_per_minute=1))
    for _ in range(REGISTRATIONS_PER_MINUTE):
        admission.take_registration(sender)
    with pytest.raises(QuotaExceeded, match="may register devices or make links 10 times a min"):
        admission.take_registration(sender)
    admission.admit(sender, parsed("a"))


def test_users_who_are_asked_shown_or_blocked_are_counted_by_themselves(
    in_memory: MakeAdmission,
) -> None:
    admission = in_memory()
    sender = Sender(Rights())
    for _ in range(REGISTRATIONS_PER_MINUTE):
        admission.take_registration(sender)
    for _ in range(NAMED_USERS_PER_MINUTE):
        admission.take_named_user(sender)
    with pytest.raises(
        QuotaExceeded, match="may ask, show something to or block 10 users a minute"
    ):
        admission.take_named_user(sender)
