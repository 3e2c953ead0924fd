"""A model kept warm in another process, spoken to in OpenAI's chat-completions protocol over loopback.

``connection.ModelHost`` finds, starts and asks the host; ``remote.RemoteModelRunner`` is a model that it holds.
``python -m leap_core.host`` is the host itself.
"""
