//! Why is it where it is? The answer in words, from what stands in the objects (I3).

use std::sync::Arc;

use pawl_api::deploy::{
    DeployItem, Execution, Installation, LastError, TransitionTimes, deploy_item, execution, installation,
    labels,
};
use pawl_api::meta::{Condition, Phase};

use super::items;
use super::tree::{self, Says};
use crate::object::{Key, Object};
use crate::story::{Happened, Story};
use crate::view::View;

/// How many children that are not well, or not done, are named.
const MAX_NAMED: usize = 10;

/// The story of an Installation, an Execution or a DeployItem; `None` for anything else, and for what does not have the
/// shape of its kind.
pub fn story(view: &dyn View, object: &Arc<Object>, happened: &[Happened]) -> Option<String> {
    let mut story = Story::default();
    match object.kind() {
        kind if *kind == installation::KIND => of_installation(&mut story, view, object)?,
        kind if *kind == execution::KIND => of_execution(&mut story, view, object)?,
        kind if *kind == deploy_item::KIND => of_item(&mut story, object)?,
        _ => return None,
    }
    let (job, beside) = above(view, object);
    let waits = tree::waits_of(view, object, job.as_deref(), &beside);
    if !waits.is_empty() {
        story.heading("what it waits for");
        waits.iter().for_each(|one| story.line(format_args!("  {one}")));
    }
    let node = tree::of(view, object);
    let open: Vec<&tree::Node> =
        node.children.iter().filter(|child| child.phase.as_deref() != Some("Succeeded")).collect();
    if !node.children.is_empty() {
        let done = node.children.len() - open.len();
        story.heading("what it made");
        story.line(format_args!("  {done} of {} objects have succeeded", node.children.len()));
        for child in open.iter().take(MAX_NAMED) {
            let why = child.reason.as_deref().unwrap_or_default();
            let message = child.message.as_deref().unwrap_or_default();
            let phase = child.phase.as_deref().unwrap_or("has not started");
            let name = format!("{} {}", child.kind, child.called.as_ref().unwrap_or(&child.name));
            let waits = if child.waits_for.is_empty() {
                String::new()
            } else {
                format!("; waits for {}", child.waits_for.join(", "))
            };
            let why = if why.is_empty() { String::new() } else { format!(" ({why}): {message}") };
            story.item(&name, &format!("{phase}{why}{waits}"));
        }
        if open.len() > MAX_NAMED {
            story.line(format_args!("  and {} more", open.len() - MAX_NAMED));
        }
    }
    let conditions = object.status().get("conditions").cloned().unwrap_or_default();
    story.conditions(&serde_json::from_value::<Vec<Condition>>(conditions).unwrap_or_default());
    story.happened(happened);
    Some(story.text)
}

fn of_installation(story: &mut Story, view: &dyn View, object: &Arc<Object>) -> Option<()> {
    let its = object.parse::<Installation>().ok()?;
    let status = its.status.clone().unwrap_or_default();
    let depth = match super::job::Parent::of(view, object, &installation::KIND) {
        super::job::Parent::None => "a root",
        super::job::Parent::There | super::job::Parent::Absent(_) => "a sub-Installation",
    };
    story.line(format_args!("Installation {}: {depth}, context {}", object.name(), its.spec.context));
    is(story, object, status.phase.map(Phase::as_str), status.last_error.as_ref());
    job(story, &Says::of(object), status.transition_times.as_ref());
    let (imports, exports) = (&its.spec.imports, &its.spec.exports);
    if !imports.is_empty() || !exports.is_empty() {
        story.heading("what goes in and out");
        for import in &imports.data {
            let secret = import.secret_ref.as_ref().map(|from| format!("Secret {}", from.name));
            let map = import.config_map_ref.as_ref().map(|from| format!("ConfigMap {}", from.name));
            let data = import.data_ref.as_ref().map(|name| format!("data {name}"));
            let from = data.or(secret).or(map).unwrap_or_default();
            story.item("import", &format!("{} from {from}", import.name));
        }
        for import in &imports.targets {
            let names: Vec<&str> =
                import.target.iter().chain(import.targets.iter().flatten()).map(String::as_str).collect();
            story.item("import", &format!("{} from target {}", import.name, names.join(", ")));
        }
        for export in &exports.data {
            story.item("export", &format!("{} as data {}", export.name, export.data_ref));
        }
        for export in &exports.targets {
            story.item("export", &format!("{} as target {}", export.name, export.target));
        }
    }
    Some(())
}

fn of_execution(story: &mut Story, view: &dyn View, object: &Arc<Object>) -> Option<()> {
    let execution = object.parse::<Execution>().ok()?;
    let (items, status) = (items::read(&execution), execution.status.clone().unwrap_or_default());
    let of =
        object.controller().map(|owner| format!(" of {} {}", owner.kind, owner.name)).unwrap_or_default();
    let count = items.as_ref().map_or(0, |items| items.list.len());
    story.line(format_args!("Execution {}{of}: {count} items", object.name()));
    is(story, object, status.phase.map(Phase::as_str), status.last_error.as_ref());
    job(story, &Says::of(object), status.transition_times.as_ref());
    if let Err(invalid) = &items {
        story.line(format_args!("its items cannot be used: {invalid}"));
    }
    if let Some(counts) = &status.items {
        let counted = counts.count_time.as_ref().map(|time| format!(" (counted {:.0})", time.0));
        story.line(format_args!(
            "its items: {} succeeded, {} failed, {} running, {} waiting{}",
            counts.succeeded,
            counts.failed,
            counts.running,
            counts.pending,
            counted.unwrap_or_default()
        ));
    }
    let orphans = view.owned(&deploy_item::KIND, object.uid());
    let orphans: Vec<&str> = orphans
        .iter()
        .filter(|item| items.as_ref().is_ok_and(|items| items.number(item.name()).is_none()))
        .map(|item| item.label(labels::NAME).unwrap_or(item.name()))
        .take(MAX_NAMED)
        .collect();
    if !orphans.is_empty() {
        story.line(format_args!("no longer in its list, and to be taken down: {}", orphans.join(", ")));
    }
    Some(())
}

fn of_item(story: &mut Story, object: &Arc<Object>) -> Option<()> {
    let item = object.parse::<DeployItem>().ok()?;
    let status = item.status.clone().unwrap_or_default();
    let of = object.label(labels::MANAGED_BY).map(|of| format!(" of Execution {of}")).unwrap_or_default();
    let name = object.label(labels::NAME).unwrap_or(object.name());
    story.line(format_args!("DeployItem {name}{of}: {}", item.spec.type_));
    is(story, object, status.phase.map(Phase::as_str), status.last_error.as_ref());
    job(story, &Says::of(object), status.transition_times.as_ref());
    if let Some(deployer) = &status.deployer {
        story.line(format_args!(
            "was picked up by {} {} ({})",
            deployer.name, deployer.version, deployer.identity
        ));
    }
    if let Some(target) = &item.spec.target {
        story.line(format_args!("goes to Target {}", target.name));
    }
    if let Some(first) = &status.first_error {
        story.line(format_args!("went wrong first with {}: {}", first.reason, first.message));
    }
    Some(())
}

fn is(story: &mut Story, object: &Object, phase: Option<&str>, error: Option<&LastError>) {
    let deleting = if object.is_deleting() { ", and is being deleted" } else { "" };
    match phase {
        None => story.line(format_args!("has not started{deleting}")),
        Some(phase) => story.line(format_args!("is {phase}{deleting}")),
    }
    if let Some(error) = error {
        story.line(format_args!("went wrong in {}: {}: {}", error.operation, error.reason, error.message));
    }
}

fn job(story: &mut Story, says: &Says, times: Option<&TransitionTimes>) {
    let Some(id) = &says.job_id else { return };
    let stands = if says.jobs().running().is_some() { "runs" } else { "is finished" };
    story.line(format_args!("job {id} {stands}"));
    let Some(times) = times else { return };
    let stations = [
        ("triggered", &times.trigger_time),
        ("begun", &times.init_time),
        ("waiting", &times.wait_time),
        ("finished", &times.finished_time),
    ];
    let told: Vec<String> = stations
        .into_iter()
        .filter_map(|(word, time)| Some(format!("{word} {:.0}", time.as_ref()?.0)))
        .collect();
    if !told.is_empty() {
        story.line(format_args!("  {}", told.join(", ")));
    }
}

/// The job of the one above, and those that it made beside this one.
fn above(view: &dyn View, object: &Object) -> (Option<String>, Vec<Arc<Object>>) {
    let Some(owner) = object.controller() else { return (None, Vec::new()) };
    let kinds = [installation::KIND, execution::KIND];
    let Some(kind) = kinds.into_iter().find(|kind| kind.kind == owner.kind) else {
        return (None, Vec::new());
    };
    let Some(above) = view.get(&kind, &Key::new(object.namespace(), &owner.name)) else {
        return (None, Vec::new());
    };
    let job = Says::of(&above).jobs().running().map(str::to_owned);
    (job, view.owned(object.kind(), above.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::testing::{Case, key};
    use serde_json::json;

    #[test]
    fn an_execution_tells_its_phase_its_items_and_what_each_of_them_waits_for() {
        let mut case = Case::of("a b<a", &[("a", json!({"hang": true}))]);
        // Counts are written at most once a second.
        case.settle().reconcile().wait(std::time::Duration::from_secs(2));
        let object = case.cluster.world.get(&execution::KIND, &key("e")).unwrap();
        let happened = Happened {
            when: "12:00".into(),
            about: String::new(),
            reason: "JobStarted".into(),
            note: "it began".into(),
        };
        let text = story(&case.cluster.world, &object, &[happened]).unwrap();
        for told in [
            "Execution e: 2 items\nis Progressing\n",
            "its items: 0 succeeded, 0 failed, 1 running, 1 waiting",
            "0 of 2 objects have succeeded",
            "DeployItem b  has not started; waits for item a to succeed",
            "12:00  JobStarted: it began",
        ] {
            assert!(text.contains(told), "{told:?} in\n{text}");
        }
        let item = case.cluster.world.get(&deploy_item::KIND, &case.item_key("b")).unwrap();
        let text = story(&case.cluster.world, &item, &[]).unwrap();
        assert!(
            text.starts_with(
                "DeployItem b of Execution e: landscaper.gardener.cloud/mock\nhas not started\n"
            )
        );
        assert!(text.contains("what it waits for\n  item a to succeed"), "{text}");
        let item = case.cluster.world.get(&deploy_item::KIND, &case.item_key("a")).unwrap();
        let text = story(&case.cluster.world, &item, &[]).unwrap();
        assert!(text.contains("was picked up by mock"), "{text}");
        assert!(text.contains("its deployer mock to finish (until "), "{text}");
    }

    #[test]
    fn a_list_that_cannot_be_used_says_why() {
        let mut case = Case::of("a<b b<a", &[]);
        case.settle().reconcile();
        let object = case.cluster.world.get(&execution::KIND, &key("e")).unwrap();
        let text = story(&case.cluster.world, &object, &[]).unwrap();
        assert!(text.contains("its items cannot be used: a -> b -> a is a cycle"), "{text}");
        assert!(text.contains("went wrong in Init: ValidationFailed"), "{text}");
    }

    #[test]
    fn other_kinds_have_no_story_here() {
        let object = Object::new(pawl_api::k8s::SECRET, json!({"metadata": {"name": "s"}})).unwrap();
        assert_eq!(story(&crate::cache::World::default(), &object, &[]), None);
    }
}
