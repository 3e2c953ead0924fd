"""The server of models: warm for one user, or for other programs, over HTTP."""
