"""From parsed fixes to records in the log: encoding, deduplication, receipts."""
