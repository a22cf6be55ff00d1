// Runs the official conformance suite. It needs a newer Node for what it never
// does here (fs.globSync), so it gets that from elsewhere, and more patience.
//
//   node suite.mjs ARG...   runs the suite's own command line: list --server, server --url URL --scenario NAME
//   node suite.mjs serve    runs the command lines that it reads from stdin, in this process: to load the suite takes longer than to run it
//
// A line of stdin is {"id": 1, "args": ["server", ...], "patience": 15000}, where patience, in
// milliseconds, may be left out. {"id": 1} is printed when that command line has ended and has
// closed its streams. What the suite prints is left out, since its results are in files.
import { AsyncLocalStorage } from "node:async_hooks";
import { register } from "node:module";
import { createInterface } from "node:readline";

register("./hooks.mjs", import.meta.url);

const cli = new URL("node_modules/@modelcontextprotocol/conformance/dist/index.js", import.meta.url);

// run runs the command line with some arguments. Each query is another instance, which
// reads its arguments at once.
function run(args, query) {
  process.argv = [process.argv[0], cli.pathname, ...args];
  return import(cli + query);
}

// serve runs the command lines of stdin. Each thinks that it has the process to itself.
function serve() {
  const { exit } = process;
  const { fetch, console: { log } } = globalThis;
  const command = new AsyncLocalStorage(); // {id, over}: what runs, and what aborts its requests at its end
  console.log = () => {};
  process.exit = () => {
    const { id, over } = command.getStore();
    if (over.signal.aborted) return; // some say so twice
    over.abort();
    log(JSON.stringify({ id }));
  };
  globalThis.fetch = (what, { signal, ...how } = {}) => {
    const { over } = command.getStore();
    return fetch(what, { ...how, signal: signal ? AbortSignal.any([signal, over.signal]) : over.signal });
  };
  process.on("unhandledRejection", (reason) => console.error(reason)); // such as of a request that was aborted

  let last = Promise.resolve(); // the load of the last instance: each sets process.argv
  const lines = createInterface({ input: process.stdin });
  lines.on("line", (line) => {
    const { id, args, patience = "" } = JSON.parse(line);
    last = last.then(() => command.run({ id, over: new AbortController() }, run, args, `?id=${id}&patience=${patience}`));
  });
  lines.on("close", () => exit(0));
}

if (process.argv[2] === "serve") serve();
else await run(process.argv.slice(2), "");
