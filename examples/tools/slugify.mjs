#!/usr/bin/env node
// /// tool
// description: Turn a title into a slug for a URL.
// mcp:
//   input_schema:
//     title: string
//     separator: string?
//   annotations:
//     readOnlyHint: true
// ///
import { readFileSync } from "node:fs";

const { title, separator = "-" } = JSON.parse(readFileSync(0, "utf8"));
const words = title.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().match(/[a-z0-9]+/g);
console.log((words ?? []).join(separator));
