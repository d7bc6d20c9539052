//! Can a WorkflowTemplate be used: do its globs compile, is its job a Job, and do its dependencies lead anywhere?
//!
//! What is wrong is told in `Valid`, all of it at once, and is true again when it is mended, here or in a sibling that
//! closes a cycle. A dependency that nobody has is no fault of the template: it may come later, and until then there is
//! nothing to wait for. But it may be a slip, so it is mentioned.

use std::collections::BTreeMap;
use std::sync::Arc;

use pawl_api::git::workflow_template::{KIND, VALID};
use pawl_api::git::{WorkflowTemplate, WorkflowTemplateSpec, WorkflowTemplateStatus};
use pawl_api::meta::{NewCondition, Reason, condition};

use super::glob::Glob;
use super::matching::{BadGlob, cycles, way_round};
use crate::audit::{self, Entry, Teller};
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Key, Object};
use crate::plan::{Note, Plan};
use crate::view::{Context, View};

/// How many malformed globs are told: a template may have hundreds, a message has room for few.
const MAX_TOLD: usize = 5;

/// Says of each template whether it is valid.
#[derive(Clone, Copy, Debug, Default)]
pub struct Templates;

impl Machine for Templates {
    type Kind = WorkflowTemplate;
    type Status = WorkflowTemplateStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![Watch::other(KIND, those_with_dependencies)],
            writes: vec![Write::status(KIND)],
            ..Description::new("workflow-template", KIND)
        }
    }

    fn audit(&self, tell: &Teller<'_>, template: &WorkflowTemplate) -> Option<Vec<Entry>> {
        Some(audit::git::workflow_template(tell, template))
    }

    fn reconcile(&self, cx: &Context<'_, WorkflowTemplate>) -> Plan<WorkflowTemplateStatus> {
        let spec = &cx.typed.spec;
        // Without dependencies of its own, what others depend on does not matter.
        let all = if spec.depends_on.is_empty() { BTreeMap::new() } else { dependencies(cx) };
        let mut status = cx.typed.status.clone().unwrap_or_default();
        let generation = cx.object.meta().generation;
        status.observed_generation = generation;
        let told = condition::get(&status.conditions, VALID).map(|one| one.message.clone());
        let problems = problems(cx.object.name(), spec, &all);
        let missing = missing(spec, &all);
        let new = match problems.first() {
            // The first is the one that people grep for; the message has them all.
            Some((reason, _)) => NewCondition::no(VALID, *reason, joined(&problems)),
            None if missing.is_empty() => NewCondition::yes(VALID, Reason::Valid, "the template can be used"),
            None => NewCondition::yes(
                VALID,
                Reason::Valid,
                format!(
                    "the template can be used; spec.dependsOn: there is no WorkflowTemplate {} to wait for",
                    missing.join(", ")
                ),
            ),
        };
        let message = new.message.clone();
        condition::set(&mut status.conditions, new, generation, cx.now);
        let plan = Plan::rest().status(status);
        match problems.first() {
            Some((reason, _)) if told.as_ref() != Some(&message) => {
                plan.note(Note::warning(*reason, message))
            }
            Some(_) | None => plan,
        }
    }
}

/// The well-formed templates of the namespace by name, each with what it depends on.
fn dependencies(cx: &Context<'_, WorkflowTemplate>) -> BTreeMap<String, Vec<String>> {
    let all = cx.view.list(&KIND, cx.object.namespace());
    let depends_on = |one: &Arc<Object>| {
        let typed = one.parse::<WorkflowTemplate>().ok()?;
        Some((one.name().to_owned(), typed.spec.depends_on.clone()))
    };
    all.iter().filter_map(depends_on).collect()
}

/// All that keeps a template from being used.
fn problems(
    me: &str,
    spec: &WorkflowTemplateSpec,
    all: &BTreeMap<String, Vec<String>>,
) -> Vec<(Reason, String)> {
    let globs = bad_globs(spec).map(|bad| (Reason::BadGlob, bad.to_string()));
    let job = bad_job(spec).map(|problem| (Reason::BadJob, problem));
    let knots = cycles(all.iter().map(|(name, others)| (name.as_str(), others.as_slice())));
    let mine = knots.into_iter().find(|cycle| cycle.iter().any(|member| member == me));
    let cycle = mine
        .map(|cycle| (Reason::DependencyCycle, format!("spec.dependsOn: {} is a cycle", way_round(&cycle))));
    globs.chain(job).chain(cycle).collect()
}

fn bad_globs(spec: &WorkflowTemplateSpec) -> impl Iterator<Item = BadGlob> {
    let paths = spec.match_.paths.iter().enumerate().map(|(index, one)| ("paths", index, one));
    let ignore = spec.match_.ignore.iter().enumerate().map(|(index, one)| ("ignore", index, one));
    let bad = paths.chain(ignore).filter_map(|(field, index, pattern)| {
        Glob::new(pattern).err().map(|bad| BadGlob { field, index, bad })
    });
    bad.take(MAX_TOLD)
}

fn bad_job(spec: &WorkflowTemplateSpec) -> Option<String> {
    match spec.job.parse() {
        Err(error) => Some(format!("spec.job: {error}")),
        Ok(job) if job.template.spec.as_ref().is_none_or(|pod| pod.containers.is_empty()) => {
            Some("spec.job.template.spec.containers: at least one is needed".to_owned())
        }
        Ok(_) => None,
    }
}

fn missing<'a>(spec: &'a WorkflowTemplateSpec, all: &BTreeMap<String, Vec<String>>) -> Vec<&'a str> {
    spec.depends_on.iter().map(String::as_str).filter(|wanted| !all.contains_key(*wanted)).collect()
}

fn joined(problems: &[(Reason, String)]) -> String {
    problems.iter().map(|(_, message)| message.as_str()).collect::<Vec<_>>().join("; ")
}

/// A template that comes, goes or is edited can make or mend the dependencies of others in its namespace.
fn those_with_dependencies(changed: &Object, view: &dyn View) -> Vec<Key> {
    let beside = view.list(&KIND, changed.namespace());
    let depending = beside.iter().filter(|object| {
        object.parse::<WorkflowTemplate>().is_ok_and(|template| !template.spec.depends_on.is_empty())
    });
    depending.map(|object| object.key()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::AnyMachine;
    use crate::testing::Cluster;
    use serde_json::json;

    /// What is said of template `a` among templates `name<dependency,…`.
    fn check(line: &str, job: &serde_json::Value, expect: (&str, &str, &str)) {
        let mut cluster = Cluster::of(&[KIND], "");
        cluster.relax(&KIND);
        for one in line.split_whitespace() {
            let (name, depends_on) = one.split_once('<').unwrap_or((one, ""));
            let depends_on: Vec<&str> = depends_on.split(',').filter(|name| !name.is_empty()).collect();
            cluster.put(
                json!({"kind": "WorkflowTemplate", "metadata": {"name": name}, "spec": {"displayName": name,
                "match": {"paths": ["**"]}, "job": job, "dependsOn": depends_on}}),
            );
        }
        cluster.settle(&[AnyMachine::new(Templates)]);
        let status =
            cluster.get(&KIND, &Key::new(Some("n"), "a")).unwrap()["status"]["conditions"][0].clone();
        let text = |field: &str| status[field].as_str().unwrap().to_owned();
        assert_eq!(
            (text("status").as_str(), text("reason").as_str(), text("message").as_str()),
            expect,
            "{line}"
        );
    }

    fn job() -> serde_json::Value {
        json!({"template": {"spec": {"containers": [{"name": "main"}]}}})
    }

    #[test]
    fn a_template_is_valid_when_its_job_is_one_and_its_dependencies_are_there() {
        check("a<b b", &job(), ("True", "Valid", "the template can be used"));
        check(
            "a",
            &json!({"template": {"spec": {"containers": []}}}),
            ("False", "BadJob", "spec.job.template.spec.containers: at least one is needed"),
        );
    }

    #[test]
    fn a_dependency_that_is_not_there_is_mentioned_and_no_hindrance() {
        let message =
            "the template can be used; spec.dependsOn: there is no WorkflowTemplate x, y to wait for";
        check("a<x,b,y b", &job(), ("True", "Valid", message));
    }

    #[test]
    fn a_cycle_makes_its_members_invalid_and_shows_the_way_round() {
        check(
            "b<c c<a a<b",
            &job(),
            ("False", "DependencyCycle", "spec.dependsOn: a -> b -> c -> a is a cycle"),
        );
        check("a<b b<c c<b", &job(), ("True", "Valid", "the template can be used"));
    }

    fn valid(cluster: &Cluster, name: &str) -> (String, String, String) {
        let found = cluster.get(&KIND, &Key::new(Some("n"), name)).unwrap();
        let text = |field: &str| found["status"]["conditions"][0][field].as_str().unwrap().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    #[test]
    fn a_malformed_glob_is_told_with_its_place_and_a_mended_one_is_forgiven() {
        let mut cluster = Cluster::of(&[KIND], "");
        let matching = json!({"paths": ["**", "infra/[a"], "ignore": ["}"]});
        cluster.relax(&KIND);
        cluster
            .put(json!({"kind": "WorkflowTemplate", "metadata": {"name": "a"}, "spec": {"displayName": "a",
            "match": matching, "job": {"template": {"spec": {"containers": []}}}}}));
        cluster.settle(&[AnyMachine::new(Templates)]);
        let (status, reason, message) = valid(&cluster, "a");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "BadGlob"));
        // All of it at once, so that a person mends it in one go.
        assert_eq!(
            message,
            "spec.match.paths[1]: \"infra/[a\" is not a pattern: character 7: the class that [ opens here is never \
             closed; spec.match.ignore[0]: \"}\" is not a pattern: character 1: } closes nothing here; write \\} for \
             the character }; spec.job.template.spec.containers: at least one is needed"
        );
        assert_eq!(cluster.events.len(), 1);
        let mended = json!({"spec": {"match": {"paths": ["**"], "ignore": []}, "job": job()}});
        cluster.edit(&KIND, &Key::new(Some("n"), "a"), &mended);
        cluster.settle(&[AnyMachine::new(Templates)]);
        assert_eq!(valid(&cluster, "a").0, "True");
    }

    #[test]
    fn a_cycle_is_told_at_both_ends_and_mended_at_one() {
        let mut cluster = Cluster::of(&[KIND], "");
        for (name, other) in [("a", "b"), ("b", "a")] {
            cluster.put(
                json!({"kind": "WorkflowTemplate", "metadata": {"name": name}, "spec": {"displayName": name,
                "match": {"paths": ["**"]}, "job": job(), "dependsOn": [other]}}),
            );
        }
        cluster.settle(&[AnyMachine::new(Templates)]);
        assert_eq!(
            (valid(&cluster, "a").1.as_str(), valid(&cluster, "b").1.as_str()),
            ("DependencyCycle", "DependencyCycle")
        );
        cluster.edit(&KIND, &Key::new(Some("n"), "b"), &json!({"spec": {"dependsOn": []}}));
        cluster.settle(&[AnyMachine::new(Templates)]);
        assert_eq!((valid(&cluster, "a").0.as_str(), valid(&cluster, "b").0.as_str()), ("True", "True"));
    }
}
