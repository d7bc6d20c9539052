//! What does `kubectl get` show of an object?

#![expect(clippy::indexing_slicing, reason = "reading a Value by key never panics: what is absent is null")]

use jiff::Timestamp;
use serde_json::{Value, json};

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

pub(crate) const AGE: Builtin = ("Age", "string", 0, |o, now| age(o, "/metadata/creationTimestamp", now));
pub(crate) const PLAIN: &[Builtin] = &[AGE];
pub(crate) const CREATED_AT: &[Builtin] =
    &[("Created At", "date", 0, |o, _| o["metadata"]["creationTimestamp"].clone())];
pub(crate) const CONFIG_MAP: &[Builtin] =
    &[("Data", "integer", 0, |o, _| json!(count(&o["data"]) + count(&o["binaryData"]))), AGE];
pub(crate) const SECRET: &[Builtin] = &[
    ("Type", "string", 0, |o, _| o["type"].clone()),
    ("Data", "integer", 0, |o, _| json!(count(&o["data"]))),
    AGE,
];
pub(crate) const SERVICE_ACCOUNT: &[Builtin] =
    &[("Secrets", "string", 0, |o, _| json!(count(&o["secrets"]).to_string())), AGE];
pub(crate) const PHASE: &[Builtin] = &[("Status", "string", 0, |o, _| o["status"]["phase"].clone()), AGE];
pub(crate) const LEASE: &[Builtin] =
    &[("Holder", "string", 0, |o, _| text(&o["spec"]["holderIdentity"])), AGE];
pub(crate) const BINDING: &[Builtin] = &[
    ("Role", "string", 0, |o, _| {
        let role = &o["roleRef"];
        let part = |key: &str| role[key].as_str().unwrap_or_default();
        json!(format!("{}/{}", part("kind"), part("name")))
    }),
    AGE,
];
pub(crate) const POD: &[Builtin] = &[
    ("Ready", "string", 0, |o, _| {
        let ready = items(&o["status"]["containerStatuses"]).iter().filter(|c| c["ready"] == true).count();
        json!(format!("{ready}/{}", items(&o["spec"]["containers"]).len()))
    }),
    ("Status", "string", 0, |o, _| pod_status(o)),
    ("Restarts", "string", 0, |o, _| {
        let statuses = items(&o["status"]["containerStatuses"]).iter();
        json!(statuses.filter_map(|c| c["restartCount"].as_i64()).sum::<i64>().to_string())
    }),
    AGE,
    ("IP", "string", 1, |o, _| or_none(&o["status"]["podIP"])),
    ("Node", "string", 1, |o, _| or_none(&o["spec"]["nodeName"])),
];
pub(crate) const NODE: &[Builtin] = &[
    ("Status", "string", 0, |o, _| {
        let ready = items(&o["status"]["conditions"]).iter().find(|c| c["type"] == "Ready");
        json!(match ready.and_then(|c| c["status"].as_str()) {
            Some("True") => "Ready",
            Some(_) => "NotReady",
            None => "Unknown",
        })
    }),
    AGE,
    ("Version", "string", 0, |o, _| text(&o["status"]["nodeInfo"]["kubeletVersion"])),
];
pub(crate) const SERVICE: &[Builtin] = &[
    ("Type", "string", 0, |o, _| o["spec"]["type"].clone()),
    ("Cluster-IP", "string", 0, |o, _| or_none(&o["spec"]["clusterIP"])),
    ("External-IP", "string", 0, |o, _| or_none(&o["spec"]["externalIPs"][0])),
    ("Port(s)", "string", 0, |o, _| {
        let ports = items(&o["spec"]["ports"]).iter();
        let shown: Vec<String> =
            ports.map(|p| format!("{}/{}", p["port"], p["protocol"].as_str().unwrap_or("TCP"))).collect();
        json!(if shown.is_empty() { "<none>".to_owned() } else { shown.join(",") })
    }),
    AGE,
];
pub(crate) const JOB: &[Builtin] = &[
    ("Status", "string", 0, |o, _| {
        let holds = |kind: &str| {
            items(&o["status"]["conditions"]).iter().any(|c| c["type"] == kind && c["status"] == "True")
        };
        json!(if holds("Complete") {
            "Complete"
        } else if holds("Failed") {
            "Failed"
        } else if !o["metadata"]["deletionTimestamp"].is_null() {
            "Terminating"
        } else if holds("Suspended") {
            "Suspended"
        } else if holds("FailureTarget") {
            "FailureTarget"
        } else if holds("SuccessCriteriaMet") {
            "SuccessCriteriaMet"
        } else {
            "Running"
        })
    }),
    ("Completions", "string", 0, |o, _| {
        let succeeded = o["status"]["succeeded"].as_i64().unwrap_or(0);
        json!(match (o["spec"]["completions"].as_i64(), o["spec"]["parallelism"].as_i64()) {
            (Some(wanted), _) => format!("{succeeded}/{wanted}"),
            (None, Some(parallel)) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
            (None, _) => format!("{succeeded}/1"),
        })
    }),
    ("Duration", "string", 0, |o, now| {
        let at = |key: &str| o["status"][key].as_str().and_then(|t| t.parse::<Timestamp>().ok());
        match (at("startTime"), at("completionTime")) {
            (None, _) => json!(""),
            (Some(start), end) => json!(human(end.unwrap_or(now).as_second() - start.as_second())),
        }
    }),
    AGE,
];
pub(crate) const CRON_JOB: &[Builtin] = &[
    ("Schedule", "string", 0, |o, _| o["spec"]["schedule"].clone()),
    ("Timezone", "string", 0, |o, _| or_none(&o["spec"]["timeZone"])),
    ("Suspend", "boolean", 0, |o, _| json!(if o["spec"]["suspend"] == true { "True" } else { "False" })),
    ("Active", "integer", 0, |o, _| json!(items(&o["status"]["active"]).len())),
    ("Last Schedule", "string", 0, |o, now| age(o, "/status/lastScheduleTime", now)),
    AGE,
];
pub(crate) const DEPLOYMENT: &[Builtin] = &[
    ("Ready", "string", 0, |o, _| ready(o)),
    ("Up-to-date", "integer", 0, |o, _| number(&o["status"]["updatedReplicas"])),
    ("Available", "integer", 0, |o, _| number(&o["status"]["availableReplicas"])),
    AGE,
];
pub(crate) const STATEFUL_SET: &[Builtin] = &[("Ready", "string", 0, |o, _| ready(o)), AGE];
pub(crate) const DAEMON_SET: &[Builtin] = &[
    ("Desired", "integer", 0, |o, _| number(&o["status"]["desiredNumberScheduled"])),
    ("Current", "integer", 0, |o, _| number(&o["status"]["currentNumberScheduled"])),
    ("Ready", "integer", 0, |o, _| number(&o["status"]["numberReady"])),
    ("Up-to-date", "integer", 0, |o, _| number(&o["status"]["updatedNumberScheduled"])),
    ("Available", "integer", 0, |o, _| number(&o["status"]["numberAvailable"])),
    AGE,
];
pub(crate) const REPLICA_SET: &[Builtin] = &[
    ("Desired", "integer", 0, |o, _| number(&o["spec"]["replicas"])),
    ("Current", "integer", 0, |o, _| number(&o["status"]["replicas"])),
    ("Ready", "integer", 0, |o, _| number(&o["status"]["readyReplicas"])),
    AGE,
];
pub(crate) const CLAIM: &[Builtin] = &[
    ("Status", "string", 0, |o, _| o["status"]["phase"].clone()),
    ("Volume", "string", 0, |o, _| text(&o["spec"]["volumeName"])),
    ("Capacity", "string", 0, |o, _| text(&o["status"]["capacity"]["storage"])),
    ("Access Modes", "string", 0, |o, _| {
        let modes: Vec<&str> = items(&o["status"]["accessModes"]).iter().filter_map(Value::as_str).collect();
        json!(modes.join(","))
    }),
    ("StorageClass", "string", 0, |o, _| text(&o["spec"]["storageClassName"])),
    AGE,
];
pub(crate) const EVENT: &[Builtin] = &[
    ("Last Seen", "string", 0, |o, now| {
        let last =
            ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
        let at = last.iter().find(|p| o.pointer(p).is_some_and(Value::is_string));
        at.map_or_else(|| json!("<unknown>"), |p| age(o, p, now))
    }),
    ("Type", "string", 0, |o, _| text(&o["type"])),
    ("Reason", "string", 0, |o, _| text(&o["reason"])),
    ("Object", "string", 0, |o, _| {
        let about = if o["involvedObject"].is_object() { &o["involvedObject"] } else { &o["regarding"] };
        let part = |key: &str| about[key].as_str().unwrap_or_default();
        json!(format!("{}/{}", part("kind").to_lowercase(), part("name")))
    }),
    ("Message", "string", 0, |o, _| text(if o["message"].is_string() { &o["message"] } else { &o["note"] })),
];

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

fn pod_status(pod: &Value) -> Value {
    let status = &pod["status"];
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return json!("Terminating");
    }
    let why = |state: &Value| {
        let reason = ["waiting", "terminated"].iter().find_map(|s| state[*s]["reason"].as_str());
        reason.filter(|r| !r.is_empty()).map(str::to_owned)
    };
    let told = items(&status["containerStatuses"]).iter().find_map(|c| why(&c["state"]));
    let phase = status["reason"].as_str().or_else(|| status["phase"].as_str()).unwrap_or_default();
    json!(told.unwrap_or_else(|| phase.to_owned()))
}

fn ready(object: &Value) -> Value {
    json!(format!("{}/{}", number(&object["status"]["readyReplicas"]), number(&object["spec"]["replicas"])))
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
