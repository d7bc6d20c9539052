//! What does an object say of its entries? Nothing, while all is well (I12).
//!
//! ```text
//! (nothing) ──store down──▶ AuditRecorded=False, the ids that wait ──all stored──▶ AuditRecorded=True, no ids
//!     └───────no store────▶ AuditRecorded=False
//! ```
//! It is said in the same write as the status, where there is one.

use jiff::Timestamp;
use pawl_api::meta::Reason;
use pawl_api::meta::condition::{self, Condition, NewCondition};
use pawl_api::pawl::conditions::AUDIT_RECORDED;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::machine::BoundPlan;
use crate::object::Object;

/// How many ids an object lists; its schema allows as many.
pub const MAX_PENDING: usize = 16;

const PENDING: &str = "pendingAuditEvents";

/// How an object's entries stand with the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// All are stored, or will be in a moment.
    Recorded,
    /// The store does not answer: these wait, the oldest first.
    Waiting { why: String, ids: Vec<Uuid> },
    /// There is nowhere to store anything.
    NoStore,
}

/// Puts into a plan's status what the object is to say of its entries. A plan without a status gets one only where the
/// object would say something else than it does.
pub fn say(plan: &mut BoundPlan, me: &Object, standing: &Standing, now: Timestamp) {
    let before = conditions_of(me.status());
    let said = condition::get(&before, AUDIT_RECORDED);
    let Some(new) = wanted(said, standing) else { return };
    let status = plan.status.as_ref().unwrap_or(me.status());
    // An object that nothing has been decided about has nothing to record.
    let Some(mut status) = status.as_object().filter(|status| !status.is_empty()).cloned() else { return };
    let mut conditions = conditions_of(&Value::Object(status.clone()));
    // What a decision left out is carried on, with the time of its last flip.
    if condition::get(&conditions, AUDIT_RECORDED).is_none() {
        conditions.extend(said.cloned());
    }
    let generation = status.get("observedGeneration").and_then(Value::as_i64).or(me.meta().generation);
    condition::set(&mut conditions, new, generation, now);
    status.insert("conditions".to_owned(), json!(conditions));
    set_pending(&mut status, standing);
    if plan.status.is_some() || Value::Object(status.clone()) != *me.status() {
        plan.status = Some(Value::Object(status));
    }
}

/// `None`: nothing was ever said, and nothing is to be.
fn wanted(said: Option<&Condition>, standing: &Standing) -> Option<NewCondition> {
    match standing {
        Standing::Recorded => {
            let words = "every entry is stored";
            said.map(|_| NewCondition::yes(AUDIT_RECORDED, Reason::AuditRecorded, words))
        }
        Standing::Waiting { why, .. } => {
            // Why it first failed is told; an error that reads differently each time would be a write each time.
            let same = said.filter(|said| said.reason == Reason::AuditStoreDown.as_str());
            let words =
                same.map_or_else(|| format!("entries wait to be stored: {why}"), |said| said.message.clone());
            Some(NewCondition::no(AUDIT_RECORDED, Reason::AuditStoreDown, words))
        }
        Standing::NoStore => {
            let words = "there is neither a volume nor a PostgreSQL for the ledger: nothing is recorded";
            Some(NewCondition::no(AUDIT_RECORDED, Reason::AuditStoreMissing, words))
        }
    }
}

fn set_pending(status: &mut Map<String, Value>, standing: &Standing) {
    match standing {
        Standing::Waiting { ids, .. } => {
            let ids: Vec<String> = ids.iter().take(MAX_PENDING).map(Uuid::to_string).collect();
            status.insert(PENDING.to_owned(), json!(ids));
        }
        Standing::Recorded | Standing::NoStore => {
            status.remove(PENDING);
        }
    }
}

fn conditions_of(status: &Value) -> Vec<Condition> {
    status.get("conditions").and_then(|list| Vec::deserialize(list).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Wake;
    use pawl_api::git::workflow;
    use std::sync::Arc;

    fn object(status: &Value) -> Arc<Object> {
        let metadata =
            json!({"name": "w", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1});
        Object::new(workflow::KIND, json!({"metadata": metadata, "status": status})).unwrap()
    }

    fn said(me: &Object, status: Option<Value>, standing: &Standing, second: i64) -> Option<Value> {
        let mut plan = BoundPlan {
            machine: "workflow",
            basis: me.reference(),
            resource_version: "1".to_owned(),
            fenced: false,
            in_any_order: false,
            steps: vec![],
            notes: vec![],
            status,
            asks: vec![],
            wake: Wake::OnChange,
        };
        say(&mut plan, me, standing, Timestamp::from_second(second).unwrap());
        plan.status
    }

    fn waiting(count: u128) -> Standing {
        let ids = (0..count).map(Uuid::from_u128).collect();
        Standing::Waiting { why: format!("no answer, for the {count}. time"), ids }
    }

    #[test]
    fn i12_while_all_is_recorded_nothing_is_said() {
        let me = object(&json!({"phase": "Running"}));
        assert_eq!(said(&me, None, &Standing::Recorded, 1), None);
        let status = json!({"phase": "Succeeded"});
        assert_eq!(said(&me, Some(status.clone()), &Standing::Recorded, 1), Some(status));
        // Nothing has been decided yet: nothing to record either.
        assert_eq!(said(&object(&Value::Null), None, &waiting(1), 1), None);
    }

    #[test]
    fn an_outage_is_said_once_with_at_most_sixteen_ids_and_taken_back_once() {
        let me = object(&json!({"phase": "Running", "conditions": []}));
        let down = said(&me, None, &waiting(20), 5).unwrap();
        assert_eq!(down["conditions"][0]["status"], "False");
        assert_eq!(down["conditions"][0]["reason"], "AuditStoreDown");
        assert_eq!(down["pendingAuditEvents"].as_array().unwrap().len(), MAX_PENDING);
        let me = object(&down);
        // The same ids under another error message: no write.
        let Standing::Waiting { ids, .. } = waiting(20) else { unreachable!() };
        assert_eq!(said(&me, None, &Standing::Waiting { why: "another".to_owned(), ids }, 6), None);
        let up = said(&me, None, &Standing::Recorded, 7).unwrap();
        assert_eq!(
            (&up["conditions"][0]["status"], &up["pendingAuditEvents"]),
            (&json!("True"), &Value::Null)
        );
        assert_eq!(said(&object(&up), None, &Standing::Recorded, 8), None);
    }

    #[test]
    fn it_is_said_in_the_status_that_is_written_anyway() {
        let me = object(&json!({"phase": "Pending"}));
        let status = said(&me, Some(json!({"phase": "Running"})), &Standing::NoStore, 5).unwrap();
        assert_eq!(status["phase"], "Running");
        assert_eq!(status["conditions"][0]["reason"], "AuditStoreMissing");
        // A decision that does not know the condition does not take it away, nor moves its time.
        let me = object(&status);
        let next = said(&me, Some(json!({"phase": "Succeeded"})), &Standing::NoStore, 9).unwrap();
        assert_eq!(next["conditions"], status["conditions"]);
    }
}
