from __future__ import annotations

from load_tests.benches.broker_bench import Case, cases, measure, row, values


def test_both_sizes_are_measured_with_every_codec_and_both_acknowledgements() -> None:
    assert len(cases()) == 20
    assert {len(value) for size in (120, 1024) for value in values(size)} == {120, 1024}


def test_rates_processor_time_latency_and_memory_of_a_broker_are_measured() -> None:
    found = list(
        measure(
            5_000,
            jars=None,
            rounds=1,
            wanted=[Case(120, "lz4", "all")],
            paced=(2_000, 0.5),
            lingers_ms=(0,),
            rest_s=0.0,
        )
    )
    assert [each["kind"] for each in found] == ["throughput", "latency", "memory"]
    throughput, latency, memory = found
    assert all(each["passed"] for each in found)
    assert throughput["produced_per_s"] > 100 < throughput["consumed_per_s"]
    assert 0 < latency["p50_ms"] <= latency["p99_ms"]
    assert memory["ready_s"] > 0
    assert 20 < memory["rest_mib"] <= memory["loaded_mib"] * 1.1
    assert all(row(each).count("|") == 6 for each in found)
