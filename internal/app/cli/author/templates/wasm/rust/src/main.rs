//! The tool {{name}}, as WebAssembly. It runs once for each call: it reads a
//! request from stdin and writes a response to stdout, each one JSON object. What
//! it writes to stderr is for whoever looks for a mistake.

mod json;

use json::Value;
use std::io::{self, Read, Write};

/// Why a call failed. The code is for programs, the message for people.
struct Failure {
    code: &'static str,
    message: String,
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure {
        code: "invalid_input",
        message: message.into(),
    }
}

/// The tool. Its arguments are those that {{name}}.yaml describes in input_schema.
fn answer(arguments: &Value) -> Result<Value, Failure> {
    match arguments.get("name").and_then(Value::as_str) {
        None => Err(invalid("name: is required")),
        Some("") => Err(invalid("name: must not be empty")),
        Some(name) => Ok(Value::from(format!("Hello, {name}!"))),
    }
}

fn main() -> io::Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let response = match respond(&text) {
        Ok(output) => Value::object([
            ("contract_version", Value::from("v1")),
            ("status", Value::from("ok")),
            ("output", output),
        ]),
        Err(failure) => Value::object([
            ("contract_version", Value::from("v1")),
            ("status", Value::from("error")),
            (
                "error",
                Value::object([
                    ("code", Value::from(failure.code)),
                    ("message", Value::from(failure.message)),
                    ("retryable", Value::Bool(false)),
                ]),
            ),
        ]),
    };
    io::stdout().write_all(response.to_string().as_bytes())
}

/// Reads a request and answers it. There is more in one: capabilities, runtime, auth.
fn respond(text: &str) -> Result<Value, Failure> {
    let request = json::parse(text).map_err(|e| invalid(format!("request: {e}")))?;
    if request.get("contract_version").and_then(Value::as_str) != Some("v1") {
        return Err(invalid("contract_version: want v1"));
    }
    let input = request.get("input").and_then(Value::as_str).unwrap_or("{}"); // the arguments, as JSON
    let arguments = json::parse(input).map_err(|e| invalid(format!("arguments: {e}")))?;
    answer(&arguments)
}
