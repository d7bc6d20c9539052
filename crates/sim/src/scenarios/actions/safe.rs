//! What holds of every world of actions, whatever happens in it?

use std::collections::{BTreeMap, BTreeSet};

use pawl_api::k8s::{DEPLOYMENT, JOB, LEASE, SECRET};
use pawl_api::pawl::approval;
use pawl_api::pawl::labels::OWNER_UID;
use pawl_api::remedy::annotations;
use pawl_api::remedy::kubernetes_execution::undo_name;
use pawl_apiserver::ChangeType;
use pawl_machines::lock::{self, Lock};
use pawl_machines::object::Object;
use serde_json::Value;

use super::{EXECUTION, digest_of};
use crate::ground::{Ground, Happened};
use crate::oracle;

/// What holds whatever happens: nothing is let go without a valid approval where one is required, nothing is done twice, the
/// undo is stored and named before anything is changed, never two act on a target, and no lock is left.
pub(super) fn safe(ground: &Ground) -> Result<(), String> {
    let mut past = Past::default();
    for happened in &ground.history {
        past.take(happened)?;
    }
    if let Some((uid, jobs)) = past.let_go.iter().find(|(_, jobs)| jobs.len() > 1) {
        return Err(format!("{uid} was carried out by {jobs:?}"));
    }
    let held = ground.all(&LEASE).filter(|lease| lock::target_hash(lease).is_some());
    match held.filter(|lease| lock::read(Some(lease)) != Lock::Free).count() {
        0 => Ok(()),
        held => Err(format!("{held} locks are left")),
    }
}

/// What was so at a moment of the history.
#[derive(Default)]
struct Past {
    executions: BTreeMap<String, Value>,
    approvals: Vec<Value>,
    undos: BTreeSet<String>,
    /// Per execution, the Jobs that were let go, ever.
    let_go: BTreeMap<String, BTreeSet<String>>,
    /// Who has changed a target last.
    changed_by: BTreeMap<String, String>,
}

impl Past {
    fn take(&mut self, Happened { what, object, .. }: &Happened) -> Result<(), String> {
        let gone = *what == ChangeType::Deleted;
        let kind = object.kind();
        if *kind == EXECUTION {
            self.executions.insert(object.uid().to_owned(), object.raw().clone());
        } else if *kind == approval::KIND {
            self.approvals.push(object.raw().clone());
        } else if *kind == SECRET && object.name().starts_with("pawl-undo-") {
            if gone {
                self.undos.remove(object.name());
            } else {
                self.undos.insert(object.name().to_owned());
            }
        } else if *kind == JOB && !gone && oracle::has_run(object) {
            if let Some(owner) = object.label(OWNER_UID) {
                let first = self.let_go.entry(owner.to_owned()).or_default().insert(object.uid().to_owned());
                if first {
                    self.may_go(owner)?;
                }
            }
        } else if (*kind == DEPLOYMENT || *kind == SECRET) && !gone {
            return self.change(object);
        }
        Ok(())
    }

    /// A Job was let go just now.
    fn may_go(&self, uid: &str) -> Result<(), String> {
        let Some(execution) = self.executions.get(uid) else { return Err(format!("a Job of nobody: {uid}")) };
        self.is_undoable(uid, execution)?;
        let required = execution.pointer("/status/validationResults/policyValidation/requiredApproval");
        if required != Some(&Value::Bool(true)) {
            return Ok(());
        }
        let digest = execution.get("status").map(digest_of);
        let valid = |one: &Value| {
            one.pointer("/spec/digest").and_then(Value::as_str) == digest
                && one.pointer("/spec/decision").and_then(Value::as_str) == Some("approve")
                && one.pointer("/spec/approver/username") != execution.pointer("/spec/requestedBy")
        };
        if self.approvals.iter().any(valid) {
            Ok(())
        } else {
            Err(format!("{uid} was let go without a valid approval of {digest:?}"))
        }
    }

    /// Its undo is stored, and its status names it (I4).
    fn is_undoable(&self, uid: &str, execution: &Value) -> Result<(), String> {
        let named = execution.pointer("/status/rollbackInformation/undoRef/name").and_then(Value::as_str);
        let stored = self.undos.contains(&undo_name(uid));
        if stored && named == Some(undo_name(uid).as_str()) {
            Ok(())
        } else {
            Err(format!("{uid} went on with its undo stored: {stored}, named: {named:?}"))
        }
    }

    fn change(&mut self, target: &Object) -> Result<(), String> {
        let Some(by) = target.annotation(annotations::CHANGED_BY) else { return Ok(()) };
        let before = self.changed_by.insert(target.uid().to_owned(), by.to_owned());
        if before.as_deref() == Some(by) {
            return Ok(());
        }
        let Some(execution) = self.executions.get(by) else { return Err(format!("changed by nobody: {by}")) };
        self.is_undoable(by, execution)
    }
}
