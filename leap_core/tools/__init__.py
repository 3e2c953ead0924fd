"""Running functions that a model calls: policy, child processes, and the loop of calls and results."""
