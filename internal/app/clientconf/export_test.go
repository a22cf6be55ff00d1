package clientconf

// Said is what the McpServer of a server says.
type Said struct {
	Line     []string // the command and its arguments
	Env      []string // NAME=VALUE, and NAME=@REF where a secret has the value
	Endpoint string
	Auth     [3]string // profile, header, secret
	Include  []string
}

// Said returns what the server's McpServer is to say. Its Err is nil.
func (s Server) Said() Said {
	said := Said{Endpoint: s.spec.endpoint, Include: s.spec.include}
	if s.spec.command != "" {
		said.Line = append([]string{s.spec.command}, s.spec.args...)
	}
	for _, v := range s.spec.env {
		value := v.value
		if !v.secret.IsZero() {
			value = "@" + v.secret.String()
		}
		said.Env = append(said.Env, v.name+"="+value)
	}
	if auth := s.spec.auth; !auth.IsZero() {
		said.Auth = [3]string{string(auth.Profile), auth.HeaderName, auth.Secret.String()}
	}
	return said
}
