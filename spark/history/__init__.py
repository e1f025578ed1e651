"""The history: topic `location` as Parquet, packed, exported, erased."""
