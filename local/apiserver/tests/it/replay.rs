//! Plays a recorded conversation to a server and compares the answers.
//!
//! Answers are compared after the same normalization that the recorder used: without what differs from run to run.
//! Nothing here knows who else works on the server; a test without controllers and one with them both include it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use pawl_apiserver::Service;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};
use tower::ServiceExt as _;

/// How long a step that others must bring about is left alone between two looks: the recorder's own figure.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Where the conversations are, seen from any crate of this workspace.
pub(crate) fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../local/apiserver/tests/data")
}

/// What the owner shows at the door, where there is one.
pub(crate) const TOKEN: &str = "not-a-real-token";

/// How many steps are answered as recorded, and what is wrong with the others. Time should be paused: a conversation
/// waits for seconds where others have something to do.
pub(crate) async fn replay(service: &Service, name: &str) -> (usize, Vec<String>) {
    let text = std::fs::read(data().join(format!("{name}.json"))).unwrap();
    let scenario: Value = serde_json::from_slice(&text).unwrap();
    let mut names: BTreeMap<String, Value> = BTreeMap::new();
    names.insert("ns".into(), "c-0123456789".into());
    names.insert("nonce".into(), "89abcdef".into());
    let home = json!({"do": "POST", "path": "/api/v1/namespaces",
        "body": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}"}}});
    assert_eq!(ask(service, &home, &names).await.0, 201);
    let (mut good, mut problems) = (0, Vec::new());
    for (at, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
        sleep(seconds(&step["settle"])).await;
        let until = Instant::now() + seconds(&step["retry"]);
        let (body, wrong) = loop {
            let (status, body) = ask(service, step, &names).await;
            let mut wrong = Vec::new();
            let answer = json!({"status": status, "body": compared(step, &body, &names)});
            differences(&step["expect"], &answer, "", &mut wrong);
            if wrong.is_empty() || Instant::now() >= until {
                break (body, wrong);
            }
            sleep(LOOK_AGAIN).await;
        };
        if wrong.is_empty() {
            good += 1;
        } else {
            problems.push(format!("{name} step {at}: {} {}", step["do"], step["path"]));
            problems.extend(wrong.into_iter().map(|w| format!("    {w}")));
        }
        for (saved, from) in step["save"].as_object().into_iter().flatten() {
            names.insert(saved.clone(), pick(&body, from.as_str().unwrap()));
        }
    }
    (good, problems)
}

fn seconds(value: &Value) -> Duration {
    Duration::from_secs_f64(value.as_f64().unwrap_or_default())
}

/// What of an answer is compared.
fn compared(step: &Value, body: &Value, names: &BTreeMap<String, Value>) -> Value {
    let keep: Vec<&str> = step["keep"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let plain = normal(body, names, "", &keep);
    let Some(only) = step["only"].as_array() else { return plain };
    let picked = only.iter().map(|field| field.as_str().unwrap());
    Value::Object(picked.map(|field| (field.to_owned(), pick(&plain, field))).collect())
}

async fn ask(service: &Service, step: &Value, names: &BTreeMap<String, Value>) -> (u16, Value) {
    let path = fill(&step["path"], names);
    let mut request = Request::builder().method(step["do"].as_str().unwrap()).uri(path.as_str().unwrap());
    request = request.header("accept", step["accept"].as_str().unwrap_or("application/json"));
    // A step may come from another caller; "" is nobody.
    let token = step.get("token").map_or_else(|| TOKEN.into(), |token| fill(token, names));
    if let Some(token) = token.as_str().filter(|token| !token.is_empty()) {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let body = match (step.get("raw"), step.get("body")) {
        (Some(raw), _) => fill(raw, names).as_str().unwrap().to_owned(),
        (None, Some(body)) => fill(body, names).to_string(),
        (None, None) => String::new(),
    };
    if !body.is_empty() {
        request = request.header("content-type", step["type"].as_str().unwrap_or("application/json"));
    }
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let mut sent = response.into_body();
    let watch = &step["watch"];
    if watch.is_object() && status == 200 {
        let max = watch["max"].as_u64().unwrap();
        let wait = Duration::from_secs(watch["seconds"].as_u64().unwrap());
        let mut events = Vec::new();
        while (events.len() as u64) < max {
            let Ok(Some(frame)) = tokio::time::timeout(wait, sent.frame()).await else { break };
            events.push(serde_json::from_slice(&frame.unwrap().into_data().unwrap()).unwrap());
        }
        return (status, Value::Array(events));
    }
    let bytes = sent.collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (status, serde_json::from_str(&text).unwrap_or_else(|_| json!({"text": text})))
}

const SET: [&str; 5] = ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "continue"];
const TIME: [&str; 15] = [
    "lastTransitionTime",
    "lastUpdateTime",
    "time",
    "startTime",
    "completionTime",
    "renewTime",
    "acquireTime",
    "firstTimestamp",
    "lastTimestamp",
    "eventTime",
    "lastProbeTime",
    "lastScheduleTime",
    "lastHeartbeatTime",
    "deletionGracePeriodSeconds",
    "",
];
const UNORDERED: [&str; 2] = ["causes", "managedFields"];
const DROP: [&str; 4] = ["managedFields", "selfLink", "remainingItemCount", "message"];

/// An answer without what differs from run to run.
fn normal(value: &Value, names: &BTreeMap<String, Value>, key: &str, keep: &[&str]) -> Value {
    match value {
        Value::Object(map) => {
            let mut out = Map::new();
            for (k, v) in map {
                if DROP.contains(&k.as_str()) && !keep.contains(&k.as_str()) {
                    continue;
                }
                let plain = if SET.contains(&k.as_str()) {
                    if v == "" || v.is_null() { v.clone() } else { "<set>".into() }
                } else if TIME.contains(&k.as_str()) && (v.is_string() || v.is_i64()) {
                    "<set>".into()
                } else {
                    normal(v, names, k, keep)
                };
                out.insert(k.clone(), plain);
            }
            let generated = out.get("generateName").and_then(Value::as_str).map(str::to_owned);
            if let (Some(stem), Some(name)) = (generated, out.get("name").and_then(Value::as_str)) {
                let suffix = name.strip_prefix(stem.as_str());
                if suffix.is_some_and(|s| {
                    s.len() == 5 && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
                }) {
                    out.insert("name".into(), format!("{stem}<5>").into());
                }
            }
            Value::Object(out)
        }
        Value::Array(list) => {
            let mut out: Vec<Value> = list.iter().map(|v| normal(v, names, key, keep)).collect();
            if UNORDERED.contains(&key) {
                out.sort_by_key(Value::to_string);
            }
            Value::Array(out)
        }
        Value::String(text) => {
            let mut text = text.clone();
            for (name, real) in names {
                if let Some(real) = real.as_str().filter(|r| r.len() > 4) {
                    text = text.replace(real, &format!("{{{name}}}"));
                }
            }
            text.into()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn pick(value: &Value, dotted: &str) -> Value {
    let mut at = value;
    for part in dotted.split('.') {
        let next = match at {
            Value::Array(list) => part.parse::<usize>().ok().and_then(|i| list.get(i)),
            Value::Object(map) => map.get(part),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        match next {
            Some(next) => at = next,
            None => return Value::Null,
        }
    }
    at.clone()
}

fn fill(value: &Value, names: &BTreeMap<String, Value>) -> Value {
    match value {
        Value::String(text) => {
            let mut text = text.clone();
            for (name, real) in names {
                let real = real.as_str().map_or_else(|| real.to_string(), str::to_owned);
                text = text.replace(&format!("{{{name}}}"), &real);
            }
            text.into()
        }
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(k, v)| (fill(&k.as_str().into(), names).as_str().unwrap().to_owned(), fill(v, names)))
                .collect(),
        ),
        Value::Array(list) => list.iter().map(|v| fill(v, names)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn differences(want: &Value, got: &Value, path: &str, out: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            for key in want.keys().chain(got.keys().filter(|k| !want.contains_key(*k))) {
                match (want.get(key), got.get(key)) {
                    (Some(w), Some(g)) => differences(w, g, &format!("{path}.{key}"), out),
                    (Some(w), None) => out.push(format!("{path}.{key}: missing, want {w}")),
                    (None, g) => out.push(format!("{path}.{key}: not expected, got {}", g.unwrap())),
                }
            }
        }
        (Value::Array(want), Value::Array(got)) => {
            if want.len() != got.len() {
                out.push(format!("{path}: want {} items, got {}", want.len(), got.len()));
            }
            for (at, (w, g)) in want.iter().zip(got).enumerate() {
                differences(w, g, &format!("{path}[{at}]"), out);
            }
        }
        _ if want == got => {}
        _ => out.push(format!("{path}: want {want}, got {got}")),
    }
}
