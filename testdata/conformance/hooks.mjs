// What of the official conformance suite is another here.
import fs from "node:fs";

// patience has what bounds a wait for an answer, and what it is replaced by: long is how many
// milliseconds such a wait may take. As it is, a server on a busy machine fails: it has half a
// second for some answers.
const patience = (long) => [
  // A stream is read until it has as many messages as are asked for.
  ["u=setTimeout(()=>{l.abort()},a)", `u=setTimeout(()=>{l.abort()},${long})`],
  // The third one never comes: who asks for it waits as long as before, but from
  // when all is done that could bring it.
  ["try{await o()}catch{}", "try{await o()}catch{}i>2&&setTimeout(()=>{l.abort()},a)"],
  ["r.timeoutMs??1e4", `r.timeoutMs??${long}`],
  ["setTimeout(()=>e(void 0),5e3)", `setTimeout(()=>e(void 0),${long})`],
  ["setTimeout(()=>{v.cancel()},1e4)", `setTimeout(()=>{v.cancel()},${long})`],
  ["signal:AbortSignal.timeout(5e3)", `signal:AbortSignal.timeout(${long})`],
];

const glob = "fs-with-glob:";
const isSuite = (url) => url?.includes("/conformance/dist/");

export function resolve(name, context, next) {
  if (name === "fs" && !fs.globSync && isSuite(context.parentURL)) return { url: glob, shortCircuit: true };
  return next(name, context);
}

export async function load(url, context, next) {
  if (url === glob) {
    const source = 'export * from "node:fs"; export { default } from "node:fs"; export const globSync = () => { throw new Error("no globSync"); };';
    return { format: "module", shortCircuit: true, source };
  }
  const loaded = await next(url, context);
  if (!isSuite(url)) return loaded;
  const long = Number(new URL(url).searchParams.get("patience") || 6e4);
  let source = String(loaded.source);
  for (const [from, to] of patience(long)) {
    if (!source.includes(from)) throw new Error(`the suite has no ${from} any more`);
    source = source.replaceAll(from, () => to);
  }
  return { ...loaded, source };
}
