"""HttpSource: polls a server for JSON, and makes records of it."""
