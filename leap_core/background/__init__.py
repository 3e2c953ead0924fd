"""Processes of leap's own that outlive the command that starts them."""
