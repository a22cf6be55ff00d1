#!/usr/bin/env node
import { readFileSync } from "node:fs";

const { title, separator = "-" } = JSON.parse(readFileSync(0, "utf8"));
const words = title.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().match(/[a-z0-9]+/g);
console.log((words ?? []).join(separator));
