"""The prompt: from arguments, files and standard input."""
