// Package crd makes the CustomResourceDefinitions of Orla's resources from the schemas of their files (SPEC P2).
package crd

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/orla-project/orla/manifest/resource"
)

const (
	group   = "orloj.dev"
	version = "v1"
)

// definition is what a CustomResourceDefinition says next to the schema of the documents.
type definition struct {
	kind, plural, singular, short string
	about                         string // what kubectl explain says of the kind
	typeAt                        string // where the column TYPE comes from; "" for no such column
}

var definitions = []definition{
	{"Tool", "tools", "tool", "tl", "Tool declares a tool that clients of Orla can call.", ".spec.type"},
	{"McpServer", "mcpservers", "mcpserver", "mcp", "McpServer declares an MCP server whose tools clients of Orla can call.", ".spec.transport"},
	{"ToolPermission", "toolpermissions", "toolpermission", "tperm", "ToolPermission says what callers need to call a tool. While one is invalid, every call is denied.", ""},
	{"AgentRole", "agentroles", "agentrole", "arole", "AgentRole names permissions that callers may have. While one is invalid, every call is denied.", ""},
	{"AgentPolicy", "agentpolicies", "agentpolicy", "apol", "AgentPolicy blocks tools. While one is invalid, every call is denied.", ""},
}

// Files returns the definitions as YAML, by the names of their files.
func Files() map[string][]byte {
	schemas := schemasByKind()
	files := make(map[string][]byte, len(definitions)+1)
	var own bytes.Buffer
	writeYAML(&own, replicaRecords(), 0)
	files["replicarecords.yaml"] = own.Bytes()
	for _, d := range definitions {
		var out bytes.Buffer
		writeYAML(&out, d.definition(schemas[d.kind]), 0)
		files[d.plural+".yaml"] = out.Bytes()
	}
	return files
}

// YAML returns all definitions as one stream of YAML documents.
func YAML() []byte {
	files := Files()
	var out bytes.Buffer
	for i, name := range slices.Sorted(maps.Keys(files)) {
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(files[name])
	}
	return out.Bytes()
}

// object is a JSON object.
type object = map[string]any

// schemasByKind returns the schemas of the documents of a file.
func schemasByKind() map[string]object {
	var all struct {
		OneOf []object `json:"oneOf"`
	}
	if err := json.Unmarshal(resource.SchemaJSON(), &all); err != nil {
		panic(err) // it is Orla's own
	}
	by := map[string]object{}
	for _, one := range all.OneOf {
		kind := one["properties"].(object)["kind"].(object)["enum"].([]any)[0].(string) //nolint:forcetypeassert // as above
		by[kind] = one
	}
	return by
}

// definition returns the CustomResourceDefinition.
func (d definition) definition(schema object) object {
	column := func(name, kind, path string) object { return object{"name": name, "type": kind, "jsonPath": path} }
	columns := []any{
		column("Ready", "string", `.status.conditions[?(@.type=="Ready")].status`),
		column("Reason", "string", `.status.conditions[?(@.type=="Ready")].reason`),
	}
	if d.typeAt != "" {
		columns = append(columns, column("Type", "string", d.typeAt))
	}
	columns = append(columns, column("Age", "date", ".metadata.creationTimestamp"))
	return object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": object{"name": d.plural + "." + group},
		"spec": object{
			"group": group, "scope": "Namespaced",
			"names": object{
				"kind": d.kind, "listKind": d.kind + "List", "plural": d.plural, "singular": d.singular,
				"shortNames": []any{d.short}, "categories": []any{"orla"},
			},
			"versions": []any{object{
				"name": version, "served": true, "storage": true, "subresources": object{"status": object{}},
				"additionalPrinterColumns": columns,
				"schema":                   object{"openAPIV3Schema": d.schema(schema)},
			}},
		},
	}
}

// replicaRecords defines the objects in which replicas keep what they have in common (docs/decisions/0054).
func replicaRecords() object {
	column := func(name, kind, path string) object { return object{"name": name, "type": kind, "jsonPath": path} }
	text := func(about string) object { return object{"type": "string", "description": about} }
	return object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": object{"name": "replicarecords." + group},
		"spec": object{
			"group": group, "scope": "Namespaced",
			"names": object{
				"kind": "ReplicaRecord", "listKind": "ReplicaRecordList", "plural": "replicarecords", "singular": "replicarecord", "categories": []any{"orla"},
			},
			"versions": []any{object{
				"name": version, "served": true, "storage": true,
				"additionalPrinterColumns": []any{column("About", "string", ".spec.about"), column("Age", "date", ".metadata.creationTimestamp")},
				"schema": object{"openAPIV3Schema": object{
					"type": "object", "description": "ReplicaRecord is what the replicas of Orla have in common: an approval, what was accepted of a provider, or what a client has set in its session. Orla writes it.",
					"required": []any{"spec"},
					"properties": object{
						"apiVersion": object{"type": "string"}, "kind": object{"type": "string"}, "metadata": object{"type": "object"},
						"spec": object{
							"type": "object", "required": []any{"sealed"},
							"properties": object{"about": text("What it is, for people. Orla does not read it"), "sealed": text("The record, sealed with the key of the replicas")},
						},
					},
				}},
			}},
		},
	}
}

// schema returns the structural schema of the objects.
func (d definition) schema(of object) object {
	whole := structural(of, d.kind)
	properties := whole["properties"].(object) //nolint:forcetypeassert // Orla's own
	// The API server checks these itself, and allows no rules for them but that of the name.
	properties["apiVersion"] = object{"type": "string"}
	properties["kind"] = object{"type": "string"}
	properties["metadata"] = object{"type": "object"}
	properties["status"] = status()
	required, _ := whole["required"].([]any)
	required = slices.DeleteFunc(required, func(name any) bool { return name != "spec" })
	delete(whole, "required")
	if len(required) > 0 {
		whole["required"] = required
	}
	whole["description"] = d.about
	whole["x-kubernetes-validations"] = []any{object{"rule": "size(self.metadata.name) <= 64", "message": "metadata.name must have at most 64 characters"}}
	return whole
}

// status is what Orla writes back.
func status() object {
	text := func(about string) object { return object{"type": "string", "description": about} }
	return object{
		"type": "object", "description": "What Orla says of the resource. Orla writes it",
		"properties": object{"conditions": object{
			"type": "array", "description": "Ready: whether it is served, or in force",
			"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"type"},
			"items": object{
				"type": "object", "required": []any{"type", "status"},
				"properties": object{
					"type": text("Ready"), "status": object{"type": "string", "description": "True, False or Unknown", "enum": []any{"True", "False", "Unknown"}},
					"reason": text("Why, in one word"), "message": text("Why, and what to do"),
					"observedGeneration": object{"type": "integer", "format": "int64", "description": "The metadata.generation that this is about"},
					"lastTransitionTime": object{"type": "string", "format": "date-time", "description": "When the status changed last"},
				},
			},
		}},
	}
}

// structural returns a schema of a file as the API server wants it. at is its path, for the constraints.
func structural(of object, at string) object {
	out := object{}
	if about, has := of["description"]; has {
		out["description"] = about
	}
	kind, plain := of["type"].(string)
	choice, _ := of["anyOf"].([]any)
	switch {
	case len(choice) > 0: // a number or a text
		out["x-kubernetes-int-or-string"] = true
		out["anyOf"] = []any{object{"type": "integer"}, object{"type": "string"}}
		for _, one := range choice {
			for _, key := range []string{"pattern", "minimum"} {
				if limit, has := one.(object)[key]; has { //nolint:forcetypeassert // Orla's own
					out[key] = limit
				}
			}
		}
	case !plain: // A text, which a file may have without quotes. kubectl reads on and yes as true, which would be another text.
		out["x-kubernetes-int-or-string"] = true
		out["anyOf"] = []any{object{"type": "integer"}, object{"type": "string"}}
	default:
		out["type"] = kind
	}
	for _, key := range []string{"enum", "required"} {
		if value, has := of[key]; has {
			out[key] = value
		}
	}
	if items, has := of["items"].(object); has {
		out["items"] = structural(items, at+"[]")
	}
	properties, _ := of["properties"].(object)
	more, typed := of["additionalProperties"].(object)
	switch {
	case len(properties) > 0:
		below := object{}
		for name, one := range properties {
			below[name] = structural(one.(object), at+"."+name) //nolint:forcetypeassert // Orla's own
		}
		out["properties"] = below
	case typed:
		out["additionalProperties"] = structural(more, at+".*")
	case kind == "object": // any
		out["x-kubernetes-preserve-unknown-fields"] = true
	}
	constrain(out, at)
	return out
}
