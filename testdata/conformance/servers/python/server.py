#!/usr/bin/env python3
"""All that the suite asks for, as a server made with version 2 of the official SDK.

It serves the versions with `initialize` and 2026-07-28, over stdio, or with --http
HOST:PORT over Streamable HTTP. As usual with this SDK, some of its tools ask their client
by a request, which only the versions with `initialize` have, and some require input,
which only 2026-07-28 has.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer, RequestStateSecurity
from mcp.server.mcpserver.prompts.base import Prompt, UserMessage
from mcp.server.mcpserver.tools import Tool
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.shared.exceptions import MCPError
from pydantic import Field

warnings.simplefilter("ignore")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA=="
STRING = {"type": "string"}

Answer = str | types.InputRequiredResult


def text(said: str) -> types.TextContent:
    return types.TextContent(type="text", text=said)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PIXEL, mime_type="image/png")


def embedded(uri: str, mime_type: str, said: str) -> types.EmbeddedResource:
    resource = types.TextResourceContents(uri=uri, mime_type=mime_type, text=said)
    return types.EmbeddedResource(type="resource", resource=resource)


def form(properties: dict[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def json_schema_2020_12_tool() -> str:
    """Has an input schema with what JSON Schema 2020-12 brought."""
    return "called"


def schema_tool() -> Tool:
    tool = Tool.from_function(json_schema_2020_12_tool)
    tool.parameters = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": STRING, "city": STRING}}},
        "properties": {
            "name": STRING,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": STRING,
            "email": STRING,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
    return tool


mcp = MCPServer(
    name="python",
    version="1.0.0",
    tools=[schema_tool()],
    request_state_security=RequestStateSecurity.ephemeral(),
    log_level="WARNING",
)


class Events(EventStore):
    """Keeps the events of streams, to resume them."""

    def __init__(self) -> None:
        self.events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        of = self.events[last - 1][0]
        for number, (stream, message) in enumerate(self.events[last:], last + 1):
            if stream == of and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return of


def described(fn: Callable[..., Any]) -> dict[str, str]:
    return {"name": fn.__name__, "description": f"{fn.__name__} of the conformance suite"}


def tool(fn: Callable[..., Any]) -> Callable[..., Any]:
    mcp.add_tool(fn, **described(fn))
    return fn


def prompt(fn: Callable[..., Any]) -> Callable[..., Any]:
    mcp.add_prompt(Prompt.from_function(fn, **described(fn)))
    return fn


# Tools that say what they always say.


@tool
def test_simple_text() -> str:
    return "This is a simple text response for testing."


@tool
def test_image_content() -> list[types.ImageContent]:
    return [image()]


@tool
def test_audio_content() -> list[types.AudioContent]:
    return [types.AudioContent(type="audio", data=SILENCE, mime_type="audio/wav")]


@tool
def test_embedded_resource() -> list[types.EmbeddedResource]:
    return [embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]


@tool
def test_multiple_content_types() -> list[types.TextContent | types.ImageContent | types.EmbeddedResource]:
    mixed = embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return [text("Multiple content types test:"), image(), mixed]


@tool
def test_error_handling() -> str:
    raise RuntimeError("This tool intentionally returns an error for testing")


@tool
def test_custom_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "") -> str:
    return region


@tool
def test_streaming_elicitation() -> str:
    return "done"


@tool
async def test_reconnection(ctx: Context) -> str:
    await ctx.close_sse_stream()
    await asyncio.sleep(0.05)
    return "done"


# Tools that speak to the client while they work.


@tool
async def test_tool_with_logging(ctx: Context) -> str:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(said)
        await asyncio.sleep(0.05)
    return "logged"


@tool
async def test_logging_tool(ctx: Context) -> str:
    await ctx.info("not for everybody")
    return "logged"


@tool
async def test_tool_with_progress(ctx: Context) -> str:
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100)
        await asyncio.sleep(0.05)
    return "done"


changes = 0


def test_changes() -> str:
    return "changed"


def list_changes() -> None:
    for remove, name in ((mcp.remove_tool, "test_changes"), (mcp.remove_prompt, "test_changes")):
        if changes:
            remove(name)
    mcp.add_tool(test_changes, description=f"Has been changed {changes} times")
    mcp.add_prompt(Prompt.from_function(test_changes, description=f"Has been changed {changes} times"))


@tool
async def test_trigger_tool_change(ctx: Context) -> str:
    global changes
    changes += 1
    list_changes()
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "changed"


@tool
async def test_trigger_prompt_change(ctx: Context) -> str:
    global changes
    changes += 1
    list_changes()
    await ctx.notify_prompts_changed()
    await ctx.session.send_prompt_list_changed()
    return "changed"


# Tools that ask their client by a request.


async def ask(ctx: Context, message: str, schema: dict[str, Any]) -> str:
    answer = await ctx.session.elicit_form(message, schema, ctx.request_id)
    return f"action={answer.action}, content={json.dumps(answer.content or {})}"


@tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    asked = [types.SamplingMessage(role="user", content=text(prompt))]
    answer = await ctx.session.create_message(asked, max_tokens=100, related_request_id=ctx.request_id)
    return f"LLM response: {answer.content.text}"


@tool
async def test_elicitation(message: str, ctx: Context) -> str:
    fields = {"username": {**STRING, "description": "User's response"}, "email": {**STRING, "description": "User's email address"}}
    return f"User response: {await ask(ctx, message, form(fields, fields))}"


@tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    fields = {
        "name": {**STRING, "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {**STRING, "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return f"Elicitation completed: {await ask(ctx, 'Please look these over', form(fields))}"


@tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    options = {**STRING, "enum": ["option1", "option2", "option3"]}
    titles = [{"const": f"value{n}", "title": title} for n, title in enumerate(("First", "Second", "Third"), 1)]
    fields = {
        "untitledSingle": options,
        "titledSingle": {**STRING, "oneOf": titles},
        "legacyEnum": {**STRING, "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "items": options},
        "titledMulti": {"type": "array", "items": {"anyOf": titles}},
    }
    return f"Elicitation completed: {await ask(ctx, 'Please choose', form(fields))}"


# Tools that require input.


def elicit(message: str, properties: dict[str, Any]) -> types.ElicitRequest:
    schema = form(properties, properties)
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(prompt: str) -> types.CreateMessageRequest:
    asked = [types.SamplingMessage(role="user", content=text(prompt))]
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=asked, max_tokens=100))


def require(state: str | None = None, **requests: types.InputRequest) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def answered(ctx: Context, *names: str) -> list[Any] | None:
    """The client's answers of these names, if it has given all of them."""
    given = ctx.input_responses or {}
    return [given[name] for name in names] if given.keys() >= set(names) else None


NAME = {"name": STRING}
CONFIRM = {"ok": {"type": "boolean"}}


@tool
async def test_missing_capability(ctx: Context) -> Answer:
    capabilities = ctx.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        needed = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "the tool needs sampling", needed)
    return "sampled" if answered(ctx, "prompt") else require(prompt=sample("Say something"))


@tool
async def test_input_required_result_elicitation(ctx: Context) -> Answer:
    if answers := answered(ctx, "user_name"):
        return f"Hello, {answers[0].content['name']}!"
    return require(user_name=elicit("What is your name?", NAME))


@tool
async def test_input_required_result_sampling(ctx: Context) -> Answer:
    if answers := answered(ctx, "capital_question"):
        return answers[0].content.text
    return require(capital_question=sample("What is the capital of France?"))


@tool
async def test_input_required_result_list_roots(ctx: Context) -> Answer:
    if answers := answered(ctx, "client_roots"):
        return "\n".join(str(root.uri) for root in answers[0].roots)
    return require(client_roots=types.ListRootsRequest())


@tool
async def test_input_required_result_request_state(ctx: Context) -> Answer:
    if ctx.request_state == "asked" and answered(ctx, "confirm"):
        return "state-ok"
    return require("asked", confirm=elicit("Please confirm", CONFIRM))


@tool
async def test_input_required_result_tampered_state(ctx: Context) -> Answer:
    return await test_input_required_result_request_state(ctx)


@tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> Answer:
    if answers := answered(ctx, "user_name", "greeting", "client_roots"):
        user, greeting, roots = answers
        return f"{greeting.content.text} {user.content['name']}, {len(roots.roots)}"
    return require(
        "asked",
        user_name=elicit("What is your name?", NAME),
        greeting=sample("Generate a greeting"),
        client_roots=types.ListRootsRequest(),
    )


@tool
async def test_input_required_result_multi_round(ctx: Context) -> Answer:
    if (answers := answered(ctx, "step2")) and ctx.request_state:
        return f"{ctx.request_state} likes {answers[0].content['color']}"
    if ctx.request_state == "step1" and (answers := answered(ctx, "step1")):
        return require(answers[0].content["name"], step2=elicit("Step 2: What is your favorite color?", {"color": STRING}))
    return require("step1", step1=elicit("Step 1: What is your name?", NAME))


@tool
async def test_input_required_result_capabilities(ctx: Context) -> Answer:
    capabilities = ctx.client_capabilities or types.ClientCapabilities()
    questions: dict[str, types.InputRequest] = {}
    if capabilities.elicitation:
        questions["form"] = elicit("Please say", NAME)
    if capabilities.sampling:
        questions["prompt"] = sample("Say something")
    if not questions or answered(ctx, *questions):
        return "done"
    return require("asked", **questions)


# Resources, prompts and completion.


@mcp.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    return "This is the content of the static text resource."


@mcp.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    return base64.b64decode(PIXEL)


@mcp.resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    return "Watched resource content"


@mcp.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def says(*contents: types.ContentBlock) -> list[UserMessage]:
    return [UserMessage(role="user", content=content) for content in contents]


@prompt
def test_simple_prompt() -> list[UserMessage]:
    return says(text("This is a simple prompt for testing."))


@prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> list[UserMessage]:
    return says(text(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))


@prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
    resource = embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
    return says(resource, text("Please process the embedded resource above."))


@prompt
def test_prompt_with_image() -> list[UserMessage]:
    return says(image(), text("Please analyze the image above."))


@prompt
async def test_input_required_result_prompt(ctx: Context) -> list[UserMessage] | types.InputRequiredResult:
    if answers := answered(ctx, "user_context"):
        return says(text(answers[0].content["context"]))
    return require(user_context=elicit("What context should the prompt use?", {"context": STRING}))


@mcp.completion()
async def complete(ref: Any, argument: types.CompletionArgument, context: Any) -> types.Completion:
    return types.Completion(values=[word for word in ("paris", "park", "party") if word.startswith(argument.value)], has_more=False)


# The SDK has no other way to serve what the versions with `initialize` have besides.


async def done(ctx: ServerRequestContext[Any], params: types.RequestParams) -> types.EmptyResult:
    return types.EmptyResult()


for method, params in (
    ("logging/setLevel", types.SetLevelRequestParams),
    ("resources/subscribe", types.SubscribeRequestParams),
    ("resources/unsubscribe", types.UnsubscribeRequestParams),
):
    mcp._lowlevel_server.add_request_handler(method, params, done)

list_changes()
if __name__ == "__main__":
    if sys.argv[1:2] == ["--http"]:
        host, port = sys.argv[2].split(":")
        mcp.run("streamable-http", host=host, port=int(port), streamable_http_path="/", event_store=Events(), retry_interval=100)
    else:
        mcp.run()
