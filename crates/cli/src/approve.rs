//! `pawl approve` and `pawl reject`: one person's word on an action, after a look at what it would do.

use std::io::{BufRead, IsTerminal as _};

use anyhow::{Context as _, bail};
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use pawl_api::meta::names;
use pawl_api::pawl::Approval;
use pawl_api::pawl::approval::{ApprovalSpec, Approver, Decision, ExecutionRef};
use pawl_api::remedy::kubernetes_execution::{APPROVALS_OUTDATED, APPROVERS_VERIFIED};
use pawl_api::remedy::{KubernetesExecution, KubernetesExecutionPhase, KubernetesExecutionStatus};
use pawl_machines::story::{counted, of_groups};

use crate::cluster;
use crate::locks::{self, Me};
use crate::terminal::{Say, printable};

/// What of a diff is shown before the question; `pawl explain` shows more, and the status all.
const DIFF_LINES: usize = 60;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The execution: ke/NAME.
    #[arg(value_name = "ke/NAME")]
    what: String,
    /// Why: recorded with your name.
    #[arg(long, default_value = "")]
    reason: String,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    scope: cluster::Scope,
}

pub(crate) async fn run(args: &Args, decision: Decision, say: &mut dyn Say) -> anyhow::Result<()> {
    let name = named(&args.what)?;
    let client = args.scope.client().await?;
    let me = locks::myself(&client).await?;
    let api: Api<KubernetesExecution> = Api::namespaced(client.clone(), &args.scope.namespace);
    let execution = cluster::get(&api, name).await?;
    let digest = awaited(name, &execution)?;
    for line in shown(name, &execution) {
        say.line(&printable(&line));
    }
    if !args.yes && !confirmed(decision, &mut std::io::stdin().lock(), say)? {
        bail!("nothing was said");
    }
    let approval = word(&execution, &digest, decision, &me, args.reason.trim());
    let created =
        Api::namespaced(client, &args.scope.namespace).create(&PostParams::default(), &approval).await;
    match created {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => bail!("you said so before"),
        Err(error) => return Err(error).with_context(|| format!("create Approval {}", approval.name_any())),
    }
    let username = printable(&me.username);
    say.line(&match (decision, worthless(&execution, &me.username)) {
        (Decision::Approve, Some(why)) => {
            format!("ke/{name}: the word of {username} is recorded and does not count: {why}")
        }
        (Decision::Approve, None) => format!("ke/{name} is approved by {username}"),
        (Decision::Reject, _) => format!("ke/{name} is rejected by {username}"),
    });
    say.line(&format!(
        "what comes of it: pawl explain -n {} {}",
        args.scope.namespace,
        whole(name, &execution)
    ));
    Ok(())
}

/// Where the story goes on: the request of which it is a step, or itself.
fn whole(name: &str, execution: &KubernetesExecution) -> String {
    match &execution.spec.remediation_request_ref {
        Some(request) => format!("rr/{}", request.name),
        None => format!("ke/{name}"),
    }
}

/// The name in `ke/NAME`.
pub(crate) fn named(what: &str) -> anyhow::Result<&str> {
    match what.split_once('/') {
        Some(("ke" | "kubernetesexecution" | "kubernetesexecutions", name)) if !name.is_empty() => Ok(name),
        _ => bail!("{what}: say ke/NAME"),
    }
}

/// What an approval must name, of an execution that waits for some.
fn awaited(name: &str, execution: &KubernetesExecution) -> anyhow::Result<String> {
    let status = execution.status.clone().unwrap_or_default();
    match (status.phase, status.approval_digest) {
        (Some(KubernetesExecutionPhase::WaitingApproval), Some(digest)) => Ok(digest),
        (phase, _) => {
            let phase = phase.map_or("not looked at yet", pawl_api::meta::Phase::as_str);
            bail!("KubernetesExecution {name} does not wait for approval: it is {phase}")
        }
    }
}

/// Why an approval by this person does not count, as far as that can be told here.
fn worthless(execution: &KubernetesExecution, username: &str) -> Option<&'static str> {
    match execution.spec.requested_by.as_deref() {
        None => {
            Some("it does not say who asks; whoever creates it anew with spec.requestedBy can be approved")
        }
        Some(requester) if requester == username => Some("you asked for it yourself"),
        Some(_) => None,
    }
}

/// What would be done, why policy asks, and what exactly is approved.
fn shown(name: &str, execution: &KubernetesExecution) -> Vec<String> {
    let (spec, status) = (&execution.spec, execution.status.clone().unwrap_or_default());
    let mut lines = vec![format!(
        "ke/{name}: {} on {}, asked for by {}",
        spec.action,
        status.target.as_deref().unwrap_or("no target"),
        spec.requested_by.as_deref().unwrap_or("nobody knows whom")
    )];
    lines.push(format!("parameters  {}", serde_json::to_string(&spec.parameters).unwrap_or_default()));
    lines.extend(of_policy(&status));
    lines.extend(of_impact(&status));
    for one in &status.approvals {
        let counts = if one.counts { String::new() } else { format!(", does not count: {}", one.message) };
        let who = if one.approver.is_empty() { "somebody without a name" } else { &one.approver };
        lines.push(format!("so far      {who}: {}{counts}", one.decision));
    }
    for condition in &status.conditions {
        let outdated = condition.type_ == APPROVALS_OUTDATED && condition.status == "True";
        if outdated || (condition.type_ == APPROVERS_VERIFIED && condition.status != "True") {
            lines.push(format!("note        {}", condition.message));
        }
    }
    if let Some(until) = &status.approval_deadline {
        lines.push(format!("until       {:.0}", until.0));
    }
    lines.push(format!("digest      {}", status.approval_digest.unwrap_or_default()));
    lines
}

fn of_policy(status: &KubernetesExecutionStatus) -> Vec<String> {
    let Some(policy) =
        status.validation_results.as_ref().and_then(|results| results.policy_validation.as_ref())
    else {
        return Vec::new();
    };
    let count = policy.approver_count.unwrap_or(1);
    let groups = of_groups(&policy.approver_groups);
    let risk = policy.risk.as_deref().map(|risk| format!(", risk {risk}")).unwrap_or_default();
    let asked = counted(count, "approval", "approvals");
    let mut lines = vec![format!("policy      {} asks for {asked}{groups}{risk}", policy.policy_name)];
    lines.extend(policy.violations.iter().map(|violation| format!("            {violation}")));
    lines
}

fn of_impact(status: &KubernetesExecutionStatus) -> Vec<String> {
    let Some(tried) = status.validation_results.as_ref().and_then(|results| results.dry_run_results.as_ref())
    else {
        return vec!["impact      not tried without effect".to_owned()];
    };
    let mut lines = Vec::new();
    if let Some(impact) = &tried.estimated_impact {
        let replicas = impact.replicas_changed.as_deref().map(|change| format!(", replicas {change}"));
        let (objects, replicas) =
            (counted(impact.resources_affected, "object", "objects"), replicas.unwrap_or_default());
        lines.push(format!("impact      {} ({objects}{replicas})", impact.description));
    }
    lines.extend(tried.warnings.iter().map(|warning| format!("warning     {warning}")));
    let diff: Vec<&str> = tried.diff.lines().collect();
    lines.extend(diff.iter().take(DIFF_LINES).map(|line| format!("  {line}")));
    if diff.len() > DIFF_LINES {
        lines.push(format!("  … {} more lines: pawl explain shows them", diff.len() - DIFF_LINES));
    }
    lines
}

/// Asks a person; nobody at a keyboard is no yes.
fn confirmed(decision: Decision, answer: &mut dyn BufRead, say: &mut dyn Say) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("nobody is there to ask; say --yes if this is meant");
    }
    let verb = match decision {
        Decision::Approve => "Approve",
        Decision::Reject => "Reject",
    };
    say.line(&format!("{verb} exactly this? [y/N]"));
    let mut line = String::new();
    answer.read_line(&mut line).context("read the answer")?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// The word itself. Its name follows from who says what about which digest: said twice it is one.
fn word(
    execution: &KubernetesExecution,
    digest: &str,
    decision: Decision,
    me: &Me,
    reason: &str,
) -> Approval {
    let uid = execution.uid().unwrap_or_default();
    let said = match decision {
        Decision::Approve => "approve",
        Decision::Reject => "reject",
    };
    let execution = execution.name_any();
    let name = names::child(&execution, &[&uid, &me.username, said, digest], 10, names::MAX_LABEL);
    let spec = ApprovalSpec {
        execution_ref: ExecutionRef { name: execution, uid: Some(uid) },
        decision,
        approver: Approver { username: me.username.clone(), groups: me.groups.clone() },
        reason: reason.to_owned(),
        digest: digest.to_owned(),
    };
    Approval::new(&name, spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn execution(phase: &str) -> KubernetesExecution {
        serde_json::from_value(json!({"apiVersion": "x/v1", "kind": "KubernetesExecution",
            "metadata": {"name": "k", "uid": "u"},
            "spec": {"action": "scale_deployment", "requestedBy": "ann",
                "parameters": {"scaleDeployment": {"deployment": "web", "namespace": "n", "replicas": 5}}},
            "status": {"phase": phase, "target": "n/deployment/web", "approvalDigest": "d1",
                "approvalDeadline": "2026-01-01T01:00:00Z",
                "validationResults": {
                    "policyValidation": {"policyName": "built-in", "allowed": true, "requiredApproval": true,
                        "requiredDryRun": true, "approverCount": 2, "approverGroups": ["sre"], "risk": "high"},
                    "dryRunResults": {"performed": true, "success": true, "diff": "-replicas: 3\n+replicas: 5",
                        "estimatedImpact": {"resourcesAffected": 1, "description": "2 more Pods"}}}}}))
        .unwrap()
    }

    #[test]
    fn impact_policy_and_digest_are_shown_before_anybody_is_asked() {
        let told = shown("k", &execution("waiting_approval")).join("\n");
        for part in [
            "asked for by ann",
            "built-in asks for 2 approvals of sre, risk high",
            "2 more Pods",
            "+replicas: 5",
            "d1",
        ] {
            assert!(told.contains(part), "{part} in {told}");
        }
    }

    #[test]
    fn a_word_that_cannot_count_is_told_to_be_none() {
        let mut asked = execution("waiting_approval");
        assert_eq!(worthless(&asked, "bob"), None);
        assert!(worthless(&asked, "ann").unwrap().contains("yourself"));
        asked.spec.requested_by = None;
        assert!(worthless(&asked, "bob").unwrap().contains("spec.requestedBy"));
    }

    #[test]
    fn only_what_waits_can_be_approved_and_a_word_said_twice_is_one() {
        assert!(awaited("k", &execution("executing")).is_err());
        let waiting = execution("waiting_approval");
        assert_eq!(awaited("k", &waiting).unwrap(), "d1");
        let me = Me { username: "bob".to_owned(), groups: vec!["sre".to_owned()] };
        let name = |decision, digest: &str| word(&waiting, digest, decision, &me, "").name_any();
        assert_eq!(name(Decision::Approve, "d1"), name(Decision::Approve, "d1"));
        assert_ne!(name(Decision::Approve, "d1"), name(Decision::Approve, "d2"));
        assert_ne!(name(Decision::Approve, "d1"), name(Decision::Reject, "d1"));
        assert!(named("wfe/k").is_err() && named("ke/").is_err());
    }
}
