"""The conversation of ``leap chat``: typed at a terminal with an editor and commands, or read from a pipe."""
