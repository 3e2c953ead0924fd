"""The host's process: its HTTP application and the models that it holds."""
