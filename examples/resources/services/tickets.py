"""An MCP server far away, by Streamable HTTP."""

from json import loads
from secrets import token_urlsafe

from mcp import Failure, Server
from serving import Service, serve

tickets = {}  # titles by number
sessions = set()


def open_(title):
    number = len(tickets) + 1
    tickets[number] = title
    return f"ticket {number} is open"


def list_():
    return [f"{number}: {title}" for number, title in tickets.items()]


def close(number):
    if number not in tickets:
        raise Failure(f"there is no ticket {number}")
    return f"{tickets.pop(number)} is closed"


server = Server("tickets", {
    "open": (open_, "Open a ticket.", {"title": {"type": "string"}}, {"destructiveHint": False}),
    "list": (list_, "List the open tickets.", {}, {"readOnlyHint": True}),
    "close": (close, "Close a ticket.", {"number": {"type": "integer"}}, {"destructiveHint": True}),
})


class Tickets(Service):
    def do_POST(self):
        message = loads(self.body())
        if self.headers.get("Authorization") != "Bearer demo-tickets":
            return self.answer(401, {"error": "no such token"})
        if message.get("method") == "initialize":
            session = token_urlsafe()
            sessions.add(session)
            return self.answer(200, server.answer(message), Mcp_Session_Id=session)
        if self.headers.get("Mcp-Session-Id") not in sessions:
            return self.answer(404, {"error": "that session is over"})
        reply = server.answer(message)
        self.answer(202 if reply is None else 200, reply)

    def do_DELETE(self):
        sessions.discard(self.headers.get("Mcp-Session-Id"))
        self.answer(204)

    def do_GET(self):  # it says nothing unasked
        self.answer(405)


serve(Tickets)
