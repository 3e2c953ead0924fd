"""Commands that put a prompt to a model, or search files; and the templates and tools that prompts use."""
