"""Options of the task commands and of evaluations."""
