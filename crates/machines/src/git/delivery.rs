//! What does a webhook delivery ask for?
//!
//! A delivery is only a nudge: nothing in it is believed as state, and whatever it is about is read anew from GitHub.
//! One thing GitHub forgets, so it is kept: that somebody asked for a re-run.
//!
//! ```text
//! push, pull_request, issue_comment, check_suite ─▶ every matching Repository is to look now
//! check_run rerequested, requested_action        ─▶ its Workflow is to run again, or the commit if that is gone
//! check_suite rerequested                        ─▶ all Workflows of that commit are to run again
//! ping, anything else                            ─▶ nothing
//! ```

use std::collections::BTreeMap;

use jiff::Timestamp;
use pawl_api::git::{Repository, Workflow, annotations, labels, repository, workflow};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::object::Reference;
use crate::view::View;

/// An id of ours or GitHub's is never longer; anything longer is not one of ours.
const MAX_ID_CHARS: usize = 200;

/// What a delivery asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// An event that means nothing here, or a ping.
    Unused,
    /// The repository may have changed.
    Changed { owner: String, name: String },
    /// Somebody wants a check run of a commit again. `external_id` is ours, if the check run is.
    RerunCheck { owner: String, name: String, check_run_id: i64, external_id: String, sha: String },
    /// Somebody wants all checks of a commit again.
    RerunCommit { owner: String, name: String, sha: String },
}

/// A body that is not what GitHub sends for its event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is no {event} delivery: {problem}")]
pub struct Unreadable {
    event: String,
    problem: String,
}

/// A change of one object's metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Nudge {
    pub target: Reference,
    /// A merge patch.
    pub patch: Value,
}

#[derive(Deserialize)]
struct Body {
    repository: RepositoryPart,
    #[serde(default)]
    action: String,
    check_run: Option<CheckRunPart>,
    check_suite: Option<CheckSuitePart>,
}

#[derive(Deserialize)]
struct RepositoryPart {
    name: String,
    owner: OwnerPart,
}

#[derive(Deserialize)]
struct OwnerPart {
    login: String,
}

#[derive(Deserialize)]
struct CheckRunPart {
    id: i64,
    external_id: Option<String>,
    #[serde(default)]
    head_sha: String,
}

#[derive(Deserialize)]
struct CheckSuitePart {
    head_sha: String,
}

/// Reads a delivery whose signature was found to be right.
///
/// # Errors
/// When the body does not have the few fields that are looked at.
pub fn read(event: &str, body: &[u8]) -> Result<Delivery, Unreadable> {
    let used = matches!(event, "push" | "pull_request" | "check_run" | "check_suite" | "issue_comment");
    if !used {
        return Ok(Delivery::Unused);
    }
    let unreadable = |problem: String| Unreadable { event: event.to_owned(), problem };
    let body: Body = serde_json::from_slice(body).map_err(|error| unreadable(error.to_string()))?;
    let Body { repository: RepositoryPart { name, owner: OwnerPart { login: owner } }, action, .. } = body;
    Ok(match (event, action.as_str()) {
        ("check_run", "rerequested" | "requested_action") => {
            let CheckRunPart { id, external_id, head_sha: sha } =
                body.check_run.ok_or_else(|| unreadable("it has no check_run".to_owned()))?;
            Delivery::RerunCheck {
                owner,
                name,
                check_run_id: id,
                external_id: external_id.unwrap_or_default(),
                sha,
            }
        }
        ("check_suite", "rerequested") => {
            let CheckSuitePart { head_sha: sha } =
                body.check_suite.ok_or_else(|| unreadable("it has no check_suite".to_owned()))?;
            Delivery::RerunCommit { owner, name, sha }
        }
        // Our own check runs come back as deliveries: they are no news.
        ("check_run" | "check_suite", _) => Delivery::Unused,
        _ => Delivery::Changed { owner, name },
    })
}

/// What is to be written before the delivery is acknowledged. `delivery` is GitHub's id of it: the same delivery twice
/// asks for the same re-run.
pub fn nudges(asked: &Delivery, delivery: &str, view: &dyn View, now: Timestamp) -> Vec<Nudge> {
    let delivery: String = delivery.chars().filter(|c| !c.is_control()).take(MAX_ID_CHARS).collect();
    let mut gone = None;
    let (owner, name, mut nudges) = match asked {
        Delivery::Unused => return Vec::new(),
        Delivery::Changed { owner, name } => (owner, name, Vec::new()),
        Delivery::RerunCheck { owner, name, check_run_id, external_id, sha } => {
            let reruns = match ours(external_id) {
                None => vec![],
                Some(Ours::Run(uid)) => {
                    let found = view.by_uid(&workflow::KIND, uid);
                    let mine =
                        found.filter(|one| is_of(one.parse::<Workflow>().ok().as_deref(), owner, name));
                    mine.map(|one| rerun(one.reference(), *check_run_id, &delivery)).into_iter().collect()
                }
                Some(Ours::Aggregate) => of_commit(view, owner, name, sha, &delivery),
            };
            // A finished commit of the default branch leaves nothing behind; its Repository knows what to do.
            gone = Some(sha).filter(|sha| reruns.is_empty() && is_sha(sha) && ours(external_id).is_some());
            (owner, name, reruns)
        }
        Delivery::RerunCommit { owner, name, sha } => {
            (owner, name, of_commit(view, owner, name, sha, &delivery))
        }
    };
    let rerun = gone.map(|sha| (annotations::RERUN, format!("{sha}@{delivery}")));
    let now = (annotations::SYNC_REQUESTED_AT, now.to_string());
    let asked: BTreeMap<&str, String> = rerun.into_iter().chain([now]).collect();
    let requested = json!({"metadata": {"annotations": asked}});
    for object in view.list(&repository::KIND, None) {
        let Ok(known) = object.parse::<Repository>() else { continue };
        // GitHub's names know no case.
        if known.spec.owner.eq_ignore_ascii_case(owner) && known.spec.name.eq_ignore_ascii_case(name) {
            nudges.push(Nudge { target: object.reference(), patch: requested.clone() });
        }
    }
    nudges
}

/// Which of our check runs an `external_id` means.
enum Ours<'a> {
    /// `<uid>/<attempt>`: one Workflow's.
    Run(&'a str),
    /// `<uid>:<sha>`: that of a Repository's commit.
    Aggregate,
}

fn ours(external_id: &str) -> Option<Ours<'_>> {
    let run = external_id
        .split_once('/')
        .filter(|(uid, attempt)| !uid.is_empty() && attempt.parse::<i32>().is_ok_and(|attempt| attempt > 0));
    let aggregate = external_id.split_once(':').filter(|(uid, sha)| !uid.is_empty() && is_sha(sha));
    run.map(|(uid, _)| Ours::Run(uid)).or(aggregate.map(|_| Ours::Aggregate))
}

fn is_sha(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Every newest attempt of a commit: older ones were asked for again already.
fn of_commit(view: &dyn View, owner: &str, name: &str, sha: &str, delivery: &str) -> Vec<Nudge> {
    let mut newest = BTreeMap::new();
    for object in view.labelled(&workflow::KIND, labels::SHA, sha) {
        let Ok(workflow) = object.parse::<Workflow>() else { continue };
        let Some(id) = workflow.status.as_ref().and_then(|status| status.check_run_id) else { continue };
        if !is_of(Some(&*workflow), owner, name) {
            continue;
        }
        let spec = &workflow.spec;
        let unit = (
            object.namespace().map(str::to_owned),
            spec.branch.clone(),
            spec.template.clone(),
            spec.path.clone(),
        );
        let kept = newest.entry(unit).or_insert((spec.attempt, id, object.reference()));
        if kept.0 < spec.attempt {
            *kept = (spec.attempt, id, object.reference());
        }
    }
    newest.into_values().map(|(_, id, target)| rerun(target, id, delivery)).collect()
}

fn is_of(workflow: Option<&Workflow>, owner: &str, name: &str) -> bool {
    workflow.is_some_and(|workflow| {
        workflow.spec.owner.eq_ignore_ascii_case(owner) && workflow.spec.repository.eq_ignore_ascii_case(name)
    })
}

fn rerun(target: Reference, check_run_id: i64, delivery: &str) -> Nudge {
    let asked = format!("{check_run_id}@{delivery}");
    Nudge { target, patch: json!({"metadata": {"annotations": {annotations::RERUN: asked}}}) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::World;
    use crate::object::Object;
    use pawl_api::meta::Kind;

    fn body(extra: &Value) -> Vec<u8> {
        let mut body = json!({"repository": {"name": "Infra", "owner": {"login": "Acme"}}});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body.to_string().into_bytes()
    }

    fn world() -> World {
        let mut world = World::default();
        world.cache(&workflow::KIND).index(labels::SHA);
        let mut put = |kind: Kind, raw: Value| world.put(Object::new(kind, raw).unwrap());
        for (namespace, name, owner) in
            [("a", "infra", "acme"), ("b", "INFRA", "ACME"), ("c", "infra", "other")]
        {
            put(
                repository::KIND,
                json!({"metadata": {"name": "r", "namespace": namespace, "uid": format!("r-{namespace}"),
                    "resourceVersion": "1"},
                    "spec": {"owner": owner, "name": name, "githubSecretRef": {"name": "s"}}}),
            );
        }
        for (name, attempt, owner) in [("w1", 1, "acme"), ("w2", 2, "acme"), ("foreign", 1, "other")] {
            put(
                workflow::KIND,
                json!({"metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": "1",
                    "labels": {labels::SHA: "0".repeat(40)}},
                    "spec": {"owner": owner, "repository": "infra", "branch": "b", "sha": "0".repeat(40),
                        "template": "t", "path": "p", "attempt": attempt},
                    "status": {"checkRunID": 40 + attempt}}),
            );
        }
        world
    }

    fn written(delivery: &Delivery) -> Vec<String> {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let nudges = nudges(delivery, "d-1", &world(), now);
        nudges
            .iter()
            .map(|Nudge { target, patch }| format!("{} {}", target.uid, patch["metadata"]["annotations"]))
            .collect()
    }

    const SYNC: &str = r#"{"terrakojo.io/sync-requested-at":"2026-01-01T00:00:00Z"}"#;

    #[test]
    fn a_push_nudges_every_repository_of_that_name_in_any_case_and_namespace() {
        let delivery = read("push", &body(&json!({}))).unwrap();
        assert_eq!(written(&delivery), [format!("r-a {SYNC}"), format!("r-b {SYNC}")]);
    }

    #[test]
    fn a_rerequested_check_run_marks_its_workflow_under_the_delivery() {
        let check = json!({"action": "rerequested", "check_run": {"id": 41, "external_id": "w1/1"}});
        let delivery = read("check_run", &body(&check)).unwrap();
        assert_eq!(written(&delivery)[0], r#"w1 {"terrakojo.io/rerun":"41@d-1"}"#);
        // Whoever signs for one repository commands no other's Workflows.
        let foreign = json!({"action": "rerequested", "check_run": {"id": 41, "external_id": "foreign/1"}});
        let delivery = read("check_run", &body(&foreign)).unwrap();
        assert!(!written(&delivery).iter().any(|line| line.contains("rerun")));
    }

    #[test]
    fn a_check_run_whose_workflow_is_gone_asks_its_repository_and_one_that_is_not_ours_nobody() {
        let ask = |external_id: &str, sha: &str| {
            let check = json!({"action": "rerequested",
                "check_run": {"id": 41, "external_id": external_id, "head_sha": sha}});
            let all = written(&read("check_run", &body(&check)).unwrap());
            all.into_iter().filter(|line| line.contains("rerun")).collect::<Vec<_>>()
        };
        let (known, unknown) = ("0".repeat(40), "1".repeat(40));
        let of_repository = format!(r#""terrakojo.io/rerun":"{unknown}@d-1""#);
        let asked = ask("went/1", &unknown);
        assert!(asked.len() == 2 && asked.iter().all(|line| line.contains(&of_repository)), "{asked:?}");
        assert_eq!(ask(&format!("r-a:{known}"), &known), [r#"w2 {"terrakojo.io/rerun":"42@d-1"}"#]);
        assert_eq!(ask(&format!("r-a:{unknown}"), &unknown).len(), 2);
        for foreign in ["", "somebody elses", "a/b", "a:b"] {
            assert!(ask(foreign, &unknown).is_empty(), "{foreign}");
        }
        assert!(ask("went/1", "main").is_empty());
    }

    #[test]
    fn a_rerequested_suite_marks_the_newest_attempt_of_each_unit() {
        let suite = json!({"action": "rerequested", "check_suite": {"head_sha": "0".repeat(40)}});
        let delivery = read("check_suite", &body(&suite)).unwrap();
        let reruns: Vec<String> =
            written(&delivery).into_iter().filter(|line| line.contains("rerun")).collect();
        assert_eq!(reruns, [r#"w2 {"terrakojo.io/rerun":"42@d-1"}"#]);
    }

    #[test]
    fn our_own_check_runs_pings_and_unknown_events_ask_for_nothing() {
        assert_eq!(read("check_run", &body(&json!({"action": "completed"}))), Ok(Delivery::Unused));
        assert_eq!(read("ping", b"not json"), Ok(Delivery::Unused));
        assert_eq!(read("star", &body(&json!({}))), Ok(Delivery::Unused));
    }

    #[test]
    fn a_body_of_another_shape_is_named_as_such() {
        for body in [&b"{"[..], b"[]", b"{\"repository\": 7}", b""] {
            assert!(read("push", body).unwrap_err().to_string().contains("no push delivery"));
        }
        let missing = read("check_run", &body(&json!({"action": "rerequested"}))).unwrap_err();
        assert!(missing.to_string().contains("check_run"), "{missing}");
    }
}
