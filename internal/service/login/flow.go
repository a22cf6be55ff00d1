package login

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/orla-project/orla/internal/service/outbound"
)

// askPatience bounds what is asked of the server and of the issuer, each time.
const askPatience = 30 * time.Second

// bounded returns a context for such questions.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, askPatience, fmt.Errorf("the server or its issuer gave no answer within %s", askPatience))
}

// Patience is how long a person may take to log in.
const Patience = 5 * time.Minute

// Options configures a login.
type Options struct {
	Client    *outbound.Client // required
	Dir       string           // of the logins; required
	Server    string           // name of the McpServer
	Endpoint  string           // of the McpServer
	UserAgent string

	ClientID     string // of a client that is registered already; "" for none
	ClientSecret string // "" for a public client
	// Document is the URL of a client id metadata document; "" for none.
	Document string
	Redirect string   // the redirect URL that the client has; "" for the default
	Scopes   []string // to ask for; nil for what the server asks for
	Issuer   string   // the one to use; "" for the first that the server names. A ClientID needs it
	// Elsewhere says that a person has confirmed an issuer whose endpoints are at several hosts.
	Elsewhere bool
	Patience  time.Duration // how long a person may take; 0 for Patience

	// Hosts is called once before Show with the host of the page, and with that where the tokens come from.
	// It may be nil.
	Hosts func(page, tokens string)
	// Show is called once with the URL that a person has to open, and the redirect URL.
	Show func(open, redirect string)
	// Open is called once after Show with an address for a browser of this user on this machine. It leads to that URL,
	// once, and other users may see it. It may be nil.
	Open func(address string)
	// Pasted has the texts that a person enters: the URL that the browser was sent to. It may be nil.
	Pasted <-chan string
	// Refused is called for a text that is not the answer.
	Refused func(why error)
}

// flowState is one login.
type flowState struct {
	Options
	file    file
	server  *server
	old     *Record // the login before; nil for none
	record  *Record
	state   string
	answers chan string // holds an authorization code
	failed  chan error  // holds why there is none
}

// Login logs a person in, and stores the tokens.
func Login(ctx context.Context, opts Options) (*Record, error) {
	patience := cmp.Or(opts.Patience, Patience)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("nobody has finished the login within %s", patience))
	defer cancel()
	f := &flowState{Options: opts, file: fileOf(opts.Dir, opts.Server, opts.Endpoint), state: rand.Text() + rand.Text(), answers: make(chan string, 1), failed: make(chan error, 1)}
	unlock, err := f.file.lock(ctx) // that the folder cannot be written is better known before
	if err != nil {
		return nil, err
	}
	unlock()
	if f.old, err = f.file.read(); err != nil {
		if err := private(opts.Dir); err != nil {
			return nil, fmt.Errorf("%s: %w", opts.Dir, err)
		}
		f.old = nil // it is replaced
	}
	asking, answered := bounded(ctx)
	defer answered()
	if f.server, err = discover(asking, opts.Client, opts.Endpoint, opts.UserAgent, opts.Issuer); err != nil {
		return nil, reason(asking, err)
	}
	meta := f.server.issuer
	if err := f.checkHosts(); err != nil { // before the issuer learns the redirect URL
		return nil, err
	}
	f.record = &Record{
		Server: opts.Server, Endpoint: opts.Endpoint, Resource: f.server.resource, Issuer: meta.Issuer, Class: f.server.class,
		TokenEndpoint: meta.TokenEndpoint, RevocationEndpoint: meta.RevocationEndpoint, Since: time.Now().Round(0),
	}
	browser, err := f.receive(asking)
	if err != nil {
		return nil, reason(asking, err)
	}
	var serving sync.WaitGroup
	serving.Go(browser.serve)
	defer serving.Wait()
	defer browser.stop() //nolint:contextcheck // it has a time of its own
	if err := f.authorize(ctx, browser); err != nil {
		return nil, reason(ctx, err)
	}
	if err := f.store(ctx); err != nil {
		return nil, reason(ctx, err)
	}
	return f.record, nil
}

// reason returns why a login has failed.
func reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// checkHosts refuses an issuer whose page is of another host than its tokens, and whose answers may not say
// which issuer they are of: its page may be that of another issuer, whose codes it would get (RFC 9700, 4.4).
func (f *flowState) checkHosts() error {
	meta := f.server.issuer
	one := originOf(meta.Issuer)
	same := originOf(meta.AuthorizationEndpoint) == one && originOf(meta.TokenEndpoint) == one
	if same || meta.AuthorizationResponseIssParameterSupported || f.Elsewhere {
		return nil
	}
	return fmt.Errorf("the issuer %s has its page at %s, and gives its tokens at %s: a code of one host may go to another; if you trust all of these with your login, add --endpoints-elsewhere",
		meta.Issuer, hostOf(meta.AuthorizationEndpoint), hostOf(meta.TokenEndpoint))
}

// receive chooses the client, registers it if needed, and listens for its redirect.
func (f *flowState) receive(ctx context.Context) (*receiver, error) {
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	wanted := f.Redirect
	switch {
	case wanted != "":
	case client.From == Registered: // its redirect URL, if it is known already
		wanted = client.Redirect
	default:
		wanted = cmp.Or(client.Redirect, "http://127.0.0.1"+defaultPath)
	}
	r, err := receive(ctx, wanted, f.take)
	if err != nil && client.From == Registered && client.ID != "" && f.Redirect == "" { // somebody else has the port
		client = Client{From: Registered}
		r, err = receive(ctx, "", f.take)
	}
	if err != nil {
		return nil, err
	}
	if client.ID == "" || client.From == Registered && client.Redirect != r.redirect {
		if client, err = f.register(ctx, r.redirect); err != nil {
			r.stop() //nolint:contextcheck // it has a time of its own
			return nil, err
		}
	}
	if client.From == Configured {
		client.Redirect = f.Redirect
	}
	f.record.Client = client
	return r, nil
}

// client returns how Orla is known to the issuer, in the order of the authorization page of MCP. Without
// an ID it has to be registered.
func (f *flowState) client() (Client, error) {
	meta, old := f.server.issuer, Client{}
	if f.old != nil && f.old.Issuer == meta.Issuer {
		old = f.old.Client
	}
	switch {
	case f.ClientID != "" && f.Issuer == "": // else any server could have the secret
		return Client{}, fmt.Errorf("the client %s is used only with the issuer where it is registered; if that is %s, which the server names, add --issuer %s, or write issuer next to clientID in spec.auth",
			quoted(f.ClientID), meta.Issuer, meta.Issuer)
	case f.ClientID != "":
		method := methodNone
		if f.ClientSecret != "" {
			method = methodOf(meta.TokenEndpointAuthMethodsSupported)
		}
		return Client{ID: f.ClientID, Secret: f.ClientSecret, Method: method, From: Configured}, nil
	case old.From == Configured:
		return old, nil
	case f.Document != "" && meta.ClientIDMetadataDocumentSupported && f.isSureOfIssuer():
		return Client{ID: f.Document, Method: methodNone, From: Document}, nil
	case old.From == Registered && f.fits(old) && f.old.Refused == "":
		return old, nil
	case meta.RegistrationEndpoint != "":
		return Client{From: Registered}, nil
	}
	text := "the issuer " + meta.Issuer + " does not let Orla register itself; register a client there with the redirect URL http://127.0.0.1" + defaultPath + ", and give its id by --client-id with --issuer " + meta.Issuer
	switch {
	case meta.ClientIDMetadataDocumentSupported && f.Document != "": // it is not sure of the issuer
		text = "the issuer " + meta.Issuer + " does not name itself in its answers, so that the answer of another issuer, where " + f.Document +
			" is known too, could be taken for its own; if you trust it with your login, add --issuer " + meta.Issuer
	case meta.ClientIDMetadataDocumentSupported:
		text += "; or host a client id metadata document, and set client_metadata_url in orla.yaml"
	}
	return Client{}, errors.New(text)
}

// isSureOfIssuer reports whether an answer is surely of the issuer: it names itself there, or a person has named it. All
// issuers know a client by the same document, so the page of a hostile one could send the browser to a good one, and get
// its code (RFC 9700, 4.4).
func (f *flowState) isSureOfIssuer() bool {
	return f.server.issuer.AuthorizationResponseIssParameterSupported || f.Issuer != ""
}

// fits reports whether a registration can be used for this login.
func (f *flowState) fits(c Client) bool {
	registered := strings.Fields(c.Scope)
	for _, scope := range f.scopes() {
		if !slices.Contains(registered, scope) {
			return false
		}
	}
	return c.Expires == 0 || time.Now().Unix() < c.Expires
}

// methodOf returns how a client with a secret authenticates.
func methodOf(supported []string) string {
	if len(supported) == 0 || slices.Contains(supported, methodBasic) || !slices.Contains(supported, methodPost) {
		return methodBasic // the default (RFC 8414, 2)
	}
	return methodPost
}

// register registers Orla at the issuer (RFC 7591).
func (f *flowState) register(ctx context.Context, redirect string) (Client, error) {
	meta := f.server.issuer
	method := methodNone
	if known := meta.TokenEndpointAuthMethodsSupported; len(known) > 0 && !slices.Contains(known, methodNone) {
		method = methodOf(known)
	}
	about := oauthex.ClientRegistrationMetadata{
		RedirectURIs: []string{redirect}, TokenEndpointAuthMethod: method, GrantTypes: []string{"authorization_code", "refresh_token"},
		ResponseTypes: []string{"code"}, ClientName: "Orla", ApplicationType: "native", Scope: strings.Join(f.scopes(), " "),
	}
	body, err := json.Marshal(about)
	if err != nil {
		return Client{}, err
	}
	req, err := http.NewRequestWithContext(outbound.NoLessPublic(ctx, f.server.class), http.MethodPost, meta.RegistrationEndpoint, bytes.NewReader(body))
	if err != nil {
		return Client{}, errors.New("the registration endpoint is not a URL")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	var got struct {
		ID      string `json:"client_id"`
		Secret  string `json:"client_secret"`
		Method  string `json:"token_endpoint_auth_method"`
		Expires int64  `json:"client_secret_expires_at"`
	}
	if err := send(f.Client, req, &got); err != nil {
		return Client{}, fmt.Errorf("the issuer %s does not register Orla: %w; a client that somebody has registered can be used by --client-id", meta.Issuer, err)
	}
	if got.ID == "" || len(got.ID)+len(got.Secret) > maxToken {
		return Client{}, fmt.Errorf("the issuer %s gave a registration that cannot be used", meta.Issuer)
	}
	c := Client{ID: got.ID, Secret: got.Secret, Method: cmp.Or(got.Method, method), From: Registered, Redirect: redirect, Scope: about.Scope, Expires: got.Expires}
	if !slices.Contains([]string{methodNone, methodBasic, methodPost}, c.Method) {
		return Client{}, fmt.Errorf("the issuer %s wants %s of clients, which Orla cannot do", meta.Issuer, quoted(c.Method))
	}
	return c, nil
}

// scopes returns the scopes to ask for. offline_access makes some issuers give a refresh token.
func (f *flowState) scopes() []string {
	list := f.Scopes
	if len(list) == 0 {
		list = f.server.scopes
	}
	const offline = "offline_access"
	if slices.Contains(f.server.issuer.ScopesSupported, offline) && !slices.Contains(list, offline) {
		list = append(slices.Clone(list), offline)
	}
	return cleanScopes(list)
}

// take takes an answer of the browser, or one that was pasted. The first that belongs to this login
// counts.
func (f *flowState) take(a answer) error {
	meta := f.server.issuer
	code, err := a.code(f.state, meta.Issuer, meta.AuthorizationResponseIssParameterSupported)
	if errors.Is(err, errNotOurs) {
		return err
	}
	if err != nil {
		select {
		case f.failed <- err:
		default: // another answer came first
		}
		return err
	}
	select {
	case f.answers <- code:
	default: // another answer came first
	}
	return nil
}

// authorize sends a person to the issuer, waits for the answer, and exchanges it for tokens.
func (f *flowState) authorize(ctx context.Context, browser *receiver) error {
	meta, verifier, redirect := f.server.issuer, oauth2.GenerateVerifier(), browser.redirect
	scopes := f.scopes()
	config := oauth2.Config{
		ClientID: f.record.Client.ID, RedirectURL: redirect, Scopes: scopes,
		Endpoint: oauth2.Endpoint{AuthURL: meta.AuthorizationEndpoint},
	}
	params := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("resource", f.record.Resource)}
	if slices.Contains(scopes, "offline_access") {
		params = append(params, oauth2.SetAuthURLParam("prompt", "consent")) // else it is ignored (OpenID Connect Core, 11)
	}
	if f.Hosts != nil {
		f.Hosts(hostOf(meta.AuthorizationEndpoint), hostOf(meta.TokenEndpoint))
	}
	page := config.AuthCodeURL(f.state, params...)
	f.Show(page, redirect)
	if f.Open != nil {
		f.Open(browser.lead(page))
	}
	code, err := f.await(ctx, redirect)
	if err != nil {
		return err
	}
	f.record.Scopes = scopes
	ctx, cancel := bounded(ctx)
	defer cancel()
	err = f.record.exchange(ctx, f.Client, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {verifier}, "redirect_uri": {redirect}, "resource": {f.record.Resource},
	})
	if err != nil {
		return fmt.Errorf("the issuer %s gave no tokens: %w", meta.Issuer, err)
	}
	return nil
}

// await waits for the authorization code.
func (f *flowState) await(ctx context.Context, redirect string) (string, error) {
	pasted := f.Pasted
	for {
		select {
		case code := <-f.answers:
			return code, nil
		case err := <-f.failed:
			return "", err
		case text, ok := <-pasted:
			if !ok {
				pasted = nil // nobody enters anything any more
				continue
			}
			f.paste(text, redirect)
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// maxPasted bounds what a person may enter in bytes.
const maxPasted = 16 << 10

// paste takes the URL that the browser was sent to.
func (f *flowState) paste(text, redirect string) {
	text = strings.TrimSpace(text)
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	if err != nil || len(text) > maxPasted || !strings.HasPrefix(text, redirect+"?") {
		f.Refused(fmt.Errorf("the address must begin with %s?", redirect))
		return
	}
	if err := f.take(answer{u.Query()}); errors.Is(err, errNotOurs) {
		f.Refused(err)
	}
}

// store puts the login on the disk.
func (f *flowState) store(ctx context.Context) error {
	unlock, err := f.file.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := f.record.check(f.Server, f.Endpoint); err != nil {
		return fmt.Errorf("the login cannot be used: %w", err)
	}
	return f.file.write(f.record)
}
