from __future__ import annotations

import pytest

from broker_core.cluster.settings import ControllerSettings
from broker_core.errors import InvalidPartitions, InvalidTopic, TopicAlreadyExists
from tests.broker_core.cluster.conftest import Bench


def test_names_collide_as_long_as_the_other_topic_exists(bench: Bench) -> None:
    bench.run(1)
    topic = bench.create("a.b_c", [1])
    with pytest.raises(TopicAlreadyExists):
        bench.create("a.b_c", [1])
    for name in ("a.b.c", "a_b_c", "a_b.c"):
        with pytest.raises(InvalidTopic, match=r"collides with existing topic: a\.b_c"):
            bench.create(name, [1])
    copy = bench.image.copy()
    bench.controller.topics.delete(topic)
    bench.create("a_b_c", [1])
    assert copy.collision("a_b_c") == "a.b_c"


def test_room_that_a_deleted_topic_took_is_free_again() -> None:
    bench = Bench(ControllerSettings(partitions_max=4))
    bench.run(1)
    topic = bench.create("a", [1], [1], [1])
    with pytest.raises(InvalidPartitions):
        bench.create("b", [1], [1])
    bench.controller.topics.grow(topic, 4, None, validate_only=False)
    with pytest.raises(InvalidPartitions):
        bench.controller.topics.grow(topic, 5, None, validate_only=False)
    assert bench.image.copy().partition_count == 4
    bench.controller.topics.delete(topic)
    bench.create("b", [1], [1], [1], [1])
