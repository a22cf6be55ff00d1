// An OAuth 2.0 authorization server that gives tokens to one client, and a service
// that takes them. It prints its port when it listens. Asked for a resource (RFC 8707),
// it gives a JSON Web Token for that resource, else an opaque token.
//
//   GET /served            {"exchanges": n, "calls": n}
//   POST /revoke-all       the tokens so far are valid no more
//   POST /api              401 without a valid token, else the scope that it has
import http from "node:http";

import Provider from "oidc-provider";

const { CLIENT_ID = "orla", CLIENT_SECRET, TOKEN_SECONDS = "3600", AUTH_METHOD = "client_secret_basic" } = process.env;
let exchanges = 0;
let calls = 0;
let validFrom = 0; // the number of the first token that is valid
const issued = new Map();

// serve serves the requests of a server that listens; its port is in the name of the issuer.
function serve(server) {
  const provider = new Provider(`http://127.0.0.1:${server.address().port}`, {
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
    scopes: ["read", "write"],
    clientBasedCORS: () => false,
    extraTokenClaims: () => ({ groups: ["services"] }),
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      introspection: { enabled: false },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        getResourceServerInfo: (_ctx, resource) => ({
          scope: "read write",
          audience: resource,
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
    ttl: { ClientCredentials: Number(TOKEN_SECONDS) },
  });

  provider.on("client_credentials.saved", (token) => issued.set(token.jti, exchanges++));

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

const server = http.createServer();
server.listen(Number(process.env.PORT ?? 0), "127.0.0.1", () => {
  serve(server);
  console.log(server.address().port);
});

// The end of stdin is the end of the test.
process.stdin.on("end", () => process.exit(0)).resume();
