"""The examples of docs/history.md read a day out of a history."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark.fixes.schema import DAY_MS
from tests.spark.history.test_compaction import append, compact
from tests.spark.history.test_readers import rows
from waylog.history.row_layout import to_stored

TEXT = (Path(__file__).parents[2] / "docs/history.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
DATE = "2026-01-31"


def name_of(example: str) -> str:
    return example.partition("\n")[0].lstrip("# ").split()[-1]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fixes of the days around the one that the examples ask for, most of them packed."""
    moved = rows()
    names = moved["device"].to_pylist()
    for name, values in {
        "time": [each + 30 * DAY_MS for each in moved["time"].to_pylist()],
        "device": ["demo/phone" if name == "u/d2" else name for name in names],
    }.items():
        field = moved.schema.field(name)
        index = moved.schema.get_field_index(name)
        moved = moved.set_column(index, field, pa.array(values, field.type))
    out = tmp_path_factory.mktemp("examples") / "history"
    append(out, moved.slice(0, 400))
    compact(out)
    append(out, moved.slice(400))
    dates = to_stored(moved)["date"].cast(pa.string()).to_pylist()
    assert dates.count(DATE) == 120
    return out


def run(example: str, history: Path, **names: Any) -> dict[str, Any]:
    code = example.replace("data/history", str(history))
    assert code != example
    exec(compile(code, "docs/history.md", "exec"), names)
    return names


@pytest.mark.parametrize(
    "example", [each for each in EXAMPLES if name_of(each) != "Spark"], ids=name_of
)
def test_an_example_reads_the_fixes_of_a_day(example: str, history: Path) -> None:
    names = run(example, history)
    assert len(names["day"]) == 120
    if "open_history" in example:
        assert names["table"].column_names == ["device", "time", "lat", "lon"]
        assert names["track"].num_rows == 24
        assert names["table"].num_rows == 72
        assert len(names["files"]) == 2
        assert names["busiest"].fetchall()[0][1] == 120


@pytest.mark.spark
@pytest.mark.long
def test_the_example_of_spark_reads_the_fixes_of_a_day(history: Path) -> None:
    from spark.runtime.session import close_session, open_session

    [example] = [each for each in EXAMPLES if name_of(each) == "Spark"]
    session = open_session("waylog tests", planning_only=True)
    try:
        assert run(example, history, spark=session)["day"].count() == 120
    finally:
        close_session(session)
