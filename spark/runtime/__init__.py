"""Spark sessions and the execution of tasks."""
