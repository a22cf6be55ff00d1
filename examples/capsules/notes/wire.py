"""Speaks with Orla: JSON-RPC on stdin and stdout, one message a line.

Nothing here knows of notes; copy it to begin a capsule of your own.
"""

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

_out, _lock = sys.stdout.buffer, threading.Lock()
sys.stdout = sys.stderr  # a stray print goes to the log, not among the messages
_tools, _calls = {}, {}


class Trouble(Exception):
    """Something that the caller should know of."""


class Cancelled(Exception):
    """Nobody waits for the answer any more."""


class Call:
    """One call that is being answered."""

    def __init__(self, token):
        self.token = token
        self.cancelled = threading.Event()

    def progress(self, done, total, message=""):
        """Says how far the call is, and ends it if it has been cancelled."""
        if self.cancelled.is_set():
            raise Cancelled
        if self.token is not None:
            params = {"progressToken": self.token, "progress": done, "total": total, "message": message}
            _send(method="notifications/progress", params=params)


def tool(description, properties, required=(), **annotations):
    """Makes a function a tool. It is called as function(call, **arguments)."""

    def add(function):
        schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
        listed = {"name": function.__name__, "description": description, "inputSchema": schema, "annotations": annotations}
        _tools[function.__name__] = (function, listed)
        return function

    return add


def serve(name, version):
    """Says hello and answers until Orla closes stdin, which asks for the end."""
    _send(method="orla.hello", params={"name": name, "version": version, "capabilities": ["tools"]})
    with ThreadPoolExecutor(8) as pool:
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError) as error:  # no reason to end
                print(f"cannot read a line: {error}", file=sys.stderr)
                continue
            method, id, params = message.get("method"), message.get("id"), message.get("params", {})
            if method == "tools/call":
                call = _calls[id] = Call(params.get("_meta", {}).get("progressToken"))
                pool.submit(_answer, id, call, params)
            elif method == "notifications/cancelled":
                if call := _calls.get(params["requestId"]):
                    call.cancelled.set()
            elif method == "initialize":
                info = {"name": name, "version": version}
                _send(id=id, result={"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info})
            elif method == "tools/list":
                _send(id=id, result={"tools": [listed for _, listed in _tools.values()]})
            elif method == "ping":
                _send(id=id, result={})
            elif id is not None:
                _send(id=id, error={"code": -32601, "message": f"no method {method}"})
        for call in list(_calls.values()):
            call.cancelled.set()


def _answer(id, call, params):
    try:
        if call.cancelled.is_set():  # it waited for a thread
            raise Cancelled
        function, _ = _tools[params["name"]]
        _send(id=id, result=function(call, **params.get("arguments", {})))
    except Cancelled:  # nobody reads this answer, but it tells Orla that the work is over
        _send(id=id, error={"code": -32800, "message": "cancelled"})
    except Exception as err:  # the capsule outlives a call that fails
        if not isinstance(err, Trouble):
            import traceback

            traceback.print_exc()  # stderr is the log
        text = str(err) or type(err).__name__
        _send(id=id, result={"content": [{"type": "text", "text": text}], "isError": True})
    finally:
        _calls.pop(id, None)


def _send(**message):
    line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
    with _lock:  # lines of two threads must not mix
        _out.write(line)
        _out.flush()
