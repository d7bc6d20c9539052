//! What does `kubectl get` show of an object?

#![expect(clippy::indexing_slicing, reason = "reading a Value by key never panics: what is absent is null")]

mod kinds;
mod pods;

use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use kinds::*;

use super::jsonpath::JsonPath;

/// One column of a Table.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    /// 0 is always shown, the rest with `-o wide`.
    pub(crate) priority: i64,
    cell: Cell,
}

/// What stands in a cell, given the object and the time.
pub(crate) type CellFn = fn(&Value, Timestamp) -> Value;

#[derive(Debug, Clone)]
enum Cell {
    Computed(CellFn),
    Path(JsonPath),
    /// A path this server does not understand shows nothing.
    Nothing,
}

/// A column of a built-in kind: name, type, priority, cell.
pub(crate) type Builtin = (&'static str, &'static str, i64, CellFn);

impl Column {
    /// The first column of every table.
    pub(crate) fn name() -> Column {
        Column { format: "name".into(), ..Column::computed(&("Name", "string", 0, name)) }
    }

    /// The last column of most.
    pub(crate) fn age() -> Column {
        Column::computed(&AGE)
    }

    pub(crate) fn computed(&(name, kind, priority, cell): &Builtin) -> Column {
        Column {
            name: name.into(),
            kind: kind.into(),
            format: String::new(),
            description: String::new(),
            priority,
            cell: Cell::Computed(cell),
        }
    }

    /// One of a definition's `additionalPrinterColumns`.
    pub(crate) fn custom(column: &Value) -> Column {
        let text = |key: &str| column[key].as_str().unwrap_or_default().to_owned();
        Column {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description: text("description"),
            priority: column["priority"].as_i64().unwrap_or(0),
            cell: JsonPath::parse(&text("jsonPath")).map_or(Cell::Nothing, Cell::Path),
        }
    }

    pub(crate) fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let path = match &self.cell {
            Cell::Computed(cell) => return cell(object, now),
            Cell::Nothing => return Value::Null,
            Cell::Path(path) => path,
        };
        let Some(found) = path.find(object).first().copied() else { return Value::Null };
        match (self.kind.as_str(), found) {
            ("date", Value::String(text)) => since(text, now).into(),
            ("integer", Value::Number(number)) => number.as_i64().map_or(Value::Null, Value::from),
            ("number" | "boolean", found) => found.clone(),
            ("string", Value::String(text)) => text.as_str().into(),
            ("string", found) => found.to_string().into(),
            _ => Value::Null,
        }
    }

    pub(crate) fn definition(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format, "description": self.description,
            "priority": self.priority,
        })
    }
}

fn name(object: &Value, _: Timestamp) -> Value {
    object["metadata"]["name"].clone()
}

fn age(object: &Value, pointer: &str, now: Timestamp) -> Value {
    let at = object.pointer(pointer).and_then(Value::as_str);
    at.map_or_else(|| json!("<none>"), |at| since(at, now).into())
}

fn since(at: &str, now: Timestamp) -> String {
    match at.parse::<Timestamp>() {
        Ok(at) => human(now.as_second().saturating_sub(at.as_second())),
        Err(_) => "<invalid>".to_owned(),
    }
}

/// A duration with as many digits as people care for.
fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |big: i64, b: char, small: i64, s: char| match seconds % big / small {
        0 => format!("{}{b}", seconds / big),
        rest => format!("{}{b}{rest}{s}", seconds / big),
    };
    match seconds {
        s if s < -1 => "<invalid>".to_owned(),
        s if s < 0 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(MINUTE, 'm', 1, 's'),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(HOUR, 'h', MINUTE, 'm'),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(DAY, 'd', HOUR, 'h'),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(YEAR, 'y', DAY, 'd'),
        s => format!("{}y", s / YEAR),
    }
}

fn number(value: &Value) -> Value {
    json!(value.as_i64().unwrap_or(0))
}

fn text(value: &Value) -> Value {
    json!(value.as_str().unwrap_or_default())
}

fn or_none(value: &Value) -> Value {
    json!(value.as_str().filter(|t| !t.is_empty()).unwrap_or("<none>"))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn count(value: &Value) -> usize {
    value.as_object().map_or_else(|| items(value).len(), serde_json::Map::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_kubectl_writes_them() {
        for (seconds, want) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3_600, "60m"),
            (11_000, "3h3m"),
            (100_000, "27h"),
            (180_000, "2d2h"),
            (1_000_000, "11d"),
            (70_000_000, "2y80d"),
        ] {
            assert_eq!(human(seconds), want, "{seconds}");
        }
    }
}
