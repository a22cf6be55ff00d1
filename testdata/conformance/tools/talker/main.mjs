#!/usr/bin/env node
// A capsule with all of the suite's tools that speak to the client, with its
// resources and prompts, on Orla's own protocol (docs/CAPSULES.md).
import { createInterface } from "node:readline";
import * as contract from "../../contract.mjs";

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const notify = (method, params) => send({ method, params });
const asked = new Map(); // what waits for the client's answers, by id
let questions = 0;

function refuse(code, message, data) {
  throw Object.assign(new Error(message), { code, data });
}

// clientOf is who made a request, as the contract wants to speak to it.
const clientOf = (id, { _meta: { progressToken } = {} }) => ({
  log: (data) => notify("notifications/message", { level: "info", logger: "talker", data, _meta: { "orla/call": id } }),
  progress: (progress) => progressToken !== undefined && notify("notifications/progress", { progressToken, progress, total: 100 }),
  changed: (what) => notify(`notifications/${what}/list_changed`, {}),
  ask: (method, { _meta, ...params }) =>
    new Promise((resolve, reject) => {
      const mine = `question ${++questions}`;
      asked.set(mine, { resolve, reject });
      send({ id: mine, method, params: { ...params, _meta: { ..._meta, "orla/call": id } } });
    }),
});

const methods = {
  initialize: () => ({
    protocolVersion: "2025-11-25",
    capabilities: {
      tools: { listChanged: true },
      resources: { subscribe: true },
      prompts: { listChanged: true },
      logging: {},
      completions: {},
    },
    serverInfo: { name: "talker", version: "1.0.0" },
  }),
  "tools/list": () => ({ tools: contract.listTools(...Object.keys(contract.talking)) }),
  "tools/call": ({ name, arguments: args }, client) => contract.talking[name]?.(args ?? {}, client) ?? refuse(-32602, `no tool ${name}`),
  "resources/list": () => ({ resources: contract.resources }),
  "resources/templates/list": () => ({ resourceTemplates: contract.templates }),
  "resources/read": ({ uri }) => ({ contents: [contract.read(uri) ?? refuse(-32602, "Resource not found", { uri })] }),
  "resources/subscribe": () => ({}),
  "resources/unsubscribe": () => ({}),
  "prompts/list": () => ({ prompts: contract.listPrompts() }),
  "prompts/get": ({ name, arguments: args }, client) => contract.getPrompt(name, args, client) ?? refuse(-32602, `no prompt ${name}`),
  "completion/complete": ({ argument }) => contract.complete(argument),
  "logging/setLevel": () => ({}),
  ping: () => ({}),
};

notify("orla.hello", { name: "talker", version: "1.0.0", capabilities: ["tools", "resources", "prompts"] });
createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, method, params = {}, result, error } = JSON.parse(line);
  if (method === undefined) {
    const { resolve, reject } = asked.get(id);
    asked.delete(id);
    return error ? reject(Object.assign(new Error(error.message), error)) : resolve(result);
  }
  if (id === undefined) return;
  try {
    send({ id, result: await (methods[method] ?? (() => refuse(-32601, `no method ${method}`)))(params, clientOf(id, params)) });
  } catch ({ code = -32603, message, data }) {
    send({ id, error: { code, message, data } });
  }
});
