#!/usr/bin/env python3
# /// tool
# description: Answer with a text, a picture and a resource.
# output: mcp
# ///
import json

picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
resource = {"uri": "test://mixed-content-resource", "mimeType": "application/json", "text": '{"test":"data","value":123}'}
content = [
    {"type": "text", "text": "Multiple content types test:"},
    {"type": "image", "data": picture, "mimeType": "image/png"},
    {"type": "resource", "resource": resource},
]
print(json.dumps({"content": content}))
