"""Scheduling in Python: many sequences over one llama.cpp context, in batches."""
