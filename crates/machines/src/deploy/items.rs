//! What does an Execution's item list say: which items, in which order, as which objects, and what is wrong with it?
//!
//! The list is plain or, where it would be too large, base64 of the gzip of the same JSON. Reading it takes as long as a
//! hundred looks at ten thousand items, so an Execution keeps what was read from one look to the next (`execution/family.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use pawl_api::deploy::execution::{MAX_ITEMS, MAX_PLAIN_ITEMS_BYTES};
use pawl_api::deploy::{
    DeployItem, DeployItemSpec, DeployItemTemplate, Execution, FINALIZER, annotations, deploy_item, labels,
};
use pawl_api::meta::names;
use serde_json::{Map, Value, json};

use super::graph::Graph;
use crate::apply::difference;
use crate::dag::{self, Node};
use crate::object::Object;

/// What a compressed list may unpack to: ten thousand items of a generous size. More is a bomb.
const MAX_UNPACKED_BYTES: usize = 32 * 1024 * 1024;

/// Up to here an annotation lists dependencies by name. Longer lists hold hashes: annotations may have 256 KiB in all,
/// and ten thousand hashes of 12 bytes are less than half of that.
const MAX_NAMED_BYTES: usize = 32 * 1024;

/// How many empty names, repeated targets and the like are told.
const MAX_TOLD: usize = 10;

/// A list without faults.
#[derive(Debug, Default)]
pub struct Items {
    pub list: Vec<Item>,
    pub graph: Graph,
    /// What identifies the list: two lists with the same hash are the same.
    pub hash: String,
    /// The numbers of the objects, by [`spread`] of their names: these begin alike, and every look asks for each of them.
    numbers: Vec<(u64, usize)>,
}

#[derive(Debug)]
pub struct Item {
    pub template: DeployItemTemplate,
    /// What its DeployItem is called.
    pub object: String,
}

/// All that is wrong with a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

impl Items {
    /// The number of the item that an object of this name belongs to.
    pub fn number(&self, object: &str) -> Option<usize> {
        let wanted = spread(object);
        let first = self.numbers.partition_point(|(spread, _)| *spread < wanted);
        let alike = self.numbers.iter().skip(first).take_while(|(spread, _)| *spread == wanted);
        let is_it = |at: &usize| self.list.get(*at).is_some_and(|item| item.object == object);
        alike.map(|(_, at)| *at).find(is_it)
    }
}

/// The list of an Execution.
///
/// # Errors
/// With all that is wrong with it.
pub fn read(execution: &Execution) -> Result<Items, Invalid> {
    let list = match &execution.spec.deploy_items_compressed {
        Some(packed) if execution.spec.deploy_items.is_empty() => unpack(packed)?,
        Some(_) => {
            return Err(Invalid("spec: write either deployItems or deployItemsCompressed".to_owned()));
        }
        None => execution.spec.deploy_items.clone(),
    };
    let meta = &execution.metadata;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    prepare(list, &text(&meta.namespace), &text(&meta.name), &text(&meta.uid))
}

/// How a list is written into an Execution's spec: plainly unless it would be too large.
///
/// # Errors
/// When it cannot be written at all.
pub fn pack(list: &[DeployItemTemplate]) -> Result<Map<String, Value>, Invalid> {
    let unwritable =
        |problem: &dyn std::fmt::Display| Invalid(format!("the items cannot be written: {problem}"));
    let text = serde_json::to_vec(list).map_err(|error| unwritable(&error))?;
    let (field, value) = if text.len() <= MAX_PLAIN_ITEMS_BYTES {
        ("deployItems", serde_json::to_value(list).map_err(|error| unwritable(&error))?)
    } else {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&text).map_err(|error| unwritable(&error))?;
        let packed = encoder.finish().map_err(|error| unwritable(&error))?;
        ("deployItemsCompressed", STANDARD.encode(packed).into())
    };
    Ok([(field.to_owned(), value)].into_iter().collect())
}

fn unpack(packed: &str) -> Result<Vec<DeployItemTemplate>, Invalid> {
    let field = "spec.deployItemsCompressed";
    let bytes = STANDARD
        .decode(packed.trim())
        .map_err(|error| Invalid(format!("{field}: it is not base64: {error}")))?;
    let mut text = Vec::new();
    let limit = MAX_UNPACKED_BYTES as u64 + 1;
    GzDecoder::new(bytes.as_slice())
        .take(limit)
        .read_to_end(&mut text)
        .map_err(|error| Invalid(format!("{field}: it is not gzip: {error}")))?;
    if text.len() > MAX_UNPACKED_BYTES {
        return Err(Invalid(format!("{field}: it unpacks to more than {MAX_UNPACKED_BYTES} bytes")));
    }
    serde_json::from_slice(&text)
        .map_err(|error| Invalid(format!("{field}: it is no list of items: {error}")))
}

fn prepare(list: Vec<DeployItemTemplate>, namespace: &str, name: &str, uid: &str) -> Result<Items, Invalid> {
    let problems = problems(&list, namespace);
    if !problems.is_empty() {
        return Err(Invalid(problems.join("; ")));
    }
    let text = serde_json::to_string(&list).map_err(|error| Invalid(error.to_string()))?;
    let by_name: BTreeMap<&str, usize> =
        list.iter().enumerate().map(|(at, item)| (item.name.as_str(), at)).collect();
    let before = list.iter().map(|item| {
        item.depends_on.iter().filter_map(|other| by_name.get(other.as_str()).copied()).collect()
    });
    let graph = Graph::of(before.collect());
    let items = list.into_iter().map(|template| {
        let object = deploy_item::name(name, uid, &template.name);
        Item { template, object }
    });
    let list: Vec<Item> = items.collect();
    let mut numbers: Vec<(u64, usize)> =
        list.iter().enumerate().map(|(at, item)| (spread(&item.object), at)).collect();
    numbers.sort_unstable();
    Ok(Items { graph, hash: names::hash(&[&text], 32), numbers, list })
}

/// A number that differs for most names (FNV-1a).
fn spread(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// All of it at once, so that a person mends it in one go.
fn problems(list: &[DeployItemTemplate], namespace: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if list.len() > MAX_ITEMS {
        problems.push(format!("{} items are too many; at most {MAX_ITEMS} are allowed", list.len()));
        return problems;
    }
    let mut told = |those: Vec<String>| problems.extend(those.into_iter().take(MAX_TOLD));
    let places = |wrong: &dyn Fn(&DeployItemTemplate) -> bool, what: &str| -> Vec<String> {
        let found = list.iter().enumerate().filter(|(_, item)| wrong(item));
        found.map(|(at, item)| format!("spec.deployItems[{at}] {:?}: {what}", item.name)).collect()
    };
    told(places(&|item| item.name.is_empty(), "the name is empty"));
    told(places(&|item| item.type_.is_empty(), "the type is empty"));
    told(places(
        &|item| item.target.as_ref().is_some_and(|target| target.name.is_empty()),
        "the target has no name",
    ));
    told(places(
        &|item| {
            let elsewhere = item.target.as_ref().and_then(|target| target.namespace.as_deref());
            elsewhere.is_some_and(|elsewhere| !elsewhere.is_empty() && elsewhere != namespace)
        },
        "the target is in another namespace",
    ));
    told(places(&|item| item.retries.is_some_and(|retries| retries < 0), "retries cannot be negative"));
    let nodes: Vec<Node<'_>> = list
        .iter()
        .filter(|item| !item.name.is_empty())
        .map(|item| Node::new(&item.name, item.depends_on.iter().map(String::as_str)))
        .collect();
    if let Err(found) = dag::classes(&nodes) {
        problems.push(found.to_string());
    }
    problems
}

/// The DeployItem of an item as it should be when it is made.
pub fn manifest(execution: &Object, context: Option<&str>, item: &Item) -> Value {
    let Desired { labels, annotations, spec } = Desired::of(execution, context, item);
    json!({
        "metadata": {
            "name": item.object, "labels": labels, "annotations": annotations, "finalizers": [FINALIZER],
        },
        "spec": spec,
    })
}

/// What has to change in a DeployItem that is there; `None` when it is as it should be.
pub fn update(
    execution: &Object,
    context: Option<&str>,
    item: &Item,
    object: &Object,
    found: &DeployItem,
) -> Option<Value> {
    let Desired { labels, annotations, spec } = Desired::of(execution, context, item);
    let mut patch = Map::new();
    let missing =
        |wanted: &BTreeMap<String, String>, there: &dyn Fn(&str) -> Option<String>| -> Map<String, Value> {
            let wrong = wanted.iter().filter(|(key, value)| there(key).as_ref() != Some(*value));
            wrong.map(|(key, value)| (key.clone(), value.clone().into())).collect()
        };
    let mut metadata = Map::new();
    let wrong = missing(&labels, &|key| object.label(key).map(str::to_owned));
    if !wrong.is_empty() {
        metadata.insert("labels".to_owned(), wrong.into());
    }
    let wrong = missing(&annotations, &|key| object.annotation(key).map(str::to_owned));
    if !wrong.is_empty() {
        metadata.insert("annotations".to_owned(), wrong.into());
    }
    if !object.has_finalizer(FINALIZER) {
        let finalizers = object.finalizers().iter().map(String::as_str).chain([FINALIZER]);
        metadata.insert("finalizers".to_owned(), finalizers.collect::<Vec<_>>().into());
    }
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), metadata.into());
    }
    if found.spec != spec {
        let before = object.raw().get("spec").unwrap_or(&Value::Null);
        let after = serde_json::to_value(&spec).unwrap_or_default();
        patch.extend(difference(before, &after).map(|changes| ("spec".to_owned(), changes)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

struct Desired {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    spec: DeployItemSpec,
}

impl Desired {
    fn of(execution: &Object, context: Option<&str>, item: &Item) -> Self {
        let template = &item.template;
        let mut labels = template.labels.clone();
        labels.insert(labels::MANAGED_BY.to_owned(), names::label_value(execution.name()));
        labels.insert(labels::NAME.to_owned(), names::label_value(&template.name));
        let mut annotations = template.annotations.clone();
        annotations.insert(annotations::DEPENDS_ON.to_owned(), depends_on(execution, &template.depends_on));
        let spec = DeployItemSpec {
            type_: template.type_.clone(),
            target: template.target.clone(),
            context: context.map(str::to_owned),
            config: template.config.clone(),
            timeout: template.timeout,
            update_on_change_only: template.update_on_change_only,
            retries: template.retries,
        };
        Self { labels, annotations, spec }
    }
}

/// Names if they fit, else the hash with which each one's object name ends.
fn depends_on(execution: &Object, names: &[String]) -> String {
    let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let text = json!(names).to_string();
    if text.len() <= MAX_NAMED_BYTES {
        return text;
    }
    let hashes = names.iter().map(|name| {
        let object = deploy_item::name(execution.name(), execution.uid(), name);
        format!("#{}", hash_of(&object))
    });
    json!(hashes.collect::<Vec<_>>()).to_string()
}

/// The end of an object's name, which tells it from its siblings.
fn hash_of(object: &str) -> &str {
    object.rsplit_once('-').map_or(object, |(_, hash)| hash)
}

/// Who depended on whom among objects that are there, by what they say themselves: numbers are places in the list.
pub fn graph_of(execution: &Object, objects: &[&Object]) -> Graph {
    let by_name: BTreeMap<&str, usize> =
        objects.iter().enumerate().map(|(at, object)| (object.name(), at)).collect();
    let by_hash: BTreeMap<&str, usize> =
        objects.iter().enumerate().map(|(at, object)| (hash_of(object.name()), at)).collect();
    let before = objects.iter().map(|object| {
        let text = object.annotation(annotations::DEPENDS_ON).unwrap_or("[]");
        // Somebody's scribbling in an annotation is no dependency.
        let names: Vec<String> = serde_json::from_str(text).unwrap_or_default();
        let numbers = names.iter().filter_map(|name| match name.strip_prefix('#') {
            Some(hash) => by_hash.get(hash).copied(),
            None => by_name.get(deploy_item::name(execution.name(), execution.uid(), name).as_str()).copied(),
        });
        numbers.collect()
    });
    Graph::of(before.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::graph::{Direction, Next, Standing, next};
    use pawl_api::deploy::execution::KIND;

    fn template(name: &str, depends_on: &[&str]) -> DeployItemTemplate {
        DeployItemTemplate {
            name: name.to_owned(),
            type_: "t".to_owned(),
            depends_on: depends_on.iter().map(|other| (*other).to_owned()).collect(),
            ..DeployItemTemplate::default()
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is written in place, as json!")]
    fn of(spec: Value) -> Result<Items, Invalid> {
        let raw = json!({"apiVersion": KIND.api_version(), "kind": KIND.kind,
            "metadata": {"name": "e", "namespace": "n", "uid": "u"}, "spec": spec});
        read(&serde_json::from_value(raw).unwrap())
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let spec = json!({"deployItems": [
            {"name": "", "type": "t"}, {"name": "a", "type": "t", "dependsOn": ["b", "x"]},
            {"name": "b", "type": "t", "dependsOn": ["a"]}, {"name": "a", "type": "t"},
            {"name": "c", "type": "", "target": {"name": ""}, "retries": -1},
            {"name": "d", "type": "t", "target": {"name": "t", "namespace": "other"}},
        ]});
        let Invalid(told) = of(spec).unwrap_err();
        assert_eq!(
            told,
            "spec.deployItems[0] \"\": the name is empty; spec.deployItems[4] \"c\": the type is empty; \
             spec.deployItems[4] \"c\": the target has no name; \
             spec.deployItems[5] \"d\": the target is in another namespace; \
             spec.deployItems[4] \"c\": retries cannot be negative; \
             \"a\" is there more than once"
        );
        let knot = json!({"deployItems": [{"name": "a", "type": "t", "dependsOn": ["b"]},
            {"name": "b", "type": "t", "dependsOn": ["a", "x"]}]});
        let Invalid(told) = of(knot).unwrap_err();
        assert_eq!(told, "\"b\" depends on \"x\", which is not there; a -> b -> a is a cycle");
    }

    #[test]
    fn a_list_is_the_same_however_it_is_written() {
        let big: Vec<_> = (0..6_000)
            .map(|at| {
                let mut item = template(&format!("item-{at}"), &[]);
                item.config.insert("text".to_owned(), "x".repeat(100).into());
                item
            })
            .collect();
        let packed = pack(&big).unwrap();
        let text = packed["deployItemsCompressed"].as_str().unwrap();
        assert!(text.len() < 100_000);
        let unpacked = of(Value::Object(packed.clone())).unwrap();
        assert_eq!(unpacked.list.len(), 6_000);
        assert!(unpacked.list.iter().enumerate().all(|(at, item)| unpacked.number(&item.object) == Some(at)));
        assert_eq!(unpacked.number("somebody-elses"), None);
        let plain = of(json!({"deployItems": big})).unwrap();
        assert_eq!(unpacked.hash, plain.hash);
        assert!(pack(&big[..10]).unwrap().contains_key("deployItems"));
    }

    #[test]
    fn what_does_not_unpack_is_a_problem_that_is_told() {
        let check = |text: &str, expect: &str| {
            let Invalid(told) = of(json!({"deployItemsCompressed": text})).unwrap_err();
            assert!(told.contains(expect), "{told}");
        };
        check("???", "not base64");
        check("aGVsbG8=", "not gzip");
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&vec![b' '; MAX_UNPACKED_BYTES + 2]).unwrap();
        check(&STANDARD.encode(encoder.finish().unwrap()), "more than");
    }

    #[test]
    fn an_object_that_is_as_it_should_be_is_not_written() {
        let items = of(json!({"deployItems": [
            {"name": "a", "type": "t", "labels": {"x": "y"}, "config": {"k": [1]}, "timeout": "5m"},
            {"name": "b", "type": "t", "dependsOn": ["a"]}]}))
        .unwrap();
        let raw = json!({"metadata": {"name": "e", "namespace": "n", "uid": "u"}});
        let execution = Object::new(KIND, raw).unwrap();
        let made = manifest(&execution, Some("default"), &items.list[0]);
        let object = Object::new(deploy_item::KIND, made.clone()).unwrap();
        let found = object.parse::<DeployItem>().unwrap();
        assert_eq!(items.number(object.name()), Some(0));
        let changes = |item| update(&execution, Some("default"), item, &object, &found);
        assert_eq!(changes(&items.list[0]), None);
        let mut other = made.clone();
        other["metadata"]["labels"]["x"] = "z".into();
        other["spec"]["config"]["old"] = true.into();
        let object = Object::new(deploy_item::KIND, other).unwrap();
        let found = object.parse::<DeployItem>().unwrap();
        assert_eq!(
            update(&execution, Some("default"), &items.list[0], &object, &found),
            Some(json!({"metadata": {"labels": {"x": "y"}}, "spec": {"config": {"old": null}}}))
        );
    }

    #[test]
    fn the_order_survives_in_the_objects_whether_by_name_or_by_hash() {
        let raw = json!({"metadata": {"name": "e", "namespace": "n", "uid": "u"}});
        let execution = Object::new(KIND, raw).unwrap();
        let names: Vec<String> =
            (0..3_000).map(|at| format!("an-item-with-a-name-of-some-length-{at}")).collect();
        let mut list: Vec<_> = names.iter().map(|name| template(name, &[])).collect();
        list.push(template("join", &names.iter().map(String::as_str).collect::<Vec<_>>()));
        let items = prepare(list, "n", "e", "u").unwrap();
        let objects: Vec<_> = items
            .list
            .iter()
            .map(|item| Object::new(deploy_item::KIND, manifest(&execution, None, item)).unwrap())
            .collect();
        assert!(objects[3_000].annotation(annotations::DEPENDS_ON).unwrap().len() < 64 * 1024);
        let graph = graph_of(&execution, &objects.iter().map(|object| &**object).collect::<Vec<_>>());
        assert_eq!(graph, items.graph);
        assert_eq!(
            next(&graph, Direction::TakeDown, &[Standing::Waiting; 3_001]),
            Next::Trigger(vec![3_000])
        );
    }
}
