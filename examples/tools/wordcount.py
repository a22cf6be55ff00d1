#!/usr/bin/env python3
# /// tool
# description: Count the lines, words and characters of a text.
# timeout: 5s
# mcp:
#   input_schema:
#     text: string
#   output_schema:
#     type: object
#     properties:
#       lines: {type: integer}
#       words: {type: integer}
#       characters: {type: integer}
#     required: [lines, words, characters]
#   annotations:
#     readOnlyHint: true
# ///
import json
import sys

text = json.load(sys.stdin)["text"]
json.dump(
    {
        "lines": len(text.splitlines()),
        "words": len(text.split()),
        "characters": len(text),
    },
    sys.stdout,
)
