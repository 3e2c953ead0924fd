"""The worker: one process for a data directory, which runs jobs from the queue."""
