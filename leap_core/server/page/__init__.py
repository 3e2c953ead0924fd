"""The page for people, and what it may do beside asking models: render Markdown, keep sessions, run tools, search."""
