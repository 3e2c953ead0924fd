"""An MCP server without the official package: a script that answers as its first argument says.

``results``: whole results of every kind of content. ``surrogate``, ``bytes``, ``lines``, ``shape``: the answer to a
call is not as the protocol says; nor with ``null``, ``text``, ``list``, ``no error`` and ``mark``. ``noise``: it also
prints lines that are no messages.
"""

import json
import sys

how = sys.argv[1]
RESOURCE = {"uri": "repo://o/r/README.md", "mimeType": "text/plain"}
TOOLS = {
    "text": [
        {"type": "text", "text": "successfully downloaded (SHA 1)"},
        {"type": "resource", "resource": {**RESOURCE, "text": "# Leap\nRuns models."}},
    ],
    "blob": [{"type": "resource", "resource": {**RESOURCE, "blob": "TW9uZGF5"}}],
    "binary": [{"type": "resource", "resource": {"uri": "a.bin", "mimeType": "application/zip", "blob": "AAECAwQF"}}],
    "link": [{"type": "resource_link", "uri": "file:///a.md", "name": "a.md", "description": "Notes of Monday"}],
    "image": [{"type": "image", "data": "AAECAwQF", "mimeType": "image/png"}],
    "audio": [{"type": "audio", "data": "AAECAwQF", "mimeType": "audio/wav"}],
    "structured": [{"type": "text", "text": "2 rows"}],
    "repeated": [{"type": "text", "text": '{"rows": [1, 2]}'}],
}
ODD_RESULTS = {"null": None, "text": "done", "list": [1]}
STRUCTURED = {"structured": {"rows": [1, 2]}, "repeated": {"rows": [1, 2]}}


def send(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    head = {"jsonrpc": "2.0", "id": message["id"]}
    if how == "noise":
        send(b"[info] got a message")
        send(b'{"level": "info", "message": "\xe4"}')
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        about = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "o", "version": "1"}}
        send(json.dumps({**head, "result": about}).encode())
    elif message["method"] == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        send(json.dumps({**head, "result": {"tools": tools}}).encode())
    elif message["method"] == "tools/call":
        name = message["params"]["name"]
        result = {"content": TOOLS[name]}
        if name in STRUCTURED:
            result["structuredContent"] = STRUCTURED[name]
        text = [{"type": "text", "text": "X"}]
        if how == "surrogate":
            send(json.dumps({**head, "result": {"content": text}}).replace("X", "\\ud800").encode())
        elif how == "bytes":
            send(json.dumps({**head, "result": {"content": text}}).encode().replace(b"X", b"\xe4"))
        elif how == "lines":
            send(json.dumps({**head, "result": {"content": text}}, indent=2).encode())
        elif how in ODD_RESULTS:
            send(json.dumps({**head, "result": ODD_RESULTS[how]}).encode())
        elif how == "no error":
            send(json.dumps({**head, "error": "it failed"}).encode())
        elif how == "mark":
            send(b"\xef\xbb\xbf" + json.dumps({**head, "result": {"content": text}}).encode())
        elif how == "shape":
            send(json.dumps({**head, "result": {"content": [{"type": "text"}]}}).encode())
        else:
            send(json.dumps({**head, "result": result}).encode())
    else:
        send(json.dumps({**head, "error": {"code": -32601, "message": "no such method"}}).encode())
