"""Readers of recorded tracks, one file a format; see waylog.replay.detection for the table."""
