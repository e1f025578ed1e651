"""Ways of devices over any time, out of the history in Parquet."""
