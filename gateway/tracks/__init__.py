"""Tracks of devices over any period, from the history in Parquet."""
