//! What is the next thing to do for a KubernetesExecution: one policy-gated action on its target?
//!
//! ```text
//! finalizer ─▶ over?          ─yes─▶ it stays over (I2); what it leaves is tidied; rollback_ready waits for its end
//!              spec changed?  ─yes─▶ failed/spec_changed
//!              cancelled?     ─yes─▶ failed/cancelled; its Job is stopped
//! validating       ─▶ parameters ▸ power ▸ RBAC ▸ target ▸ freeze ▸ policy ▸ dry run ▸ policy ▸ preconditions
//! validated        ─▶ waiting_approval, if policy asks for it, else executing
//! waiting_approval ─▶ all of it asked again whenever something moves; enough approvals of just this ─▶ executing
//! executing        ─▶ lock ▸ policy, preconditions, approvals once more ▸ undo stored, named in the status (I4)
//!                     ▸ input and Job made, held (I1) ▸ its UID recorded ▸ all gates once more ▸ let go
//!                     ▸ followed to its end ▸ result recorded ▸ postconditions ─▶ rollback_ready | completed | failed
//! deleted          ─▶ the Job is stopped and waited for ▸ the lock goes ▸ the finalizer goes
//! ```
//! What is outside of the caches (the target as it is, who may what, policy) is asked through ports, in each look anew:
//! nothing is decided on an answer that is older than the look.

use std::sync::Arc;

use pawl_api::git::workflow::WAITS_FOR;
use pawl_api::k8s::{CONFIG_MAP, REPLICA_SET, SECRET};
use pawl_api::meta::{Duration, Phase as _, Target};
use pawl_api::pawl::freeze::Door;
use pawl_api::pawl::labels::{OWNER_UID, POLICY, TARGET_HASH};
use pawl_api::pawl::{SYSTEM_NAMESPACE, approval};
use pawl_api::remedy::{
    KubernetesExecution, KubernetesExecutionPhase, KubernetesExecutionStatus, RemediationRequest, finalizers,
    kubernetes_execution, labels, remediation_request,
};
use serde_json::json;

use super::action::executor::Executor;
use super::action::{self, Order};
use super::power::{self, NotAllowed};
use super::safety::Policies;
use crate::audit::{self, Entry, Teller};
use crate::cluster::job::{JOB, POD};
use crate::cluster::namespace::NAMESPACE;
use crate::freeze::{self, Selecting};
use crate::held_run::HeldRun;
use crate::lifecycle::{self, Lifecycle};
use crate::lock::{LEASE, Locks, UNIT};
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Key, Object};
use crate::plan::{Plan, Step};
use crate::time::later;
use crate::view::{Context, View};

mod approvals;
mod asking;
mod assess;
mod ending;
mod executing;
mod job;
mod locking;
mod report;
pub mod rollback;
#[cfg(test)]
mod tests;
mod validate;
mod verifying;
mod waiting;
mod wakes;

use super::identity::{self, Verified};
pub(super) use job::KEPT_SECONDS;
use job::Run;
use locking::Waiter;
use report::Report;
use validate::Wish;

/// Namespaces whose objects no action touches, beside Pawl's own.
pub const PROTECTED_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// Carries out KubernetesExecutions.
#[derive(Clone, Debug)]
pub struct KubernetesExecutions {
    /// Where the locks and the policies are.
    pub system_namespace: String,
    /// Where and as whom the Jobs run.
    pub executor: Executor,
    /// Namespaces whose objects no action touches. Pawl's own two are protected whatever stands here.
    pub protected_namespaces: Vec<String>,
}

impl Default for KubernetesExecutions {
    fn default() -> Self {
        Self {
            system_namespace: SYSTEM_NAMESPACE.to_owned(),
            executor: Executor::default(),
            protected_namespaces: PROTECTED_NAMESPACES.map(str::to_owned).to_vec(),
        }
    }
}

/// A KubernetesExecution and all that its next step depends on.
#[derive(Debug)]
struct Facts<'a> {
    cx: &'a Context<'a, KubernetesExecution>,
    order: Order,
    /// What it acts on, or what is wrong with what it asks for.
    wish: Result<Wish, String>,
    power: Result<(), NotAllowed>,
    policies: Policies,
    freezes: Selecting,
    /// The Approvals that name it, the oldest first.
    approvals: Vec<Arc<Object>>,
    /// Whether those who approve are who they say.
    verified: Verified,
    /// How long its request lets it wait for approval.
    approval_timeout: Option<Duration>,
    /// The Job of its attempt.
    run: HeldRun,
    /// The Jobs of all of its attempts.
    jobs: Vec<Run>,
    /// The Pods of that Job, or of the one that was recorded.
    pods: Vec<Arc<Object>>,
    /// The Secrets that were made for it: its Jobs' inputs, and its undo.
    secrets: Vec<Arc<Object>>,
    locks: Locks,
    /// Those that have waited longer for one of its targets.
    ahead: Vec<(Target, Waiter)>,
    /// How many actions are being carried out, beside this one.
    concurrent: usize,
    /// The one that it takes back, where it is a rollback.
    undone: Option<Arc<KubernetesExecution>>,
    /// Those that take it back, the oldest first.
    rollbacks: Vec<Arc<Object>>,
}

impl Machine for KubernetesExecutions {
    type Kind = KubernetesExecution;
    type Status = KubernetesExecutionStatus;

    fn description(&self) -> Description {
        let mut watches = vec![
            Watch::other(kubernetes_execution::KIND, wakes::of_another).by_labels(&[
                TARGET_HASH,
                WAITS_FOR,
                labels::ROLLBACK_OF,
            ]),
            Watch::other(approval::KIND, wakes::of_the_approval),
            Watch::other(remediation_request::KIND, |_, _| Vec::new()),
            Watch::other(JOB, wakes::of_the_job).by_labels(&[OWNER_UID]),
            Watch::other(POD, wakes::of_the_pod),
            Watch::other(LEASE, wakes::of_the_lock).by_labels(&[UNIT]),
            Watch::other(NAMESPACE, |_, _| Vec::new()).metadata_only(),
            Watch::other(CONFIG_MAP, wakes::of_a_policy_or_target).by_labels(&[POLICY]),
            freeze::watch(wakes::of_a_freeze),
            Watch::other(SECRET, wakes::of_a_secret).by_labels(&[OWNER_UID]).metadata_only(),
            Watch::other(REPLICA_SET, |_, _| Vec::new()).metadata_only(),
            Watch::other(identity::POLICY, wakes::of_the_admission).named(identity::APPROVER),
            Watch::other(identity::BINDING, wakes::of_the_admission).named(identity::APPROVER),
        ];
        for kind in action::named_kinds() {
            if !watches.iter().any(|watch| watch.kind == kind) {
                watches.push(Watch::other(kind, wakes::of_the_target).metadata_only());
            }
        }
        Description {
            watches,
            finalizer: Some(finalizers::KUBERNETES_EXECUTION),
            writes: vec![
                Write::main(kubernetes_execution::KIND, &["patch"]),
                Write::status(kubernetes_execution::KIND),
                Write::finalizers(kubernetes_execution::KIND),
                Write::main(JOB, &["create", "delete", "patch"]),
                Write::main(SECRET, &["create", "delete"]),
                Write::main(LEASE, &["create", "delete", "patch"]),
            ],
            ..Description::new("kubernetesexecution", kubernetes_execution::KIND)
        }
    }

    fn audit(&self, tell: &Teller<'_>, execution: &KubernetesExecution) -> Option<Vec<Entry>> {
        Some(audit::remedy::kubernetes_execution(tell, execution))
    }

    fn reconcile(&self, cx: &Context<'_, KubernetesExecution>) -> Plan<KubernetesExecutionStatus> {
        let facts = self.facts(cx);
        match lifecycle::of(facts.cx.object, finalizers::KUBERNETES_EXECUTION) {
            Lifecycle::Add => Plan::step(mark(&facts)),
            Lifecycle::Run => run(Report::of(self, &facts)),
            Lifecycle::CleanUp => ending::clean_up(Report::of(self, &facts)),
            Lifecycle::Nothing => Plan::rest(),
        }
    }
}

impl KubernetesExecutions {
    fn facts<'a>(&self, cx: &'a Context<'a, KubernetesExecution>) -> Facts<'a> {
        let (view, me, execution) = (cx.view, cx.object, cx.typed);
        let order = asking::order(me, &execution.spec);
        let wish = validate::wish(me, &execution.spec, &order);
        let known: &[Target] = wish.as_ref().map(|wish| wish.targets.as_slice()).unwrap_or_default();
        let attempt = execution.status.as_ref().and_then(|status| status.attempt).unwrap_or_default();
        let key = job::key(&self.executor.namespace, me.uid(), attempt);
        let found = view.get(&JOB, &key);
        let recorded = recorded_uid(execution.status.as_ref()).map(str::to_owned);
        let uid = recorded.clone().or_else(|| found.as_ref().map(|run| run.uid().to_owned()));
        Facts {
            power: power::power(view, &self.system_namespace, me, known, None),
            policies: Policies::observe(view, &self.system_namespace),
            freezes: Selecting::observe(view, me, Door::Remedy, known),
            approvals: approvals::of(view, me),
            verified: identity::verified(view),
            approval_timeout: approval_timeout(view, me, execution),
            pods: uid.map(|uid| view.owned(&POD, &uid)).unwrap_or_default(),
            jobs: view.labelled(&JOB, OWNER_UID, me.uid()).iter().map(Run::read).collect(),
            secrets: view.labelled(&SECRET, OWNER_UID, me.uid()),
            locks: Locks::observe(view, &self.system_namespace, me, known.to_vec()),
            ahead: locking::ahead(view, me, known),
            concurrent: concurrent(view, me),
            undone: rollback::undone(view, me),
            rollbacks: rollback::of(view, me),
            run: HeldRun::new(JOB, key, job::owner(me.uid()), found, recorded),
            order,
            wish,
            cx,
        }
    }
}

fn run(report: Report<'_>) -> Plan<KubernetesExecutionStatus> {
    let facts = report.facts;
    if report.is_over() {
        return ending::finished(report);
    }
    if let Some(by) = facts.cx.object.annotation(pawl_api::remedy::annotations::CANCEL) {
        return ending::cancelled(report, by);
    }
    if report
        .status
        .spec_digest
        .as_ref()
        .is_some_and(|digest| *digest != asking::spec_digest(&facts.cx.typed.spec))
    {
        return ending::spec_changed(report);
    }
    match report.status.phase {
        None => report.begins(),
        Some(KubernetesExecutionPhase::Validating) => assess::validate(report),
        Some(KubernetesExecutionPhase::Validated) => waiting::validated(report),
        Some(KubernetesExecutionPhase::WaitingApproval) => waiting::waits(report),
        Some(KubernetesExecutionPhase::Executing) => executing::execute(report),
        // Over: seen above.
        Some(
            KubernetesExecutionPhase::RollbackReady
            | KubernetesExecutionPhase::Completed
            | KubernetesExecutionPhase::Failed,
        ) => Plan::rest(),
    }
}

/// The first write: its finalizer, and by which target it is found.
fn mark(facts: &Facts<'_>) -> Step {
    let me = facts.cx.object;
    let mut finalizers = me.finalizers().to_vec();
    finalizers.push(finalizers::KUBERNETES_EXECUTION.to_owned());
    let target = facts.wish.as_ref().ok().and_then(|wish| wish.targets.first());
    let metadata = match target {
        Some(target) => json!({"finalizers": finalizers, "labels": {TARGET_HASH: target.short_hash()}}),
        None => json!({"finalizers": finalizers}),
    };
    Step::patch_unchanged(me, json!({"metadata": metadata}))
}

/// The UID of the Job that was recorded, before it was let go.
fn recorded_uid(status: Option<&KubernetesExecutionStatus>) -> Option<&str> {
    status?.job_ref.as_ref()?.uid.as_deref()
}

/// How long the request, of which this is a step, lets it wait.
fn approval_timeout(view: &dyn View, me: &Object, execution: &KubernetesExecution) -> Option<Duration> {
    let request = execution.spec.remediation_request_ref.as_ref()?;
    let namespace = request.namespace.as_deref().or(me.namespace());
    let found = view.get(&remediation_request::KIND, &Key::new(namespace, &request.name))?;
    let typed = found.parse::<RemediationRequest>().ok()?;
    Some(typed.spec.timeouts.approval)
}

/// How many others are being carried out.
fn concurrent(view: &dyn View, me: &Object) -> usize {
    let executing = |other: &Arc<Object>| {
        other.uid() != me.uid()
            && other.status().get("phase").and_then(serde_json::Value::as_str)
                == Some(KubernetesExecutionPhase::Executing.as_str())
    };
    view.list(&kubernetes_execution::KIND, None).iter().filter(|other| executing(other)).count()
}
