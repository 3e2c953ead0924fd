"""Models elsewhere, asked over OpenAI's protocol: the counterpart of ``leap_core.openai``, which answers it."""
