"""Spark sessions and the parts of a job."""
