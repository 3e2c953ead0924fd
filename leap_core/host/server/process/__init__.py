"""The process: how it starts and ends, who may speak to it, what it logs and measures."""
