"""What all tests share."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# A deadline is a timed test: on a busy machine an example takes long without a reason of its own.
settings.register_profile("waylog", deadline=None)
settings.load_profile("waylog")


@pytest.fixture(autouse=True)
def _same_umask_afterwards() -> Iterator[None]:
    """A command that runs in this process makes its umask private for good."""
    umask = os.umask(0o077)
    os.umask(umask)
    yield
    os.umask(umask)
