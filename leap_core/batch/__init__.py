"""Many requests from a JSONL file, answered at once, written as JSONL, and resumable after anything that ends them.

``batch_settings`` says what is asked for and ``checking`` reads all lines once, by ``input/``. ``batch_run`` answers
them, ``journal/`` keeps each result the moment it comes, and ``output/`` takes it when it is its turn.
"""
