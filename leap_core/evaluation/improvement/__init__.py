"""Better answers to cases: options, examples and prompts that are found, adapters that are trained, and their data."""
