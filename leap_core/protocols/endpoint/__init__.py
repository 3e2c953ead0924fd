"""Remote models, asked over OpenAI's protocol: the counterpart of ``protocols.openai``, which answers it."""
