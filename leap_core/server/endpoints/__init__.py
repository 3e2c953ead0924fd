"""The endpoints of each protocol, and what they keep for clients."""
