#!/usr/bin/env python3
# /// script
# dependencies = [] # packages, such as "requests>=2"; Orla installs them
# ///

# /// tool
# description: Greet somebody. # what models read: say what it does, and when to use it
# input_schema:
#   name: string # one line for each argument; a ? after the type makes it optional
# annotations:
#   readOnlyHint: true
# ///
import json
import sys

arguments = json.load(sys.stdin)

# stdout is the answer. An exception, or an exit code other than 0, makes it an error.
print(f"Hello, {arguments['name']}!")
