"""How often the tool that a wish needs is declared from the start, and in how many tokens, where lists are folded.

    python benchmarks/tool_search.py REQUEST.json ... [--tokens 2000]

A request is what an agent sends (a body of chat completions, responses or messages). The lists are measured together,
as one of all their tools, and each alone. Tokens are counted at four characters each, before and after.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from leap_core.conversation.calls import LeapFunction
from leap_core.conversation.messages import ChatMessage
from leap_core.tools.deferred_tools import FoldedPrompt, size_of

READ = "Read read read_file"
SHELL = "Bash bash exec_command"
EDIT = "Edit edit"
WRITE = "Write write"
FIND = "glob list_directory " + SHELL
GREP = "grep grep_search " + SHELL
FETCH = "WebFetch webfetch web_fetch"
PLAN = "TaskCreate todowrite todo_write create_goal"
AGENT = "Agent task agent spawn_agent"
WISHES = {
    "show me the contents of README": READ,
    "open src/main.py": READ,
    "what does the config file say?": READ,
    "print the first lines of CHANGELOG.md": READ,
    "look at package.json and tell me the version": READ,
    "explain what server.py does": READ,
    "read the license": READ,
    "what is in notes.txt?": READ,
    "run the tests": SHELL,
    "install the dependencies": SHELL,
    "commit my changes": SHELL,
    "which version of Python do I have?": SHELL,
    "start the development server": SHELL,
    "how much space is left on the disk?": SHELL,
    "build the project": SHELL,
    "show the git log of the last week": SHELL,
    "compile main.c": SHELL,
    "execute npm test": SHELL,
    "rename the variable foo to bar in utils.py": EDIT,
    "fix the typo in index.html": EDIT,
    "replace 8080 by 9090 in config.yaml": EDIT,
    "change the title of the page in app.tsx": EDIT,
    "add a docstring to parse() in parser.py": EDIT,
    "correct the indentation in setup.py": EDIT,
    "update the version in pyproject.toml": EDIT,
    "remove the debug line from api.js": EDIT,
    "create a new file hello.py": WRITE,
    "save this as notes.md": WRITE,
    "make a script that prints the date": WRITE + " " + SHELL,
    "write a Dockerfile": WRITE,
    "generate a .gitignore": WRITE,
    "find all Python files": FIND,
    "list the files in this folder": FIND,
    "which files are called test_*?": FIND,
    "show the tree of directories": FIND,
    "what is in the src directory?": FIND,
    "where is load_config defined?": GREP,
    "search for TODO in the code": GREP,
    "find all occurrences of deprecated": GREP,
    "which files mention the API key?": GREP,
    "count the uses of print(": GREP,
    "fetch https://example.org/docs": FETCH,
    "summarize this web page: http://example.com/post": FETCH,
    "download the documentation from its url": FETCH,
    "search the web for llama.cpp releases": "WebSearch",
    "what is the newest version of Django? look on the internet": "WebSearch " + FETCH,
    "make a plan with steps before you begin": PLAN,
    "write down a todo list for this work": PLAN,
    "keep track of your progress": PLAN + " TaskUpdate update_goal",
    "delegate this to another agent": AGENT,
    "let three workers look into this in parallel": AGENT + " Workflow",
    "stop the background task": "TaskStop task_stop",
    "show me screenshot.png": "view_image " + READ,
    "ask me which of the two I prefer": "request_user_input AskUserQuestion",
    "remind me every hour to check the build": "CronCreate ScheduleWakeup",
    "which cron jobs are there?": "CronList",
    "change a cell of analysis.ipynb": "NotebookEdit",
    "work in an isolated branch of the repository": "EnterWorktree",
    "type yes into the running program": "write_stdin",
    "send a message to the other agent": "SendMessage send_message send_input",
}
"""Wishes in plain words, and the tools that may grant them."""


def functions_of(tools: list[dict[str, Any]]) -> list[LeapFunction]:
    found = []
    for tool in tools:
        if tool.get("type") == "namespace":
            found += functions_of(tool["tools"])
        elif "input_schema" in tool:
            found.append(LeapFunction.from_openai({**tool, "parameters": tool["input_schema"]}))
        elif tool.get("type", "function") == "function":
            found.append(LeapFunction.from_openai(tool))
    return found


def measure(title: str, functions: list[LeapFunction], tokens: int) -> None:
    names = {function.name for function in functions}
    wishes = {wish: set(fit.split()) & names for wish, fit in WISHES.items() if set(fit.split()) & names}
    missed, sizes = [], []
    for wish, fit in wishes.items():
        prompt = FoldedPrompt.of([ChatMessage("system", "You help."), ChatMessage("user", wish)], functions, tokens)
        shown = [each for each in prompt.functions if not each.deferred]
        sizes.append(size_of(shown))
        if not fit & {each.name for each in shown}:
            missed.append(wish)
    before, after = size_of(functions), sum(sizes) / len(sizes)
    right = len(wishes) - len(missed)
    print(f"{title}: {len(functions)} tools, {before} -> {after:.0f} tokens ({after / before:.0%}), ", end="")
    print(f"the right one at once in {right} of {len(wishes)} ({right / len(wishes):.0%})")
    for wish in missed:
        print(f"    missed: {wish}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("requests", nargs="+", type=Path, metavar="REQUEST.json")
    parser.add_argument("--tokens", type=int, default=2000)
    arguments = parser.parse_args()
    together: dict[str, LeapFunction] = {}
    lists = {}
    for path in arguments.requests:
        body = json.loads(path.read_text("utf-8"))
        lists[path.name] = functions_of(body.get("tools") or [])
        together |= {each.name: each for each in lists[path.name] if each.name not in together}
    measure("all together", list(together.values()), arguments.tokens)
    for name, functions in lists.items():
        if functions:
            measure(name, functions, arguments.tokens)


if __name__ == "__main__":
    main()
