"""Chat templates of formats that no model has: how each writes calls and reasoning, for tests of what is learned."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = (
    "{%- if tools %}{{ '<|sys|>' + (tools | tojson) + '<|eot|>' }}{% endif -%}"
    "{%- for message in messages %}"
    "{%- if message.role != 'assistant' %}{{ '<|' + message.role + '|>' + message.content + '<|eot|>' }}"
    "{%- else %}{{ '<|bot|>' }}"
)
TAIL = (
    "{{ '<|eot|>' }}{% endif %}{% endfor -%}{%- if add_generation_prompt %}{{ '<|bot|>' }}{% if OPENS %}{{ 'OPENED' }}"
    "{% endif %}{% endif -%}"
)
EACH = "{% for call in message.tool_calls or [] %}{% set f = call.function %}"
SECTION = "{% if message.tool_calls %}"


@dataclass(frozen=True)
class Unseen:
    """``calls``: the part of the template that writes calls. ``thought``: what is around reasoning. ``opens``: whether
    the prompt begins it. ``answer``: what is around the answer. ``is_learned``: whether calls can be read."""

    calls: str
    thought: tuple[str, str] = ("", "")
    opens: bool = False
    answer: tuple[str, str] = ("", "")
    is_learned: bool = True

    @property
    def template(self) -> str:
        begin, end = self.thought
        thought = (
            "{% if message.reasoning_content %}{{ 'BEGIN' + message.reasoning_content + 'END' }}{% endif %}"
            if begin
            else ""
        )
        content = (
            "{% if message.content %}{{ '"
            + self.answer[0]
            + "' + message.content + '"
            + self.answer[1]
            + "' }}{% endif %}"
        )
        opened = TAIL.replace("OPENS", str(self.opens)).replace("OPENED", begin)
        return HEAD + thought.replace("BEGIN", begin).replace("END", end) + content + self.calls + opened


UNSEEN = {
    "an object in a tag": Unseen(
        EACH + "{{ '<fn_call>' + ({'name': f.name, 'arguments': f.arguments} | tojson) + '</fn_call>' }}{% endfor %}",
        ("<reflect>", "</reflect>\\n"),
    ),
    "a list with other keys": Unseen(
        SECTION + "{{ '<|actions|>[' }}" + EACH + '{{ \'{"fn": "\' + f.name + \'", "kwargs": \' +'
        " (f.arguments | tojson) + '}' }}{{ ', ' if not loop.last }}{% endfor %}{{ ']<|/actions|>' }}{% endif %}",
        ("<|muse|>", "<|/muse|>"),
        opens=True,
    ),
    "values with types": Unseen(
        SECTION + "{{ '<invocations>\\n' }}" + EACH + "{{ '<invoke tool=\"' + f.name + '\">\\n' }}"
        "{% for key, value in f.arguments.items() %}{{ '<arg name=\"' + key + '\" kind=\"' +"
        " ('str' if value is string else 'json') + '\">' + (value if value is string else value | tojson) +"
        " '</arg>\\n' }}{% endfor %}{{ '</invoke>\\n' }}{% endfor %}{{ '</invocations>' }}{% endif %}",
        ("<ponder>\\n", "\\n</ponder>\\n\\n"),
    ),
    "names as tags": Unseen(
        SECTION + "{{ '<use>' }}" + EACH + "{{ '<' + f.name + '>' }}{% for key, value in f.arguments.items() %}"
        "{{ '<' + key + '>' + (value if value is string else value | tojson) + '</' + key + '>' }}{% endfor %}"
        "{{ '</' + f.name + '>' }}{% endfor %}{{ '</use>' }}{% endif %}",
    ),
    "like functions": Unseen(
        EACH + "{{ '<|run|>' + f.name + '(' }}{% for key, value in f.arguments.items() %}{{ key + '=' +"
        " (value | tojson) }}{{ ', ' if not loop.last }}{% endfor %}{{ ')<|ran|>' }}{% endfor %}",
        ("[REASON]", "[/REASON]"),
    ),
    "numbers before": Unseen(
        SECTION + "{{ '<|calls|>' }}" + EACH + "{{ '<|no|>' ~ loop.index ~ '<|fn|>' + f.name + '<|in|>' +"
        " (f.arguments | tojson) + '<|out|>' }}{% endfor %}{{ '<|/calls|>' }}{% endif %}",
    ),
    "ids before": Unseen(
        EACH
        + "{{ '[CALL]' + call.id + '[FN]' + f.name + '[GIVEN]' + (f.arguments | tojson) + '[/CALL]' }}{% endfor %}",
        ("<inner>", "</inner>"),
        answer=("<say>", "</say>"),
    ),
    "ids after": Unseen(
        EACH + "{{ '<do>' + f.name + ' ' + (f.arguments | tojson) + '<id>' + call.id + '</id></do>' }}{% endfor %}",
    ),
    "no end": Unseen(
        EACH + "{{ '<|tool|>' + f.name + '<|args|>' + (f.arguments | tojson) }}{% endfor %}",
        ("<|cot|>", "<|/cot|>"),
        opens=True,
    ),
    "keys of JSON": Unseen(
        SECTION + "{{ '<plan>[' }}" + EACH + "{{ {f.name: f.arguments} | tojson }}{{ ',' if not loop.last }}"
        "{% endfor %}{{ ']</plan>' }}{% endif %}",
    ),
    "types as tags": Unseen(
        EACH + "{{ '<op name=\"' + f.name + '\">' }}{% for key, value in f.arguments.items() %}"
        "{% set kind = 'text' if value is string else 'data' %}{{ '<' + kind + ' for=\"' + key + '\">' +"
        " (value if value is string else value | tojson) + '</' + kind + '>' }}{% endfor %}{{ '</op>' }}{% endfor %}",
    ),
    "values on their own lines": Unseen(
        SECTION
        + "{{ '<ops>\\n' }}"
        + EACH
        + "{{ '<op:' + f.name + '>\\n' }}{% for key, value in f.arguments.items() %}"
        "{{ '<p:' + key + '>\\n' + (value if value is string else value | tojson) + '\\n</p:' + key + '>\\n' }}"
        "{% endfor %}{{ '</op>\\n' }}{% endfor %}{{ '</ops>' }}{% endif %}",
        ("<mull>", "</mull>"),
    ),
    "a call in an object": Unseen(
        EACH + "{{ '<|fc|>' + ({'type': 'function', 'function': {'name': f.name, 'arguments': f.arguments}} | tojson) +"
        " '<|/fc|>\\n' }}{% endfor %}",
    ),
    "lines of names and values": Unseen(
        EACH + "{{ 'call ' + f.name + '\\n' }}{% for key, value in f.arguments.items() %}{{ '  ' + key + ': ' +"
        " (value | string) + '\\n' }}{% endfor %}{{ 'end\\n' }}{% endfor %}",
        ("<mull>", "</mull>"),
        is_learned=False,
    ),
    "quotes of its own": Unseen(
        EACH + "{{ '<do>' + f.name + '{' }}{% for key, value in f.arguments.items() %}{{ key + ':' +"
        " ('«' + value + '»' if value is string else value | tojson) }}{{ ',' if not loop.last }}{% endfor %}"
        "{{ '}</do>' }}{% endfor %}",
        is_learned=False,
    ),
    "no calls at all": Unseen("", is_learned=False),
}
