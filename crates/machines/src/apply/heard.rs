//! What of an answer matters? Who the object is, and in which version: the rest, often a hundred times as much, is not
//! even read into memory.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Answer {
    kind: Option<Value>,
    metadata: Option<Metadata>,
    /// Of the `Status` that some deletes are answered with.
    details: Option<Value>,
    /// Of a list.
    items: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: Option<Value>,
    resource_version: Option<Value>,
    deletion_timestamp: Option<Value>,
    labels: Option<Value>,
    owner_references: Option<Value>,
}

/// An answer, as far as anything is decided by it.
///
/// # Errors
/// When it is not JSON, or no object of Kubernetes.
pub(super) fn read(body: &[u8]) -> Result<Value, serde_json::Error> {
    let Answer { kind, metadata, details, items } = serde_json::from_slice(body)?;
    let metadata = metadata.map(|metadata| {
        let Metadata { uid, resource_version, deletion_timestamp, labels, owner_references } = metadata;
        Value::Object(members([
            ("uid", uid),
            ("resourceVersion", resource_version),
            ("deletionTimestamp", deletion_timestamp),
            ("labels", labels),
            ("ownerReferences", owner_references),
        ]))
    });
    let items = items.map(|items| Value::Array(vec![Value::Null; items.len()]));
    let all = [("kind", kind), ("metadata", metadata), ("details", details), ("items", items)];
    Ok(Value::Object(members(all)))
}

fn members<const N: usize>(members: [(&str, Option<Value>); N]) -> Map<String, Value> {
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn of_an_answer_only_what_is_decided_by_is_read() {
        let metadata = json!({"uid": "u", "resourceVersion": "7", "labels": {"a": "b"}});
        let mut sent = json!({"kind": "Job", "metadata": metadata, "spec": {"x": [1, 2, {"y": "z"}]}});
        sent["metadata"]["managedFields"] = json!([{"manager": "somebody"}]);
        let heard = read(sent.to_string().as_bytes()).unwrap();
        assert_eq!(heard, json!({"kind": "Job", "metadata": metadata}));
        let list = json!({"kind": "JobList", "metadata": {"resourceVersion": "7"}, "items": [{}, {}]});
        assert_eq!(read(list.to_string().as_bytes()).unwrap()["items"].as_array().unwrap().len(), 2);
        assert!(read(b"{\"kind\": \"Job\"").is_err() && read(b"[]").is_err());
    }
}
