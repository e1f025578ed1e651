"""Fixes as Arrow columns, read from the log and from the history's files."""
