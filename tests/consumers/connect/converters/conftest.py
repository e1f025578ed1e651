"""A schema registry for the tests of converters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.registry_process import Registry, registry_with_broker


@pytest.fixture(scope="package")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry_with_broker(tmp_path_factory.mktemp("registry")) as running:
        yield running
