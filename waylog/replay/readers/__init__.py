"""Readers of recorded tracks, one file a format; see waylog.replay.readers.detection for the table."""
