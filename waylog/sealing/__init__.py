"""Encryption of values in the log, so that only holders of the keys can read them."""
