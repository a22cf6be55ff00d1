// An OAuth 2.0 authorization server that gives tokens to one client, and a service
// that takes them. It prints its port when it listens. Asked for a resource (RFC 8707),
// it gives a JSON Web Token for that resource, else an opaque token.
//
//   GET /served            {"exchanges": n, "calls": n}
//   POST /revoke-all       the tokens so far are valid no more
//   POST /api              401 without a valid token, else the scope that it has
//
// With LOGIN=1, people can log in too, whoever they say they are: clients register themselves,
// refresh tokens are rotated, and /mcp is an MCP server that asks for OAuth. Its tool "whoami"
// answers who has logged in.
//
//   GET /logins            {"grants": {type: n}, "registered": n, "revoked": n}
//   POST /end-access       the access tokens so far are valid no more; refresh tokens are
//   POST /end-grants       nor are refresh tokens
//   POST /token-delay      {"ms": n}: the token endpoint answers refreshes after this time
import http from "node:http";

import Provider from "oidc-provider";

const { CLIENT_ID = "orla", CLIENT_SECRET, TOKEN_SECONDS = "3600", AUTH_METHOD = "client_secret_basic", LOGIN } = process.env;
let exchanges = 0;
let calls = 0;
let validFrom = 0; // the number of the first token that is valid
const issued = new Map();
const logins = { grants: {}, registered: 0, revoked: 0 };
let delay = 0;
let accessFrom = 0; // when the first access token was issued that is valid

// serve serves the requests of a server that listens; its port is in the name of the issuer.
function serve(server) {
  const origin = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(origin, {
    clients: [
      {
        client_id: CLIENT_ID,
        client_secret: CLIENT_SECRET,
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
        token_endpoint_auth_method: AUTH_METHOD,
      },
    ],
    scopes: LOGIN ? ["openid", "offline_access", "read", "write"] : ["read", "write"],
    ...(LOGIN && {
      findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
      issueRefreshToken: (_ctx, client) => client.grantTypeAllowed("refresh_token"),
      rotateRefreshToken: true,
      pkce: { required: () => true },
    }),
    clientBasedCORS: () => false,
    extraTokenClaims: () => ({ groups: ["services"] }),
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: Boolean(LOGIN) },
      registration: { enabled: Boolean(LOGIN) },
      revocation: { enabled: Boolean(LOGIN) },
      introspection: { enabled: false },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        getResourceServerInfo: (_ctx, resource) => ({
          scope: "read write",
          audience: resource,
          ...(LOGIN ? { accessTokenFormat: "opaque" } : { accessTokenFormat: "jwt", jwt: { sign: { alg: "RS256" } } }),
        }),
      },
    },
    ttl: { ClientCredentials: Number(TOKEN_SECONDS), AccessToken: Number(TOKEN_SECONDS) },
  });

  provider.on("client_credentials.saved", (token) => issued.set(token.jti, exchanges++));

  provider.on("grant.success", (ctx) => {
    const type = ctx.oidc.params.grant_type;
    logins.grants[type] = (logins.grants[type] ?? 0) + 1;
  });
  provider.on("registration_create.success", () => logins.registered++);
  provider.on("grant.revoked", () => logins.revoked++);

  if (LOGIN) {
    provider.use(loginRoutes(provider, origin));
  }

  provider.use(async (ctx, next) => {
    const { method, path } = ctx;
    if (method === "GET" && path === "/served") {
      ctx.body = { exchanges, calls };
    } else if (method === "POST" && path === "/revoke-all") {
      validFrom = exchanges;
      ctx.status = 204;
    } else if (method === "POST" && path === "/api") {
      calls++;
      const [, value = ""] = (ctx.get("authorization") || "").split("Bearer ");
      const token = value && (await provider.ClientCredentials.find(value));
      if (!token || token.isExpired || issued.get(token.jti) < validFrom) {
        ctx.status = 401;
        ctx.body = { error: "invalid_token" };
      } else {
        ctx.body = { scope: token.scope ?? "", client: token.clientId };
      }
    } else {
      await next();
    }
  });
  server.on("request", provider.callback());
}

const grants = new Set();

// loginRoutes are the routes that only a server with LOGIN=1 has.
function loginRoutes(provider, origin) {
  provider.on("grant.success", (ctx) => grants.add(ctx.oidc.entities.Grant?.jti));
  return async (ctx, next) => {
    const { method, path } = ctx;
    if (method === "GET" && path === "/logins") {
      ctx.body = logins;
    } else if (method === "POST" && path === "/end-access") {
      accessFrom = performance.now();
      ctx.status = 204;
    } else if (method === "POST" && path === "/end-grants") {
      accessFrom = performance.now();
      for (const id of grants) {
        await (await provider.Grant.find(id))?.destroy();
      }
      ctx.status = 204;
    } else if (method === "POST" && path === "/token-delay") {
      delay = JSON.parse(await text(ctx.req)).ms;
      ctx.status = 204;
    } else if (path === "/.well-known/oauth-protected-resource/mcp") {
      ctx.body = { resource: `${origin}/mcp`, authorization_servers: [origin], scopes_supported: ["read"] };
    } else if (path === "/mcp") {
      await mcp(ctx, provider, origin);
    } else {
      await next();
      if (path === "/token" && delay > 0) {
        await new Promise((resolve) => setTimeout(resolve, delay));
      }
    }
  };
}

async function text(stream) {
  let all = "";
  for await (const chunk of stream) {
    all += chunk;
  }
  return all;
}

const issuedAt = new Map(); // by access token

// mcp answers the requests of MCP, each by itself, for who has a token for this server.
async function mcp(ctx, provider, origin) {
  const [, value = ""] = (ctx.get("authorization") || "").split("Bearer ");
  const token = value && (await provider.AccessToken.find(value));
  if (token && !issuedAt.has(value)) {
    issuedAt.set(value, performance.now());
  }
  if (!token || token.isExpired || token.aud !== `${origin}/mcp` || issuedAt.get(value) < accessFrom) {
    ctx.status = 401;
    ctx.set("WWW-Authenticate", `Bearer error="invalid_token", resource_metadata="${origin}/.well-known/oauth-protected-resource/mcp"`);
    return;
  }
  if (ctx.method !== "POST") {
    ctx.status = 405;
    return;
  }
  const { id, method, params } = JSON.parse(await text(ctx.req));
  const results = {
    initialize: () => ({ protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "oidc", version: "1" } }),
    "tools/list": () => ({ tools: [{ name: "whoami", inputSchema: { type: "object" } }] }),
    "tools/call": () => ({ content: [{ type: "text", text: `${token.accountId} ${token.scope}` }] }),
    ping: () => ({}),
  };
  if (id === undefined) {
    ctx.status = 202;
  } else if (results[method]) {
    ctx.body = { jsonrpc: "2.0", id, result: results[method]() };
  } else {
    ctx.body = { jsonrpc: "2.0", id, error: { code: -32601, message: "not found" } };
  }
}

const server = http.createServer();
server.listen(Number(process.env.PORT ?? 0), "127.0.0.1", () => {
  serve(server);
  console.log(server.address().port);
});

// The end of stdin is the end of the test.
process.stdin.on("end", () => process.exit(0)).resume();
