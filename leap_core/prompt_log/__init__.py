"""The log of prompts and answers, kept where the user asked for it: a database, and runners that write to it."""
