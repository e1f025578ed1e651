"""The queue of passwords to verify, and its order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from gateway.limits.password_queue import SHARE_MAX, WAITING_MAX, PasswordQueue, QueueFull


class Gate:
    """Verifies in the order chosen by the queue, once it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.verified: list[str] = []

    def fits(self, hashed: str, password: str) -> bool:
        self.open.wait(60)
        self.verified.append(password)
        return hashed == password


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


async def ask(queue: PasswordQueue, address: str, user: str, password: str) -> asyncio.Task[bool]:
    task = asyncio.create_task(queue.verify(address, user, "right", password))
    await asyncio.sleep(0)
    return task


async def test_somebody_from_elsewhere_waits_for_one_guess_and_not_for_all(gate: Gate) -> None:
    queue = PasswordQueue(gate.fits)
    guesses = [await ask(queue, "203.0.113.9", "ada", f"guess {n}") for n in range(40)]
    honest = await ask(queue, "198.51.100.7", "ada", "right")
    gate.open.set()
    assert await honest is True
    answers = await asyncio.gather(*guesses, return_exceptions=True)
    assert sum(answer is False for answer in answers) in (SHARE_MAX, SHARE_MAX + 1)
    assert all(answer is False or isinstance(answer, QueueFull) for answer in answers)
    assert gate.verified.index("right") <= 2
    queue.close()


async def test_who_invents_names_behind_one_proxy_leaves_room_for_those_who_have_one(
    gate: Gate,
) -> None:
    queue = PasswordQueue(gate.fits)
    guesses = [await ask(queue, "127.0.0.1", "", f"guess {n}") for n in range(40)]
    honest = await ask(queue, "127.0.0.1", "ada", "right")
    more = [await ask(queue, "127.0.0.1", "", f"more {n}") for n in range(40)]
    gate.open.set()
    assert await honest is True
    assert gate.verified.index("right") <= 2
    await asyncio.gather(*guesses, *more, return_exceptions=True)
    queue.close()


async def test_the_queue_is_bounded_and_who_has_most_in_it_loses_his_newest(gate: Gate) -> None:
    queue = PasswordQueue(gate.fits)
    guesses = [
        await ask(queue, f"203.0.113.{n % 8}", f"user{n}", f"guess {n}")
        for n in range(2 * WAITING_MAX)
    ]
    assert len(queue) <= WAITING_MAX
    honest = await ask(queue, "198.51.100.7", "ada", "right")
    assert len(queue) <= WAITING_MAX
    gate.open.set()
    assert await honest is True
    await asyncio.gather(*guesses, return_exceptions=True)
    queue.close()


async def test_an_error_of_one_verification_is_its_own(gate: Gate) -> None:
    def fits(hashed: str, password: str) -> bool:
        if password == "bad":
            raise ValueError(hashed)
        return True

    queue = PasswordQueue(fits)
    first = await ask(queue, "a", "ada", "bad")
    second = await ask(queue, "a", "ada", "good")
    with pytest.raises(ValueError, match="right"):
        await first
    assert await second is True
    queue.close()
