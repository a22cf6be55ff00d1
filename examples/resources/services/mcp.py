"""As much of MCP as a server with a few tools needs, for either transport."""

from json import dumps

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")


class Failure(Exception):
    """What a tool says when it cannot do what it was asked for."""


class Server:
    def __init__(self, name, tools):
        self.name, self.tools = name, tools  # name: (function, description, properties, annotations)

    def answer(self, message):
        """Returns the answer to a message, or None if it wants none."""
        if "id" not in message:
            return None
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            return reply | {"result": self.result(message["method"], message.get("params") or {})}
        except KeyError as err:
            return reply | {"error": {"code": -32601, "message": f"there is no {err}"}}

    def result(self, method, params):
        methods = {"initialize": self.initialize, "ping": lambda _: {}, "tools/list": self.list, "tools/call": self.call}
        return methods[method](params)

    def initialize(self, params):
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": self.name, "version": "1.0.0"},
        }

    def list(self, _):
        return {"tools": [
            {
                "name": name, "description": description, "annotations": annotations,
                "inputSchema": {"type": "object", "properties": properties, "required": list(properties)},
            }
            for name, (_, description, properties, annotations) in self.tools.items()
        ]}

    def call(self, params):
        function = self.tools[params["name"]][0]
        try:
            value = function(**params.get("arguments") or {})
        except Failure as err:
            return {"content": [{"type": "text", "text": str(err)}], "isError": True}
        text = value if isinstance(value, str) else dumps(value)
        return {"content": [{"type": "text", "text": text}]}
