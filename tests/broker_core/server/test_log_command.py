"""`waylog log verify`, as an operator calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_core.environment import Environment
from broker_core.log import Log, LogConfig
from broker_core.protocol.batch_builder import build_batch
from waylog.cli import main


def make_log(folder: Path, topic: str) -> Path:
    """Write a log of five batches; return its only segment."""
    directory = folder / "broker" / "1" / "logs" / f"{topic}-0"
    directory.parent.mkdir(parents=True, exist_ok=True)
    log = Log.open(directory, topic, 0, LogConfig(), Environment.real())
    for number in range(5):
        batch = build_batch([(1_700_000_000_000, b"k", b"%d" % number, [])])
        log.append(batch, leader_epoch=0, now_ms=1_700_000_000_000)
    log.close()
    return directory / f"{0:020d}.log"


def test_sound_logs_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for topic in ("location", "address"):
        make_log(tmp_path, topic)
    assert main(["log", "verify", "--data", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("2 logs, 2 segments, 10 batches, ")
    assert said.endswith(" bytes: all sound\n")


def test_damage_is_named_with_file_and_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_log(tmp_path, "location")
    make_log(tmp_path, "address")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert main(["log", "verify", "--data", str(tmp_path)]) == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{path}, byte {len(data) * 4 // 5}: the CRC does not match; ")
    assert last.endswith("1 logs are damaged")
    assert main(["log", "verify", "--data", str(tmp_path), "--topic", "location", "--json"]) == 1
    (told,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (told["batches"], told["damage"][0]["file"]) == (4, str(path))
    assert main(["log", "verify", "--data", str(tmp_path), "--topic", "address"]) == 0


def test_a_log_without_segments_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_log(tmp_path, "location").unlink()
    assert main(["log", "verify", "--data", str(tmp_path)]) == 1
    assert "offsets 0 to 4 are lost" in capsys.readouterr().out


def test_a_folder_without_logs_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "verify", "--data", str(tmp_path)]) == 1
    assert "there are no logs in" in capsys.readouterr().err
