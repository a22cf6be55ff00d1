package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/cluster/crd"
	"github.com/orla-project/orla/internal/service/contract"
	"github.com/orla-project/orla/manifest/resource"
	"github.com/orla-project/orla/manifest/toolfile"
)

// newSchema prints the JSON Schemas that editors check files with.
func newSchema(std terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "schema [tool.yaml|resource|contract|orla.yaml|orla-tool.json|crds]",
		Short: "Print the JSON Schemas of files and of messages to services",
		Long: "Print a JSON Schema for your editor: of tool.yaml, of a resource (Tool, McpServer and\n" +
			"Secret; one document of its file), of orla.yaml and of orla-tool.json; and the two of the\n" +
			"tool contract v1, which services and Orla speak. Without a name, all of them. crds prints the\n" +
			"CustomResourceDefinitions of resources for a Kubernetes cluster instead, as YAML.",
		Example:   "  orla schema tool.yaml > tool.schema.json\n  orla schema resource > resource.schema.json\n  orla schema crds | kubectl apply -f -",
		ValidArgs: []string{"tool.yaml", "resource", "contract", "orla.yaml", "orla-tool.json", "crds"},
		Args: func(cmd *cobra.Command, words []string) error {
			if len(words) == 1 && !slices.Contains(cmd.ValidArgs, words[0]) {
				return fmt.Errorf("there is no schema %q; there are %s", words[0], strings.Join(cmd.ValidArgs, ", "))
			}
			return cobra.MaximumNArgs(1)(cmd, words)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "crds" {
				_, err := std.Out.Write(crd.YAML())
				return err
			}
			configSchema, err := config.Schema()
			if err != nil {
				return err
			}
			schemas := map[string]json.RawMessage{
				"tool.yaml":      toolfile.SchemaJSON(),
				"orla.yaml":      configSchema,
				"orla-tool.json": toolfile.CapsuleSchemaJSON(),
				"resource":       resource.SchemaJSON(),
				"contract":       fmt.Appendf(nil, `{"request":%s,"response":%s}`, contract.RequestSchema(), contract.ResponseSchema()),
			}
			if len(args) == 1 {
				return terminal.WriteJSON(std.Out, schemas[args[0]])
			}
			return terminal.WriteJSON(std.Out, schemas)
		},
	}
}
