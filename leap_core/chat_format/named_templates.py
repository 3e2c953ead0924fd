"""Chat templates of well-known formats, for models whose file has none."""

from __future__ import annotations

_SYSTEM_FIRST = (
    "{%- set ns = namespace(system='') -%}"
    "{%- for message in messages if message.role == 'system' -%}{%- set ns.system = message.content -%}{%- endfor -%}"
)
NAMED_TEMPLATES = {
    "chatml": (
        "{{- bos_token -}}{%- for message in messages -%}"
        "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
    ),
    "llama3": (
        "{{- bos_token -}}{%- for message in messages -%}{{- '<|start_header_id|>' + message.role +"
        " '<|end_header_id|>\\n\\n' + (message.content | trim) + '<|eot_id|>' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}{%- endif -%}"
    ),
    "gemma": (
        _SYSTEM_FIRST + "{{- bos_token -}}{%- for message in messages if message.role != 'system' -%}"
        "{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' +"
        " ((ns.system + '\\n\\n') if loop.first and ns.system else '') + (message.content | trim) +"
        " '<end_of_turn>\\n' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}"
    ),
    "alpaca": (
        "{{- bos_token -}}{%- for message in messages -%}"
        "{{- {'system': '', 'user': '### Instruction:\\n', 'assistant': '### Response:\\n', 'tool': '### Input:\\n'}"
        "[message.role] + message.content + '\\n\\n' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '### Response:\\n' -}}{%- endif -%}"
    ),
}
"""Jinja texts by name. ``system`` comes before the first question where a format has no place for it."""
