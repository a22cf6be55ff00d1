//! As much of JSON as a tool needs, without a crate.
#![allow(dead_code)] // what this tool leaves unused, the next one may want

use std::fmt;

const MAX_DEPTH: usize = 128;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    /// As it was written, so that no digit is lost.
    Number(String),
    String(String),
    Array(Vec<Value>),
    Object(Vec<(String, Value)>),
}

impl Value {
    pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
        Value::Object(
            members
                .into_iter()
                .map(|(name, value)| (name.to_string(), value))
                .collect(),
        )
    }

    /// The member of an object. Of two with one name, the last counts.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Object(members) => members
                .iter()
                .rev()
                .find(|(n, _)| n == name)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.to_string())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(text)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::Number(text) => f.write_str(text),
            Value::String(text) => write_string(f, text),
            Value::Array(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Value::Object(members) => {
                f.write_str("{")?;
                for (i, (name, value)) in members.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    write_string(f, name)?;
                    write!(f, ":{value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn write_string(f: &mut fmt::Formatter, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

/// Reads one value and nothing after it.
pub fn parse(text: &str) -> Result<Value, String> {
    let mut reader = Reader {
        text,
        at: 0,
        depth: 0,
    };
    let value = reader.value()?;
    reader.space();
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.wrong("more than one value")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn wrong(&self, what: &str) -> String {
        format!("{what} at byte {}", self.at)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, word: &str, value: Value) -> Result<Value, String> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.wrong("no JSON"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self) -> Result<Value, String> {
        self.space();
        match self.peek() {
            Some(b'n') => self.expect("null", Value::Null),
            Some(b't') => self.expect("true", Value::Bool(true)),
            Some(b'f') => self.expect("false", Value::Bool(false)),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => Ok(self.number()),
            Some(b'[' | b'{') if self.depth == MAX_DEPTH => Err(self.wrong("too deep")),
            Some(b'[') => self.items(b']', |r| r.value()).map(Value::Array),
            Some(b'{') => self.items(b'}', |r| r.member()).map(Value::Object),
            _ => Err(self.wrong("no JSON")),
        }
    }

    /// What stands between brackets, separated by commas.
    fn items<T>(
        &mut self,
        end: u8,
        one: fn(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        self.at += 1;
        self.depth += 1;
        let mut list = Vec::new();
        self.space();
        if self.peek() != Some(end) {
            loop {
                list.push(one(self)?);
                self.space();
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(c) if c == end => break,
                    _ => return Err(self.wrong("no comma")),
                }
            }
        }
        self.at += 1;
        self.depth -= 1;
        Ok(list)
    }

    fn member(&mut self) -> Result<(String, Value), String> {
        self.space();
        if self.peek() != Some(b'"') {
            return Err(self.wrong("no name"));
        }
        let name = self.string()?;
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.wrong("no colon"));
        }
        self.at += 1;
        Ok((name, self.value()?))
    }

    fn number(&mut self) -> Value {
        let start = self.at;
        while matches!(
            self.peek(),
            Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
        ) {
            self.at += 1;
        }
        Value::Number(self.text[start..self.at].to_string())
    }

    fn string(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let start = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\')) {
                self.at += 1;
            }
            text.push_str(&self.text[start..self.at]);
            match self.peek() {
                None => return Err(self.wrong("no end of a string")),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                _ => text.push(self.escaped()?),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, String> {
        let kind = self.text.as_bytes().get(self.at + 1).copied();
        self.at += 2;
        Ok(match kind {
            Some(c @ (b'"' | b'\\' | b'/')) => c as char,
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let high = self.unit()?;
                if !(0xd800..0xdc00).contains(&high)
                    || self.text.get(self.at..self.at + 2) != Some("\\u")
                {
                    return Ok(char::from_u32(high).unwrap_or('\u{fffd}'));
                }
                self.at += 2;
                let low = self.unit()?;
                if !(0xdc00..0xe000).contains(&low) {
                    self.at -= 6; // it is a character of its own
                    return Ok('\u{fffd}');
                }
                char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))
                    .unwrap_or('\u{fffd}')
            }
            _ => return Err(self.wrong("no escape")),
        })
    }

    /// The four digits of \uXXXX.
    fn unit(&mut self) -> Result<u32, String> {
        let digits = self.text.get(self.at..self.at + 4).unwrap_or("");
        self.at += 4;
        match u32::from_str_radix(digits, 16) {
            Ok(unit) if digits.len() == 4 && !digits.starts_with('+') => Ok(unit),
            _ => Err(self.wrong("no escape")),
        }
    }
}
