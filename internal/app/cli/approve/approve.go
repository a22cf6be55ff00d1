// Package approve has the commands with which a person decides about calls: orla approvals (SPEC-TOOLS 8.7).
package approve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/cli/running"
	"github.com/orla-project/orla/internal/app/cli/usage"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/manifest"
)

// commands are the commands, and what they share.
type commands struct {
	flags *config.Flags
	std   terminal.Streams
}

// New returns the command approvals.
func New(flags *config.Flags, std terminal.Streams) *cobra.Command {
	c := &commands{flags, std}
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "Decide about calls that need an approval",
		Long: "Decide about calls that need an approval, because a rule has the verdict\n" +
			"approval_required: docs/GOVERNANCE.md says more. An approval is good for one call, with\n" +
			"exactly the arguments that are shown. Root may approve, and the user that runs Orla only\n" +
			"with approvals.same_user, since an agent with a shell is that user too.",
		Example: "  orla approvals list --watch\n  orla approvals show ap-x2\n  sudo orla approvals approve ap-x2\n  orla approvals deny ap-x2 --reason 'not on a Friday'",
	}
	cmd.AddCommand(c.list(), c.show(), c.approve(), c.deny(), c.extend())
	return cmd
}

// timeout bounds what only asks.
const timeout = 10 * time.Second

// oneApproval requires the id of an approval.
var oneApproval = usage.Words(1, "wants the id of an approval, or its beginning; orla approvals list shows them")

func (c *commands) list() *cobra.Command {
	var all, watch, asJSON bool
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the calls that wait for an approval",
		Long: "List the calls that wait for an approval, the oldest first. With --all, also those that\n" +
			"somebody has decided about or that have expired, as far as Orla keeps them. -o yaml\n" +
			"prints them as resources of the kind ToolApproval, with their arguments.",
		Example: "  orla approvals list\n  orla approvals list --watch\n  orla approvals list --all --json | jq '.[] | select(.caller == \"ci\")'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				output = "json"
			}
			q := control.ApprovalQuery{Phase: string(approvals.Pending)}
			if all {
				q.Phase = ""
			}
			if output != "" && output != "json" && output != "yaml" {
				return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--output %s: wants json or yaml", output)}
			}
			if watch && output == "yaml" {
				return &exit.Error{Code: exit.Usage, Err: errors.New("--watch does not go with -o yaml")}
			}
			client, err := running.Any(c.flags, cmd)
			if err != nil {
				return err
			}
			if watch {
				return c.watch(cmd.Context(), client, q, output == "json")
			}
			return c.print(cmd.Context(), client, q, output)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that are decided or have expired")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on with each that is new or has changed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON (the same as -o json)")
	cmd.Flags().StringVarP(&output, "output", "o", "", "`FORMAT`: json, or yaml")
	return cmd
}

func (c *commands) show() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a call that needs an approval, with its arguments",
		Long: "Show who calls what, which rule wants the approval and why, the arguments, and how they\n" +
			"differ from the last ones of the same caller and tool that were approved.",
		Example:           "  orla approvals show ap-x2\n  orla approvals show ap-x2 --json | jq .arguments",
		Args:              oneApproval,
		ValidArgsFunction: c.complete(""),
		RunE: running.Show(c.flags, func(cmd *cobra.Command, client *control.Client, words []string) error {
			a, err := c.find(cmd.Context(), client, words[0])
			if err != nil {
				return err
			}
			if asJSON {
				return terminal.WriteJSON(c.std.Out, a)
			}
			p := &page{colours: terminal.Colourful(c.std.Out), now: time.Now()}
			p.approval(a)
			_, err = fmt.Fprint(c.std.Out, p.text.String())
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as the control API has it")
	return cmd
}

func (c *commands) approve() *cobra.Command {
	var ttl string
	cmd := &cobra.Command{
		Use:   "approve ID",
		Short: "Approve a call, once",
		Long: "Approve a call: it may run once, with exactly the arguments of the record. Read them\n" +
			"first: orla approvals show. The approval is good for as long as --ttl says.",
		Example:           "  sudo orla approvals approve ap-x2\n  sudo orla approvals approve ap-x2 --ttl 1h",
		Args:              oneApproval,
		ValidArgsFunction: c.complete(string(approvals.Pending)),
		RunE: func(cmd *cobra.Command, words []string) error {
			return c.decide(cmd, words[0], func(ctx context.Context, client *control.Client, a *control.Approval) (*control.Approval, error) {
				digest, err := digestOf(a)
				if err != nil {
					return nil, err
				}
				return client.Approve(ctx, a.ID, control.ApproveRequest{Digest: digest, TTL: ttl})
			})
		},
	}
	cmd.Flags().StringVar(&ttl, "ttl", "", "how long the approval is good, a `DURATION` up to 168h (default: as long as the call waited for)")
	return cmd
}

func (c *commands) deny() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:               "deny ID",
		Short:             "Deny a call",
		Long:              "Deny a call. Who made it gets the reason. The same call is denied until the record expires.",
		Example:           "  orla approvals deny ap-x2 --reason 'not on a Friday'",
		Args:              oneApproval,
		ValidArgsFunction: c.complete(string(approvals.Pending)),
		RunE: func(cmd *cobra.Command, words []string) error {
			return c.decide(cmd, words[0], func(ctx context.Context, client *control.Client, a *control.Approval) (*control.Approval, error) {
				return client.Deny(ctx, a.ID, control.DenyRequest{Reason: reason, Digest: a.Digest})
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` for who made the call")
	return cmd
}

func (c *commands) extend() *cobra.Command {
	var ttl string
	cmd := &cobra.Command{
		Use:               "extend ID --ttl DURATION",
		Short:             "Change how long a call waits, or an approval is valid",
		Long:              "Change how long a call waits for somebody to decide, or how long an approval is good,\nfrom now on.",
		Example:           "  sudo orla approvals extend ap-x2 --ttl 8h",
		Args:              oneApproval,
		ValidArgsFunction: c.complete(""),
		RunE: func(cmd *cobra.Command, words []string) error {
			if ttl == "" {
				return &exit.Error{Code: exit.Usage, Err: errors.New("wants --ttl, such as --ttl 1h")}
			}
			return c.decide(cmd, words[0], func(ctx context.Context, client *control.Client, a *control.Approval) (*control.Approval, error) {
				return client.Extend(ctx, a.ID, control.ExtendRequest{TTL: ttl})
			})
		},
	}
	cmd.Flags().StringVar(&ttl, "ttl", "", "a `DURATION` from now, from 1s to 168h")
	return cmd
}

// find returns the record whose id begins so.
func (c *commands) find(ctx context.Context, client *control.Client, begin string) (*control.Approval, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	list, err := client.Approvals(ctx, control.ApprovalQuery{})
	if err != nil {
		return nil, running.Explain(err)
	}
	var found []string
	for _, a := range list {
		if a.ID == begin {
			found = []string{a.ID}
			break
		}
		if strings.HasPrefix(a.ID, begin) || strings.HasPrefix(a.ID, "ap-"+begin) {
			found = append(found, a.ID)
		}
	}
	switch len(found) {
	case 0:
		return nil, &exit.Error{Code: exit.Failed, Err: fmt.Errorf("there is no approval %q", begin), Hint: "orla approvals list --all lists all of them"}
	case 1:
		return c.read(ctx, client, found[0])
	}
	return nil, &exit.Error{Code: exit.Usage, Err: fmt.Errorf("%q is the beginning of %s", begin, terminal.Count(len(found), "id")), Hint: "write more of it"}
}

// read reads a record. Its arguments are in the form that the digest is about: JSON in JSON has more escapes.
func (c *commands) read(ctx context.Context, client *control.Client, id string) (*control.Approval, error) {
	a, err := client.Approval(ctx, id)
	if err != nil {
		return nil, running.Explain(err)
	}
	canonical := func(raw json.RawMessage) json.RawMessage {
		if form, ok := rawjson.Canonical(raw); ok && len(raw) > 0 {
			return form
		}
		return raw
	}
	a.Arguments, a.Input = canonical(a.Arguments), canonical(a.Input)
	for i, c := range a.Last.Changes {
		a.Last.Changes[i].Was, a.Last.Changes[i].Is = canonical(c.Was), canonical(c.Is)
	}
	return a, nil
}

// decide notes a decision, and prints what became of the record.
func (c *commands) decide(cmd *cobra.Command, id string,
	note func(context.Context, *control.Client, *control.Approval) (*control.Approval, error),
) error {
	client, err := running.Here(c.flags, cmd)
	if err != nil {
		return err
	}
	a, err := c.find(cmd.Context(), client, id)
	if err != nil {
		return err
	}
	now, err := note(cmd.Context(), client, a)
	if err != nil {
		return withSudo(cmd, client, running.Explain(err))
	}
	p := &page{now: time.Now()}
	p.printf("%s: %s\n", now.ID, p.sentence(now))
	_, err = fmt.Fprint(c.std.Out, p.text.String())
	return err
}

// digestOf computes the digest of what was read: who answers may be another process than who decides, and may
// have shown something else.
func digestOf(a *control.Approval) (string, error) {
	r := approvals.Record{ID: a.ID, Question: approvals.Question{
		Caller: a.Caller, Agent: a.Agent, Tool: a.Tool, Runs: a.Runs, Args: a.Arguments, Input: a.Input, Policy: a.Policy, Class: a.Class, Rule: a.Rule, Task: a.Task,
		Definition: a.Defined,
	}}
	for _, how := range a.Approvers {
		r.Approvers = append(r.Approvers, manifest.Approver(how))
	}
	if r.Digest() != a.Digest {
		return "", &exit.Error{Code: exit.Failed, Err: fmt.Errorf("the digest of %s does not match the record that was shown", a.ID), Hint: "orla status shows which process answers"}
	}
	return a.Digest, nil
}

// withSudo adds the command line that root needs to a refusal: root may not find a socket of another user.
func withSudo(cmd *cobra.Command, client *control.Client, err error) error {
	refused, ok := errors.AsType[*control.Error](err)
	f, isExit := errors.AsType[*exit.Error](err)
	if !ok || !isExit || refused.Code != control.CodeForbidden || !strings.Contains(refused.Hint, "sudo") {
		return err
	}
	status, statusErr := client.Status(cmd.Context())
	if statusErr != nil {
		return err
	}
	command := "sudo " + cmd.CommandPath() + " " + terminal.Printable(cmd.Flags().Arg(0))
	if ttl := cmd.Flags().Lookup("ttl"); ttl != nil && ttl.Changed {
		command += " --ttl " + terminal.Printable(ttl.Value.String())
	}
	hint := strings.Replace(refused.Hint, "try sudo, since root may", "root may: "+command+" --socket "+status.Socket, 1)
	return &exit.Error{Code: f.Code, Err: f.Err, Hint: hint}
}

// complete completes the id of a record in a phase; "" for any.
func (c *commands) complete(phase string) cobra.CompletionFunc {
	return usage.Complete(1, func(cmd *cobra.Command, _ []string) (ids []string) {
		client, err := running.Any(c.flags, cmd)
		if err != nil {
			return nil
		}
		list, _ := client.Approvals(cmd.Context(), control.ApprovalQuery{Phase: phase}) // none if it cannot be asked
		for _, a := range list {
			ids = append(ids, a.ID+"\t"+terminal.Printable(a.Tool+" by "+a.Caller))
		}
		return ids
	})
}
