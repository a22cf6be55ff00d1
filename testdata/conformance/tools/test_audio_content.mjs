#!/usr/bin/env node
// /// tool
// description: Play a sound of one sample.
// output: mcp
// ///
const data = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==";
console.log(JSON.stringify({ content: [{ type: "audio", data, mimeType: "audio/wav" }] }));
