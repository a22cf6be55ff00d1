#!/usr/bin/env node
// /// tool
// description: Greet somebody. # what models read: say what it does, and when to use it
// input_schema:
//   name: string # one line for each argument; a ? after the type makes it optional
// annotations:
//   readOnlyHint: true
// dependencies: [node>=22.18] # which strips the types itself; it does not check them, and has no enum or namespace
// ///
import { readFileSync } from "node:fs";

const { name }: { name: string } = JSON.parse(readFileSync(0, "utf8"));

// stdout is the answer. An exception, or an exit code other than 0, makes it an error.
console.log(`Hello, ${name}!`);
