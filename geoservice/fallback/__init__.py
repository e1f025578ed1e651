"""Queries to external geocoders for points that our index has no answer for."""
