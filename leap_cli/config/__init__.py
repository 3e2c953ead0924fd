"""Settings by key, changing config.toml, and saved prompts."""
