"""Whether a prompt longer than the context makes LiteLLM go on with its fallback model, over both protocols.

    pip install litellm; python scripts/litellm_fallback.py [PYTHON WITH LEAP]

It starts two servers of the built-in model: one with a context of 64 tokens, one with the usual one.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def server(*options: str) -> Iterator[str]:
    """The base URL of a server, without /v1."""
    command = [sys.executable, "-m", "leap_cli", "serve", "builtin", "--port", "0", *options]
    if len(sys.argv) > 1:  # another Python than LiteLLM's
        command[0] = sys.argv[1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            url = process.stdout.readline().strip()
            process.stderr.readline()  # it is ready
            yield url.removesuffix("/v1")
        finally:
            process.terminate()


def main() -> int:
    import litellm

    long = [{"role": "user", "content": "word " * 200}]
    with server("--context-size", "64") as small, server() as large:
        for provider, suffix in (("openai", "/v1"), ("anthropic", "")):
            given = {"api_key": "none", "max_tokens": 4}
            with contextlib.suppress(litellm.ContextWindowExceededError):
                litellm.completion(model=f"{provider}/builtin", api_base=small + suffix, messages=long, **given)
                print(f"{provider}: no error")
                return 1
            router = litellm.Router(
                model_list=[
                    {
                        "model_name": name,
                        "litellm_params": {"model": f"{provider}/builtin", "api_base": url + suffix, **given},
                    }
                    for name, url in (("small", small), ("large", large))
                ],
                context_window_fallbacks=[{"small": ["large"]}],
                num_retries=0,
            )
            answer = router.completion(model="small", messages=long)
            tokens = answer.usage.completion_tokens
            print(f"{provider}: ContextWindowExceededError; the fallback answered with {tokens} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
