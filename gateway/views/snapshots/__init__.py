"""Snapshots of views on disk, so that a start need not read the whole log."""
