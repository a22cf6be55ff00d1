#!/usr/bin/env python3
# /// tool
# description: Embed a resource.
# output: mcp
# ///
import json

resource = {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": "This is an embedded resource content."}
print(json.dumps({"content": [{"type": "resource", "resource": resource}]}))
