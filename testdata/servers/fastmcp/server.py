"""A FastMCP server with some of everything, which the tests run as a capsule."""

import os
from typing import Literal

from mcp.server.fastmcp import Context, FastMCP, Image
from mcp.server.fastmcp.prompts.base import AssistantMessage, UserMessage
from mcp.types import (
    Annotations,
    Completion,
    EmbeddedResource,
    Icon,
    ResourceLink,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel, Field

ICON = Icon(src="data:image/svg+xml;base64,PHN2Zy8+", mimeType="image/svg+xml", sizes=["any"])

server = FastMCP("almanac", instructions="Ask for the weather.", website_url="https://example.com/", icons=[ICON])


class Weather(BaseModel):
    city: str
    degrees: float = Field(description="in degrees Celsius")
    wind: dict[str, int]


class Trip(BaseModel):
    nights: int = Field(ge=1, le=30, description="How long?")
    breakfast: bool
    room: str = Field(default="single", max_length=20)


@server.tool(
    title="Weather",
    annotations=ToolAnnotations(title="The weather", readOnlyHint=True, openWorldHint=False),
    icons=[ICON],
    meta={"example.com/unit": {"degrees": "C"}},
)
def weather(city: str, unit: Literal["C", "F"] = "C") -> Weather:
    """Tell the weather of a city."""
    return Weather(city=city, degrees=21.5 if unit == "C" else 70.7, wind={"north": 3})


@server.tool()
def add(a: int, b: int = 1) -> int:
    """Add two integers, however large."""
    return a + b


@server.tool(structured_output=False)
def pid() -> str:
    """Tell which process answers."""
    return f"{os.getpid()} says ONE"


@server.tool()
def fail(reason: str) -> str:
    """Fail for a reason."""
    raise ValueError(reason)


@server.tool()
def mixed() -> list[TextContent | EmbeddedResource | ResourceLink]:
    """Answer with content of several kinds."""
    return [
        TextContent(type="text", text="Grüße ☃", annotations=Annotations(audience=["user"], priority=0.5)),
        EmbeddedResource(
            type="resource",
            resource=TextResourceContents(uri="almanac://note", mimeType="text/plain", text="a note"),
        ),
        ResourceLink(type="resource_link", uri="almanac://moon", name="moon", size=3),
    ]


@server.tool()
def picture() -> Image:
    """Answer with a picture."""
    return Image(data=b"\x89PNG\r\n\x1a\n", format="png")


@server.tool()
async def count(to: int, context: Context) -> list[int]:
    """Count, and tell how it goes."""
    for i in range(1, to + 1):
        await context.info(f"at {i}")
        await context.report_progress(i, to, f"{i} of {to}")
    await context.warning("counted", logger_name="counter")
    return list(range(1, to + 1))


@server.tool()
async def book(context: Context) -> str:
    """Ask the user for the details of a trip."""
    answer = await context.elicit("Where to?", schema=Trip)
    return f"{answer.action}: {answer.model_dump_json()}"


@server.tool()
async def compose(topic: str, context: Context) -> str:
    """Let the client's model write."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=topic))
    answer = await context.session.create_message([message], max_tokens=10, temperature=0.25)
    return answer.model_dump_json(exclude_none=True)


@server.tool()
async def roots(context: Context) -> list[str]:
    """Ask the client for its roots."""
    answer = await context.session.list_roots()
    return [str(root.uri) for root in answer.roots]


@server.tool()
async def grow(name: str, context: Context) -> str:
    """Add a tool, a resource and a prompt."""
    server.add_tool(lambda: name, name=name, description="Grown.")
    server.resource(f"almanac://grown/{name}", name=name)(lambda: name)
    server.prompt(name)(lambda: name)
    await context.session.send_tool_list_changed()
    await context.session.send_resource_list_changed()
    await context.session.send_prompt_list_changed()
    return name


@server.resource("almanac://moon", title="The moon", description="Its phase.", mime_type="text/plain", icons=[ICON])
def moon() -> str:
    return "new"


@server.resource("almanac://tide", mime_type="application/octet-stream")
def tide() -> bytes:
    return bytes(range(256))


@server.resource("almanac://sun/{city}/{day}", title="Sunrise", mime_type="application/json")
def sun(city: str, day: str) -> dict[str, str]:
    """When the sun rises somewhere."""
    return {"city": city, "day": day, "rises": "06:00"}


@server.prompt(title="Greeting", icons=[ICON])
def greet(name: str, style: str = "short") -> str:
    """Greet somebody."""
    return f"A {style} greeting for {name}, please."


@server.prompt()
def talk(topic: str) -> list[UserMessage | AssistantMessage]:
    """Begin to talk about something."""
    return [UserMessage(f"What about {topic}?"), AssistantMessage("Well.")]


@server.completion()
async def complete(ref, argument, context) -> Completion:
    known = ["short", "long", "Berlin", "Bern"]
    given = sorted((context.arguments or {}).values()) if context else []
    return Completion(values=[k for k in known if k.startswith(argument.value)] + given, total=9, hasMore=True)


if __name__ == "__main__":
    server.run()
