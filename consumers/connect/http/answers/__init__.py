"""Answers of HTTP servers, and what they mean for the records of a request."""
