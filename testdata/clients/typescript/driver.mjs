#!/usr/bin/env node
// Test driver: an MCP client made of the official TypeScript SDK, steered by
// JSON lines. The contract is in ../README.md; driver.py has the same one.

import process from 'node:process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

// stdout carries nothing but the driver's own lines; the SDKs use
// console.debug and friends, which Node would send there.
for (const name of ['log', 'info', 'debug', 'warn', 'trace']) {
  console[name] = (...args) => console.error(...args);
}

const CLIENT_INFO = { name: 'orla-test-driver-typescript', version: '1.0.0' };
const MODERN = '2026-07-28';
const LOG_LEVEL_KEY = 'io.modelcontextprotocol/logLevel';
const MAX_TIMEOUT = 2 ** 31 - 1;

function emit(message) {
  process.stdout.write(JSON.stringify(message) + '\n');
}

function exit(code) {
  process.stdout.write('', () => process.exit(code));
}

class UsageError extends Error {}
class TimeoutError extends Error {}
class UnsupportedError extends Error {}

function parseArgs(argv) {
  const args = { era: undefined, sdk: '2', headers: {}, timeoutMs: 60_000, logLevel: undefined, answer: false, sdkTimeouts: false };
  const targets = [];
  for (let i = 0; i < argv.length; i++) {
    const flag = argv[i];
    const value = () => {
      if (++i >= argv.length) throw new UsageError(`${flag} needs a value`);
      return argv[i];
    };
    if (flag === '--era') args.era = value();
    else if (flag === '--sdk') args.sdk = value();
    else if (flag === '--http') targets.push({ kind: 'http', url: value() });
    else if (flag === '--sse') targets.push({ kind: 'sse', url: value() });
    else if (flag === '--stdio') targets.push({ kind: 'stdio' });
    else if (flag === '--timeout') args.timeoutMs = Number(value());
    else if (flag === '--log-level') args.logLevel = value();
    else if (flag === '--answer') args.answer = true;
    else if (flag === '--sdk-timeouts') args.sdkTimeouts = true;
    else if (flag === '--header') {
      const header = value();
      const colon = header.indexOf(':');
      if (colon < 1) throw new UsageError(`bad header ${header}`);
      args.headers[header.slice(0, colon).trim()] = header.slice(colon + 1).trim();
    } else if (flag === '--') {
      args.command = argv.slice(i + 1);
      break;
    } else throw new UsageError(`unknown argument ${flag}`);
  }
  if (!['legacy', 'modern', 'auto'].includes(args.era)) throw new UsageError('--era must be legacy, modern or auto');
  if (!['1', '2'].includes(args.sdk)) throw new UsageError('--sdk must be 1 or 2');
  if (!(args.timeoutMs > 0)) throw new UsageError('--timeout must be a positive number of milliseconds');
  if (targets.length !== 1) throw new UsageError('exactly one of --http, --sse and --stdio is needed');
  args.target = targets[0];
  if (args.target.kind === 'sse' && args.era !== 'legacy') throw new UsageError('--sse is for the legacy era only');
  if (args.sdk === '1' && args.era !== 'legacy') throw new UsageError('SDK 1 speaks the legacy era only');
  if ((args.target.kind === 'stdio') !== (args.command?.length > 0)) throw new UsageError('--stdio needs -- CMD ARG...');
  return args;
}

// What the client answers to a server's questions with --answer.
const CANNED = {
  'sampling/createMessage': () => ({ role: 'assistant', model: 'canned', stopReason: 'endTurn', content: { type: 'text', text: 'canned' } }),
  'elicitation/create': ({ requestedSchema }) => ({
    action: 'accept',
    content: Object.fromEntries(Object.entries(requestedSchema?.properties ?? {}).map(([name, schema]) => [name, cannedValue(schema)])),
  }),
  'roots/list': () => ({ roots: [{ uri: 'file:///canned', name: 'canned' }] }),
};

function cannedValue(schema) {
  if (Array.isArray(schema.enum)) return schema.enum[0];
  if (schema.type === 'boolean') return true;
  if (schema.type === 'number' || schema.type === 'integer') return schema.minimum ?? 1;
  return 'canned';
}

function answerTo(method) {
  return ({ params }) => {
    emit({ event: 'asked', method, params });
    return CANNED[method](params ?? {});
  };
}

// Collects all pages of a list, for an SDK that fetches one page per call.
async function allPages(name, fetch) {
  const items = [];
  let cursor;
  do {
    const page = await fetch(cursor === undefined ? {} : { cursor });
    items.push(...page[name]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return { [name]: items };
}

// Both SDK generations behind one shape.
async function loadSDK(args, handlers) {
  if (args.sdk === '1') {
    const [{ Client }, http, sse, stdio, types] = await Promise.all([
      import('@modelcontextprotocol/sdk/client/index.js'),
      import('@modelcontextprotocol/sdk/client/streamableHttp.js'),
      import('@modelcontextprotocol/sdk/client/sse.js'),
      import('@modelcontextprotocol/sdk/client/stdio.js'),
      import('@modelcontextprotocol/sdk/types.js'),
    ]);
    const client = new Client(CLIENT_INFO, { capabilities: args.answer ? { sampling: {}, elicitation: {}, roots: {} } : {} });
    if (args.answer) {
      client.setRequestHandler(types.CreateMessageRequestSchema, answerTo('sampling/createMessage'));
      client.setRequestHandler(types.ElicitRequestSchema, answerTo('elicitation/create'));
      client.setRequestHandler(types.ListRootsRequestSchema, answerTo('roots/list'));
    }
    client.setNotificationHandler(types.ResourceListChangedNotificationSchema, handlers.changed('resources'));
    client.setNotificationHandler(types.PromptListChangedNotificationSchema, handlers.changed('prompts'));
    client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, handlers.updated);
    client.setNotificationHandler(types.ToolListChangedNotificationSchema, handlers.listChanged);
    client.setNotificationHandler(types.LoggingMessageNotificationSchema, handlers.log);
    return {
      client,
      HTTP: http.StreamableHTTPClientTransport,
      SSE: sse.SSEClientTransport,
      Stdio: stdio.StdioClientTransport,
      callTool: (params, options) => client.callTool(params, undefined, options),
      listTools: (options) => allPages('tools', (params) => client.listTools(params, options)),
      listResources: (options) => allPages('resources', (params) => client.listResources(params, options)),
      listTemplates: (options) => allPages('resourceTemplates', (params) => client.listResourceTemplates(params, options)),
      listPrompts: (options) => allPages('prompts', (params) => client.listPrompts(params, options)),
      readResource: (uri, options) => client.readResource({ uri }, options),
    };
  }
  const [lib, stdio] = await Promise.all([
    import('@modelcontextprotocol/client'),
    import('@modelcontextprotocol/client/stdio'),
  ]);
  const mode = { legacy: 'legacy', auto: 'auto', modern: { pin: MODERN } }[args.era];
  const client = new lib.Client(CLIENT_INFO, {
    capabilities: args.answer ? { sampling: {}, elicitation: {}, roots: {} } : {},
    versionNegotiation: { mode, probe: { timeoutMs: args.timeoutMs } },
  });
  client.setNotificationHandler('notifications/tools/list_changed', handlers.listChanged);
  client.setNotificationHandler('notifications/message', handlers.log);
  client.setNotificationHandler('notifications/resources/list_changed', handlers.changed('resources'));
  client.setNotificationHandler('notifications/prompts/list_changed', handlers.changed('prompts'));
  client.setNotificationHandler('notifications/resources/updated', handlers.updated);
  if (args.answer) for (const method of Object.keys(CANNED)) client.setRequestHandler(method, answerTo(method));
  return {
    client,
    HTTP: lib.StreamableHTTPClientTransport,
    SSE: lib.SSEClientTransport,
    Stdio: stdio.StdioClientTransport,
    callTool: (params, options) => client.callTool(params, options),
    // This SDK follows nextCursor by itself when no cursor is given.
    async listTools(options, cacheMode) {
      const { tools } = await client.listTools(undefined, { ...options, cacheMode });
      return { tools };
    },
    async listResources(options, cacheMode) {
      const { resources } = await client.listResources(undefined, { ...options, cacheMode });
      return { resources };
    },
    async listTemplates(options, cacheMode) {
      const { resourceTemplates } = await client.listResourceTemplates(undefined, { ...options, cacheMode });
      return { resourceTemplates };
    },
    async listPrompts(options, cacheMode) {
      const { prompts } = await client.listPrompts(undefined, { ...options, cacheMode });
      return { prompts };
    },
    readResource: (uri, options, cacheMode) => client.readResource({ uri }, { ...options, cacheMode }),
  };
}

function describeError(error, { cancelled, closing, fallback = 'sdk' } = {}) {
  const message = String(error?.message ?? error);
  const name = error?.name !== 'Error' ? error?.name : error.constructor.name;
  const out = { code: fallback, message, name: name ?? typeof error };
  const status = error?.status ?? (/^(StreamableHTTPError|SseError)$/.test(name) ? error.code : undefined);
  if (closing) Object.assign(out, { code: 'closed', message: 'the client is closing' });
  else if (cancelled) out.code = 'cancelled';
  else if (error instanceof UsageError) out.code = 'usage';
  else if (error instanceof TimeoutError) out.code = 'timeout';
  else if (error instanceof UnsupportedError) out.code = 'unsupported';
  else if (/output schema/.test(message) && /Structured content does not match|did not return structured content|Failed to validate/.test(message)) out.code = 'invalidOutput';
  else if (error?.code === 'REQUEST_TIMEOUT' || (error?.code === -32001 && /timed out/i.test(message))) out.code = 'timeout';
  else if (error?.code === 'CONNECTION_CLOSED' || (error?.code === -32000 && /Connection closed/.test(message)) || /^Not connected$/.test(message)) out.code = 'closed';
  else if (error?.code === 'INVALID_RESULT' || error?.name === '$ZodError' || error?.name === 'ZodError') out.code = 'invalidResult';
  else if (error?.code === 'METHOD_NOT_SUPPORTED_BY_PROTOCOL_VERSION') out.code = 'unsupported';
  else if (message === 'fetch failed') out.code = 'connect';
  else if (typeof status === 'number' && status > 0) Object.assign(out, { code: 'http', status });
  else if (Number.isInteger(error?.code) && error.code < 0) {
    out.code = error.code;
    if (error.data !== undefined) out.data = error.data;
  }
  if (typeof error?.code === 'string') out.sdkCode = error.code;
  if (error?.cause !== undefined) out.cause = String(error.cause?.message || error.cause?.code || error.cause);
  return out;
}

async function main() {
  const args = parseArgs(process.argv.slice(2));

  // list_changed notifications nobody has waited for yet, and those waiting.
  let changes = 0;
  const waiters = [];
  const handlers = {
    listChanged() {
      const waiter = waiters.shift();
      if (waiter) waiter(1);
      else changes++;
    },
    log({ params }) {
      const { level, logger, data } = params;
      emit({ event: 'log', level, logger, data });
    },
    changed: (what) => () => emit({ event: 'changed', what }),
    updated: ({ params }) => emit({ event: 'updated', uri: params.uri }),
  };
  const sdk = await loadSDK(args, handlers);
  const { client } = sdk;
  client.onerror = (error) => console.error(`driver: ${error?.message ?? error}`);

  let transport;
  let negotiated;
  // In the legacy era the SDK opens the stream for notifications on its own,
  // after connect() has returned; "connected" waits for it.
  let streamOpen;
  const streamOpened = new Promise((resolve) => (streamOpen = resolve));
  // The status of the first HTTP request that was turned down; not every
  // error of the SDKs tells it.
  let refusal;
  const requestInit = { headers: args.headers };
  // Notifications on their way, such as a cancellation right before closing.
  const notifying = new Set();
  async function trackedFetch(url, init) {
    const request = fetch(url, init);
    if (init?.method !== 'GET' || args.target.kind === 'sse') {
      request.then(({ status }) => status >= 400 && (refusal ??= status), () => {});
    }
    if (init?.method === 'GET') request.then(streamOpen, streamOpen);
    if (typeof init?.body === 'string' && init.body.includes('"method":"notifications/')) {
      const settled = request.catch(() => {}).finally(() => notifying.delete(settled));
      notifying.add(settled);
    }
    return request;
  }
  switch (args.target.kind) {
    case 'http':
      transport = new sdk.HTTP(new URL(args.target.url), {
        requestInit,
        fetch: trackedFetch,
      });
      break;
    case 'sse':
      transport = new sdk.SSE(new URL(args.target.url), { requestInit, fetch: trackedFetch });
      break;
    case 'stdio':
      // The SDK passes on only HOME, PATH and a few more by default.
      transport = new sdk.Stdio({ command: args.command[0], args: args.command.slice(1), env: process.env, stderr: 'inherit' });
      break;
  }
  if (args.sdk === '1') {
    // This SDK tells the negotiated version to its transport only.
    const inner = transport.setProtocolVersion?.bind(transport);
    transport.setProtocolVersion = (version) => {
      negotiated = version;
      inner?.(version);
    };
  }

  const pending = new Map();
  let modern = false;
  let listening = false;
  let listenError;
  try {
    // The SDK's timeout does not cover the wait for the first SSE event.
    const late = sleep(args.timeoutMs, undefined, { ref: false }).then(() => {
      throw new TimeoutError('timed out connecting');
    });
    await Promise.race([client.connect(transport, { timeout: args.timeoutMs }), late]);
    negotiated ??= client.getNegotiatedProtocolVersion?.();
    modern = negotiated >= MODERN;
    const capabilities = client.getServerCapabilities() ?? {};
    if (capabilities.tools?.listChanged) {
      if (modern) {
        try {
          const filter = { toolsListChanged: true };
          if (capabilities.resources?.listChanged) filter.resourcesListChanged = true;
          if (capabilities.prompts?.listChanged) filter.promptsListChanged = true;
          const subscription = await client.listen(filter, { timeout: args.timeoutMs });
          listening = subscription.honoredFilter?.toolsListChanged === true;
        } catch (error) {
          listenError = describeError(error);
        }
      } else listening = true;
    }
    if (!modern && args.target.kind === 'http') {
      await Promise.race([streamOpened, sleep(30_000, undefined, { ref: false })]);
    }
    if (args.logLevel && !modern && capabilities.logging) await client.setLoggingLevel(args.logLevel, { timeout: args.timeoutMs });
  } catch (error) {
    const described = describeError(error, { fallback: refusal ? 'http' : 'connect' });
    emit({ event: 'error', error: refusal ? { ...described, status: refusal } : described });
    await Promise.race([client.close().catch(() => {}), sleep(6000)]);
    return exit(1);
  }
  const { name, version } = client.getServerVersion() ?? {};
  emit({
    event: 'connected',
    protocolVersion: negotiated,
    server: { name, version },
    era: modern ? 'modern' : 'legacy',
    capabilities: client.getServerCapabilities(),
    instructions: client.getInstructions(),
    listening,
    listenError,
  });

  // In the modern era, the open subscriptions by their URIs.
  const followed = new Map();

  // The metadata that a command asks for, and that the log level needs in the modern era.
  function withMeta(params, command) {
    const meta = { ...(modern && args.logLevel ? { [LOG_LEVEL_KEY]: args.logLevel } : {}), ...command.meta };
    return Object.keys(meta).length > 0 ? { ...params, _meta: meta } : params;
  }

  let closing;
  const ops = {
    list: (command, options) => sdk.listTools(options, command.cache ?? 'refresh'),
    call(command, options) {
      const params = withMeta({ name: command.name, arguments: command.arguments ?? {} }, command);
      if (command.progress) {
        options.onprogress = ({ progress, total, message }) => emit({ event: 'progress', id: command.id, progress, total, message });
      }
      return sdk.callTool(params, options);
    },
    readResource: (command, options) => sdk.readResource(command.uri, options, command.cache ?? 'refresh'),
    listResources: (command, options) => sdk.listResources(options, command.cache ?? 'refresh'),
    listTemplates: (command, options) => sdk.listTemplates(options, command.cache ?? 'refresh'),
    listPrompts: (command, options) => sdk.listPrompts(options, command.cache ?? 'refresh'),
    getPrompt: (command, options) => client.getPrompt(withMeta({ name: command.name, arguments: command.arguments ?? {} }, command), options),
    complete(command, options) {
      const { ref, argument, context } = command;
      return client.complete(withMeta({ ref, argument, ...(context ? { context } : {}) }, command), options);
    },
    async setLevel(command, options) {
      if (modern) throw new UnsupportedError('logging/setLevel is not part of this protocol era');
      await client.setLoggingLevel(command.level, options);
      return {};
    },
    async subscribe(command, options) {
      if (!modern) await client.subscribeResource({ uri: command.uri }, options);
      else if (!followed.has(command.uri)) followed.set(command.uri, await client.listen({ resourceSubscriptions: [command.uri] }, { timeout: options.timeout }));
      return {};
    },
    async unsubscribe(command, options) {
      if (!modern) await client.unsubscribeResource({ uri: command.uri }, options);
      else {
        const subscription = followed.get(command.uri);
        followed.delete(command.uri);
        await subscription?.close();
      }
      return {};
    },
    async ping(_command, options) {
      if (modern) throw new UnsupportedError('ping is not part of this protocol era');
      await client.ping(options);
      return {};
    },
    cancel(command) {
      const entry = pending.get(command.target);
      if (!entry) return { cancelled: false };
      entry.cancelled = true;
      entry.controller.abort('cancelled by the test');
      return { cancelled: true };
    },
    waitListChanged(command, { signal }) {
      if (changes > 0) {
        const count = changes;
        changes = 0;
        return { count };
      }
      return new Promise((resolve, reject) => {
        const waiter = (count) => {
          clearTimeout(timer);
          resolve({ count });
        };
        const give = (error) => {
          clearTimeout(timer);
          const at = waiters.indexOf(waiter);
          if (at >= 0) waiters.splice(at, 1);
          reject(error);
        };
        const timer = setTimeout(() => give(new TimeoutError('no tools list_changed notification')), command.timeoutMs ?? MAX_TIMEOUT);
        signal.addEventListener('abort', () => give(new Error('cancelled')), { once: true });
        waiters.push(waiter);
      });
    },
  };

  async function run(command) {
    const { id, op } = command;
    const entry = { controller: new AbortController(), cancelled: false };
    if (id !== undefined && op !== 'cancel') pending.set(id, entry);
    try {
      const handler = Object.hasOwn(ops, op) ? ops[op] : undefined;
      if (!handler) throw new UsageError(`unknown op ${op}`);
      // Without a timeoutMs nothing times out, unless the SDK's own default is asked for: 60 s.
      const result = await handler(command, { signal: entry.controller.signal, timeout: command.timeoutMs ?? (args.sdkTimeouts ? undefined : MAX_TIMEOUT) });
      emit({ id, ok: true, result });
    } catch (error) {
      emit({ id, ok: false, error: describeError(error, { cancelled: entry.cancelled, closing: closing !== undefined }) });
    } finally {
      if (pending.get(id) === entry) pending.delete(id);
    }
  }

  const running = new Set();
  function close(id) {
    closing ??= (async () => {
      let code = 0;
      let answer = { id, ok: true, result: {} };
      for (const { controller } of pending.values()) controller.abort('the client is closing');
      try {
        await Promise.allSettled(running);
        // client.close() would cut the cancellations off.
        await Promise.race([Promise.all(notifying), sleep(1000)]);
        // client.close() alone leaves a legacy HTTP session on the server.
        if (!modern && args.target.kind === 'http') await transport.terminateSession();
        await client.close();
      } catch (error) {
        code = 1;
        answer = { id, ok: false, error: describeError(error) };
      }
      if (id !== undefined) emit(answer);
      exit(code);
    })();
  }

  const lines = createInterface({ input: process.stdin, crlfDelay: Infinity });
  lines.on('line', (line) => {
    if (closing || line.trim() === '') return;
    let command;
    try {
      command = JSON.parse(line);
      if (command === null || typeof command !== 'object') throw new SyntaxError('not an object');
    } catch (error) {
      emit({ id: null, ok: false, error: { code: 'usage', message: `bad command: ${error.message}` } });
      return;
    }
    if (command.op === 'close') {
      close(command.id);
      return;
    }
    const task = run(command);
    running.add(task);
    task.finally(() => running.delete(task));
  });
  lines.on('close', () => close(undefined));
}

main().catch((error) => {
  emit({ event: 'error', error: describeError(error, { fallback: 'driver' }) });
  exit(error instanceof UsageError ? 2 : 1);
});
