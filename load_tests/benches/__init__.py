"""Benchmarks of single parts of the platform, and of comparable programs."""
