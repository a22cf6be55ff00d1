// Speaks with Orla: JSON-RPC on stdin and stdout, one message a line.
// Nothing here knows of tickets; copy it to begin a capsule of your own.
import { createInterface } from "node:readline";

/** What a tool sees of its call. */
export type Call = { signal: AbortSignal; progress: (progress: number, total?: number, message?: string) => void };

/** A tool: how models see it, and what answers its calls. */
export type Tool = {
  description: string;
  properties: Record<string, object>;
  required?: string[];
  annotations?: Record<string, boolean>;
  run: (args: any, call: Call) => unknown;
};

const write = process.stdout.write.bind(process.stdout);
const send = (message: object) => write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
console.log = console.info = console.debug = console.error; // stdout is for messages

/** What the caller should know of; anything else that is thrown is logged as well. */
export class Trouble extends Error {}

/** Says hello, and answers until Orla closes stdin, which asks for the end. */
export function serve(name: string, version: string, tools: Record<string, Tool>) {
  const calls = new Map<unknown, AbortController>(); // by the id of the request

  async function call(id: unknown, { name, arguments: args = {}, _meta }: any) {
    const abort = new AbortController();
    calls.set(id, abort);
    const progress = (progress: number, total?: number, message?: string) => {
      if (_meta?.progressToken === undefined) return;
      send({ method: "notifications/progress", params: { progressToken: _meta.progressToken, progress, total, message } });
    };
    try {
      const result = await tools[name].run(args, { signal: abort.signal, progress });
      send({ id, result }); // of a cancelled call nobody reads it, but it tells Orla that the work is over
    } catch (err) {
      if (!(err instanceof Trouble || abort.signal.aborted)) console.error(err);
      send({ id, result: { content: [{ type: "text", text: (err as Error).message }], isError: true } });
    } finally {
      calls.delete(id);
    }
  }

  const answers: Record<string, (params: any) => object> = {
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
