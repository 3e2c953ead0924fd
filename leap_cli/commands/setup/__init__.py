"""Commands about this installation: settings, diagnosis, documentation."""
