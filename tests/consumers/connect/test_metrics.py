"""/metrics of a worker, by the names of Kafka Connect's MBeans."""

from __future__ import annotations

import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.consumers.connect.connect_process import (
    ConnectProcess,
    DistributedProcess,
    create_topic,
    lines_of,
    produce,
    wait_until,
)
from waylog.history.erasures import append_erasures

MakeWorker = Callable[..., ConnectProcess]
MakeGroup = Callable[..., list[DistributedProcess]]


def unique(prefix: str) -> str:
    """Return a name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def scraped(worker: ConnectProcess) -> dict[tuple[str, ...], float]:
    """Return the samples, by name and values of labels."""
    with urllib.request.urlopen(worker.url + "/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        (sample.name.removeprefix("kafka_connect_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_records_and_errors_are_counted(
    servers: str, make_worker: MakeWorker, tmp_path: Path
) -> None:
    topic, out, erased = unique("in"), tmp_path / "out.txt", unique("anna") + "/phone"
    create_topic(servers, topic)
    now_ms = round(time.time() * 1000)
    append_erasures(servers, [erased], now_ms)
    produce(servers, topic, [b'"a"', b"no json", b'"b"'])
    produce(servers, topic, [b'"erased"'], key=erased.encode(), timestamp=now_ms)
    worker = make_worker(servers)
    worker.start()
    worker.create(
        "out",
        {
            "connector.class": "FileStreamSink",
            "topics": topic,
            "file": str(out),
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false",
            "errors.tolerance": "all",
        },
    )
    source = tmp_path / "in.txt"
    source.write_text("one\ntwo\n")
    worker.create(
        "in", {"connector.class": "FileStreamSource", "topic": unique("t"), "file": str(source)}
    )
    wait_until(lambda: lines_of(out) == ["a", "b"], "the lines", worker)
    written = ("source_task_metrics_source_record_write_total", "in", "0")
    wait_until(lambda: scraped(worker).get(written) == 2, "two records", worker)
    read = ("sink_task_metrics_sink_record_read_total", "out", "0")
    wait_until(lambda: scraped(worker).get(read) == 4, "four records", worker)
    active = ("source_task_metrics_source_record_active_count", "in", "0")
    wait_until(lambda: scraped(worker).get(active) == 0, "none is on its way", worker)
    commits = ("sink_task_metrics_offset_commit_completion_total", "out", "0")
    wait_until(lambda: scraped(worker).get(commits, 0) > 0, "a commit", worker)
    found = scraped(worker)
    assert {
        name[0].removeprefix("sink_task_metrics_"): value
        for name, value in found.items()
        if name[0].startswith("sink_task_metrics_sink") and name[1:] == ("out", "0")
    } == {"sink_record_read_total": 4, "sink_record_send_total": 2, "sink_record_erased_total": 1}
    assert found["sink_task_metrics_partition_count", "out", "0"] == 1
    assert found["sink_task_metrics_put_batch_time_ms_count_total", "out", "0"] >= 1
    assert found["task_error_metrics_records_skipped_total", "out", "0"] == 1
    assert found["connect_worker_metrics_connector_count",] == 2
    assert found["connect_worker_metrics_task_startup_success_total",] == 2
    assert found["connect_worker_metrics_connector_running_task_count", "in"] == 1
    assert found["connector_metrics_status", "in", "running"] == 1
    assert found["process_resident_memory_bytes",] > 0


def test_a_group_tells_of_its_rebalances(servers: str, make_group: MakeGroup) -> None:
    (worker,) = make_group(1, unique("metrics"))
    worker.start()
    prefix = "connect_worker_rebalance_metrics_"
    wait_until(lambda: scraped(worker)[f"{prefix}rebalancing",] == 0, "it is done", worker)
    found = scraped(worker)
    assert found[f"{prefix}leader",] == 1
    assert found[f"{prefix}completed_rebalances_total",] >= 1
    assert found[f"{prefix}epoch",] >= 1
