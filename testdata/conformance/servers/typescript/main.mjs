#!/usr/bin/env node
// All that the suite asks for, as a server made with version 2 of the official SDK. It
// serves the versions with `initialize` and 2026-07-28, over stdio, or with --http
// HOST:PORT over Streamable HTTP.
import { randomBytes, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { NodeStreamableHTTPServerTransport, localhostHostValidation, toNodeHandler } from "@modelcontextprotocol/node";
import {
  CLIENT_CAPABILITIES_META_KEY,
  MissingRequiredClientCapabilityError,
  ProtocolError,
  Server,
  classifyInboundRequest,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  isInitializeRequest,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import * as contract from "../../contract.mjs";

const tools = { ...contract.plain, ...contract.talking };
const states = createRequestStateCodec({ key: randomBytes(32) });
const needed = { "elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots" };

function refuse(message, data) {
  throw new ProtocolError(-32602, message, data);
}

// run does a job of the contract. What the job asks for and nobody has answered yet is
// required from the client. When the client comes back with it, the job begins again;
// the state has the answers of earlier rounds.
async function run(server, notifyChange, { mcpReq: request }, job) {
  const answers = { ...request.requestState(), ...request.inputResponses };
  const capabilities = request.envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? server.getClientCapabilities() ?? {};
  const token = request._meta?.progressToken;
  const questions = {};
  let wait;
  const waits = new Promise((resolve) => (wait = resolve));
  const client = {
    log: (data) => request.log("info", data, "typescript"),
    progress: (progress) =>
      token !== undefined && request.notify({ method: "notifications/progress", params: { progressToken: token, progress, total: 100 } }),
    changed: notifyChange,
    async ask(method, { _meta, ...params }) {
      const name = _meta["orla/name"];
      if (answers[name]) return answers[name];
      const capability = needed[method];
      if (!capabilities[capability]) throw new MissingRequiredClientCapabilityError({ requiredCapabilities: { [capability]: {} } });
      questions[name] = { method, params };
      setImmediate(wait); // what is asked at once is asked together
      return new Promise(() => {});
    },
  };
  const result = await Promise.race([job(client), waits]);
  return result ?? inputRequired({ inputRequests: questions, requestState: await states.mint(answers) });
}

// newEvents keeps the events of a session's streams, to resume them.
function newEvents() {
  const events = new Map();
  return {
    async storeEvent(stream, message) {
      const id = `${stream}/${events.size}`;
      events.set(id, { stream, message });
      return id;
    },
    async replayEventsAfter(last, { send }) {
      const { stream } = events.get(last);
      const ids = [...events.keys()];
      for (const id of ids.slice(ids.indexOf(last) + 1)) {
        const event = events.get(id);
        if (event.stream === stream && event.message?.jsonrpc) await send(id, event.message);
      }
      return stream;
    },
  };
}

// serve makes a server. notifyChange tells its clients that a list is another now.
function serve(notifyChange) {
  const server = new Server(
    { name: "typescript", version: "1.0.0" },
    {
      capabilities: {
        tools: { listChanged: true },
        resources: { subscribe: true },
        prompts: { listChanged: true },
        logging: {},
        completions: {},
      },
      requestState: { verify: states.verify },
    },
  );
  const changed = (what) => notifyChange(server, what);
  const answers = {
    "tools/list": () => ({ tools: contract.listTools(...Object.keys(tools)) }),
    "tools/call": ({ params: { name, arguments: args } }, ctx) => {
      if (name === "test_reconnection") ctx.http?.closeSSE?.();
      return run(server, changed, ctx, (client) => tools[name]?.(args ?? {}, client) ?? refuse(`no tool ${name}`));
    },
    "resources/list": () => ({ resources: contract.resources }),
    "resources/templates/list": () => ({ resourceTemplates: contract.templates }),
    "resources/read": ({ params: { uri } }) => ({ contents: [contract.read(uri) ?? refuse("Resource not found", { uri })] }),
    "resources/subscribe": () => ({}),
    "resources/unsubscribe": () => ({}),
    "prompts/list": () => ({ prompts: contract.listPrompts() }),
    "prompts/get": ({ params: { name, arguments: args } }, ctx) =>
      run(server, changed, ctx, (client) => contract.getPrompt(name, args, client) ?? refuse(`no prompt ${name}`)),
    "completion/complete": ({ params: { argument } }) => contract.complete(argument),
  };
  for (const [method, answer] of Object.entries(answers)) server.setRequestHandler(method, answer);
  return server;
}

const tell = (server, what) => server.notification({ method: `notifications/${what}/list_changed` });

function serveHTTP(address) {
  const sessions = new Map(); // of the versions with initialize
  const stateless = createMcpHandler(() => serve((_, what) => stateless.notify[`${what}Changed`]()));
  const answerStateless = toNodeHandler(stateless);
  const allowed = localhostHostValidation();

  async function answer(req, res) {
    if (!allowed(req, res)) return;
    const body = req.method === "POST" ? JSON.parse(await text(req)) : undefined;
    const { kind } = classifyInboundRequest({
      httpMethod: req.method,
      protocolVersionHeader: req.headers["mcp-protocol-version"],
      mcpMethodHeader: req.headers["mcp-method"],
      body,
    });
    if (kind !== "legacy") return answerStateless(req, res, body);
    let session = sessions.get(req.headers["mcp-session-id"]);
    if (!session && isInitializeRequest(body)) {
      session = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        eventStore: newEvents(),
        retryInterval: 100,
        onsessioninitialized: (id) => sessions.set(id, session),
      });
      session.onclose = () => sessions.delete(session.sessionId);
      await serve(tell).connect(session);
    }
    if (session) return session.handleRequest(req, res, body);
    res.writeHead(req.headers["mcp-session-id"] ? 404 : 400).end();
  }

  const [host, port] = address.split(":");
  createServer((req, res) => answer(req, res).catch(() => res.writeHead(400).end())).listen(Number(port), host);
}

const [option, address] = process.argv.slice(2);
if (option === "--http") serveHTTP(address);
else serveStdio(() => serve(tell));
