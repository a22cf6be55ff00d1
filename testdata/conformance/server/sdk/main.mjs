#!/usr/bin/env node
// All that the suite asks for, as a server over stdio made with the official SDK.
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import {
  CallToolRequestSchema,
  CompleteRequestSchema,
  GetPromptRequestSchema,
  ListPromptsRequestSchema,
  ListResourcesRequestSchema,
  ListResourceTemplatesRequestSchema,
  ListToolsRequestSchema,
  McpError,
  ReadResourceRequestSchema,
  ResultSchema,
  SetLevelRequestSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";
import * as contract from "../../contract.mjs";

const capabilities = {
  tools: { listChanged: true },
  resources: { subscribe: true },
  prompts: { listChanged: true },
  logging: {},
  completions: {},
};
const server = new Server({ name: "sdk", version: "1.0.0" }, { capabilities });
const tools = { ...contract.plain, ...contract.talking };

function refuse(message, data) {
  throw new McpError(-32602, message, data);
}

// clientOf is who made a request, as the contract wants to speak to it. Over stdio
// the SDK does not say which request a message is about, so _meta does.
function clientOf({ requestId, _meta: { progressToken } = {} }) {
  const about = { "orla/call": requestId };
  const notify = (method, params) => server.notification({ method, params });
  return {
    log: (data) => notify("notifications/message", { level: "info", logger: "sdk", data, _meta: about }),
    progress: (progress) => progressToken !== undefined && notify("notifications/progress", { progressToken, progress, total: 100 }),
    changed: (what) => notify(`notifications/${what}/list_changed`),
    ask: (method, { _meta, ...params }) => server.request({ method, params: { ...params, _meta: { ..._meta, ...about } } }, ResultSchema),
  };
}

const answers = [
  [ListToolsRequestSchema, () => ({ tools: contract.listTools(...Object.keys(tools)) })],
  [
    CallToolRequestSchema,
    ({ params: { name, arguments: args } }, extra) => tools[name]?.(args ?? {}, clientOf(extra)) ?? refuse(`no tool ${name}`),
  ],
  [ListResourcesRequestSchema, () => ({ resources: contract.resources })],
  [ListResourceTemplatesRequestSchema, () => ({ resourceTemplates: contract.templates })],
  [ReadResourceRequestSchema, ({ params: { uri } }) => ({ contents: [contract.read(uri) ?? refuse("Resource not found", { uri })] })],
  [SubscribeRequestSchema, () => ({})],
  [UnsubscribeRequestSchema, () => ({})],
  [ListPromptsRequestSchema, () => ({ prompts: contract.listPrompts() })],
  [
    GetPromptRequestSchema,
    ({ params: { name, arguments: args } }, extra) => contract.getPrompt(name, args, clientOf(extra)) ?? refuse(`no prompt ${name}`),
  ],
  [CompleteRequestSchema, ({ params: { argument } }) => contract.complete(argument)],
  [SetLevelRequestSchema, () => ({})],
];
for (const [schema, answer] of answers) server.setRequestHandler(schema, answer);
await server.connect(new StdioServerTransport());
