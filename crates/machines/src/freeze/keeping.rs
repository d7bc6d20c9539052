//! Does a Freeze hold now, until when, and when next? Its status says so, for people; units look at the times themselves.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::meta::{NewCondition, Reason, condition};
use pawl_api::pawl::freeze::KIND;
use pawl_api::pawl::{Freeze, FreezeStatus};

use super::when::{Moment, When};
use crate::machine::{Description, Machine, Write};
use crate::plan::{Note, Plan};
use crate::view::Context;

/// The condition that says whether the schedule can be read.
const VALID: &str = "Valid";

/// Keeps the statuses of Freezes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Freezes;

impl Machine for Freezes {
    type Kind = Freeze;
    type Status = FreezeStatus;

    fn description(&self) -> Description {
        Description { writes: vec![Write::status(KIND)], ..Description::new("freeze", KIND) }
    }

    fn reconcile(&self, cx: &Context<'_, Freeze>) -> Plan<FreezeStatus> {
        if cx.object.is_deleting() {
            return Plan::rest();
        }
        let mut status = cx.typed.status.clone().unwrap_or_default();
        let generation = cx.object.meta().generation;
        let (moment, valid) = match When::of(&cx.typed.spec) {
            Ok(when) => {
                (when.at(cx.now), NewCondition::yes(VALID, Reason::Valid, "its times are understood"))
            }
            Err(problem) => {
                let message = format!("{problem}; it holds until it is mended");
                (
                    Moment { active: Some(None), next_start: None },
                    NewCondition::no(VALID, Reason::Invalid, message),
                )
            }
        };
        let was = status.active;
        status.observed_generation = generation;
        status.active = Some(moment.active.is_some());
        status.active_until = moment.active.flatten().map(Time);
        status.next_start = moment.next_start.map(Time);
        condition::set(&mut status.conditions, valid, generation, cx.now);
        let edge = moment.active.flatten().or(moment.next_start);
        let mut plan = Plan::rest();
        if was != status.active && (was.is_some() || status.active == Some(true)) {
            plan = plan.note(note(cx, moment));
        }
        let plan = plan.status(status);
        match edge {
            Some(edge) => plan.wake_at(edge),
            None => plan,
        }
    }
}

fn note(cx: &Context<'_, Freeze>, moment: Moment) -> Note {
    let reason = &cx.typed.spec.reason;
    let note = match moment.active {
        Some(Some(until)) => Note::normal(Reason::Frozen, format!("holds until {until:.0}: {reason}")),
        Some(None) => Note::normal(Reason::Frozen, format!("holds: {reason}")),
        None => Note::normal(Reason::NotFrozen, format!("holds no longer: {reason}")),
    };
    // Each edge is told, also those of a schedule that read alike.
    note.once(cx.now.as_second().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::AnyMachine;
    use crate::object::Key;
    use crate::testing::{Cluster, START};
    use serde_json::{Value, json};
    use std::time::Duration;

    fn status(cluster: &mut Cluster) -> Value {
        cluster.settle(&[AnyMachine::new(Freezes)]);
        cluster.get(&KIND, &Key::new(None, "f")).unwrap()["status"].clone()
    }

    fn freeze(spec: &Value) -> Cluster {
        let mut cluster = Cluster::of(&[KIND], "");
        cluster.put(json!({"kind": "Freeze", "metadata": {"name": "f"}, "spec": spec}));
        cluster
    }

    #[test]
    fn a_freeze_says_whether_it_holds_and_is_woken_at_its_edges() {
        let mut cluster =
            freeze(&json!({"reason": "maintenance", "schedule": {"cron": "0 1 * * *", "duration": "2h"}}));
        let first = status(&mut cluster);
        assert_eq!((&first["active"], &first["nextStart"]), (&json!(false), &json!("2026-01-01T01:00:00Z")));
        assert!(cluster.events.is_empty());
        cluster.now += Duration::from_hours(1);
        let second = status(&mut cluster);
        assert_eq!(
            (&second["active"], &second["activeUntil"]),
            (&json!(true), &json!("2026-01-01T03:00:00Z"))
        );
        assert_eq!(second.get("nextStart"), None);
        cluster.now += Duration::from_hours(2);
        assert_eq!(status(&mut cluster)["nextStart"], "2026-01-02T01:00:00Z");
        let told: Vec<&str> = cluster.events.iter().map(|(_, reason, _)| reason.as_str()).collect();
        assert_eq!(told, ["Frozen", "NotFrozen"]);
    }

    #[test]
    fn a_freeze_that_cannot_be_read_says_so_and_that_it_holds() {
        let bad = json!({"reason": "r", "schedule": {"cron": "0 25 * * *", "duration": "2h"}});
        let status = status(&mut freeze(&bad));
        assert_eq!(status["active"], true);
        let condition = &status["conditions"][0];
        assert_eq!((&condition["type"], &condition["status"]), (&json!("Valid"), &json!("False")));
        assert!(condition["message"].as_str().unwrap().contains("spec.schedule.cron"));
    }

    #[test]
    fn a_freeze_that_is_over_rests() {
        let mut cluster = freeze(&json!({"reason": "r", "until": START}));
        let first = status(&mut cluster);
        assert_eq!(first["active"], false);
        let written = cluster.statuses.len();
        cluster.now += Duration::from_hours(1000);
        status(&mut cluster);
        assert_eq!(cluster.statuses.len(), written, "nothing changed, nothing is written");
    }
}
