"""The bench of the index finds the candidates that there are."""

from __future__ import annotations

import json
import subprocess
import sys


def test_fences_of_everybody_are_candidates_for_the_devices_of_all() -> None:
    module = "consumers.streams.geofences.index_bench"
    done = subprocess.run(
        [sys.executable, "-m", module, "--fences", "20000"], capture_output=True, check=True
    )
    for_all, for_users = map(json.loads, done.stdout.splitlines())
    assert (for_all["fences_of"], for_users["fences_of"]) == ("everybody", "user")
    # A device is near one of its own; fences of others are nearby here and there.
    assert for_all["candidates_per_fix"] > for_users["candidates_per_fix"] > 0.3
