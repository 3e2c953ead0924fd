"""What people decide about the values of extractions, and what becomes of it."""
