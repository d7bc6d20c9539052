//! How do the items of an Execution fare, and how often is that told?

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::deploy::ExecutionStatus;
use pawl_api::deploy::execution::ItemCounts;

use super::standing::Side;
use super::{Report, whole};
use crate::deploy::graph::Standing;
use crate::plan::{Plan, Wake};

/// How often the counts are written while nothing else changes: an Execution may be a megabyte, and each write of it
/// goes to everybody who watches.
const COUNT_EVERY: Duration = Duration::from_secs(1);

impl Report<'_, ExecutionStatus> {
    /// How the items fare; returns what was told last.
    pub(super) fn count(&mut self, sides: &[&Side<'_>]) -> Option<ItemCounts> {
        let of = |wanted: Standing| {
            whole(sides.iter().flat_map(|side| &side.standing).filter(|one| **one == wanted).count())
        };
        let counts = ItemCounts {
            total: whole(sides.iter().map(|side| side.len()).sum()),
            succeeded: of(Standing::Done),
            failed: of(Standing::Failed),
            running: of(Standing::Running),
            pending: of(Standing::Waiting),
            count_time: Some(Time(self.now)),
        };
        self.status.items.replace(counts)
    }

    /// Nothing new but, once in a while, the counts.
    pub(super) fn goes_on(
        self,
        told: Option<ItemCounts>,
        plan: Plan<ExecutionStatus>,
    ) -> Plan<ExecutionStatus> {
        let Some(counts) = &self.status.items else { return plan };
        let told = told.unwrap_or_default();
        let told_at = told.count_time.clone();
        if (ItemCounts { count_time: told_at.clone(), ..counts.clone() }) == told {
            return plan;
        }
        let due =
            told_at.and_then(|Time(last)| last.checked_add(COUNT_EVERY).ok()).filter(|due| *due > self.now);
        match due {
            Some(due) => Plan { wake: plan.wake.earliest(Wake::At(due)), ..plan },
            None => plan.status(self.status),
        }
    }
}
