"""Pictures and sound as files and arrays. Imports no model runtime."""
