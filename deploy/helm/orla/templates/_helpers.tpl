{{/* Name of everything that the release has: its own name, or with the chart's in front of it. */}}
{{- define "orla.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Name of the replicas that belong together. */}}
{{- define "orla.group" -}}
{{- include "orla.name" . | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Whether Orla asks anything of the API server. */}}
{{- define "orla.asks" -}}
{{- with .Values.kubernetes -}}{{- if or .isolation .resources .replicas -}}true{{- end -}}{{- end -}}
{{- end -}}

{{- define "orla.selector" -}}
app.kubernetes.io/name: orla
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "orla.labels" -}}
{{ include "orla.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "orla.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "orla.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "orla.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* orla.yaml: what the values say, below what the chart has to know. */}}
{{- define "orla.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $auth := deepCopy (get $config "auth" | default dict) -}}
{{- if .Values.auth.tokens -}}
{{- $tokens := list -}}
{{- range .Values.auth.tokens -}}
{{- $tokens = append $tokens (dict "name" .name "file" (printf "/etc/orla/tokens/%s" .name)) -}}
{{- end -}}
{{- $_ := set $auth "tokens" $tokens -}}
{{- end -}}
{{- if and (not .Values.auth.tokens) (not $auth.oauth) (not .Values.auth.insecure) -}}
{{- fail "nobody may call: set auth.tokens, or config.auth.oauth, or auth.insecure=true if something else decides who may call" -}}
{{- end -}}
{{- if $auth -}}{{- $_ := set $config "auth" $auth -}}{{- end -}}
{{- if .Values.auth.insecure -}}{{- $_ := set $config "insecure" true -}}{{- end -}}
{{- $_ := set $config "listen" "0.0.0.0" -}}
{{- $_ := set $config "port" 8080 -}}
{{- $_ := set $config "tools_dir" "/tools" -}}
{{- $_ := set $config "state_dir" "/var/lib/orla" -}}
{{- $_ := set $config "shutdown_grace" (printf "%ds" (int .Values.shutdownGraceSeconds)) -}}
{{- if .Values.secrets -}}{{- $_ := set $config "secrets_dir" "/etc/orla/secrets" -}}{{- end -}}
{{- if .Values.kubernetes.isolation -}}
{{- $_ := set $config "tool_k8s_enabled" true -}}
{{- $_ := set $config "tool_k8s_namespace" .Release.Namespace -}}
{{- end -}}
{{- if .Values.kubernetes.resources -}}
{{- $_ := set $config "kubernetes" true -}}
{{- $_ := set $config "kubernetes_namespace" .Release.Namespace -}}
{{- end -}}
{{- if .Values.kubernetes.replicas -}}
{{- $_ := set $config "replica_listen" "0.0.0.0:8081" -}}
{{- $_ := set $config "replica_group" (include "orla.group" .) -}}
{{- $_ := set $config "replica_namespace" .Release.Namespace -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}
