"""``leap jobs``: a file for each idea of its verbs."""
