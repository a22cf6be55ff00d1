"""An MCP server on stdio. Orla starts it, gives it a secret and keeps it alive."""

import json
import os
import sys

from mcp import Failure, Server

notes = {"bread": "500 g flour, 350 g water", "tea": "three minutes"}


def read(name):
    if name not in notes:
        raise Failure(f"there is no note {name}")
    return notes[name]


def write(name, text):
    notes[name] = text
    return f"{name} is written, signed by {os.environ['NOTES_AUTHOR']}"


TEXT = {"type": "string"}
server = Server("notes", {
    "read": (read, "Read a note.", {"name": TEXT}, {"readOnlyHint": True}),
    "write": (write, "Write a note.", {"name": TEXT, "text": TEXT}, {"destructiveHint": False}),
})
for line in sys.stdin:
    if answer := server.answer(json.loads(line)):
        print(json.dumps(answer), flush=True)
