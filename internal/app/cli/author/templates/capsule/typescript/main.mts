#!/usr/bin/env node
// {{name}}: say here what the capsule is for.
import { setTimeout as sleep } from "node:timers/promises";

import { serve, type Call } from "./wire.mts";

// Load here what calls need: a model, an index, a connection. It is kept for as
// long as the capsule lives.
const greeting = "Hello";

// Says hello: from here on there may be calls.
serve("{{name}}", "1.0.0", {
  greet: {
    description: "Greet somebody",
    properties: { name: { type: "string" } },
    required: ["name"],
    annotations: { readOnlyHint: true },
    run: ({ name }: { name: string }) => `${greeting}, ${name}!`,
  },
  count: {
    description: "Count, and take a tenth of a second for each number",
    properties: { to: { type: "integer", minimum: 1 } },
    required: ["to"],
    run: async ({ to }: { to: number }, call: Call) => {
      for (let n = 1; n <= to; n++) {
        await sleep(100, undefined, { signal: call.signal }); // or some work; throws if the call was cancelled
        call.progress(n, to, `at ${n}`);
      }
      return `counted to ${to}`;
    },
  },
});
