// The tickets, as a journal of events tells them. A new process reads the
// journal, and so a reload loses nothing.
import { EventEmitter, once } from "node:events";
import { appendFileSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path";

import { Trouble } from "./wire.mjs";

export class Tickets {
  #file;
  #tickets = new Map();
  #changes = new EventEmitter().setMaxListeners(0);

  constructor(file) {
    this.#file = file;
    mkdirSync(dirname(file), { recursive: true });
    if (!existsSync(file)) return;
    for (const line of readFileSync(file, "utf8").split("\n")) if (line) this.#apply(JSON.parse(line));
  }

  /** Takes an event, keeps it, and returns the ticket that it is about. */
  record(event) {
    event = { id: this.#tickets.size + 1, ...event, at: new Date().toISOString() };
    if (event.type !== "open") this.get(event.id);
    appendFileSync(this.#file, JSON.stringify(event) + "\n");
    return this.#apply(event);
  }

  get(id) {
    const ticket = this.#tickets.get(id);
    if (!ticket) throw new Trouble(`There is no ticket #${id}.`);
    return ticket;
  }

  list(state, text = "") {
    const has = (ticket) => JSON.stringify(ticket).toLowerCase().includes(text.toLowerCase());
    return [...this.#tickets.values()].filter((t) => (!state || t.state === state) && has(t));
  }

  /** Resolves with the ticket when it is closed, or as it is when signal aborts. */
  async closed(id, signal) {
    while (this.get(id).state !== "closed" && !signal.aborted) {
      await once(this.#changes, `${id}`, { signal }).catch(() => {});
    }
    return this.get(id);
  }

  #apply({ type, id, title, text, at }) {
    const ticket = this.#tickets.get(id) ?? { id, title, state: "open", opened: at, comments: [] };
    if (text) ticket.comments.push({ at, text });
    if (type === "close") Object.assign(ticket, { state: "closed", closed: at });
    this.#tickets.set(id, ticket);
    this.#changes.emit(`${id}`);
    return ticket;
  }
}
