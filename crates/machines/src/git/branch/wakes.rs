//! Whose change concerns which Branch? Few others' changes do, so that what happens to one costs what it has.

use pawl_api::git::branch::{KIND, ResultState};
use pawl_api::git::{Branch, Workflow, WorkflowPhase, WorkflowTemplate};
use pawl_api::git::{annotations, labels, workflow, workflow_template};
use pawl_api::meta::Phase as _;

use super::others_at;
use crate::git::schedule::UNFINISHED;
use crate::machine::Line;
use crate::object::{Key, Object};
use crate::view::View;

/// What a Workflow does on its way does not concern its Branch, nor does its end while others run: that it is there, that
/// somebody wants it again, and the end of the last do.
pub(super) fn of_a_workflow_that_counts(object: &Object, view: &dyn View) -> Vec<Key> {
    let Some(owner) = object.controller().filter(|owner| owner.kind == KIND.kind) else { return vec![] };
    let key = Key::new(object.namespace(), &owner.name);
    let Some(now) = view.get(&workflow::KIND, &object.key()).filter(|now| now.uid() == object.uid()) else {
        return vec![key];
    };
    // What it was before, its newest version speaks for, while it is the same Branch's.
    if now.resource_version() != object.resource_version() && now.controller() == Some(owner) {
        return vec![];
    }
    if is_wanted_again(object) {
        return vec![key];
    }
    let quiet = object.parse::<Workflow>().is_ok_and(|workflow| match phase(&workflow) {
        None => false,
        Some(phase) if phase.is_terminal() => leaves_the_result_open(&workflow, &owner.uid, &key, view),
        Some(_) => true,
    });
    if quiet { vec![] } else { vec![key] }
}

/// Whether nothing that a Branch says or does follows from the end of one of its Workflows: it is evaluated and at this
/// commit, another of its Workflows there is not over, and nobody waits for the end of one to have it again.
fn leaves_the_result_open(ended: &Workflow, branch_uid: &str, key: &Key, view: &dyn View) -> bool {
    let Some(branch) = view.get(&KIND, key).filter(|branch| branch.uid() == branch_uid) else { return false };
    let Ok(typed) = branch.parse::<Branch>() else { return false };
    let is_evaluated = branch.annotation(annotations::LAST_SHA) == Some(&ended.spec.sha);
    if !is_evaluated || typed.spec.sha != ended.spec.sha || branch.is_deleting() {
        return false;
    }
    let next = view.first_in_line(&workflow::KIND, &UNFINISHED, branch_uid);
    let goes_on = next
        .and_then(|next| next.parse::<Workflow>().ok())
        .is_some_and(|next| next.spec.sha == ended.spec.sha);
    goes_on
        && view.count_in_line(&workflow::KIND, &WANTED_AGAIN, branch_uid, None) == 0
        && !is_backfilled(&branch, view)
}

/// The Workflows of each Branch that may lead to another attempt.
const WANTED_AGAIN: Line = Line { name: "wanted-again", stands: |object| is_wanted_again(object) };

pub(super) static LINES: [Line; 2] = [UNFINISHED, WANTED_AGAIN];

/// Somebody wants another attempt of it, or it goes and makes room for its namesake.
fn is_wanted_again(workflow: &Object) -> bool {
    workflow.is_deleting() || workflow.annotation(annotations::RERUN).is_some()
}

/// Whether a template's edit may ask for another attempt as soon as the last is over.
fn is_backfilled(branch: &Object, view: &dyn View) -> bool {
    let templates = view.list(&workflow_template::KIND, branch.namespace());
    templates.iter().any(|one| one.parse::<WorkflowTemplate>().is_ok_and(|one| one.spec.backfill))
}

fn phase(workflow: &Workflow) -> Option<WorkflowPhase> {
    workflow.status.as_ref().and_then(|status| status.phase)
}

pub(super) fn at_the_same_commit(changed: &Object, view: &dyn View) -> Vec<Key> {
    let Some(sha) = changed.label(labels::SHA) else { return vec![] };
    others_at(view, changed, sha).iter().map(|other| other.key()).collect()
}

/// A Repository changes with every look at GitHub that finds something; few of its Branches wait for that.
pub(super) fn waiting_for_it(repository: &Object, view: &dyn View) -> Vec<Key> {
    let mut all = view.owned(&KIND, repository.uid());
    all.retain(|object| {
        object.parse::<Branch>().map_or(true, |branch| {
            let sha = branch.spec.sha.as_str();
            let result = branch.status.as_ref().and_then(|status| status.result.as_ref());
            let state = result.filter(|result| result.sha == sha).map(|result| result.state);
            object.annotation(annotations::LAST_SHA) != Some(sha)
                || match state {
                    // Its rules may have changed.
                    Some(ResultState::ActionRequired | ResultState::Denied | ResultState::Skipped) => true,
                    // A commit waits for the cursor to pass it.
                    Some(ResultState::Succeeded | ResultState::Failed | ResultState::Cancelled) => {
                        branch.spec.sequence.is_some()
                    }
                    Some(ResultState::Running) | None => false,
                }
        })
    });
    all.iter().map(|object| object.key()).collect()
}

/// A template that is to be run for open pull requests too.
pub(super) fn with_a_pull_request(template: &Object, view: &dyn View) -> Vec<Key> {
    if !template.parse::<WorkflowTemplate>().is_ok_and(|template| template.spec.backfill) {
        return vec![];
    }
    let mut all = view.list(&KIND, template.namespace());
    all.retain(|object| object.parse::<Branch>().is_ok_and(|branch| branch.spec.pull_request().is_some()));
    all.iter().map(|object| object.key()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cluster;
    use serde_json::{Value, json};

    const SHA: &str = "0000000000000000000000000000000000000000";

    fn workflow(name: &str, more: &Value) -> Value {
        let mut manifest = json!({"kind": "Workflow", "metadata": {"name": name, "namespace": "n", "uid": name,
            "ownerReferences": [{"apiVersion": "terrakojo.io/v1alpha1", "kind": "Branch", "name": "b", "uid": "b",
                "controller": true}]},
            "spec": {"branch": "b", "owner": "o", "repository": "r", "sha": SHA, "template": "t", "path": name}});
        crate::testing::merge(&mut manifest, more);
        manifest
    }

    fn branch(last_sha: &str) -> Value {
        json!({"kind": "Branch", "metadata": {"name": "b", "namespace": "n", "uid": "b",
            "annotations": {annotations::LAST_SHA: last_sha}},
            "spec": {"owner": "o", "repository": "r", "name": "feature", "sha": SHA}})
    }

    fn phase(phase: &str) -> Value {
        json!({"status": {"phase": phase}})
    }

    /// Whether Branch `b` hears of the newest version of Workflow `w`, with these others beside it.
    fn heard(more: &Value, others: &[Value]) -> bool {
        let kinds = [workflow::KIND, KIND, workflow_template::KIND];
        let mut cluster = Cluster::of(&kinds, "");
        others.iter().for_each(|other| cluster.put(other.clone()));
        cluster.put(workflow("w", more));
        let object = cluster.world.get(&workflow::KIND, &Key::new(Some("n"), "w")).unwrap();
        of_a_workflow_that_counts(&object, &cluster.world) == [Key::new(Some("n"), "b")]
    }

    #[test]
    fn a_branch_hears_of_its_workflows_beginning_and_end_and_of_whoever_wants_one_again() {
        assert!(heard(&json!({}), &[]), "it was made");
        assert!(!heard(&phase("Pending"), &[]) && !heard(&phase("Running"), &[]), "it is on its way");
        for over in ["Succeeded", "Failed", "Cancelled"] {
            assert!(heard(&phase(over), &[branch(SHA)]), "the last of them is {over}");
        }
        let again = json!({"metadata": {"annotations": {annotations::RERUN: "delivery"}}, "status": {"phase": "Running"}});
        assert!(heard(&again, &[]), "somebody wants it again");
    }

    #[test]
    fn of_an_end_a_branch_hears_once_nothing_of_the_commit_runs_any_more() {
        let running = workflow("x", &phase("Running"));
        let new = workflow("x", &json!({}));
        assert!(!heard(&phase("Succeeded"), &[branch(SHA), running.clone()]));
        assert!(!heard(&phase("Failed"), &[branch(SHA), new]));
        assert!(heard(&phase("Succeeded"), &[branch(SHA), workflow("x", &phase("Failed"))]));
        // Whenever something else could follow from it.
        assert!(heard(&phase("Succeeded"), std::slice::from_ref(&running)), "the Branch is not seen");
        assert!(heard(&phase("Succeeded"), &[branch("another"), running.clone()]), "it is not evaluated");
        let left = json!({"spec": {"sha": "1".repeat(40)}, "status": {"phase": "Succeeded"}});
        assert!(heard(&left, &[branch(SHA), running.clone()]), "of a commit that the ref has left");
        let again = json!({"metadata": {"annotations": {annotations::RERUN: "delivery"}}, "status": {"phase": "Failed"}});
        let again = workflow("y", &again);
        assert!(heard(&phase("Failed"), &[branch(SHA), running.clone(), again]), "another is wanted again");
        let template = json!({"kind": "WorkflowTemplate", "metadata": {"name": "t", "namespace": "n"},
            "spec": {"displayName": "T", "match": {"paths": ["**"]}, "backfill": true,
                "job": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}});
        assert!(heard(&phase("Failed"), &[branch(SHA), running, template]), "an edit may want it again");
    }

    #[test]
    fn a_version_that_is_past_says_nothing_while_the_workflow_is_there_and_the_branchs() {
        let mut cluster = Cluster::of(&[workflow::KIND, KIND], "");
        let key = Key::new(Some("n"), "w");
        cluster.put(workflow("w", &json!({})));
        let before = cluster.world.get(&workflow::KIND, &key).unwrap();
        cluster.put(workflow("w", &phase("Pending")));
        assert!(of_a_workflow_that_counts(&before, &cluster.world).is_empty());
        let other = json!({"metadata": {"ownerReferences": [{"apiVersion": "terrakojo.io/v1alpha1", "kind": "Branch",
            "name": "c", "uid": "c", "controller": true}]}});
        cluster.put(workflow("w", &other));
        assert_eq!(of_a_workflow_that_counts(&before, &cluster.world), [Key::new(Some("n"), "b")]);
        cluster.world.remove(&workflow::KIND, &key);
        assert_eq!(
            of_a_workflow_that_counts(&before, &cluster.world),
            [Key::new(Some("n"), "b")],
            "it is gone"
        );
    }
}
