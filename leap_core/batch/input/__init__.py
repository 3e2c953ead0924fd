"""The lines of a batch: read from JSONL, JSON or a table, checked once, and read again when their turn comes."""
