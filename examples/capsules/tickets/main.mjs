#!/usr/bin/env node
// Tickets: a journal on disk, the tickets in memory, and calls that wait for a change.
import { homedir } from "node:os";
import { join } from "node:path";

import { Tickets } from "./tickets.mjs";
import { serve } from "./wire.mjs";

const tickets = new Tickets(process.env.TICKETS_FILE ?? join(homedir(), ".local/share/tickets.jsonl"));
const id = { type: "integer", minimum: 1 };
const text = { type: "string", minLength: 1 };

serve("tickets", "1.0.0", {
  open: {
    description: "Open a ticket, and get its number",
    properties: { title: text, body: { type: "string" } },
    required: ["title"],
    run: ({ title, body }) => tickets.record({ type: "open", title, text: body }),
  },
  list: {
    description: "List the tickets of a state, or those that have a text",
    properties: { state: { enum: ["open", "closed"] }, text },
    annotations: { readOnlyHint: true },
    run: ({ state, text }) => {
      const found = tickets.list(state, text);
      const lines = found.map((t) => `#${t.id} ${t.state}: ${t.title}`);
      return { content: [{ type: "text", text: lines.join("\n") || "There is none." }], structuredContent: { tickets: found } };
    },
  },
  comment: {
    description: "Add a comment to a ticket",
    properties: { id, text },
    required: ["id", "text"],
    run: ({ id, text }) => tickets.record({ type: "comment", id, text }),
  },
  close: {
    description: "Close a ticket, and say why",
    properties: { id, reason: { type: "string" } },
    required: ["id"],
    run: ({ id, reason }) => tickets.record({ type: "close", id, text: reason }),
  },
  wait: {
    description: "Wait until a ticket is closed, for ten minutes unless told otherwise, and get it",
    properties: { id, seconds: { type: "number", minimum: 0, maximum: 840 } },
    required: ["id"],
    annotations: { readOnlyHint: true },
    run: async ({ id, seconds = 600 }, call) => {
      const began = Date.now();
      const passed = () => Math.min(Math.round((Date.now() - began) / 1000), seconds);
      // Clients that see progress go on waiting.
      const tick = setInterval(() => call.progress(passed(), seconds, `ticket #${id} is ${tickets.get(id).state}`), 5000);
      try {
        return await tickets.closed(id, AbortSignal.any([call.signal, AbortSignal.timeout(seconds * 1000)]));
      } finally {
        clearInterval(tick);
      }
    },
  },
});
