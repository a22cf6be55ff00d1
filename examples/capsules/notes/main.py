#!/usr/bin/env python3
"""Notes: a folder of Markdown files, searched from an index in memory."""

import os

import wire
from notes import Notes

notes = Notes(os.path.expanduser(os.environ.get("NOTES_DIR", "~/notes")))
string = {"type": "string"}


@wire.tool(
    "Find notes that have all the words of a query; the best come first",
    {"query": string, "limit": {"type": "integer", "minimum": 1, "maximum": 100}},
    required=["query"],
    readOnlyHint=True,
)
def search(call, query, limit=10):
    found = notes.search(query)[:limit]
    text = "\n".join(f"{hit['name']}: {hit['line']}" for hit in found) or "No note has all of these words."
    # A whole CallToolResult. Anything else that a tool returns is its text.
    return {"content": [{"type": "text", "text": text}], "structuredContent": {"notes": found}}


@wire.tool("Read a note", {"name": string}, required=["name"], readOnlyHint=True)
def read(call, name):
    return notes.read(name)


@wire.tool(
    "Write a note, or add to the end of one",
    {"name": string, "text": string, "append": {"type": "boolean"}},
    required=["name", "text"],
    destructiveHint=True,
)
def write(call, name, text, append=False):
    return f"{name} now has {notes.write(name, text, append)} characters."


@wire.tool("Read the whole folder again, for notes that others have changed", {}, idempotentHint=True)
def refresh(call):
    names = notes.names()
    for done, name in enumerate(names, 1):
        notes.load(name)
        call.progress(done, len(names), name)  # ends the call here if it was cancelled
    notes.forget_all_but(names)
    return f"{len(names)} notes are in the index."


if __name__ == "__main__":
    for name in notes.names():
        notes.load(name)
    wire.serve("notes", "1.0.0")  # says hello: from here on there may be calls
