//! What have people done to a target's lock, past the machines that share it?
//!
//! `pawl unlock` takes a lock away and `pawl clear-block` lets a workflow run again. Both write, in the same request, who
//! did it and why into an annotation of the Lease. The ledger's rows follow from that, as from any other state: a command
//! line that dies in the middle has done nothing, or has said so.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::meta::Duration;
use serde::{Deserialize, Serialize};

use crate::object::Object;
use crate::time::later;

/// On a Lease: what people did to it, the latest last, as JSON.
pub const ACTS: &str = "pawl.dev/acts";

/// How many are kept: more than anybody does to one lock while no controller runs that would record them.
const MAX: usize = 8;

/// How long they stay: a day is enough for any controller to come back, and for people to see what happened.
const KEPT: Duration = Duration::from_hours(24);

/// One thing that a person did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Act {
    pub what: What,
    /// As the API server knows them.
    pub by: String,
    pub at: Time,
    pub reason: String,
    /// Who held the lock, or which workflows may run again.
    pub about: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// The lock was taken away from its holder.
    Unlocked,
    /// What kept a workflow from running was cleared.
    BlockCleared,
    /// What the target remembered could not be read, and was thrown away.
    MemoryReplaced,
}

impl What {
    /// The ledger's word for it.
    pub const fn event(self) -> &'static str {
        match self {
            Self::Unlocked => "target.unlocked",
            Self::BlockCleared => "target.block.cleared",
            Self::MemoryReplaced => "target.memory.replaced",
        }
    }
}

/// What was done to a Lease, as far as it is remembered. What somebody else wrote there is no act.
pub fn of(lease: &Object) -> Vec<Act> {
    lease.annotation(ACTS).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The annotation after one more.
pub fn with(lease: &Object, act: Act) -> String {
    let mut acts = of(lease);
    acts.push(act);
    let kept = acts.get(acts.len().saturating_sub(MAX)..).unwrap_or_default();
    // A list of structs of strings is always JSON.
    serde_json::to_string(kept).unwrap_or_default()
}

/// Until when the annotation stays; `None` where there is none.
pub(super) fn kept_until(lease: &Object) -> Option<Timestamp> {
    lease.annotation(ACTS)?;
    let last = of(lease).into_iter().map(|act| act.at.0).max().unwrap_or(Timestamp::MIN);
    Some(later(last, KEPT.get()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::LEASE;
    use serde_json::json;

    fn act(number: i64) -> Act {
        let at = Time(Timestamp::from_second(number).unwrap());
        let (by, reason, about) = ("ann".to_owned(), format!("{number}"), String::new());
        Act { what: What::Unlocked, by, at, reason, about }
    }

    #[test]
    fn the_latest_acts_are_kept_and_what_is_no_list_of_acts_is_none() {
        let lease = |text: &str| {
            Object::new(LEASE, json!({"metadata": {"name": "pawl-lock-0", "annotations": {ACTS: text}}}))
                .unwrap()
        };
        let all = (0..20).fold("[]".to_owned(), |text, number| with(&lease(&text), act(number)));
        let told: Vec<String> = of(&lease(&all)).into_iter().map(|act| act.reason).collect();
        assert_eq!(told, ["12", "13", "14", "15", "16", "17", "18", "19"]);
        assert_eq!(of(&lease("nonsense")), []);
        assert_eq!(of(&lease(&with(&lease("nonsense"), act(1)))), [act(1)]);
    }
}
