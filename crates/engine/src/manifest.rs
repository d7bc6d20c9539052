//! What is kept of an object that an API server sent? Its text, without what nobody decides by.
//!
//! Most versions of most objects are never looked into: of each, its metadata is read, and the rest stays as it came until
//! a machine asks for the type it understands.

use std::sync::Arc;

use pawl_api::meta::Kind;
use pawl_machines::machine::Depth;
use pawl_machines::object::{Key, Malformed, Object};
use serde_json::Value;

use crate::outline::{self, is_named};

/// An object that cannot be kept, as far as it is known.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) key: Option<Key>,
    pub(crate) resource_version: Option<String>,
    pub(crate) malformed: Malformed,
}

/// Reads one object, as deep as it is wanted.
pub(crate) fn read(kind: &Arc<Kind>, depth: Depth, object: &[u8]) -> Result<Arc<Object>, Box<Unreadable>> {
    let Some(members) = outline::members(object) else {
        let metadata = outline::member(object, "metadata").unwrap_or(b"null");
        let problem = "it is no object, or nested too deep to be read";
        return Err(Box::new(unreadable(kind, &without_managed_fields(metadata), problem)));
    };
    let metadata = members.iter().find(|(name, _)| is_named(name, "metadata"));
    let metadata = without_managed_fields(metadata.map_or(b"null", |(_, value)| *value));
    let whole = |name: &str| match depth {
        Depth::Metadata => false,
        Depth::Named(wanted) => name == wanted,
        Depth::Full => true,
    };
    let text = |name: &str| whole(name).then(|| text(kind, &metadata, &members));
    Object::compact(Arc::clone(kind), &metadata, text)
        .map_err(|malformed| Box::new(Unreadable { malformed, ..unreadable(kind, &metadata, "") }))
}

/// Often half of an object, and nobody decides by it.
fn without_managed_fields(metadata: &[u8]) -> Vec<u8> {
    // What is no object is told to be none by whoever reads it.
    let Some(members) = outline::members(metadata) else { return metadata.to_vec() };
    let mut kept = Vec::with_capacity(metadata.len());
    for (name, value) in members.into_iter().filter(|(name, _)| !is_named(name, "managedFields")) {
        kept.push(if kept.is_empty() { b'{' } else { b',' });
        for part in [name, b":", value] {
            kept.extend_from_slice(part);
        }
    }
    if kept.is_empty() {
        kept.push(b'{');
    }
    kept.push(b'}');
    kept
}

/// Items of a list do not say what they are, and some types want to know: so every text says it, first.
fn text(kind: &Kind, metadata: &[u8], members: &[outline::Member<'_>]) -> Box<[u8]> {
    let said = |(name, _): &&outline::Member<'_>| {
        ["apiVersion", "kind", "metadata"].iter().any(|said| is_named(name, said))
    };
    let others = || members.iter().filter(|member| !said(member));
    let names = format!(
        "{{\"apiVersion\":{},\"kind\":{},\"metadata\":",
        quoted(&kind.api_version()),
        quoted(&kind.kind)
    );
    let length = others().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
    let mut text = Vec::with_capacity(names.len() + metadata.len() + length + 1);
    text.extend_from_slice(names.as_bytes());
    text.extend_from_slice(metadata);
    for (name, value) in others() {
        for part in [b",", *name, b":", *value] {
            text.extend_from_slice(part);
        }
    }
    text.push(b'}');
    text.into_boxed_slice()
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn unreadable(kind: &Kind, metadata: &[u8], problem: &str) -> Unreadable {
    let metadata: Value = serde_json::from_slice(metadata).unwrap_or_default();
    let said = |field: &str| metadata.get(field).and_then(Value::as_str).map(str::to_owned);
    let key = said("name").map(|name| Key { namespace: said("namespace"), name });
    let name = key.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
    Unreadable {
        key,
        resource_version: said("resourceVersion"),
        malformed: Malformed { kind: kind.to_string(), name, problem: problem.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const POD: Kind = Kind::of("", "v1", "Pod", "pods", true);

    fn read_as(depth: Depth, object: &Value) -> Result<Arc<Object>, Box<Unreadable>> {
        read(&Arc::new(POD), depth, object.to_string().as_bytes())
    }

    #[test]
    fn an_object_is_kept_as_it_came_but_for_what_nobody_decides_by() {
        let mut sent = json!({"spec": {"a": ["]}", {"b": null}]}, "metadata": {"name": "p", "uid": "u",
            "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]}, "status": {"phase": "x"}});
        let kept = read_as(Depth::Full, &sent).unwrap();
        sent["metadata"].as_object_mut().unwrap().remove("managedFields");
        sent["apiVersion"] = "v1".into();
        sent["kind"] = "Pod".into();
        assert_eq!((kept.raw(), kept.uid()), (&sent, "u"));
        // Events say what they are; it is not said twice.
        assert_eq!(read_as(Depth::Full, &sent).unwrap().raw(), &sent);
    }

    #[test]
    fn of_what_is_only_counted_and_of_all_but_one_name_the_metadata_is_kept() {
        let sent = json!({"metadata": {"name": "p"}, "spec": {"a": 1}});
        let has_spec = |depth| read_as(depth, &sent).unwrap().raw().get("spec").is_some();
        assert!(has_spec(Depth::Full) && has_spec(Depth::Named("p")));
        assert!(!has_spec(Depth::Metadata) && !has_spec(Depth::Named("q")));
    }

    #[test]
    fn what_cannot_be_read_is_known_by_its_name() {
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        let deep = format!(r#"{{"metadata": {{"name": "deep"}}, "spec": {deep}}}"#);
        let unreadable = read(&Arc::new(POD), Depth::Full, deep.as_bytes()).unwrap_err();
        assert_eq!(
            (unreadable.key, unreadable.malformed.name.as_str()),
            (Some(Key::new(None, "deep")), "deep")
        );
        for metadata in [json!({"name": "p", "labels": 7}), json!({"name": "p", "resourceVersion": 7})] {
            let unreadable = read_as(Depth::Full, &json!({"metadata": metadata})).unwrap_err();
            assert_eq!(unreadable.key, Some(Key::new(None, "p")));
        }
        for nameless in [json!({}), json!({"metadata": {}}), json!({"metadata": []}), json!(7)] {
            assert_eq!(read_as(Depth::Metadata, &nameless).unwrap_err().key, None, "{nameless}");
        }
        assert!(
            read(&Arc::new(POD), Depth::Full, b"{\"metadata\": {\"name\": \"p\"}, \"spec\": {1").is_err()
        );
    }
}
