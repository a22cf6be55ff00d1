#!/usr/bin/env python3
"""Test driver: an MCP client made of the official Python SDK, steered by JSON lines.

The contract is in ../README.md; driver.mjs has the same one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import warnings
from collections import deque
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pydantic
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import (
    ListenNotSupportedError,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    SubscriptionLost,
    ToolsListChanged,
)
from mcp.shared._httpx_utils import MCP_DEFAULT_SSE_READ_TIMEOUT, MCP_DEFAULT_TIMEOUT

warnings.simplefilter("ignore")

CLIENT_INFO = types.Implementation(name="orla-test-driver-python", version="1.0.0")
MODERN = "2026-07-28"


class UsageError(Exception):
    pass


class Unsupported(Exception):
    pass


def emit(message: dict[str, Any]) -> None:
    message = {k: v for k, v in message.items() if v is not None or k == "id"}
    sys.stdout.write(json.dumps(message, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def dump(model: pydantic.BaseModel) -> Any:
    # What the server sent, with nothing added.
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Args:
    era = ""
    kind = ""
    url = ""
    timeout_ms = 60_000.0
    log_level: str | None = None
    answer = False
    sdk_timeouts = False

    def __init__(self, argv: list[str]) -> None:
        self.headers: dict[str, str] = {}
        self.command: list[str] = []
        targets: list[str] = []
        rest = deque(argv)

        def value(flag: str) -> str:
            if not rest:
                raise UsageError(f"{flag} needs a value")
            return rest.popleft()

        while rest:
            flag = rest.popleft()
            if flag == "--era":
                self.era = value(flag)
            elif flag in ("--http", "--sse"):
                targets.append(flag[2:])
                self.url = value(flag)
            elif flag == "--stdio":
                targets.append("stdio")
            elif flag == "--timeout":
                self.timeout_ms = float(value(flag))
            elif flag == "--log-level":
                self.log_level = value(flag)
            elif flag == "--answer":
                self.answer = True
            elif flag == "--sdk-timeouts":
                self.sdk_timeouts = True
            elif flag == "--header":
                name, colon, text = value(flag).partition(":")
                if not colon or not name.strip():
                    raise UsageError(f"bad header {name}")
                self.headers[name.strip()] = text.strip()
            elif flag == "--":
                self.command = list(rest)
                rest.clear()
            else:
                raise UsageError(f"unknown argument {flag}")
        if self.era not in ("legacy", "modern", "auto"):
            raise UsageError("--era must be legacy, modern or auto")
        if not self.timeout_ms > 0:
            raise UsageError("--timeout must be a positive number of milliseconds")
        if len(targets) != 1:
            raise UsageError("exactly one of --http, --sse and --stdio is needed")
        self.kind = targets[0]
        if self.kind == "sse" and self.era != "legacy":
            raise UsageError("--sse is for the legacy era only")
        if (self.kind == "stdio") != bool(self.command):
            raise UsageError("--stdio needs -- CMD ARG...")


def canned_value(schema: dict[str, Any]) -> Any:
    if isinstance(schema.get("enum"), list):
        return schema["enum"][0]
    if schema.get("type") == "boolean":
        return True
    if schema.get("type") in ("number", "integer"):
        return schema.get("minimum", 1)
    return "canned"


def asked(method: str, params: pydantic.BaseModel | None) -> dict[str, Any]:
    given = dump(params) if params is not None else None
    emit({"event": "asked", "method": method, "params": given})
    return given or {}


# What the client answers to a server's questions with --answer.


async def answer_sampling(_context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    asked("sampling/createMessage", params)
    text = types.TextContent(type="text", text="canned")
    return types.CreateMessageResult(role="assistant", model="canned", stop_reason="endTurn", content=text)


async def answer_elicitation(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    schema = asked("elicitation/create", params).get("requestedSchema") or {}
    content = {name: canned_value(value) for name, value in (schema.get("properties") or {}).items()}
    return types.ElicitResult(action="accept", content=content)


async def answer_roots(_context: Any) -> types.ListRootsResult:
    asked("roots/list", None)
    return types.ListRootsResult(roots=[types.Root(uri="file:///canned", name="canned")])  # type: ignore[arg-type]


def leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


# What the SDK makes of an HTTP error without a JSON-RPC body, dropping its status.
HTTP_STAND_INS = ("Not Found", "Session terminated", "Server returned an error response")


def describe_error(
    error: BaseException, *, closing: bool = False, fallback: str = "sdk", status: int | None = None
) -> dict[str, Any]:
    error = leaf(error)
    text = str(error) or ("timed out" if isinstance(error, TimeoutError) else repr(error))
    out: dict[str, Any] = {"code": fallback, "message": text, "name": type(error).__name__}
    if closing:
        out.update(code="closed", message="the client is closing")
    elif isinstance(error, asyncio.CancelledError):
        out.update(code="cancelled", message="cancelled by the test")
    elif isinstance(error, UsageError):
        out["code"] = "usage"
    elif isinstance(error, (Unsupported, ListenNotSupportedError)):
        out["code"] = "unsupported"
    elif isinstance(error, TimeoutError):
        out["code"] = "timeout"
    elif isinstance(error, MCPError):
        # The SDK gives its own failures JSON-RPC codes as well.
        if error.code == types.REQUEST_TIMEOUT and "timed out" in error.message:
            out["code"] = "timeout"
        elif error.code == types.CONNECTION_CLOSED and error.message.startswith(
            ("Connection closed", "SSE stream ended without a response")
        ):
            out["code"] = "closed"
        elif error.code == types.CONNECTION_CLOSED and error.message.startswith("SSE stream failed:"):
            out["code"] = "sdk"
        elif status is not None and error.message in HTTP_STAND_INS:
            out.update(code="http", status=status)
        else:
            out["code"] = error.code
            if error.data is not None:
                out["data"] = error.data
    elif isinstance(error, pydantic.ValidationError):
        out["code"] = "invalidResult"
    elif isinstance(error, RuntimeError) and (
        text.startswith(("Invalid structured content returned by tool", "Invalid schema for tool"))
        or "did not return structured content" in text
    ):
        out["code"] = "invalidOutput"
    elif isinstance(error, httpx2.HTTPStatusError):
        out.update(code="http", status=error.response.status_code)
    elif isinstance(error, httpx2.TransportError):
        out["code"] = "connect"
    elif isinstance(error, (anyio.ClosedResourceError, anyio.BrokenResourceError)):
        out["code"] = "closed"
    return out


class Driver:
    def __init__(self, args: Args) -> None:
        self.args = args
        self.modern = False
        self.closing = False
        self.listening = False
        self.listen_error: dict[str, Any] | None = None
        self.scopes: dict[Any, anyio.CancelScope] = {}
        # list_changed notifications nobody has waited for yet, and those waiting.
        self.changes = 0
        self.waiters: deque[asyncio.Future[int]] = deque()
        self.stream_opened = asyncio.Event()
        # The status of the last HTTP request that was turned down.
        self.refusal: int | None = None
        self.lines: asyncio.Queue[str | None] = asyncio.Queue()
        # In the modern era, the tasks that hold subscriptions open, by their URIs.
        self.followed: dict[str, anyio.CancelScope] = {}
        self.tasks: Any = None

    # ---- notifications

    def list_changed(self) -> None:
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(1)
                return
        self.changes += 1

    async def on_message(self, message: Any) -> None:
        if isinstance(message, Exception):
            print(f"driver: {message!r}", file=sys.stderr)
        elif self.modern:
            pass  # listen tells
        elif isinstance(message, types.ToolListChangedNotification):
            self.list_changed()
        elif isinstance(message, types.ResourceListChangedNotification):
            emit({"event": "changed", "what": "resources"})
        elif isinstance(message, types.PromptListChangedNotification):
            emit({"event": "changed", "what": "prompts"})
        elif isinstance(message, types.ResourceUpdatedNotification):
            emit({"event": "updated", "uri": str(message.params.uri)})

    async def on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        emit({"event": "log", "level": params.level, "logger": params.logger, "data": params.data})

    async def listen(self, task_status: Any = anyio.TASK_STATUS_IGNORED) -> None:
        """Holds subscriptions/listen open; started() once the server has acknowledged it."""
        started = False
        try:
            offered = self.client.server_capabilities
            async with self.client.listen(
                tools_list_changed=True,
                resources_list_changed=bool(offered.resources and offered.resources.list_changed),
                prompts_list_changed=bool(offered.prompts and offered.prompts.list_changed),
            ) as subscription:
                self.listening = subscription.honored.tools_list_changed is True
                started = True
                task_status.started()
                async for event in subscription:
                    if isinstance(event, ToolsListChanged):
                        self.list_changed()
                    elif isinstance(event, ResourcesListChanged):
                        emit({"event": "changed", "what": "resources"})
                    elif isinstance(event, PromptsListChanged):
                        emit({"event": "changed", "what": "prompts"})
        except (MCPError, SubscriptionLost, ListenNotSupportedError, TimeoutError) as error:
            if not started:
                self.listen_error = describe_error(error)
                task_status.started()
            elif not self.closing:
                print(f"driver: the listen stream ended: {error!r}", file=sys.stderr)

    async def follow(self, uri: str, task_status: Any = anyio.TASK_STATUS_IGNORED) -> None:
        """Holds the subscription of one resource open; started() once it is acknowledged, with the error if not."""
        scope = self.followed[uri] = anyio.CancelScope()
        started = False
        try:
            with scope:
                async with self.client.listen(resource_subscriptions=[uri]) as subscription:
                    started = True
                    task_status.started(None)
                    async for event in subscription:
                        if isinstance(event, ResourceUpdated):
                            emit({"event": "updated", "uri": str(event.uri)})
        except (MCPError, SubscriptionLost, ListenNotSupportedError, TimeoutError) as error:
            if not started:
                task_status.started(error)
        finally:
            if self.followed.get(uri) is scope:
                del self.followed[uri]

    # ---- connection

    def http_client(self, timeout: httpx2.Timeout | None = None, **kwargs: Any) -> httpx2.AsyncClient:
        async def opened(response: httpx2.Response) -> None:
            if response.request.method == "GET":
                self.stream_opened.set()
            if response.status_code >= 400 and (response.request.method != "GET" or self.args.kind == "sse"):
                self.refusal = response.status_code

        read = MCP_DEFAULT_SSE_READ_TIMEOUT if self.args.sdk_timeouts else None
        return httpx2.AsyncClient(
            headers=self.args.headers,
            timeout=timeout or httpx2.Timeout(MCP_DEFAULT_TIMEOUT, read=read),
            trust_env=False,
            event_hooks={"response": [opened]},
        )

    async def connect(self, stack: AsyncExitStack) -> None:
        args = self.args
        if args.kind == "http":
            http = await stack.enter_async_context(self.http_client())
            transport: Any = streamable_http_client(args.url, http_client=http)
        elif args.kind == "sse":
            transport = sse_client(
                args.url,
                httpx_client_factory=lambda headers=None, timeout=None, auth=None: self.http_client(timeout),
            )
        else:
            # The SDK passes on only HOME, PATH and a few more by default.
            transport = stdio_client(
                StdioServerParameters(command=args.command[0], args=args.command[1:], env=dict(os.environ))
            )
        self.client = Client(
            transport,
            mode={"legacy": "legacy", "auto": "auto", "modern": MODERN}[args.era],
            client_info=CLIENT_INFO,
            message_handler=self.on_message,
            logging_callback=self.on_log,
            log_level=args.log_level,  # type: ignore[arg-type]
            sampling_callback=answer_sampling if args.answer else None,
            elicitation_callback=answer_elicitation if args.answer else None,
            list_roots_callback=answer_roots if args.answer else None,
        )
        await stack.enter_async_context(self.client)
        session = self.client.session
        if args.era == "modern":
            # Pinning a version makes the SDK send nothing at all on connecting;
            # ask the server and take what it answers.
            found = await session.send_discover(MODERN)
            session.adopt(types.DiscoverResult.model_validate(found))
        self.modern = self.client.protocol_version >= MODERN
        if not self.modern:
            if args.kind == "http":
                # The SDK opens the stream for notifications on its own, after the handshake.
                try:
                    async with asyncio.timeout(30):
                        await self.stream_opened.wait()
                except TimeoutError:
                    pass
            if args.log_level and self.client.server_capabilities.logging is not None:
                await self.client.set_logging_level(args.log_level)  # type: ignore[arg-type]

    def read_stdin(self) -> None:
        """Feeds the lines of stdin to the event loop; a thread, as stdin can be a file as well."""
        loop = asyncio.get_running_loop()

        def reader() -> None:
            try:
                for line in sys.stdin.buffer:
                    loop.call_soon_threadsafe(self.lines.put_nowait, line.decode("utf-8"))
                loop.call_soon_threadsafe(self.lines.put_nowait, None)
            except RuntimeError:
                pass  # the loop is gone

        threading.Thread(target=reader, daemon=True).start()

    async def run(self) -> int:
        close_id: Any = None
        connected = False
        try:
            async with asyncio.timeout(self.args.timeout_ms / 1000) as deadline, AsyncExitStack() as stack:
                await self.connect(stack)
                tasks = self.tasks = await stack.enter_async_context(anyio.create_task_group())
                tools = self.client.server_capabilities.tools
                if tools is not None and tools.list_changed:
                    if self.modern:
                        await tasks.start(self.listen)
                    else:
                        self.listening = True
                deadline.reschedule(None)
                connected = True
                info = self.client.server_info
                emit(
                    {
                        "event": "connected",
                        "protocolVersion": self.client.protocol_version,
                        "server": {"name": info.name, "version": info.version} if info else {},
                        "era": "modern" if self.modern else "legacy",
                        "capabilities": dump(self.client.server_capabilities),
                        "instructions": self.client.instructions,
                        "listening": self.listening,
                        "listenError": self.listen_error,
                    }
                )
                self.read_stdin()
                while (line := await self.lines.get()) is not None:
                    if not line.strip():
                        continue
                    try:
                        command = json.loads(line)
                        if not isinstance(command, dict):
                            raise ValueError("not an object")
                    except ValueError as error:
                        emit({"id": None, "ok": False, "error": {"code": "usage", "message": f"bad command: {error}"}})
                        continue
                    if command.get("op") == "close":
                        close_id = command.get("id")
                        break
                    tasks.start_soon(self.answer, command)
                self.closing = True
                tasks.cancel_scope.cancel()
        except Exception as error:
            if not connected:
                emit({"event": "error", "error": describe_error(error, fallback="connect", status=self.refusal)})
            elif close_id is not None:
                emit({"id": close_id, "ok": False, "error": describe_error(error)})
            else:
                # A request that cannot be sent takes the SDK's HTTP transport down with it.
                emit({"event": "error", "error": describe_error(error, fallback="connect")})
            return 1
        if close_id is not None:
            emit({"id": close_id, "ok": True, "result": {}})
        return 0

    # ---- commands

    async def answer(self, command: dict[str, Any]) -> None:
        id = command.get("id")
        handler = getattr(self, f"op_{command.get('op')}", None)
        scope = anyio.CancelScope()
        if id is not None and command.get("op") != "cancel":
            self.scopes[id] = scope
        try:
            with scope:
                if handler is None:
                    raise UsageError(f"unknown op {command.get('op')}")
                timeout = command.get("timeoutMs")
                result = await handler(command, None if timeout is None else timeout / 1000)
                emit({"id": id, "ok": True, "result": result})
                return
            # Only a cancelled scope gets here.
            emit({"id": id, "ok": False, "error": describe_error(asyncio.CancelledError())})
        except asyncio.CancelledError as error:
            emit({"id": id, "ok": False, "error": describe_error(error, closing=True)})
            raise
        except Exception as error:
            emit({"id": id, "ok": False, "error": describe_error(error, closing=self.closing, status=self.refusal)})
        finally:
            if self.scopes.get(id) is scope:
                del self.scopes[id]

    async def all_pages(self, fetch: Any, name: str, command: dict[str, Any], timeout: float | None) -> list[Any]:
        items: list[Any] = []
        cursor: str | None = None
        async with asyncio.timeout(timeout):
            while True:
                page = await fetch(cursor=cursor, cache_mode=command.get("cache", "refresh"))
                items.extend(dump(item) for item in getattr(page, name))
                cursor = page.next_cursor
                if cursor is None:
                    return items

    async def op_list(self, command: dict[str, Any], timeout: float | None) -> Any:
        return {"tools": await self.all_pages(self.client.list_tools, "tools", command, timeout)}

    async def op_listResources(self, command: dict[str, Any], timeout: float | None) -> Any:
        return {"resources": await self.all_pages(self.client.list_resources, "resources", command, timeout)}

    async def op_listTemplates(self, command: dict[str, Any], timeout: float | None) -> Any:
        fetch = self.client.list_resource_templates
        return {"resourceTemplates": await self.all_pages(fetch, "resource_templates", command, timeout)}

    async def op_listPrompts(self, command: dict[str, Any], timeout: float | None) -> Any:
        return {"prompts": await self.all_pages(self.client.list_prompts, "prompts", command, timeout)}

    async def op_getPrompt(self, command: dict[str, Any], timeout: float | None) -> Any:
        async with asyncio.timeout(timeout):
            return dump(
                await self.client.get_prompt(command["name"], command.get("arguments") or {}, meta=command.get("meta"))
            )

    async def op_complete(self, command: dict[str, Any], timeout: float | None) -> Any:
        ref: Any = command["ref"]
        kind = types.PromptReference if ref.get("type") == "ref/prompt" else types.ResourceTemplateReference
        async with asyncio.timeout(timeout):
            return dump(
                await self.client.complete(
                    kind.model_validate(ref),
                    command["argument"],
                    context_arguments=(command.get("context") or {}).get("arguments"),
                )
            )

    async def op_setLevel(self, command: dict[str, Any], timeout: float | None) -> Any:
        if self.modern:
            raise Unsupported("logging/setLevel is not part of this protocol era")
        async with asyncio.timeout(timeout):
            await self.client.set_logging_level(command["level"])
        return {}

    async def op_subscribe(self, command: dict[str, Any], timeout: float | None) -> Any:
        async with asyncio.timeout(timeout):
            if not self.modern:
                await self.client.subscribe_resource(command["uri"])
            elif command["uri"] not in self.followed:
                refusal = await self.tasks.start(self.follow, command["uri"])
                if refusal is not None:
                    raise refusal
        return {}

    async def op_unsubscribe(self, command: dict[str, Any], timeout: float | None) -> Any:
        async with asyncio.timeout(timeout):
            if not self.modern:
                await self.client.unsubscribe_resource(command["uri"])
            elif scope := self.followed.pop(command["uri"], None):
                scope.cancel()
        return {}

    async def op_call(self, command: dict[str, Any], timeout: float | None) -> Any:
        async def progress(progress: float, total: float | None, message: str | None) -> None:
            emit({"event": "progress", "id": command.get("id"), "progress": progress, "total": total, "message": message})

        result = await self.client.call_tool(
            command["name"],
            command.get("arguments") or {},
            read_timeout_seconds=timeout,
            progress_callback=progress if command.get("progress") else None,
            meta=command.get("meta"),
        )
        return dump(result)

    async def op_readResource(self, command: dict[str, Any], timeout: float | None) -> Any:
        async with asyncio.timeout(timeout):
            return dump(await self.client.read_resource(command["uri"], cache_mode=command.get("cache", "refresh")))

    async def op_ping(self, command: dict[str, Any], timeout: float | None) -> Any:
        if self.modern:
            raise Unsupported("ping is not part of this protocol era")
        async with asyncio.timeout(timeout):
            await self.client.send_ping()
        return {}

    async def op_cancel(self, command: dict[str, Any], timeout: float | None) -> Any:
        scope = self.scopes.get(command.get("target"))
        if scope is None:
            return {"cancelled": False}
        scope.cancel()
        return {"cancelled": True}

    async def op_waitListChanged(self, command: dict[str, Any], timeout: float | None) -> Any:
        if self.changes:
            count, self.changes = self.changes, 0
            return {"count": count}
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                return {"count": await waiter}
        except TimeoutError:
            raise TimeoutError("no tools list_changed notification") from None
        finally:
            if waiter in self.waiters:
                self.waiters.remove(waiter)


def main() -> int:
    try:
        args = Args(sys.argv[1:])
    except (UsageError, ValueError) as error:
        emit({"event": "error", "error": {"code": "usage", "message": str(error)}})
        return 2

    async def run() -> int:
        return await Driver(args).run()

    return asyncio.run(run())


def fork_drivers(orders: socket.socket) -> None:
    """Becomes a driver for each order, which has its stdin, stdout and stderr. To load the SDK takes a second."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        order, files, _, _ = socket.recv_fds(orders, 1 << 16, 3)
        if not order:
            os._exit(0)
        if os.fork() == 0:
            break
        for file in files:
            os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    orders.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    told = json.loads(order)
    os.chdir(told["dir"])
    os.environ["HOME"] = told["home"]
    sys.argv[1:] = told["args"]


if __name__ == "__main__":
    if sys.argv[1:] == ["--forks"]:
        fork_drivers(socket.socket(fileno=3))
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # The thread reading stdin may still be blocked there.
    os._exit(status)
