"""The examples of docs/spark.md run, one after the other, on a history."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from geoservice.index.store import WORLD_PATH
from tests.spark.places.test_job import table_of, write_history
from tests.spark.synthetic import make_person

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = (Path(__file__).parents[2] / "docs/spark.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_the_examples_run_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("examples")
    monkeypatch.chdir(folder)
    people = {f"demo/phone{seed}": make_person(seed, 12) for seed in range(2)}
    write_history(folder / "data/history", table_of(people))
    shutil.copy(WORLD_PATH, folder / "germany.idx")
    names: dict[str, Any] = {}
    for example in EXAMPLES:
        exec(compile(example, "docs/spark.md", "exec"), names)
    session: SparkSession = names["session"]
    try:
        assert names["stays"].count() > 50
        assert names["visits_by_place"].count() > 5
        assert names["homes"].count() == 2
        assert names["ways"].count() > 0
        towns = {row[0] for row in names["towns"].collect()}
        assert "Berlin" in towns
        assert names["cells"].agg({"count": "sum"}).collect()[0][0] == names["fixes"].count()
        [street] = names["street"].limit(1).collect()
        assert street.address.address["country_code"] == "de"
        # There is one session, which the example of another one finds.
        assert names["own"] is session
    finally:
        from spark import close_session

        close_session(session)
