"""Values of the log that only the holder of the keys can read."""
