"""Ranges of offsets: which there are, and reading them to their end. It blocks."""
