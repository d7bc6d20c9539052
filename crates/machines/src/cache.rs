//! What was last seen of each object: the store behind every view.
//!
//! One [`Cache`] holds one kind, indexed by owner and by the labels asked for, so that finding a unit's children costs
//! what it has, not what the cluster has. What is asked for by its name or UID, which every look and every event does, is
//! found by a hash: that costs the same however much there is. [`World`] is a view over several, for tests and the inner
//! simulator; the loop keeps one per informer.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};
use pawl_api::meta::Kind;
use serde_json::Value;

use crate::machine::Line;
use crate::object::{Key, Malformed, Object, Rest, Spot};
use crate::view::{Served, View, group_of};

/// The objects of one kind.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    /// By namespace, the empty one for what has none; in each as they came, and sorted for who lists them.
    spaces: BTreeMap<String, IndexSet<ByName>>,
    by_uid: IndexSet<ByUid>,
    by_owner: Index,
    by_label: BTreeMap<&'static str, Index>,
    lines: Vec<Kept>,
}

/// What letting some of a cache rest came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// Where to go on; `None`: all have been asked.
    pub next: Option<Next>,
    /// Some were looked into a short while ago: they are to be asked again.
    pub awake: bool,
}

/// Where a round ended. Objects that come and go meanwhile may be passed over: they are asked in the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    namespace: String,
    at: usize,
}

/// Who stands in a line, by owner.
#[derive(Clone, Debug)]
struct Kept {
    line: Line,
    by_owner: IndexMap<String, BTreeMap<Spot, Arc<Object>>>,
}

/// Objects by what they say, themselves and not their keys: whoever asks for a thousand does not search for each.
type Index = IndexMap<String, BTreeSet<ByKey>>;

/// An object in the order of keys, of which it is not kept a second copy.
#[derive(Clone, Debug)]
struct ByKey(Arc<Object>);

/// An object by its name.
#[derive(Clone, Debug)]
struct ByName(Arc<Object>);

/// An object by its UID.
#[derive(Clone, Debug)]
struct ByUid(Arc<Object>);

impl Cache {
    /// Adds an index for a label; objects already here are indexed too.
    pub fn index(&mut self, label: &'static str) {
        if self.by_label.contains_key(label) {
            return;
        }
        let mut index = Index::new();
        for object in self.objects() {
            if let Some(value) = object.label(label) {
                enter(&mut index, value, object);
            }
        }
        self.by_label.insert(label, index);
    }

    /// Keeps a line; objects already here stand in it too.
    pub fn keep_line(&mut self, line: Line) {
        if self.lines.iter().any(|kept| kept.line == line) {
            return;
        }
        let mut kept = Kept { line, by_owner: IndexMap::new() };
        self.objects().filter(|object| (line.stands)(object)).for_each(|object| kept.enter(object));
        self.lines.push(kept);
    }

    /// Takes a version of an object; returns the one it replaces.
    pub fn put(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        // Asked first: should somebody's function panic, nothing is half done.
        let stands: Vec<bool> = self.lines.iter().map(|kept| (kept.line.stands)(&object)).collect();
        let namespace = object.namespace().unwrap_or_default();
        let before = match self.spaces.get_mut(namespace) {
            Some(space) => space.replace(ByName(Arc::clone(&object))),
            None => {
                self.spaces.entry(namespace.to_owned()).or_default().insert(ByName(Arc::clone(&object)));
                None
            }
        };
        let before = before.map(|ByName(before)| before);
        if let Some(before) = &before {
            self.unindex(before);
        }
        for (kept, _) in self.lines.iter_mut().zip(stands).filter(|(_, stands)| *stands) {
            kept.enter(&object);
        }
        for owner in object.owners() {
            enter(&mut self.by_owner, &owner.uid, &object);
        }
        for (label, index) in &mut self.by_label {
            if let Some(value) = object.label(label) {
                enter(index, value, &object);
            }
        }
        self.by_uid.replace(ByUid(object));
        before
    }

    /// Lets those rest that nobody has looked into since this was asked last: so many of them, from where a round ended.
    pub fn rest(&mut self, from: &Next, at_most: usize) -> Round {
        let (mut next, mut awake, mut resting) = (None, false, Vec::new());
        let spaces = self.spaces.range(from.namespace.clone()..);
        let all = spaces.flat_map(|(namespace, space)| {
            let passed = if *namespace == from.namespace { from.at } else { 0 };
            space.iter().enumerate().skip(passed).map(move |(at, ByName(object))| (namespace, at, object))
        });
        for (count, (namespace, at, object)) in all.enumerate() {
            if count == at_most {
                next = Some(Next { namespace: namespace.clone(), at });
                break;
            }
            match object.rested() {
                Rest::Rests => {}
                Rest::Awake => awake = true,
                Rest::Now(rested) => resting.push(rested),
            }
        }
        resting.iter().for_each(|object| self.exchange(object));
        Round { next, awake }
    }

    /// Keeps another reading of a version that is here: it stands where that one stood.
    fn exchange(&mut self, object: &Arc<Object>) {
        if let Some(space) = self.spaces.get_mut(object.namespace().unwrap_or_default()) {
            space.replace(ByName(Arc::clone(object)));
        }
        self.by_uid.replace(ByUid(Arc::clone(object)));
        let spot = Spot::of(object);
        for owner in object.owners() {
            reenter(&mut self.by_owner, &owner.uid, object);
            for kept in &mut self.lines {
                let standing = kept.by_owner.get_mut(&owner.uid).and_then(|all| all.get_mut(&spot));
                if let Some(standing) = standing {
                    *standing = Arc::clone(object);
                }
            }
        }
        for (label, index) in &mut self.by_label {
            if let Some(value) = object.label(label) {
                reenter(index, value, object);
            }
        }
    }

    pub fn remove(&mut self, key: &Key) -> Option<Arc<Object>> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let space = self.spaces.get_mut(namespace)?;
        let ByName(object) = space.swap_take(key.name.as_str())?;
        if space.is_empty() {
            self.spaces.remove(namespace);
        }
        self.unindex(&object);
        Some(object)
    }

    /// Takes a version out of everything but its namespace.
    fn unindex(&mut self, object: &Arc<Object>) {
        self.by_uid.swap_remove(object.uid());
        for owner in object.owners() {
            leave(&mut self.by_owner, &owner.uid, object);
        }
        for (label, index) in &mut self.by_label {
            if let Some(value) = object.label(label) {
                leave(index, value, object);
            }
        }
        self.lines.iter_mut().for_each(|kept| kept.leave(object));
    }

    pub fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.named(key.namespace.as_deref(), &key.name)
    }

    /// The version of an object that is here.
    pub fn known(&self, object: &Object) -> Option<&Arc<Object>> {
        self.named(object.namespace(), object.name())
    }

    fn named(&self, namespace: Option<&str>, name: &str) -> Option<&Arc<Object>> {
        self.spaces.get(namespace.unwrap_or_default())?.get(name).map(|ByName(object)| object)
    }

    pub fn len(&self) -> usize {
        self.spaces.values().map(IndexSet::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.spaces.is_empty()
    }

    /// In key order; `None` is all namespaces.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Arc<Object>> {
        match namespace {
            Some(namespace) => self.spaces.get(namespace).map(in_order).unwrap_or_default(),
            None => self.spaces.values().flat_map(in_order).collect(),
        }
    }

    /// In no order.
    fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.spaces.values().flatten().map(|ByName(object)| object)
    }

    pub fn owned(&self, owner_uid: &str) -> Vec<Arc<Object>> {
        picked(self.by_owner.get(owner_uid))
    }

    /// The same, where they are.
    pub fn visit_owned(&self, owner_uid: &str, visit: &mut dyn FnMut(&Arc<Object>)) {
        let owned = self.by_owner.get(owner_uid).into_iter().flatten();
        owned.map(|ByKey(object)| object).for_each(visit);
    }

    pub fn by_uid(&self, uid: &str) -> Option<&Arc<Object>> {
        self.by_uid.get(uid).map(|ByUid(object)| object)
    }

    /// The first of an owner's objects in a line; `None` also where the line is not kept.
    pub fn first_in_line(&self, line: &Line, owner_uid: &str) -> Option<&Arc<Object>> {
        self.line(line, owner_uid)?.values().next()
    }

    pub fn in_line(&self, line: &Line, owner_uid: &str) -> Vec<Arc<Object>> {
        self.line(line, owner_uid).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    pub fn count_in_line(&self, line: &Line, owner_uid: &str, before: Option<&Spot>) -> usize {
        let Some(standing) = self.line(line, owner_uid) else { return 0 };
        match before {
            Some(before) => standing.range(..before).count(),
            None => standing.len(),
        }
    }

    fn line(&self, line: &Line, owner_uid: &str) -> Option<&BTreeMap<Spot, Arc<Object>>> {
        self.lines.iter().find(|kept| kept.line == *line)?.by_owner.get(owner_uid)
    }

    pub fn labelled(&self, label: &str, value: &str) -> Vec<Arc<Object>> {
        match self.by_label.get(label) {
            Some(index) => picked(index.get(value)),
            None => {
                let all = self.list(None).into_iter();
                all.filter(|object| object.label(label) == Some(value)).collect()
            }
        }
    }
}

impl Kept {
    fn enter(&mut self, object: &Arc<Object>) {
        for owner in object.owners() {
            let standing = self.by_owner.entry(owner.uid.clone()).or_default();
            standing.insert(Spot::of(object), Arc::clone(object));
        }
    }

    fn leave(&mut self, object: &Arc<Object>) {
        for owner in object.owners() {
            if let Some(standing) = self.by_owner.get_mut(&owner.uid) {
                standing.remove(&Spot::of(object));
                if standing.is_empty() {
                    self.by_owner.swap_remove(&owner.uid);
                }
            }
        }
    }
}

impl ByKey {
    fn place(&self) -> (Option<&str>, &str) {
        (self.0.namespace(), self.0.name())
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        self.0.name()
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl Eq for ByName {}

impl Hash for ByName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name().hash(state);
    }
}

impl Borrow<str> for ByUid {
    fn borrow(&self) -> &str {
        self.0.uid()
    }
}

impl PartialEq for ByUid {
    fn eq(&self, other: &Self) -> bool {
        self.0.uid() == other.0.uid()
    }
}

impl Eq for ByUid {}

impl Hash for ByUid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.uid().hash(state);
    }
}

fn in_order(space: &IndexSet<ByName>) -> Vec<Arc<Object>> {
    let mut objects: Vec<Arc<Object>> = space.iter().map(|ByName(object)| Arc::clone(object)).collect();
    objects.sort_unstable_by(|one, other| one.name().cmp(other.name()));
    objects
}

fn picked(found: Option<&BTreeSet<ByKey>>) -> Vec<Arc<Object>> {
    found.into_iter().flatten().map(|ByKey(object)| Arc::clone(object)).collect()
}

fn enter(index: &mut Index, entry: &str, object: &Arc<Object>) {
    match index.get_mut(entry) {
        Some(objects) => objects.insert(ByKey(Arc::clone(object))),
        None => index.entry(entry.to_owned()).or_default().insert(ByKey(Arc::clone(object))),
    };
}

fn reenter(index: &mut Index, entry: &str, object: &Arc<Object>) {
    if let Some(objects) = index.get_mut(entry) {
        objects.replace(ByKey(Arc::clone(object)));
    }
}

fn leave(index: &mut Index, entry: &str, object: &Arc<Object>) {
    if let Some(objects) = index.get_mut(entry) {
        objects.remove(&ByKey(Arc::clone(object)));
        if objects.is_empty() {
            index.swap_remove(entry);
        }
    }
}

/// Several kinds at once.
#[derive(Clone, Debug, Default)]
pub struct World {
    caches: BTreeMap<Kind, Cache>,
    unserved: BTreeSet<Kind>,
}

impl World {
    /// Takes manifests, each with its kind.
    ///
    /// # Errors
    /// When one has no usable metadata.
    pub fn of(manifests: impl IntoIterator<Item = (Kind, Value)>) -> Result<Self, Malformed> {
        let mut world = Self::default();
        for (kind, manifest) in manifests {
            world.put(Object::new(kind, manifest)?);
        }
        Ok(world)
    }

    pub fn put(&mut self, object: Arc<Object>) {
        self.cache(object.kind()).put(object);
    }

    pub fn remove(&mut self, kind: &Kind, key: &Key) -> Option<Arc<Object>> {
        self.caches.get_mut(kind)?.remove(key)
    }

    /// Says that the API server does not have this kind.
    pub fn without(&mut self, kind: Kind) {
        self.unserved.insert(kind);
    }

    /// Says that it has it again.
    pub fn with(&mut self, kind: &Kind) {
        self.unserved.remove(kind);
    }

    pub fn cache(&mut self, kind: &Kind) -> &mut Cache {
        self.caches.entry(kind.clone()).or_default()
    }
}

impl View for World {
    fn get(&self, kind: &Kind, key: &Key) -> Option<Arc<Object>> {
        self.caches.get(kind)?.get(key).cloned()
    }

    fn list(&self, kind: &Kind, namespace: Option<&str>) -> Vec<Arc<Object>> {
        self.caches.get(kind).map(|cache| cache.list(namespace)).unwrap_or_default()
    }

    fn is_empty(&self, kind: &Kind) -> bool {
        self.caches.get(kind).is_none_or(Cache::is_empty)
    }

    fn owned(&self, kind: &Kind, owner_uid: &str) -> Vec<Arc<Object>> {
        self.caches.get(kind).map(|cache| cache.owned(owner_uid)).unwrap_or_default()
    }

    fn visit_owned(&self, kind: &Kind, owner_uid: &str, visit: &mut dyn FnMut(&Arc<Object>)) {
        if let Some(cache) = self.caches.get(kind) {
            cache.visit_owned(owner_uid, visit);
        }
    }

    fn labelled(&self, kind: &Kind, label: &str, value: &str) -> Vec<Arc<Object>> {
        self.caches.get(kind).map(|cache| cache.labelled(label, value)).unwrap_or_default()
    }

    fn dependents(&self, owner_uid: &str) -> Vec<Arc<Object>> {
        self.caches.values().flat_map(|cache| cache.owned(owner_uid)).collect()
    }

    fn serves(&self, kind: &Kind) -> Served {
        if self.unserved.contains(kind) { Served::No } else { Served::Yes }
    }

    fn resolve(&self, api_version: &str, kind: &str) -> Option<Kind> {
        let group = group_of(api_version);
        self.caches.keys().find(|known| known.group == group && known.kind == kind).cloned()
    }

    fn by_uid(&self, kind: &Kind, uid: &str) -> Option<Arc<Object>> {
        self.caches.get(kind)?.by_uid(uid).cloned()
    }

    fn kinds(&self) -> Vec<Kind> {
        self.caches.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const POD: Kind = Kind::of("", "v1", "Pod", "pods", true);

    fn pod(namespace: &str, name: &str, owner: &str, app: &str) -> Arc<Object> {
        let raw = json!({"metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}"), "labels": {"app": app},
            "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": owner}]}});
        Object::new(POD, raw).unwrap()
    }

    fn names(objects: &[Arc<Object>]) -> Vec<String> {
        objects.iter().map(|object| object.key().to_string()).collect()
    }

    /// Of names that are one digit each, the order of UIDs is that of keys.
    const ODD: Line = Line { name: "odd", stands: |object| object.label("app") == Some("1") };

    #[test]
    fn a_namespace_lists_only_its_own_even_beside_a_prefix_of_its_name() {
        let mut cache = Cache::default();
        for (namespace, name) in [("a", "z"), ("ab", "y"), ("a", "x"), ("", "w")] {
            cache.put(pod(namespace, name, "o", "p"));
        }
        assert_eq!(names(&cache.list(Some("a"))), ["a/x", "a/z"]);
        assert_eq!(cache.list(None).len(), 4);
    }

    /// As an informer reads it, and looked into.
    fn compact(name: &str) -> Arc<Object> {
        let manifest = pod("n", name, "o", "1").raw().clone();
        let text = manifest.to_string().into_bytes().into_boxed_slice();
        let metadata = manifest["metadata"].to_string();
        let object = Object::compact(POD, metadata.as_bytes(), |_| Some(text)).unwrap();
        let _ = object.status();
        object
    }

    #[test]
    fn whoever_rests_is_exchanged_wherever_it_is_found_and_whoever_is_looked_at_is_not() {
        let mut cache = Cache::default();
        cache.index("app");
        cache.keep_line(ODD);
        for name in ["1", "2", "3"] {
            cache.put(compact(name));
        }
        let everywhere = |cache: &Cache, name: &str| {
            let key = Key::new(Some("n"), name);
            let uid = format!("uid-{name}");
            let is_it = |one: &Arc<Object>| Arc::ptr_eq(one, cache.get(&key).unwrap());
            [cache.owned("o"), cache.labelled("app", "1"), cache.in_line(&ODD, "o"), cache.list(None)]
                .iter()
                .all(|found| found.len() == 3 && found.iter().any(is_it))
                && is_it(cache.by_uid(&uid).unwrap())
        };
        let before = cache.list(None);
        let first = cache.rest(&Next::default(), 2);
        let second = cache.rest(first.next.as_ref().unwrap(), 1);
        assert_eq!((first.awake, second), (true, Round { next: None, awake: true }));
        let _ = before[1].status();
        assert!(cache.rest(&Next::default(), 9).awake, "one of them was looked at");
        let after = cache.list(None);
        let same: Vec<bool> = before.iter().zip(&after).map(|(one, two)| Arc::ptr_eq(one, two)).collect();
        assert_eq!(same, [false, true, false]);
        assert!(["1", "2", "3"].iter().all(|name| everywhere(&cache, name)));
        // What rests is replaced and removed as anything else.
        cache.put(compact("1"));
        cache.remove(&Key::new(Some("n"), "3"));
        assert_eq!((cache.owned("o").len(), cache.in_line(&ODD, "o").len()), (2, 2));
    }

    proptest! {
        #[test]
        fn indexes_agree_with_a_scan_after_any_history(
            history in prop::collection::vec((0..6u8, 0..3u8, 0..3u8, any::<bool>()), 0..60)
        ) {
            let mut cache = Cache::default();
            cache.index("app");
            cache.keep_line(ODD);
            for (name, owner, app, keep) in history {
                let object = pod("n", &name.to_string(), &owner.to_string(), &app.to_string());
                if keep { cache.put(object); } else { cache.remove(&object.key()); }
            }
            for value in ["0", "1", "2"] {
                let scan = |wanted: &dyn Fn(&Object) -> bool| -> Vec<String> {
                    names(&cache.list(None).into_iter().filter(|object| wanted(object)).collect::<Vec<_>>())
                };
                let by_label = scan(&|object| object.label("app") == Some(value));
                let by_owner = scan(&|object| object.owners()[0].uid == value);
                let by_uid = cache.by_uid(&format!("uid-{value}")).map(|object| object.key().to_string());
                prop_assert_eq!(by_uid, scan(&|object| object.name() == value).pop());
                prop_assert_eq!(names(&cache.labelled("app", value)), by_label);
                prop_assert_eq!(names(&cache.owned(value)), by_owner);
                let line = scan(&|object| object.owners()[0].uid == value && object.label("app") == Some("1"));
                prop_assert_eq!(cache.count_in_line(&ODD, value, None), line.len());
                prop_assert_eq!(&names(&cache.in_line(&ODD, value)), &line);
                let first = cache.first_in_line(&ODD, value).map(|object| object.key().to_string());
                prop_assert_eq!(first.as_ref(), line.first());
                if let Some(last) = line.last().and_then(|_| cache.owned(value).into_iter().rfind(|one| (ODD.stands)(one))) {
                    prop_assert_eq!(cache.count_in_line(&ODD, value, Some(&Spot::of(&last))), line.len() - 1);
                }
            }
        }
    }
}
