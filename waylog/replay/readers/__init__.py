"""Readers of recorded tracks, one module for each format.

waylog.replay.readers.detection has the table of all.
"""
