"""Commands that do a task to texts, and the recipes of tasks."""
