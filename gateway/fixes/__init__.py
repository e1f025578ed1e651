"""The way of fixes into the log: from bytes to a record, repetitions, receipts."""
