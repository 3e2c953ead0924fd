"""OpenAI's bodies: requests read into messages and options, replies and errors written."""
