// A gRPC service that speaks the tool contract v1 as JSON, and misbehaves when
// the arguments ask for it. It prints its port when it listens.
//
//   PORT=0 node server.mjs             plain
//   TLS_KEY=… TLS_CERT=… node server.mjs
import { readFileSync } from "node:fs";
import grpc from "@grpc/grpc-js";

// The codec: what comes in is kept as text, and what goes out is text.
const service = {
  Execute: {
    path: "/orloj.tool.v1.ToolService/Execute",
    requestStream: false,
    responseStream: false,
    requestSerialize: (text) => Buffer.from(text),
    requestDeserialize: (bytes) => bytes.toString("utf8"),
    responseSerialize: (text) => Buffer.from(text),
    responseDeserialize: (bytes) => bytes.toString("utf8"),
  },
};

// delimited is a field of a protobuf message that has a length; number is one
// that has not.
const varint = (n) => (n < 128 ? [n] : [(n & 127) | 128, ...varint(Math.floor(n / 128))]);
const delimited = (field, bytes) => [...varint(field * 8 + 2), ...varint(bytes.length), ...bytes];
const number = (field, n) => [...varint(field * 8), ...varint(n)];

// retryInfo is a google.rpc.Status whose detail asks for a pause.
function retryInfo(code, message, ms) {
  const pause = [...number(1, Math.floor(ms / 1000)), ...number(2, (ms % 1000) * 1e6)];
  const detail = [
    ...delimited(1, Buffer.from("type.googleapis.com/google.rpc.RetryInfo")),
    ...delimited(2, delimited(1, pause)),
  ];
  return Buffer.from([...number(1, code), ...delimited(2, Buffer.from(message)), ...delimited(3, detail)]);
}

function failure({ code, message = "", retry_after_ms }) {
  const metadata = new grpc.Metadata();
  if (retry_after_ms !== undefined) {
    metadata.set("grpc-status-details-bin", retryInfo(code, message, retry_after_ms));
  }
  return { code, details: message, metadata };
}

let hanging = 0;
let cancelled = 0;

function execute(call, answer) {
  const request = JSON.parse(call.request);
  const id = request.request_id;
  const args = request.parameters ?? {};
  const success = (result) => answer(null, JSON.stringify({ request_id: id, status: "success", result }));
  switch (args.do) {
    case "see": {
      const seen = {
        metadata: call.metadata.getMap(),
        request,
        deadline_ms: call.getDeadline() === Infinity ? null : call.getDeadline() - Date.now(),
      };
      // Orla takes its credentials out of results. What is written backwards shows that they came.
      return success({ ...seen, backwards: [...JSON.stringify(seen)].reverse().join("") });
    }
    case "status":
      return answer(failure(args));
    case "error":
      return answer(null, JSON.stringify({ request_id: id, status: "error", error: args.error }));
    case "hang":
      hanging++;
      return call.on("cancelled", () => cancelled++);
    case "hanging":
      return success(hanging);
    case "cancelled":
      return success(cancelled);
    case "big":
      return success("x".repeat(args.bytes));
    case "raw":
      return answer(null, args.text);
    case "half": {
      const whole = JSON.stringify({ request_id: id, status: "success", result: { city: "Bern" } });
      return answer(null, whole.slice(0, whole.length / 2));
    }
    case "other":
      return answer(null, JSON.stringify({ request_id: "another", status: "success", result: 1 }));
    default:
      return success({ said: args.say ?? "" });
  }
}

const { TLS_KEY, TLS_CERT, PORT = "0" } = process.env;
const credentials = TLS_KEY
  ? grpc.ServerCredentials.createSsl(null, [{ private_key: readFileSync(TLS_KEY), cert_chain: readFileSync(TLS_CERT) }])
  : grpc.ServerCredentials.createInsecure();
const server = new grpc.Server({ "grpc.max_send_message_length": -1, "grpc.max_receive_message_length": -1 });
server.addService(service, { Execute: execute });
server.bindAsync(`127.0.0.1:${PORT}`, credentials, (err, port) => {
  if (err) {
    throw err;
  }
  console.log(port);
});
// Whoever started it holds its stdin.
process.stdin.resume().on("end", () => process.exit(0));
