"""The command line: what a person or a script types. It knows click; it knows nothing of tokens or SQL."""
