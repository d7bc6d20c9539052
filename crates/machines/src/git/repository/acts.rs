//! Which Branches are made, moved and pruned, once it is known which refs there are?

use std::collections::BTreeMap;

use pawl_api::git::branch::{KIND as BRANCH, commit_name};
use pawl_api::git::repository::Bootstrap;
use pawl_api::git::{RepositoryStatus, annotations, finalizers, labels};
use pawl_api::meta::names;
use serde_json::{Map, Value, json};

use super::refs::{Refs, Wanted};
use super::{Facts, delete, wanted_labels};
use crate::git::branch;
use crate::git::github::CommitInfoBrief;
use crate::object::Object;
use crate::plan::{Adopt, Step};

/// What is to be done, and what came in between.
#[derive(Default)]
pub(super) struct Acts {
    pub(super) steps: Vec<Step>,
    pub(super) made: usize,
    pub(super) moved: usize,
    pub(super) pruned: usize,
    /// A name is taken by a Branch that is on its way out.
    pub(super) blocked: bool,
    pub(super) bad: Vec<String>,
}

/// One Branch for each commit of the default branch, oldest first, numbered in that order.
pub(super) fn make_commits(
    facts: &Facts<'_>,
    commits: &[CommitInfoBrief],
    status: &mut RepositoryStatus,
    acts: &mut Acts,
) {
    let spec = facts.spec();
    let existing = facts.branches.values().filter_map(|one| one.typed.as_ref()?.spec.sequence).max();
    let mut next = status.next_sequence.unwrap_or(1).max(existing.map_or(1, |last| last.saturating_add(1)));
    for commit in commits {
        let name = commit_name(&spec.name, &facts.home(), &spec.default_branch, &commit.sha);
        match slot(facts, &name) {
            Slot::Ours(there) if there_at(there, &commit.sha) => continue,
            Slot::Ours(_) | Slot::Leaving => {
                // What comes after it waits too: the order is theirs.
                acts.blocked = true;
                return;
            }
            Slot::Taken(why) => {
                acts.bad.push(format!("commit {}: {why}", commit.sha));
                continue;
            }
            Slot::Free => {}
        }
        let wanted = Wanted {
            name: spec.default_branch.clone(),
            sha: commit.sha.clone(),
            pull_request: None,
            head_repository: None,
            base_sha: None,
            base_ref: None,
            author: commit.author.as_ref().map(|author| author.chars().take(100).collect()),
            draft: false,
        };
        acts.made += 1;
        acts.steps.push(create(facts, &name, &wanted, Some(next), &Map::new()));
        next = next.saturating_add(1);
    }
    status.next_sequence = Some(next);
}

/// One Branch for each other ref, moved in place when its head moves.
pub(super) fn follow_refs(
    facts: &Facts<'_>,
    refs: &Refs,
    commands: &BTreeMap<String, BTreeMap<&'static str, String>>,
    acts: &mut Acts,
) {
    let starts_later = !facts.status().synced && facts.spec().bootstrap == Bootstrap::Cursor;
    for (name, wanted) in &refs.wanted {
        let asked = commands.get(name);
        let mut annotations: Map<String, Value> = asked
            .into_iter()
            .flatten()
            .map(|(key, value)| ((*key).to_owned(), value.as_str().into()))
            .collect();
        if let Some(base) = &wanted.base_ref {
            annotations.insert(annotations::BASE_REF.to_owned(), base.as_str().into());
        }
        match slot(facts, name) {
            Slot::Leaving => acts.blocked = true,
            Slot::Taken(why) => acts.bad.push(format!("ref {:?}: {why}", wanted.name)),
            Slot::Free => {
                if starts_later {
                    let evaluation = branch::left_alone(&wanted.sha, wanted.pull_request);
                    annotations.insert(annotations::LAST_SHA.to_owned(), wanted.sha.as_str().into());
                    annotations.insert(annotations::LAST_EVALUATION.to_owned(), evaluation.into());
                }
                acts.made += 1;
                acts.steps.push(create(facts, name, wanted, None, &annotations));
            }
            Slot::Ours(there) => {
                if let Some(patch) = moved(there, wanted, annotations) {
                    acts.moved += 1;
                    acts.steps.push(patch);
                }
            }
        }
    }
}

/// What must change of a Branch so that it says where its ref is now; `None` if it does.
fn moved(there: &Object, wanted: &Wanted, mut annotations: Map<String, Value>) -> Option<Step> {
    let at = |field: &str| there.raw().pointer(&format!("/spec/{field}"));
    let sha = at("sha").and_then(Value::as_str);
    let number = at("prNumber").and_then(Value::as_i64).filter(|number| *number != 0);
    let draft = at("draft").and_then(Value::as_bool).unwrap_or_default();
    let same = sha == Some(&wanted.sha) && number == wanted.pull_request && draft == wanted.draft;
    annotations.retain(|key, value| there.annotation(key) != value.as_str());
    if same && annotations.is_empty() {
        return None;
    }
    let aimed_elsewhere =
        there.annotation(annotations::BASE_REF).is_some() && annotations.contains_key(annotations::BASE_REF);
    // What was evaluated is so no more. A ref that comes back before its Branch noticed that it was elsewhere would
    // otherwise find itself evaluated, and its Workflows gone; another base means other files.
    if sha != Some(&wanted.sha) || aimed_elsewhere {
        for gone in [annotations::LAST_SHA, annotations::LAST_EVALUATION] {
            if there.annotation(gone).is_some() {
                annotations.insert(gone.to_owned(), Value::Null);
            }
        }
    }
    if same {
        return Some(patch_of(there, json!({"metadata": {"annotations": annotations}})));
    }
    // Where a pull request's base is moves all the time, and matters only together with the rest.
    let spec = json!({"sha": wanted.sha, "prNumber": wanted.pull_request, "baseSha": wanted.base_sha,
        "author": wanted.author, "draft": wanted.draft.then_some(true)});
    let labels = json!({labels::SHA: wanted.sha});
    Some(patch_of(there, json!({"metadata": {"annotations": annotations, "labels": labels}, "spec": spec})))
}

/// Whatever its version: nobody else writes what this does.
fn patch_of(there: &Object, patch: Value) -> Step {
    Step::patch(there, patch)
}

/// Branches whose ref is gone. Those of default-branch commits end by themselves.
pub(super) fn prune(facts: &Facts<'_>, refs: &Refs, acts: &mut Acts) {
    for followed in facts.branches.values().filter(|followed| !followed.object.is_deleting()) {
        let is_commit = followed
            .typed
            .as_ref()
            .is_some_and(|branch| branch.spec.is_default(&facts.spec().default_branch));
        if !is_commit && !refs.wanted.contains_key(followed.object.name()) {
            acts.pruned += 1;
            acts.steps.push(delete(&followed.object));
        }
    }
}

/// Whether a name is free for a Branch of ours.
enum Slot<'a> {
    Free,
    Ours(&'a Object),
    /// It goes, and does not count as there: its name is free in a moment.
    Leaving,
    Taken(String),
}

fn slot<'a>(facts: &'a Facts<'a>, name: &str) -> Slot<'a> {
    if let Some(followed) = facts.branches.get(name) {
        let there = &followed.object;
        return if there.is_deleting() { Slot::Leaving } else { Slot::Ours(there) };
    }
    if facts.foreign.contains(name) {
        return Slot::Taken(format!("Branch {name} is there and belongs to somebody else"));
    }
    match facts.cx.refusals.iter().find(|refusal| refusal.kind == BRANCH && refusal.key.name == name) {
        Some(refusal) => Slot::Taken(refusal.failure.message.clone()),
        None => Slot::Free,
    }
}

/// Two commits with the same first eight digits share a name, one after the other.
fn there_at(there: &Object, sha: &str) -> bool {
    there.raw().pointer("/spec/sha").and_then(Value::as_str) == Some(sha)
}

fn create(
    facts: &Facts<'_>,
    name: &str,
    wanted: &Wanted,
    sequence: Option<i64>,
    annotations: &Map<String, Value>,
) -> Step {
    let (me, spec) = (facts.cx.object, facts.spec());
    let mut labels = Map::new();
    for (key, value) in wanted_labels(facts) {
        labels.insert(key.to_owned(), value.into());
    }
    labels.insert(labels::OWNER_UID.to_owned(), names::label_value(me.uid()).into());
    labels.insert(labels::SHA.to_owned(), wanted.sha.as_str().into());
    let fields = [
        ("owner", Some(json!(spec.owner))),
        ("repository", Some(json!(spec.name))),
        ("name", Some(json!(wanted.name))),
        ("sha", Some(json!(wanted.sha))),
        ("prNumber", wanted.pull_request.map(|number| json!(number))),
        ("headRepository", wanted.head_repository.as_ref().map(|head| json!(head))),
        ("baseSha", wanted.base_sha.as_ref().map(|sha| json!(sha))),
        ("author", wanted.author.as_ref().map(|author| json!(author))),
        ("draft", wanted.draft.then_some(json!(true))),
        ("sequence", sequence.map(|sequence| json!(sequence))),
    ];
    let fields: Map<String, Value> =
        fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    // With its finalizer from the start: one write less for each.
    let manifest = json!({
        "metadata": {"name": name, "namespace": me.namespace(), "labels": labels, "annotations": annotations,
            "finalizers": [finalizers::BRANCH], "ownerReferences": [me.controller_reference()]},
        "spec": fields,
    });
    Step::Create { kind: BRANCH, manifest, adopt: Adopt::ControlledBy(me.uid().to_owned()) }
}
