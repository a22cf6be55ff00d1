// What the official conformance suite asks a server to have, by its own names and
// in its own words: tools, resources, prompts. It says nothing of how they are
// served, which is for those who import it: tools/talker, a capsule of Orla's, and
// server.mjs, a server made with the official SDK.
//
// A tool's call gets its arguments and a client to speak to:
//
//     log(text)           a log message, at level info
//     progress(n)         n of 100 is done
//     ask(method, params) asks the client; rejects if it cannot be asked
//     changed(what)       the list of tools or prompts is another now

const pixel =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
const silence = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==";

const text = (text) => ({ type: "text", text });
const answer = (...content) => ({ content });
const image = { type: "image", data: pixel, mimeType: "image/png" };
const embedded = (uri, mimeType, text) => ({ type: "resource", resource: { uri, mimeType, text } });
const object = (properties = {}, required = []) => ({ type: "object", properties, required });
const string = { type: "string" };
const pause = () => new Promise((resolve) => setTimeout(resolve, 50));

// asks is an elicitation by form, under the name that the stateless era shows it by.
const asks = (name, message, properties, required = []) => [
  "elicitation/create",
  { mode: "form", message, requestedSchema: object(properties, required), _meta: { "orla/name": name } },
];
const samples = (name, prompt, maxTokens = 100) => [
  "sampling/createMessage",
  { messages: [{ role: "user", content: text(prompt) }], maxTokens, _meta: { "orla/name": name } },
];
const roots = (name) => ["roots/list", { _meta: { "orla/name": name } }];
const completed = ({ action, content }) => answer(text(`Elicitation completed: action=${action}, content=${JSON.stringify(content ?? {})}`));

/** Tools that say what they always say. tools/ has them as simple tools. */
export const plain = {
  test_simple_text: () => answer(text("This is a simple text response for testing.")),
  test_image_content: () => answer(image),
  test_audio_content: () => answer({ type: "audio", data: silence, mimeType: "audio/wav" }),
  test_embedded_resource: () => answer(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
  test_multiple_content_types: () =>
    answer(
      text("Multiple content types test:"),
      image,
      embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
  test_error_handling: () => ({ ...answer(text("This tool intentionally returns an error for testing")), isError: true }),
  json_schema_2020_12_tool: (args) => answer(text(JSON.stringify(args))),
};

const one = (value, title) => ({ const: value, title });
let changes = 0; // of the lists of tools and prompts

/** Tools that speak to the client while they work. */
export const talking = {
  async test_tool_with_logging(_, client) {
    client.log("Tool execution started");
    await pause();
    client.log("Tool processing data");
    await pause();
    client.log("Tool execution completed");
    return answer(text("logged"));
  },
  test_logging_tool(_, client) {
    client.log("not for everybody");
    return answer(text("logged"));
  },
  async test_tool_with_progress(_, client) {
    for (const done of [0, 50, 100]) {
      client.progress(done);
      await pause();
    }
    return answer(text("done"));
  },
  async test_reconnection() {
    await pause();
    return answer(text("done"));
  },
  async test_sampling({ prompt }, client) {
    const { content } = await client.ask(...samples("prompt", prompt));
    return answer(text(`LLM response: ${content.text}`));
  },
  async test_elicitation({ message }, client) {
    const fields = { username: { ...string, description: "User's response" }, email: { ...string, description: "User's email address" } };
    const { action, content } = await client.ask(...asks("user", message, fields, ["username", "email"]));
    return answer(text(`User response: action=${action}, content=${JSON.stringify(content ?? {})}`));
  },
  async test_elicitation_sep1034_defaults(_, client) {
    const fields = {
      name: { ...string, default: "John Doe" },
      age: { type: "integer", default: 30 },
      score: { type: "number", default: 95.5 },
      status: { ...string, enum: ["active", "inactive", "pending"], default: "active" },
      verified: { type: "boolean", default: true },
    };
    return completed(await client.ask(...asks("form", "Please look these over", fields)));
  },
  async test_elicitation_sep1330_enums(_, client) {
    const options = { type: "string", enum: ["option1", "option2", "option3"] };
    const titles = [one("value1", "First"), one("value2", "Second"), one("value3", "Third")];
    const fields = {
      untitledSingle: options,
      titledSingle: { type: "string", oneOf: titles },
      legacyEnum: { type: "string", enum: ["opt1", "opt2", "opt3"], enumNames: ["Option One", "Option Two", "Option Three"] },
      untitledMulti: { type: "array", items: options },
      titledMulti: { type: "array", items: { anyOf: titles } },
    };
    return completed(await client.ask(...asks("form", "Please choose", fields)));
  },
  async test_streaming_elicitation(_, client) {
    return completed(await client.ask(...asks("form", "Please say", { name: string })));
  },
  async test_missing_capability(_, client) {
    await client.ask(...samples("prompt", "Say something"));
    return answer(text("sampled"));
  },
  test_trigger_tool_change(_, client) {
    changes++;
    client.changed("tools");
    return answer(text("changed"));
  },
  test_trigger_prompt_change(_, client) {
    changes++;
    client.changed("prompts");
    return answer(text("changed"));
  },
  test_custom_header: ({ region }) => answer(text(region)),

  async test_input_required_result_elicitation(_, client) {
    const { content } = await client.ask(...asks("user_name", "What is your name?", { name: string }, ["name"]));
    return answer(text(`Hello, ${content.name}!`));
  },
  async test_input_required_result_sampling(_, client) {
    const { content } = await client.ask(...samples("capital_question", "What is the capital of France?"));
    return answer(text(content.text));
  },
  async test_input_required_result_list_roots(_, client) {
    const { roots: list } = await client.ask(...roots("client_roots"));
    return answer(text(list.map((root) => root.uri).join("\n")));
  },
  async test_input_required_result_request_state(_, client) {
    await client.ask(...asks("confirm", "Please confirm", { ok: { type: "boolean" } }, ["ok"]));
    return answer(text("state-ok"));
  },
  test_input_required_result_tampered_state: (args, client) => talking.test_input_required_result_request_state(args, client),
  async test_input_required_result_multiple_inputs(_, client) {
    const [user, greeting, list] = await Promise.all([
      client.ask(...asks("user_name", "What is your name?", { name: string }, ["name"])),
      client.ask(...samples("greeting", "Generate a greeting", 50)),
      client.ask(...roots("client_roots")),
    ]);
    return answer(text(`${greeting.content.text} ${user.content.name}, ${list.roots.length}`));
  },
  async test_input_required_result_multi_round(_, client) {
    const { content: first } = await client.ask(...asks("step1", "Step 1: What is your name?", { name: string }, ["name"]));
    const { content: second } = await client.ask(...asks("step2", "Step 2: What is your favorite color?", { color: string }, ["color"]));
    return answer(text(`${first.name} likes ${second.color}`));
  },
  async test_input_required_result_capabilities(_, client) {
    const asked = [asks("form", "Please say", { name: string }), samples("prompt", "Say something")].map((ask) => client.ask(...ask));
    return answer(text(JSON.stringify((await Promise.allSettled(asked)).map((a) => a.status))));
  },
};

const inputs = {
  json_schema_2020_12_tool: {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    $defs: { address: { $anchor: "addressDef", type: "object", properties: { street: string, city: string } } },
    properties: {
      name: string,
      address: { $ref: "#/$defs/address" },
      contactMethod: { type: "string", enum: ["phone", "email"] },
      phone: string,
      email: string,
    },
    allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
    if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
    then: { required: ["phone"] },
    else: { required: ["email"] },
    additionalProperties: false,
  },
  test_sampling: object({ prompt: string }, ["prompt"]),
  test_elicitation: object({ message: string }, ["message"]),
  test_custom_header: object({ region: { ...string, "x-mcp-header": "Region" } }, ["region"]),
};

/** Lists tools as tools/list does. */
export function listTools(...names) {
  const list = names.map((name) => ({
    name,
    description: `${name} of the conformance suite`,
    inputSchema: inputs[name] ?? object(),
  }));
  return [...list, { name: "test_changes", description: `Has been changed ${changes} times`, inputSchema: object() }];
}

export const resources = [
  { uri: "test://static-text", name: "static-text", description: "A text", mimeType: "text/plain" },
  { uri: "test://static-binary", name: "static-binary", description: "A picture", mimeType: "image/png" },
  { uri: "test://watched-resource", name: "watched-resource", description: "A text to watch", mimeType: "text/plain" },
];

export const templates = [
  { uriTemplate: "test://template/{id}/data", name: "template", description: "Data by id", mimeType: "application/json" },
];

/** Reads a resource; undefined if there is none. */
export function read(uri) {
  const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
  switch (uri) {
    case id && uri:
      return { uri, mimeType: "application/json", text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) };
    case "test://static-text":
      return { uri, mimeType: "text/plain", text: "This is the content of the static text resource." };
    case "test://static-binary":
      return { uri, mimeType: "image/png", blob: pixel };
    case "test://watched-resource":
      return { uri, mimeType: "text/plain", text: "Watched resource content" };
  }
}

const argument = (name) => ({ name, description: `The ${name}`, required: true });
const says = (...content) => ({ messages: content.map((content) => ({ role: "user", content })) });

const promptsOf = {
  test_simple_prompt: { says: () => says(text("This is a simple prompt for testing.")) },
  test_prompt_with_arguments: {
    arguments: [argument("arg1"), argument("arg2")],
    says: ({ arg1, arg2 }) => says(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)),
  },
  test_prompt_with_embedded_resource: {
    arguments: [argument("resourceUri")],
    says: ({ resourceUri }) =>
      says(
        embedded(resourceUri, "text/plain", "Embedded resource content for testing."),
        text("Please process the embedded resource above."),
      ),
  },
  test_prompt_with_image: { says: () => says(image, text("Please analyze the image above.")) },
  test_input_required_result_prompt: {
    async says(_, client) {
      const { content } = await client.ask(...asks("user_context", "What context should the prompt use?", { context: string }, ["context"]));
      return says(text(content.context));
    },
  },
};

export const listPrompts = () =>
  Object.entries(promptsOf).map(([name, prompt]) => ({ name, description: `Changed ${changes} times`, arguments: prompt.arguments ?? [] }));

/** Gets a prompt; undefined if there is none. */
export const getPrompt = (name, args, client) => promptsOf[name]?.says(args ?? {}, client);

/** Completes any argument. */
export const complete = ({ value }) => ({
  completion: { values: ["paris", "park", "party"].filter((word) => word.startsWith(value)), hasMore: false },
});
