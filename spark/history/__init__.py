"""The history: topic `location` as Parquet files, with compaction, export and erasure."""
