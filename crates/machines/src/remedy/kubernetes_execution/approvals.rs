//! Who said yes or no to an execution, and whose word counts?
//!
//! An approval is of exactly what was shown: the spec, the policy, the target as far as the action reads or writes it, and
//! the impact. Whatever of it moves, the word no longer counts, and the status says what moved.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use pawl_api::meta::{Reason, text};
use pawl_api::pawl::Approval;
use pawl_api::pawl::approval::{self, Decision as Word};
use pawl_api::remedy::KubernetesExecutionStatus;
use pawl_api::remedy::kubernetes_execution::CountedApproval;

use super::asking::{canonical, digest};
use super::{Facts, Verified};
use crate::object::Object;
use crate::remedy::safety::Decision;
use crate::view::View;

/// What fits `status.approvals`.
const MAX_APPROVALS: usize = 64;
/// What fits the message of one.
const MAX_WORDS: usize = 1024;

/// What all words together come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    /// Every word, and whether it counts.
    pub(super) counted: Vec<CountedApproval>,
    pub(super) standing: Standing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// These people are enough.
    Granted(Vec<String>),
    /// Somebody who may said no.
    Rejected { by: String, why: String },
    /// So many of so many.
    Missing { have: usize, need: usize },
}

/// The Approvals that name an execution, the oldest first.
pub(super) fn of(view: &dyn View, me: &Object) -> Vec<Arc<Object>> {
    let beside = view.list(&approval::KIND, me.namespace()).into_iter();
    let mut named: Vec<Arc<Object>> = beside
        .filter(|one| {
            one.parse::<Approval>().is_ok_and(|one| {
                let of = &one.spec.execution_ref;
                of.name == me.name() && of.uid.as_deref().is_none_or(|uid| uid == me.uid())
            })
        })
        .collect();
    named.sort_by_key(|one| (one.created_at(), one.uid().to_owned()));
    named
}

/// What an approval must name: all that was shown.
pub(super) fn approval_digest(status: &KubernetesExecutionStatus) -> String {
    let results = status.validation_results.as_ref();
    let policy = results.and_then(|results| results.policy_validation.as_ref()?.policy_digest.clone());
    let impact = results.and_then(|results| results.dry_run_results.as_ref()?.estimated_impact.clone());
    digest(&[
        status.spec_digest.as_deref().unwrap_or_default(),
        policy.as_deref().unwrap_or_default(),
        status.target_digest.as_deref().unwrap_or_default(),
        &canonical(&impact),
    ])
}

/// What is no longer as it was when approval was asked for, in words; empty where all is.
pub(super) fn what_moved(
    before: &KubernetesExecutionStatus,
    now: &KubernetesExecutionStatus,
) -> Vec<&'static str> {
    let policy = |status: &KubernetesExecutionStatus| {
        let results = status.validation_results.as_ref()?;
        results.policy_validation.as_ref()?.policy_digest.clone()
    };
    let impact = |status: &KubernetesExecutionStatus| {
        status.validation_results.as_ref()?.dry_run_results.as_ref()?.estimated_impact.clone()
    };
    let mut moved = Vec::new();
    if policy(before) != policy(now) {
        moved.push("the policy");
    }
    if before.target_digest != now.target_digest {
        moved.push("the target");
    }
    if impact(before) != impact(now) {
        moved.push("the impact");
    }
    moved
}

/// Counts. `wanted` is the digest that an approval must name; words that came after `until` came too late.
pub(super) fn tally(facts: &Facts<'_>, decision: &Decision, wanted: &str, until: Timestamp) -> Tally {
    let need = usize::try_from(decision.approver_count.max(1)).unwrap_or(usize::MAX);
    let asks_who = !decision.approver_groups.is_empty() || need > 1;
    let mut people: BTreeSet<String> = BTreeSet::new();
    let mut rejected = None;
    let mut counted = Vec::new();
    for object in facts.approvals.iter().take(MAX_APPROVALS - 1) {
        let Ok(one) = object.parse::<Approval>() else { continue };
        let why_not = refused(facts, decision, &one, wanted).or_else(|| late(object, until));
        let counts = why_not.is_none();
        let who = one.spec.approver.username.clone();
        match (one.spec.decision, counts) {
            (Word::Approve, true) => {
                people.insert(who.clone());
            }
            (Word::Reject, true) => {
                rejected = rejected.or_else(|| Some((who.clone(), one.spec.reason.clone())));
            }
            (Word::Approve | Word::Reject, false) => {}
        }
        counted.push(CountedApproval {
            name: object.name().to_owned(),
            approver: who,
            decision: word(one.spec.decision).to_owned(),
            counts,
            message: text::head(why_not.unwrap_or_default(), MAX_WORDS),
        });
    }
    let mut have = people.len();
    if facts.cx.typed.spec.approval_received {
        let message =
            if asks_who { "policy asks who approves, and approvalReceived does not say" } else { "" };
        have = have.saturating_add(usize::from(!asks_who));
        counted.push(CountedApproval {
            decision: word(Word::Approve).to_owned(),
            counts: !asks_who,
            message: message.to_owned(),
            ..CountedApproval::default()
        });
    }
    let standing = match rejected {
        Some((by, why)) => Standing::Rejected { by, why },
        None if have >= need => Standing::Granted(people.into_iter().collect()),
        None => Standing::Missing { have, need },
    };
    Tally { counted, standing }
}

/// Why a word does not count.
fn refused(facts: &Facts<'_>, decision: &Decision, one: &Approval, wanted: &str) -> Option<String> {
    if let Verified::No(why) = &facts.verified {
        return Some(format!("nothing checks who approves: {why}"));
    }
    let spec = &one.spec;
    let requester = facts.cx.typed.spec.requested_by.as_deref();
    let is_requester = requester == Some(spec.approver.username.as_str());
    // Whoever asks may take it back.
    if spec.decision == Word::Reject && is_requester {
        return None;
    }
    let groups = &decision.approver_groups;
    if !groups.is_empty() && !groups.iter().any(|group| spec.approver.groups.contains(group)) {
        return Some(format!("{} is in none of the groups {}", spec.approver.username, groups.join(", ")));
    }
    if spec.decision == Word::Reject {
        return None;
    }
    if requester.is_none() {
        return Some(
            "spec.requestedBy is not set, so nobody can tell an approval from the requester's own".to_owned(),
        );
    }
    if is_requester {
        return Some(format!("{} is who asks: somebody else must approve", spec.approver.username));
    }
    if spec.digest != wanted {
        return Some(format!(
            "{}: what it approves ({}) is not what is asked for now ({wanted})",
            Reason::ApprovalOutdated,
            text::head(spec.digest.as_str(), 80)
        ));
    }
    None
}

fn late(object: &Object, until: Timestamp) -> Option<String> {
    let at = object.created_at()?;
    (at > until).then(|| format!("it came at {at:.0}, after {until:.0}"))
}

fn word(decision: Word) -> &'static str {
    match decision {
        Word::Approve => "approve",
        Word::Reject => "reject",
    }
}
