#!/usr/bin/env python3
"""{{name}}: say here what the capsule is for."""

import wire

# Load here what calls need: a model, an index, a connection. It is kept for as
# long as the capsule lives.
greeting = "Hello"


@wire.tool("Greet somebody", {"name": {"type": "string"}}, required=["name"], readOnlyHint=True)
def greet(call, name):
    return f"{greeting}, {name}!"


@wire.tool("Count, and take a tenth of a second for each number", {"to": {"type": "integer", "minimum": 1}}, required=["to"])
def count(call, to):
    for n in range(1, to + 1):
        call.cancelled.wait(0.1)  # or some work
        call.progress(n, to, f"at {n}")  # ends the call here if it was cancelled
    return f"counted to {to}"


if __name__ == "__main__":
    wire.serve("{{name}}", "1.0.0")  # says hello: from here on there may be calls
