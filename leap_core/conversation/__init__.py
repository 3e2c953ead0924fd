"""What a program holds: messages, options, runners, conversations, their streams, and what is kept of them."""
