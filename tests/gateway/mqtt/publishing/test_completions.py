"""Several appends that are acknowledged as one."""

from __future__ import annotations

import asyncio

import pytest

from gateway.mqtt.publishing.completions import AllOf, has_failed


async def test_all_are_done_with_the_last_of_them() -> None:
    appends = [asyncio.get_running_loop().create_future() for _ in range(3)]
    told: list[bool] = []
    AllOf(appends).add_done_callback(lambda completion: told.append(has_failed(completion)))
    for append in appends:
        assert told == []
        append.set_result(None)
        await asyncio.sleep(0)
    assert told == [False]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_the_first_failure_is_that_of_all(is_cancelled: bool) -> None:
    appends = [asyncio.get_running_loop().create_future() for _ in range(3)]
    told: list[bool] = []
    AllOf(appends).add_done_callback(lambda completion: told.append(has_failed(completion)))
    if is_cancelled:
        appends[1].cancel()
    else:
        appends[1].set_exception(OSError())
    await asyncio.sleep(0)
    assert told == [True]
    for append in appends[::2]:
        append.set_result(None)
    await asyncio.sleep(0)
    assert told == [True]
