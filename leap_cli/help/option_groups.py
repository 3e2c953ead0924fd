"""The headings under which ``--help`` lists the options that many commands share."""

from __future__ import annotations

GROUPS: dict[str, tuple[str, ...]] = {
    "Prompt": (
        "template",
        "param",
        "pattern",
        "system",
        "files",
        "images",
        "sounds",
        "image_tokens",
        "image_tiles",
        "raw",
        "dry_run",
        "save_template",
    ),
    "Answer": (
        "target",
        "count",
        "extract",
        "extract_last",
        "stream",
        "format",
        "output_format",
        "stats",
        "speak",
        "speech",
        "play",
        "voice",
        "top_logprobs",
    ),
    "Shape": ("json_schema", "json_schema_multi", "choices", "regex", "grammar", "schema_in_prompt"),
    "Reasoning": ("think", "show_thinking"),
    "Sampling": (
        "temperature",
        "top_p",
        "min_p",
        "top_k",
        "repetition_penalty",
        "frequency_penalty",
        "presence_penalty",
        "repeat_last_n",
        "audio_temperature",
        "audio_top_k",
        "rng_seed",
        "max_tokens",
        "stop",
        "logit_bias",
        "audio_temperature",
        "audio_top_k",
        "logit_bias",
    ),
    "Tools": ("tool", "tools_file", "tools", "tool_choice", "allow_tool", "show_calls", "chain_limit", "call_parser"),
    "Session": ("continue_last", "session", "save"),
    "Model": (
        "model",
        "context_size",
        "cpu_threads",
        "n_gpu_layers",
        "mmproj",
        "lora",
        "mm_proj_path",
        "kv_type_k",
        "kv_type_v",
        "flash_attention",
        "mmap",
        "batch_size",
        "lookup",
        "prompt_cache_size",
        "chat_template",
        "kv_type_k",
        "kv_type_v",
        "flash_attention",
        "use_mmap",
        "batch_size",
        "prompt_cache",
        "prompt_cache_size",
        "host",
        "verbose",
    ),
    "Background": ("background", "priority", "job_retries"),
}
"""Names of options by heading, in the order in which the headings stand; other options come first, as "Options"."""

_GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}
FEWEST = 14
"""Options from which on a command's help has headings."""


def grouped(names: list[str]) -> list[tuple[str, list[str]]]:
    """The names under their headings; all under "Options" where they are few."""
    if len(names) < FEWEST:
        return [("Options", names)]
    own = [name for name in names if name not in _GROUP_OF]
    groups = [(group, [name for name in names if _GROUP_OF.get(name) == group]) for group in GROUPS]
    return [(group, members) for group, members in [("Options", own), *groups] if members]
