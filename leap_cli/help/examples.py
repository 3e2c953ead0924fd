"""Examples of every command: ``leap COMMAND --help`` ends with them, and docs/reference.md shows them.

Run in this order, in one home, each of them works; tests/end_to_end/test_reference_examples.py does so.
"""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "generate": (
        "leap generate 'What is the capital of Italy?'",
        "leap generate --json-schema 'name, age int' 'Ada Lovelace was 36 years old.'",
        "echo 'What is the capital of Japan?' | leap generate -",
    ),
    "chat": (
        "printf 'My name is Ada.\\nWhat is my name?\\n' | leap chat",
        "printf 'Say hello.\\n' | leap chat --no-save",
    ),
    "say": (
        "leap say -m LFM2.5-Audio-1.5B 'Good morning.' -o morning.wav",
        "leap say -m LFM2.5-Audio-1.5B --voice uk-male -o - < report.txt | aplay",
    ),
    "batch": (
        "leap batch prompts.jsonl -o answers.jsonl --format plain",
        "leap batch - --format plain < prompts.jsonl",
    ),
    "transcribe": (
        "leap transcribe interview.mp3 -m LFM2.5-Audio-1.5B",
        "leap transcribe talk.wav -m LFM2.5-Audio-1.5B --format srt -o talk.srt",
    ),
    "download": (
        "leap download LFM2.5-350M:Q8_0 --dry-run",
        "leap download LiquidAI/LFM2-350M-GGUF:Q4_0 --background",
    ),
    "index make": (
        "leap index make notes . --include '*.py' --words-only",
    ),
    "index list": ("leap index list",),
    "index info": ("leap index info notes --format json",),
    "index update": ("leap index update",),
    "search": (
        "leap search notes 'which functions are there?'",
        "leap search notes def --format quiet",
    ),
    "ask": ("leap ask notes 'What is the capital of France?' --limit 1",),
    "index remove": ("leap index remove notes",),
    "embed": (
        "leap embed 'a text' -m builtin --pooling mean",
        "leap embed --lines prompts.jsonl -m builtin --pooling mean -o vectors.npy",
    ),
    "models import": ("leap models import model.gguf --name Mine --quant Q8_0",),
    "models list": ("leap models list",),
    "models catalogue": ("leap models catalogue --format quiet",),
    "models default": ("leap models default builtin",),
    "models info": ("leap models info Mine-Q8_0 --format json",),
    "models path": ("leap models path Mine-Q8_0",),
    "models verify": ("leap models verify Mine-Q8_0",),
    "models check": ("leap models check Mine-Q8_0",),
    "models manifest create": ("leap models manifest create model.gguf --temperature 0.3 -o model.json",),
    "models manifest check": ("leap models manifest check model.json",),
    "models gc": ("leap models gc --dry-run",),
    "models remove": ("leap models remove Mine-Q8_0",),
    "load": (
        "leap load builtin --keep-alive 5m",
        "leap load builtin --slots 8",
    ),
    "ps": ("leap ps --format jsonl",),
    "cache list": ("leap cache list --format jsonl",),
    "cache info": ("leap cache info",),
    "cache clear": ("leap cache clear --older-than 30d",),
    "unload": ("leap unload --all",),
    "serve": ("leap serve builtin --port 8080",),
    "mcp": ("leap mcp -m builtin </dev/null",),
    "tools add": ("leap tools add greet --command 'echo hello'",),
    "tools list": ("leap tools list --tools-file tools.py",),
    "tools show": ("leap tools show calculate",),
    "tools check": ("leap tools check greet",),
    "tools call": (
        'leap tools call calculate \'{"expression": "6 * 7"}\'',
        "leap tools call current_time",
    ),
    "tools remove": ("leap tools remove greet",),
    "schema show": ("leap schema show 'name, age int'",),
    "schema check": (
        "leap schema check 'name, age int' --format json",
        "leap schema check person.json --strict",
    ),
    "sessions list": (
        "leap sessions list",
        "leap sessions list --limit 5",
    ),
    "sessions show": ('leap sessions show "$(leap sessions list --limit 1 --format quiet)"',),
    "sessions search": ("leap sessions search Ada",),
    "sessions rename": ('leap sessions rename "$(leap sessions list --limit 1 --format quiet)" ada',),
    "export": (
        "leap export ada --format markdown",
        "leap export ada -o ada.md",
    ),
    "sessions remove": ("leap sessions remove ada",),
    "sessions prune": ("leap sessions prune --older-than 30d --dry-run",),
    "templates add": ("leap templates add capital 'What is the capital of {input}?' --temperature 0",),
    "templates list": ("leap templates list",),
    "templates show": ("leap templates show capital --format json",),
    "templates remove": ("leap templates remove capital",),
    "jobs wait": ("leap jobs wait \"$(leap generate --background 'Say hello.')\"",),
    "jobs list": (
        "leap jobs list --state succeeded",
        "leap jobs list --format jsonl",
    ),
    "jobs status": ('leap jobs status "$(leap jobs list --limit 1 --format quiet)"',),
    "jobs logs": ('leap jobs logs "$(leap jobs list --limit 1 --format quiet)"',),
    "jobs cancel": ("leap jobs cancel \"$(leap generate --background 'Count to 300.')\"",),
    "jobs retry": ('leap jobs retry "$(leap jobs list --state cancelled --limit 1 --format quiet)"',),
    "jobs stats": ("leap jobs stats --format json",),
    "jobs worker": ("leap jobs worker --status",),
    "jobs remove": ('leap jobs remove "$(leap jobs list --state succeeded --limit 1 --format quiet)"',),
    "jobs prune": ("leap jobs prune --older-than 7d --dry-run",),
    "config set": (
        "leap config set options.generate.temperature 0.2",
        "leap config set options.temperature 0.2",
    ),
    "config list": ("leap config list --format jsonl",),
    "config get": ("leap config get options.generate.temperature",),
    "config unset": ("leap config unset options.generate.temperature",),
    "config path": ("leap config path",),
    "config edit": ("EDITOR=true leap config edit",),
    "help": ("leap help", "leap help schemas", "leap help jobs wait"),
    "doctor": ("leap doctor",),
    "completion": (
        "leap completion zsh > _leap",
        "leap completion fish > leap.fish",
    ),
}
