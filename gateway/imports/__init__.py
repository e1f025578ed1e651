"""Imports: files that users upload, read in a process of their own and stored as fixes."""
