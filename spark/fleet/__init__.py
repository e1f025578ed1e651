"""Analyses over all devices."""
