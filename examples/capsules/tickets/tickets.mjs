// The tickets, as a journal of events tells them. Whatever happens is read back
// from there, so that neither a reload nor a second process loses anything.
import { EventEmitter, once } from "node:events";
import { appendFileSync, fstatSync, mkdirSync, openSync, readSync } from "node:fs";
import { dirname } from "node:path";

import { Trouble } from "./wire.mjs";

export class Tickets {
  #journal;
  #seen = 0; // bytes of the journal
  #tickets = new Map();
  #changes = new EventEmitter().setMaxListeners(0);

  constructor(file) {
    mkdirSync(dirname(file), { recursive: true });
    this.#journal = openSync(file, "a+");
    this.#catchUp();
  }

  /** Keeps an event, and returns the ticket that it is about. */
  record(event) {
    this.#catchUp();
    event = { id: this.#tickets.size + 1, ...event, at: new Date().toISOString() };
    if (event.type !== "open") this.get(event.id); // there has to be one
    appendFileSync(this.#journal, JSON.stringify(event) + "\n");
    return this.get(event.id);
  }

  get(id) {
    this.#catchUp();
    const ticket = this.#tickets.get(id);
    if (!ticket) throw new Trouble(`There is no ticket #${id}.`);
    return ticket;
  }

  list(state, text = "") {
    this.#catchUp();
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

  #catchUp() {
    const news = Buffer.alloc(fstatSync(this.#journal).size - this.#seen);
    readSync(this.#journal, news, 0, news.length, this.#seen);
    this.#seen += news.length;
    for (const line of news.toString().split("\n")) if (line) this.#apply(JSON.parse(line));
  }

  #apply({ type, id, title, text, at }) {
    const ticket = this.#tickets.get(id) ?? { id, title, state: "open", opened: at, comments: [] };
    if (text) ticket.comments.push({ at, text });
    if (type === "close") Object.assign(ticket, { state: "closed", closed: at });
    this.#tickets.set(id, ticket);
    this.#changes.emit(`${id}`);
  }
}
