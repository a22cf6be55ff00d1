// Runs the official conformance suite. It needs a newer Node for what it never
// does here (fs.globSync), so it gets that from elsewhere, and more patience.
//
//   node suite.mjs ARG...        the suite's own command line: list --server, server --url URL --scenario NAME
//   node suite.mjs all DIR URL   all server scenarios against URL, in each revision that they apply to (REVISIONS names fewer); DIR/REVISION has the results
import { register } from "node:module";

register("./hooks.mjs", import.meta.url);

const cli = new URL("node_modules/@modelcontextprotocol/conformance/dist/index.js", import.meta.url);

// run runs the command line with some arguments. Each time it is another instance,
// which reads its arguments at once.
function run(args, instance) {
  process.argv = [process.argv[0], cli.pathname, ...args];
  return import(`${cli}?${instance}`);
}

const [mode, dir, url] = process.argv.slice(2);
if (mode !== "all") {
  await run(process.argv.slice(2), 0);
} else {
  const revisions = process.env.REVISIONS?.split(",") ?? ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];
  let open = revisions.length;
  const exit = process.exit;
  process.exit = () => --open || exit(0); // the results say how it went
  console.log = () => {};
  for (const revision of revisions)
    await run(["server", "--url", url, "--suite", "all", "--timeout", "120000", "--spec-version", revision, "-o", `${dir}/${revision}`], revision);
}
