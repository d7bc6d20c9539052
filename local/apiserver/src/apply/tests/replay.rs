//! Does ownership come out as a real kube-apiserver 1.36 wrote it down?
//!
//! The conversations in `tests/data/ownership` are random writes to one custom resource by three managers,
//! recorded with the answers. They are replayed here against the rules alone: one object in memory, no
//! server.

use crate::apply::{ApplyError, Writer, apply, update};
use crate::schema::Schema;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::path::Path;

/// One object of the kind the conversations are about.
struct World {
    schema: Schema,
    live: Option<Value>,
    /// A second passes between writes.
    clock: i64,
}

/// What a request is answered with: a status and, where the recording keeps it, a body.
type Answer = (u64, Value);

impl World {
    fn answer(&mut self, step: &Value) -> Answer {
        self.clock += 1;
        let path = step["path"].as_str().unwrap();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let argument = |name: &str| query.split('&').find_map(|kv| kv.strip_prefix(&format!("{name}=")));
        let status = path.ends_with("/status");
        let writer = Writer {
            manager: argument("fieldManager").unwrap_or_default(),
            api_version: "g{nonce}.example.com/v1",
            subresource: if status { "status" } else { "" },
            resets: if status { &["spec"] } else { &["status"] },
            now: Timestamp::from_second(1_700_000_000 + self.clock).unwrap(),
        };
        let body = &step["body"];
        match (step["do"].as_str().unwrap(), step["type"].as_str().unwrap_or_default(), &self.live) {
            ("GET", _, Some(_)) => (200, json!({"kind": "Thing"})),
            ("PATCH", "application/apply-patch+yaml", live) if live.is_some() || !status => {
                let force = argument("force") == Some("true");
                match apply(self.live.as_ref(), body, &self.schema, &writer, force) {
                    Ok(new) => self.store(new, status),
                    Err(ApplyError::Conflicts(conflicts)) => {
                        let causes = conflicts
                            .iter()
                            .map(|c| json!({"reason": "FieldManagerConflict", "field": c.field}));
                        (409, json!({"details": {"causes": causes.collect::<Vec<_>>()}}))
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            (_, _, None) => (404, Value::Null),
            ("PATCH", "application/merge-patch+json", Some(live)) => {
                let mut new = live.clone();
                merge_patch(&mut new, body);
                self.write(new, &writer)
            }
            ("PATCH", "application/json-patch+json", Some(live)) => {
                let mut new = live.clone();
                for op in body.as_array().unwrap() {
                    assert_eq!((&op["op"], &op["path"]), (&json!("add"), &json!("/spec/a")));
                    new["spec"]["a"] = op["value"].clone();
                }
                self.write(new, &writer)
            }
            ("PUT", _, Some(_)) => self.write(body.clone(), &writer),
            (verb, kind, _) => panic!("nothing answers {verb} {kind}"),
        }
    }

    fn write(&mut self, mut new: Value, writer: &Writer<'_>) -> Answer {
        self.schema.prune(&mut new);
        self.schema.default(&mut new);
        update(self.live.as_ref(), &mut new, &self.schema, writer);
        self.store(new, !writer.subresource.is_empty())
    }

    /// What the storage does: identity, generation, the part the endpoint may not touch, validation.
    fn store(&mut self, mut new: Value, status: bool) -> Answer {
        let created = self.live.is_none();
        if let Some(live) = &self.live {
            if status {
                let managed = new["metadata"]["managedFields"].clone();
                let written = new.get("status").cloned();
                new = live.clone();
                new["metadata"]["managedFields"] = managed;
                put(&mut new, "status", written);
            } else {
                put(&mut new, "status", live.get("status").cloned());
            }
        } else {
            put(&mut new, "status", None);
        }
        let errors = self.schema.validate(&new, self.live.as_ref());
        if !errors.is_empty() {
            let causes = errors.iter().map(|e| json!({"reason": e.reason.as_str(), "field": e.field}));
            return (422, json!({"details": {"causes": causes.collect::<Vec<_>>()}}));
        }
        let generation = match &self.live {
            None => 1,
            Some(live) => {
                let before = live["metadata"]["generation"].as_i64().unwrap();
                before + i64::from(live.get("spec") != new.get("spec"))
            }
        };
        for (key, value) in [
            ("namespace", json!("{ns}")),
            ("uid", json!("<set>")),
            ("resourceVersion", json!("<set>")),
            ("creationTimestamp", json!("<set>")),
            ("generation", json!(generation)),
        ] {
            new["metadata"][key] = value;
        }
        self.live = Some(new.clone());
        (if created { 201 } else { 200 }, new)
    }
}

fn put(object: &mut Value, key: &str, value: Option<Value>) {
    let map = object.as_object_mut().unwrap();
    match value {
        Some(value) => _ = map.insert(key.to_owned(), value),
        None => _ = map.remove(key),
    }
}

fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (key, value) in patch {
        let map = target.as_object_mut().unwrap();
        if value.is_null() {
            map.remove(key);
        } else {
            merge_patch(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Times become `<set>`, and lists whose order a real server does not fix are sorted.
fn normal(mut value: Value) -> Value {
    if let Some(entries) = value.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) {
        for entry in entries.iter_mut().filter(|e| e.get("time").is_some()) {
            entry["time"] = json!("<set>");
        }
        entries.sort_by_key(Value::to_string);
    }
    value
}

fn causes(body: &Value) -> Vec<String> {
    let mut causes: Vec<String> = body
        .pointer("/details/causes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(Value::to_string)
        .collect();
    causes.sort();
    causes
}

fn replay(name: &str, steps: &[Value]) -> Vec<String> {
    let schema = &steps[0]["body"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut world = World { schema: Schema::compile(schema, "s").unwrap(), live: None, clock: 0 };
    let mut wrong = Vec::new();
    let about_thing = |s: &&Value| s["path"].as_str().is_some_and(|p| p.contains("/things/t"));
    for (i, step) in steps.iter().enumerate().filter(|(_, s)| about_thing(s)) {
        let (want_status, want) = (step["expect"]["status"].as_u64().unwrap(), &step["expect"]["body"]);
        let (status, got) = world.answer(step);
        let good = match status {
            200 | 201 if step["do"] == "GET" => status == want_status,
            200 | 201 => status == want_status && normal(got.clone()) == normal(want.clone()),
            _ => status == want_status && causes(&got) == causes(want),
        };
        if !good {
            wrong.push(format!(
                "{name} step {i}:\n want {want_status} {}\n got  {status} {}",
                normal(want.clone()),
                normal(got)
            ));
            break;
        }
    }
    wrong
}

#[test]
fn ownership_comes_out_as_a_real_server_recorded_it() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ownership");
    let mut wrong = Vec::new();
    let mut replayed = 0;
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for file in files {
        let conversation: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        wrong.extend(replay(&name, conversation["steps"].as_array().unwrap()));
        replayed += 1;
    }
    assert!(replayed >= 26);
    assert!(wrong.is_empty(), "{} of {replayed} differ\n{}", wrong.len(), wrong.join("\n"));
}
