"""Benchmarks of single parts, beside their peers."""
