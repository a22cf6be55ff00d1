// Speaks with Orla: JSON-RPC on stdin and stdout, one message a line.
// Nothing here knows of tickets; copy it to begin a capsule of your own.
import { createInterface } from "node:readline";

const write = process.stdout.write.bind(process.stdout);
const send = (message) => write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
for (const method of ["log", "info", "debug"]) console[method] = console.error; // stdout is for messages

/** What the caller should know of; anything else that is thrown is logged as well. */
export class Trouble extends Error {}

/** Says hello, and answers until Orla closes stdin, which asks for the end. */
export function serve(name, version, tools) {
  const calls = new Map(); // by the id of the request: what aborts it

  async function call(id, { name, arguments: args = {}, _meta }) {
    const abort = new AbortController();
    calls.set(id, abort);
    const progress = (progress, total, message) =>
      _meta?.progressToken !== undefined &&
      send({ method: "notifications/progress", params: { progressToken: _meta.progressToken, progress, total, message } });
    try {
      const result = await tools[name].run(args, { signal: abort.signal, progress });
      send({ id, result }); // of a cancelled call nobody reads it, but it tells Orla that the work is over
    } catch (err) {
      if (!(err instanceof Trouble || abort.signal.aborted)) console.error(err);
      send({ id, result: { content: [{ type: "text", text: err.message }], isError: true } });
    } finally {
      calls.delete(id);
    }
  }

  const answers = {
    initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name, version } }),
    "tools/list": () => ({
      tools: Object.entries(tools).map(([name, { description, properties, required = [], annotations }]) => ({
        name, description, annotations,
        inputSchema: { type: "object", properties, required, additionalProperties: false },
      })),
    }),
    ping: () => ({}),
  };

  createInterface({ input: process.stdin, crlfDelay: Infinity })
    .on("line", (line) => {
      const { id, method, params = {} } = JSON.parse(line);
      if (method === "tools/call") call(id, params);
      else if (method === "notifications/cancelled") calls.get(params.requestId)?.abort();
      else if (method in answers) send({ id, result: answers[method](params) });
      else if (id !== undefined) send({ id, error: { code: -32601, message: `no method ${method}` } });
    })
    .on("close", () => process.exit(0));

  send({ method: "orla.hello", params: { name, version, capabilities: ["tools"] } });
}
