#!/bin/sh
# {{name}}: say here what the capsule is for. It speaks JSON-RPC by way of jq:
# one message a line on stdin and stdout, and stderr is the log.
# shellcheck disable=SC2016 # what is quoted is for jq to expand

# of PATH: what the message has there, as text; argument NAME: one of its arguments.
of() { printf '%s\n' "$line" | jq -r "$1 // empty"; }
argument() { of ".params.arguments.$1"; }

# send FILTER [JQ-ARGUMENT...]: prints a message; $id is that of the one that came.
send() {
	filter=$1
	shift
	jq -cn --argjson id "${id:-null}" "$@" "{jsonrpc: \"2.0\"} + $filter"
}

# progress DONE TOTAL MESSAGE: says how far the call is, if anybody wants to
# know, and ends it if it has been cancelled.
progress() {
	[ ! -e "$cancelled/$id" ] || exit 1
	token=$(of .params._meta.progressToken)
	[ -z "$token" ] || send '{method: "notifications/progress", params: {progressToken: $token, progress: $at, total: $total, message: $message}}' \
		--argjson token "$token" --argjson at "$1" --argjson total "$2" --arg message "$3" >&3
}

# The tools. What one prints is its answer, unless it fails.
greet() {
	echo "Hello, $(argument name)!"
}

count() {
	n=0 to=$(argument to)
	while [ $n -lt "$to" ]; do
		sleep 0.1 # or some work
		n=$((n + 1))
		progress $n "$to" "at $n"
	done
	echo "counted to $to"
}

answer() {
	tool=$(of .params.name)
	if text=$("$tool"); then
		send '{id: $id, result: $text}' --arg text "$text"
	else
		send '{id: $id, result: {content: [{type: "text", text: $text}], isError: true}}' --arg text "$text"
	fi
	rm -f "$cancelled/$id"
}

exec 3>&1
cancelled=$(mktemp -d) || exit
trap 'rm -r "$cancelled"' EXIT

# Says hello: from here on there may be calls. The end of stdin asks for ours.
send '{method: "orla.hello", params: {name: "{{name}}", version: "1.0.0", capabilities: ["tools"]}}'
while IFS= read -r line; do
	id=$(of .id)
	case $(of .method) in
	tools/call) answer & ;;
	notifications/cancelled) : >"$cancelled/$(of .params.requestId)" ;;
	initialize) send '{id: $id, result: {protocolVersion: "2025-11-25", capabilities: {tools: {}}, serverInfo: {name: "{{name}}", version: "1.0.0"}}}' ;;
	tools/list) send '{id: $id, result: $tools}' --argjson tools "$(cat tools.json)" ;;
	ping) send '{id: $id, result: {}}' ;;
	*) [ -z "$id" ] || send '{id: $id, error: {code: -32601, message: "no such method"}}' ;;
	esac
done
wait
