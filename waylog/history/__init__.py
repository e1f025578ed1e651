"""Reads a history, wherever it is stored, and the log of erased devices."""
