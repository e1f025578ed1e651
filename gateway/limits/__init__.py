"""Limits and shares: pools, token buckets, wrong guesses, addresses."""
