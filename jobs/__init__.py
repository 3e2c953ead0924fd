"""Work that outlives the command that asked for it, and loses nothing: batches, background jobs and their worker."""
