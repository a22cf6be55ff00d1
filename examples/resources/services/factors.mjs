// Type grpc: the tool contract v1 as JSON, by one unary method. This is all of
// gRPC that it takes, by Node's own HTTP/2; with a gRPC library it is one
// handler, and JSON.parse and JSON.stringify for its codec.
import { createServer } from "node:http2";

const METHOD = "/orloj.tool.v1.ToolService/Execute";

function execute({ request_id, parameters }) {
  const factors = [];
  let rest = parameters.number;
  for (let prime = 2; prime * prime <= rest; prime++) {
    for (; rest % prime === 0; rest /= prime) factors.push(prime);
  }
  if (rest > 1) factors.push(rest);
  return { request_id, status: "success", result: { number: parameters.number, factors } };
}

// A message is a byte for its compression, four for its length, and its bytes.
function framed(message) {
  const body = Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
}

const server = createServer();
server.on("stream", async (stream, headers) => {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  const head = { ":status": 200, "content-type": "application/grpc+json" };
  if (headers[":path"] !== METHOD) {
    stream.respond({ ...head, "grpc-status": "12", "grpc-message": "no such method" }, { endStream: true });
    return;
  }
  stream.respond(head, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  stream.end(framed(execute(JSON.parse(Buffer.concat(chunks).subarray(5)))));
});
server.on("error", (err) => {
  console.error(`factors: ${err.message}`);
  process.exit(1);
});
const port = Number(process.argv[2]);
server.listen(port, "127.0.0.1", () => console.error(`factors: listens on grpc://127.0.0.1:${port}`));
process.on("SIGTERM", () => process.exit(0));
