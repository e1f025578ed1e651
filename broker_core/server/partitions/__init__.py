"""Partitions as the server holds them: topics, replicas, flushing, retention."""
