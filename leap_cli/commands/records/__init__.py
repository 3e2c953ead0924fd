"""Commands about what was asked before: conversations, logged prompts, background jobs."""
