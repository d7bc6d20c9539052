//! Where is each part of a tree, and what does it wait for: an Installation, its Execution, its items, and so on down?
//!
//! ```text
//! Installation shop                 Progressing
//! ├─ Execution shop                 Succeeded
//! │  └─ DeployItem database         Succeeded
//! └─ Installation web               -            waits for sub-Installation api to succeed
//! ```
//! It is read from the objects alone, by the same functions that decide.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use pawl_api::deploy::{
    DeployItem, Installation, LastError, PICKUP_TIMEOUT, Timeout, annotations, deploy_item, execution,
    installation, labels, operations, target,
};
use pawl_api::meta::Kind;
use pawl_api::meta::reference::NamedRef;
use serde::{Deserialize, Serialize};

use super::blueprint::exporters;
use super::installation::waits_for_roots;
use super::job::Jobs;
use crate::object::{Key, Object};
use crate::view::View;

/// Levels that are shown: Installations may be nested eight deep, and each has an Execution and items.
const MAX_LEVELS: usize = 32;

/// How much of a message fits beside a tree.
const MAX_MESSAGE_CHARS: usize = 160;

/// An object of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub kind: String,
    pub name: String,
    /// What the blueprint or the Execution calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub called: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Whether a job runs.
    pub running: bool,
    pub deleting: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Node>,
}

/// The tree below an object of the deploy door.
pub fn of(view: &dyn View, root: &Arc<Object>) -> Node {
    let mut top = node(root, None);
    top.waits_for.extend(waits_of(view, root, None, &[]));
    descend(view, root, &mut top, MAX_LEVELS);
    top
}

/// As text, with a line for each object.
pub fn draw(node: &Node) -> String {
    let mut rows = Vec::new();
    rows_of(node, "", "", &mut rows);
    let width = rows.iter().map(|(left, _)| left.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for (left, right) in rows {
        let gap = width - left.chars().count() + 2;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{left}{:gap$}{right}", "");
    }
    text
}

fn rows_of(node: &Node, first: &str, rest: &str, rows: &mut Vec<(String, String)>) {
    let name = match &node.called {
        Some(called) if *called != node.name => format!("{called} ({})", node.name),
        _ => node.name.clone(),
    };
    let mut right = format!("{:<12}", node.phase.as_deref().unwrap_or("-"));
    if node.deleting {
        right.push_str(" being deleted;");
    }
    if let Some(reason) = &node.reason {
        let message = node.message.as_deref().unwrap_or_default();
        let _ = write!(right, " {reason}: {}", pawl_api::meta::text::head(message, MAX_MESSAGE_CHARS));
    }
    if !node.waits_for.is_empty() {
        let _ = write!(right, " waits for {}", node.waits_for.join(", "));
    }
    rows.push((format!("{first}{} {name}", node.kind), right.trim_end().trim_end_matches(';').to_owned()));
    for (at, child) in node.children.iter().enumerate() {
        let last = at + 1 == node.children.len();
        let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        rows_of(child, &format!("{rest}{branch}"), &format!("{rest}{below}"), rows);
    }
}

/// What everything of this door says of its job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Says {
    pub(super) phase: Option<String>,
    #[serde(rename = "jobID")]
    pub(super) job_id: Option<String>,
    #[serde(rename = "jobIDFinished")]
    pub(super) job_id_finished: Option<String>,
    pub(super) last_error: Option<LastError>,
    pub(super) export_ref: Option<NamedRef>,
}

impl Says {
    pub(super) fn of(object: &Object) -> Self {
        Self::deserialize(object.status()).unwrap_or_default()
    }

    pub(super) fn jobs(&self) -> Jobs<'_> {
        Jobs::of(&self.job_id, &self.job_id_finished)
    }

    fn succeeded_in(&self, job: Option<&str>) -> bool {
        // All kinds call it that.
        self.phase.as_deref() == Some("Succeeded") && job.is_some() && self.job_id_finished.as_deref() == job
    }
}

fn node(object: &Object, called: Option<String>) -> Node {
    let says = Says::of(object);
    let running = says.jobs().running().is_some();
    let failed = says.phase.as_deref().is_some_and(|phase| phase.ends_with("Failed"));
    // What went wrong in the job before is no news of the one that runs.
    let error = says.last_error.as_ref().filter(|_| failed && !running);
    Node {
        kind: object.kind().kind.to_string(),
        name: object.name().to_owned(),
        called,
        running,
        deleting: object.is_deleting(),
        reason: error.map(|error| error.reason.clone()),
        message: error.map(|error| error.message.clone()),
        waits_for: Vec::new(),
        children: Vec::new(),
        phase: says.phase,
    }
}

fn descend(view: &dyn View, object: &Arc<Object>, node: &mut Node, levels: usize) {
    let Some(levels) = levels.checked_sub(1) else { return };
    let job = Says::of(object).jobs().running().map(str::to_owned);
    let kinds: &[Kind] = match object.kind() {
        kind if *kind == installation::KIND => &[execution::KIND, installation::KIND],
        kind if *kind == execution::KIND => &[deploy_item::KIND],
        _ => &[],
    };
    for kind in kinds {
        let owned = view.controlled(kind, object);
        for child in &owned {
            let mut below = self::node(child, called(child).map(str::to_owned));
            below.waits_for.extend(waits_of(view, child, job.as_deref(), &owned));
            descend(view, child, &mut below, levels);
            node.children.push(below);
        }
    }
}

/// What the one who wrote it calls it.
fn called(object: &Object) -> Option<&str> {
    match object.kind() {
        kind if *kind == deploy_item::KIND => object.label(labels::NAME),
        kind if *kind == installation::KIND => object.annotation(annotations::SUBINSTALLATION_NAME),
        _ => None,
    }
}

/// What an object waits for; `job` is that of the one above it, which `beside` share.
pub(super) fn waits_of(
    view: &dyn View,
    object: &Arc<Object>,
    job: Option<&str>,
    beside: &[Arc<Object>],
) -> Vec<String> {
    let says = Says::of(object);
    let mut waits = Vec::new();
    match (says.jobs().running(), job) {
        (Some(_), _) if *object.kind() == deploy_item::KIND => waits.extend(deployer(view, object)),
        (Some(_), _) if *object.kind() == installation::KIND => waits.extend(waits_for_roots(view, object)),
        (None, Some(job)) if says.job_id.as_deref() != Some(job) => waits.extend(turn(object, job, beside)),
        (None, None) if says.job_id.is_none() && object.controller().is_none() => {
            waits.push("a job: nobody has asked for one".to_owned());
        }
        (Some(_) | None, _) => {}
    }
    if object.annotation(annotations::OPERATION) == Some(operations::RECONCILE)
        && says.jobs().running().is_some()
    {
        waits.push("the end of this job, to start the next, which was asked for".to_owned());
    }
    waits
}

/// Those before it: building up, what it depends on; taking down, what depends on it.
fn turn(object: &Object, job: &str, beside: &[Arc<Object>]) -> Vec<String> {
    let needs = edges(beside);
    let place = |one: &Object| beside.iter().position(|other| other.uid() == one.uid());
    let Some(at) = place(object) else { return Vec::new() };
    let depends = |one: usize, other: usize| needs.get(one).is_some_and(|those| those.contains(&other));
    let waited = beside.iter().enumerate().filter(|(other, found)| {
        if object.is_deleting() {
            depends(*other, at)
        } else {
            depends(at, *other) && !Says::of(found).succeeded_in(Some(job))
        }
    });
    let until = if object.is_deleting() { "be gone" } else { "succeed" };
    let named = waited.map(|(_, other)| {
        let sort = if *other.kind() == installation::KIND { "sub-Installation" } else { "item" };
        format!("{sort} {} to {until}", called(other).unwrap_or(other.name()))
    });
    named.collect()
}

/// Who depends on whom, by place.
fn edges(beside: &[Arc<Object>]) -> Vec<Vec<usize>> {
    if beside.first().is_some_and(|first| *first.kind() == installation::KIND) {
        let parsed: Vec<Option<Arc<Installation>>> =
            beside.iter().map(|object| object.parse::<Installation>().ok()).collect();
        let specs: Vec<_> = parsed.iter().map(|one| one.as_ref().map(|one| &one.spec)).collect();
        return exporters(&specs);
    }
    let numbers: BTreeMap<&str, usize> =
        beside.iter().enumerate().filter_map(|(at, item)| Some((called(item)?, at))).collect();
    let before = beside.iter().map(|item| {
        let text = item.annotation(annotations::DEPENDS_ON).unwrap_or("[]");
        let names: Vec<String> = serde_json::from_str(text).unwrap_or_default();
        names.iter().filter_map(|name| numbers.get(name.as_str()).copied()).collect()
    });
    before.collect()
}

/// Whom an item with a job waits for, and how long.
fn deployer(view: &dyn View, object: &Object) -> Vec<String> {
    let Ok(item) = object.parse::<DeployItem>() else { return Vec::new() };
    let status = item.status.clone().unwrap_or_default();
    let (since, limit, whom) = match (&status.last_reconcile_time, &status.job_id_generation_time) {
        (Some(picked_up), _) => {
            let name = status.deployer.as_ref().map(|one| one.name.clone()).unwrap_or_default();
            (Some(picked_up), item.spec.timeout.unwrap_or_default(), format!("its deployer {name} to finish"))
        }
        (None, triggered) => {
            let missing = item.spec.target.as_ref().filter(|wanted| {
                view.get(&target::KIND, &Key::new(object.namespace(), &wanted.name)).is_none()
            });
            let whom = match missing {
                Some(wanted) => format!("Target {}, which is not there", wanted.name),
                None => format!("a deployer of {} to pick it up", item.spec.type_),
            };
            (triggered.as_ref(), Timeout::After(PICKUP_TIMEOUT), whom)
        }
    };
    let until = match (since, limit) {
        (Some(since), Timeout::After(limit)) => since.0.checked_add(limit.get()).ok(),
        (_, Timeout::Never) | (None, _) => None,
    };
    vec![match until {
        Some(until) => format!("{whom} (until {until:.0})"),
        None => whom,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::installation::Installations;
    use crate::deploy::testing::{Case, key};
    use crate::machine::AnyMachine;
    use serde_json::json;

    fn shown(case: &Case, name: &str) -> String {
        let root = case.cluster.world.get(&installation::KIND, &key(name)).unwrap();
        draw(&of(&case.cluster.world, &root))
    }

    /// A parent `e` of `a` and `b`, which imports from `a`; items of `a` may hang.
    fn case(config: &str) -> Case {
        let mut case = Case::empty();
        case.machines.insert(0, AnyMachine::new(Installations));
        let item = |name: &str, more: &str| {
            format!("deployItems: [{{name: {name}, type: landscaper.gardener.cloud/mock{more}}}]")
        };
        let leaf = |name: &str, config: &str, imports: serde_json::Value, exports: bool| {
            let mut blueprint = json!({"imports": imports, "deployExecutions": [
                {"name": "d", "type": "GoTemplate", "template": item(name, config)}]});
            if exports {
                blueprint["exports"] = json!([{"name": "out", "type": "data"}]);
                blueprint["exportExecutions"] =
                    json!([{"name": "x", "type": "GoTemplate", "template": "exports: {out: 1}"}]);
            }
            json!({"filesystem": {"blueprint.yaml": blueprint.to_string()}})
        };
        let children = json!([
            {"name": "b", "blueprint": leaf("web", "", json!([{"name": "in", "type": "data"}]), false),
                "imports": {"data": [{"name": "in", "dataRef": "x"}]}},
            {"name": "a", "blueprint": leaf("db", config, json!([]), true),
                "exports": {"data": [{"name": "out", "dataRef": "x"}]}},
        ]);
        let blueprint = json!({"subinstallations": children,
            "deployExecutions": [{"name": "d", "type": "GoTemplate", "template":
                "deployItems:\n- {name: one, type: landscaper.gardener.cloud/mock, config: {hang: true}}\n\
                 - {name: two, type: landscaper.gardener.cloud/mock, dependsOn: [one]}\n"}]});
        case.cluster.put(json!({"kind": "Installation", "metadata": {"name": "e"}, "spec": {"blueprint":
            {"inline": {"filesystem": {"blueprint.yaml": blueprint.to_string()}}}}}));
        case.settle();
        case
    }

    #[test]
    fn each_says_where_it_is_and_what_it_waits_for() {
        let mut case = case(", config: {phase: Failed}");
        assert_eq!(
            shown(&case, "e"),
            "Installation e  -            waits for a job: nobody has asked for one\n"
        );
        let wish = json!({"metadata": {"annotations": {annotations::OPERATION: "reconcile"}}});
        case.cluster.edit(&installation::KIND, &key("e"), &wish);
        case.settle();
        let text = shown(&case, "e");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 8, "{text}");
        assert!(lines[0].starts_with("Installation e ") && lines[0].ends_with("Progressing"), "{text}");
        assert!(lines[1].starts_with("├─ Execution e "), "{text}");
        assert!(lines[2].starts_with("│  ├─ DeployItem one (e-one-"), "{text}");
        assert!(
            lines[2].ends_with("waits for its deployer mock to finish (until 2026-01-01T00:10:00Z)"),
            "{text}"
        );
        assert!(lines[3].ends_with("-            waits for item one to succeed"), "{text}");
        assert!(lines[4].starts_with("├─ Installation a (e-a-"), "{text}");
        assert!(lines[4].contains("Failed       ExecutionFailed: DeployItemFailed: 1 of 1 items"), "{text}");
        assert!(lines[7].ends_with("waits for sub-Installation a to succeed"), "{text}");
        let root = case.cluster.world.get(&installation::KIND, &key("e")).unwrap();
        let json = serde_json::to_value(of(&case.cluster.world, &root)).unwrap();
        assert_eq!(json["children"][0]["children"][1]["waitsFor"], json!(["item one to succeed"]));
    }

    #[test]
    fn a_removal_waits_for_those_that_depend_on_it() {
        let mut case = case("");
        let wish = json!({"metadata": {"annotations": {annotations::OPERATION: "reconcile"}}});
        case.cluster.edit(&installation::KIND, &key("e"), &wish);
        case.settle();
        let one = case.item_key("one");
        case.cluster.edit(&deploy_item::KIND, &one, &json!({"spec": {"config": {"hang": false}}}));
        case.settle();
        let two = case.item_key("two");
        case.cluster.edit(&deploy_item::KIND, &two, &json!({"spec": {"config": {"hang": true}}}));
        case.cluster.delete(&installation::KIND, &key("e"), "Background");
        case.settle();
        let text = shown(&case, "e");
        assert!(text.contains("being deleted; waits for item two to be gone"), "{text}");
    }
}
