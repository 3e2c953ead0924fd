"""The table of commands: where each lives, and what ``leap --help`` says of it without importing it."""

from __future__ import annotations

import click

from leap_core.system.features import is_there

from .framework.click_classes import CONTEXT_SETTINGS, CommandTable, HelpGuide, TableEntry
from .framework.environment import Environment

ASK, TASKS, SEARCH, MODELS, BUILD, WORK, SETUP = "Ask", "Tasks", "Search", "Models", "Tools", "Work", "Setup"
GROUPS = (ASK, TASKS, SEARCH, MODELS, BUILD, WORK, SETUP)

COMMANDS = {
    "generate": TableEntry("leap_cli.commands.ask.generate", "Answer one prompt.", ASK),
    "chat": TableEntry("leap_cli.commands.ask.chat", "Chat with a model.", ASK),
    "say": TableEntry("leap_cli.commands.ask.say", "Text-to-speech to a file or the loudspeaker.", ASK),
    "talk": TableEntry("leap_cli.commands.ask.talk", "Voice chat with a model.", ASK),
    "batch": TableEntry("leap_cli.commands.ask.batch", "Answer many prompts from a file.", ASK),
    "transcribe": TableEntry("leap_cli.commands.ask.transcribe", "Speech-to-text: transcribe audio files.", ASK),
    "index": TableEntry("leap_cli.commands.ask.search", "Index files for search and RAG.", SEARCH, "index_command"),
    "search": TableEntry(
        "leap_cli.commands.ask.search", "Semantic and keyword search in indexed files.", SEARCH, "search_command"
    ),
    "ask": TableEntry(
        "leap_cli.commands.ask.search", "RAG: answer a question from indexed files.", SEARCH, "ask_command"
    ),
    "embed": TableEntry("leap_cli.commands.ask.embed", "Compute embeddings of texts.", SEARCH),
    "extract": TableEntry("leap_cli.commands.tasks.extract", "Extract data as JSON that matches a schema.", TASKS),
    "translate": TableEntry("leap_cli.commands.tasks.text_tasks", "Translate texts.", TASKS, "translate_command"),
    "summarize": TableEntry(
        "leap_cli.commands.tasks.text_tasks", "Summarize texts and meetings.", TASKS, "summarize_command"
    ),
    "redact": TableEntry(
        "leap_cli.commands.tasks.text_tasks", "Redact personal data (PII), or restore it.", TASKS, "redact_command"
    ),
    "classify": TableEntry(
        "leap_cli.commands.tasks.text_tasks", "Zero-shot classification of texts.", TASKS, "classify_command"
    ),
    "decide": TableEntry(
        "leap_cli.commands.tasks.decide", "Answer questions by yes or no, a choice or a score.", TASKS
    ),
    "eval": TableEntry("leap_cli.commands.tasks.eval", "Evaluate models on your own test cases.", TASKS),
    "improve": TableEntry("leap_cli.commands.tasks.improve", "Optimize prompt, settings and model.", TASKS),
    "train": TableEntry("leap_cli.commands.tasks.train", "Fine-tune a LoRA adapter.", MODELS),
    "download": TableEntry("leap_cli.commands.models.download", "Download a model, or resume one.", MODELS),
    "models": TableEntry("leap_cli.commands.models.group", "List, check, measure, import and remove models.", MODELS),
    "load": TableEntry(
        "leap_cli.commands.models.warm", "Keep a model loaded in the background.", MODELS, "load_command"
    ),
    "ps": TableEntry("leap_cli.commands.models.warm", "List loaded models.", MODELS, "ps_command"),
    "unload": TableEntry("leap_cli.commands.models.warm", "Unload a loaded model.", MODELS, "unload_command"),
    "engine": TableEntry("leap_cli.commands.models.engine", "Choose, add and download builds of llama.cpp.", SETUP),
    "serve": TableEntry("leap_cli.commands.models.serve", "Serve an OpenAI- and Anthropic-compatible API.", MODELS),
    "launch": TableEntry("leap_cli.commands.models.launch", "Start a coding agent on a local model.", BUILD),
    "mcp": TableEntry("leap_cli.commands.models.mcp", "Run an MCP server of leap's features.", BUILD),
    "tools": TableEntry("leap_cli.commands.ask.tools", "List, add, check and call tools for models.", BUILD),
    "saved": TableEntry("leap_cli.commands.ask.saved", "Save templates, schemas and recipes.", BUILD),
    "sessions": TableEntry("leap_cli.commands.records.sessions", "List conversations and logged prompts.", WORK),
    "why": TableEntry("leap_cli.commands.records.why", "Explain why a request was slow, or ended so.", WORK),
    "export": TableEntry("leap_cli.commands.records.export", "Export conversations as JSON, JSONL or Markdown.", WORK),
    "jobs": TableEntry("leap_cli.commands.records.jobs", "Watch, cancel and retry background jobs.", WORK),
    "setup": TableEntry("leap_cli.commands.setup.setup", "First-time setup: model, completion, keep-alive.", SETUP),
    "config": TableEntry("leap_cli.commands.setup.config", "Show and change settings and their sources.", SETUP),
    "doctor": TableEntry("leap_cli.commands.setup.doctor", "Diagnose the installation.", SETUP),
    "help": TableEntry("leap_cli.commands.setup.help", "Print or search the documentation.", SETUP),
    "completion": TableEntry("leap_cli.commands.setup.completion", "Install TAB completion.", SETUP),
}
FEATURES = ("talk", "eval", "improve", "train", "launch", "mcp", "decide", "index", "search", "ask")
"""Commands of features whose files may be taken out of leap (``tests/test_features.py`` lists them)."""
COMMANDS = {name: entry for name, entry in COMMANDS.items() if name not in FEATURES or is_there(entry.module)}

_ASK = 'leap -m MODEL "PROMPT" asks a model, leap chat -m MODEL talks with one'
_GET, _UNLOAD = "leap download NAME downloads a model", "leap unload MODEL frees its memory"
_IMPORT = f"leap models import FILE adds a local model; {_GET}"
_LOGS = "leap sessions log list shows prompts and answers that were logged, leap sessions list chats"
_SEARCH = f"leap models search WORDS looks on the hub; {_GET}"
_PUSH = "leap sends no models anywhere; the hub's own program, hf upload, does"
_ALIAS = "leap models alias NAME MODEL gives a model another name"
POINTERS = {
    "": {
        **dict.fromkeys(("run", "prompt", "complete", "completions"), _ASK),
        **dict.fromkeys(("pull", "get", "install", "fetch"), _GET),
        **dict.fromkeys(("list", "ls"), "leap models list"),
        **dict.fromkeys(("rm", "remove", "delete", "uninstall"), "leap models remove MODEL"),
        **dict.fromkeys(("show", "info", "inspect"), "leap models info MODEL"),
        **dict.fromkeys(("stop", "kill"), _UNLOAD),
        **dict.fromkeys(("logs", "history"), _LOGS),
        **dict.fromkeys(("add", "import"), _IMPORT),
        **dict.fromkeys(("server", "start"), "leap serve answers other programs, leap load keeps a model loaded"),
        **dict.fromkeys(("cp", "alias", "aliases"), "leap models alias NAME MODEL"),
        **dict.fromkeys(("create", "quantize", "convert"), "leap models quantize and leap models convert make models"),
        **dict.fromkeys(
            ("llama-server", "llama-cli", "llama-run", "llama-bench", "llama-quantize", "ollama", "llm", "lms", "vllm"),
            f"leap is itself the program: {_ASK}, leap serve answers other programs",
        ),
        **dict.fromkeys(("hf", "huggingface-cli", "search-models"), _SEARCH),
        **dict.fromkeys(("push", "publish", "upload"), _PUSH),
        **dict.fromkeys(("tag", "rename", "mv"), _ALIAS),
        **dict.fromkeys(("schema", "schemas"), "leap saved schemas"),
        **dict.fromkeys(("template", "templates"), "leap saved templates"),
        **dict.fromkeys(("recipe", "recipes"), "leap saved recipes"),
        **dict.fromkeys(("bench", "benchmark"), "leap models bench MODEL"),
        **dict.fromkeys(("engines", "runtime", "backend", "backends"), "leap engine list"),
        **dict.fromkeys(("skill", "skills"), "leap help --skill; leap help --install-skill"),
        **dict.fromkeys(("claude", "codex", "opencode", "aider"), "leap launch AGENT"),
        "cache": "leap models cache",
        "log": "leap sessions log",
        "watch": "leap jobs watch follows jobs, leap jobs folder works on each file that comes",
        **dict.fromkeys(("schedule", "cron", "at", "every"), "generate, batch and the tasks have --every and --at"),
        **dict.fromkeys(("tune", "optimize", "finetune", "fine-tune"), "leap improve CASES, leap train CASES"),
        "man": "leap help --man COMMAND; leap help --install-man installs the pages",
        **dict.fromkeys(("keys", "login", "set"), "leap config set NAME VALUE; the hub's token is HF_TOKEN"),
    },
    "models": {
        "add": _IMPORT,
        **dict.fromkeys(("pull", "get", "install", "fetch", "download"), _GET),
        **dict.fromkeys(("run", "chat"), _ASK),
        **dict.fromkeys(("stop", "unload"), _UNLOAD),
        **dict.fromkeys(("prune", "clean"), "leap models gc removes what is left of downloads"),
        **dict.fromkeys(("use", "set-default"), "leap models default MODEL"),
        **dict.fromkeys(("cp", "copy", "rename", "mv", "tag"), _ALIAS),
        **dict.fromkeys(("push", "publish", "upload"), _PUSH),
        "load": "leap load MODEL keeps it loaded",
        "logs": _LOGS,
    },
    "jobs": {
        **dict.fromkeys(("stop", "kill", "abort"), "leap jobs cancel JOB"),
        **dict.fromkeys(("result", "results"), "leap jobs output JOB"),
        "log": "leap jobs logs JOB prints what a job has put out, leap jobs output JOB its result",
        **dict.fromkeys(("start", "run"), "leap generate --background submits a job, leap jobs retry JOB repeats one"),
    },
    "saved templates": {"save": "leap saved templates add NAME PROMPT"},
    "models cache": {
        "rm": "leap models cache clear",
        "remove": "leap models cache clear",
        "prune": "leap models cache clear --older-than 30d",
    },
    "sessions": {"clear": "leap sessions prune --older-than TIME"},
}
"""What to write for the verbs of ollama, llm, docker and others, by group."""
SPELLINGS = {
    "--address": "--host --hostname --bind --listen --ip",
    "--audio": "--attachment --attach",
    "--baseline": "--compare",
    "--batch-size": "--ubatch-size --num-batch --n-batch --max-num-batched-tokens",
    "--chat-template": "--chat-template-file --jinja-template --template-file",
    "--choices": "--guided-choice --choice --enum",
    "--chunk-length": "--chunk-length-s",
    "--option chunk-overlap": "--overlap",
    "--concurrency": "--parallel --max-concurrency --jobs",
    "--confidence-threshold": "--threshold",
    "--context-size": "--num-ctx --ctx-size --n-ctx --ctx --context-length --max-model-len --max-seq-len",
    "--count": "--n --best-of --num-return-sequences --num-completions --samples",
    "--every": "--cron --schedule --interval",
    "--file": "--fragment --attachment --prompt-file --input-file --context-file",
    "--format json": "--json",
    "--format": "--output-format --output-type",
    "--gpu-layers": "--n-gpu-layers --ngl --num-gpu --n-gpu",
    "--image": "--attachment --attach --images -a",
    "--include": "--glob",
    "--json-schema": "--guided-json --response-format --response-schema --json-schema-file",
    "--jsonl": "--json",
    "--keep-alive": "--keepalive --ttl --sleep-idle-seconds",
    "--kv-type-k": "--cache-type-k --kv-cache-type --kv-cache-dtype",
    "--kv-type-v": "--cache-type-v --kv-cache-type --kv-cache-dtype",
    "--lines": "--line-file",
    "--lora": "--lora-scaled --lora-modules --adapter --adapters --adapter-path",
    "--low-confidence": "--uncertain",
    "--max-tokens": "--n-predict --predict --num-predict --max-new-tokens --max-completion-tokens --max-output-tokens",
    "--max-tool-iterations": "--chain-limit --max-iterations --max-tool-calls --tool-iterations",
    "--ocr-model": "--ocr --vision-model",
    "--option on-overlap": "--concurrency-policy",
    "--output": "--out --outfile --output-file --save-to",
    "--prompt-lookup": "--speculative-decoding --spec-type --draft --speculative-config",
    "--quant": "--quantization --quantize --dtype --quant-type",
    "--raw": "--completion --no-conversation --no-cnv --no-template",
    "--repetition-penalty": "--repeat-penalty",
    "--replace": "--force --overwrite --force-download",
    "--seed": "--random-seed --rng-seed",
    "--session": "--conversation --conversation-id --cid",
    "--slots": "--parallel --num-parallel --n-parallel --max-num-seqs",
    "--option stall-timeout": "--read-timeout",
    "--stop": "--stop-sequence --stop-sequences --stop-words --reverse-prompt",
    "--system": "--system-prompt --sys --instructions",
    "--temperature 0": "--greedy",
    "--temperature": "--temp",
    "--think hide": "--hidethinking",
    "--think show": "--reasoning --thinking --enable-thinking --reasoning-effort --reasoning-format",
    "--think-budget": "--reasoning-budget --thinking-budget",
    "--threads": "--num-thread --num-threads --n-threads --cpu-threads",
    "--tool": "--function --functions",
    "--top-logprobs": "--logprobs --n-probs",
    "--web-ui": "--webui --ui",
    "Each option has a name of its own, such as --temperature 0.2.": "--options --set",
    "A model reasons only with --think.": "--no-think --nothink --no-thinking",
    "Prompts are logged only after leap sessions log on; --no-save keeps no session.": "--no-log --log --no-history",
    "Lines are wrapped at a terminal only, not in a pipe or with --output.": "--nowordwrap --no-wrap",
}
"""Options, or sentences about them, and what others call them: llama.cpp, ollama, llm, vLLM, OpenAI."""


def _show_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from leap_core import __version__

        ctx.ensure_object(Environment).stdout.write(f"leap {__version__}\n")
        ctx.exit()


@click.pass_context
def _root(ctx: click.Context) -> None:
    """\b
    Run Liquid's LFM2 models, and other GGUF models, on your own machine.
    A small model is built in: leap "What is the capital of France?"
    """
    if ctx.invoked_subcommand is None:
        ctx.ensure_object(Environment).stdout.write(command_line.overview(ctx) + "\n")


def _guide() -> HelpGuide:
    from .help.topics import GuideOfCommands

    return GuideOfCommands()


command_line = CommandTable(
    COMMANDS,
    GROUPS,
    default="generate",
    pointers=POINTERS,
    spellings=SPELLINGS,
    guide=_guide,
    name="leap",
    callback=_root,
    help=_root.__doc__,
    invoke_without_command=True,
    context_settings=CONTEXT_SETTINGS,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show the version and exit.",
        )
    ],
)
