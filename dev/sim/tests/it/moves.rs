//! Policy, target and people's words change at every single step of an approved action: what was promised is kept all the
//! same.

use std::sync::atomic::{AtomicUsize, Ordering};

use pawl_api::k8s::{CONFIG_MAP, DEPLOYMENT};
use pawl_api::pawl::{SYSTEM_NAMESPACE, approval};
use pawl_api::remedy::kubernetes_execution;
use pawl_sim::campaign::Simulator;
use pawl_sim::ground::Ground;
use pawl_sim::inner::{Meanwhile, Setup};
use pawl_sim::scenario::Deed;
use pawl_sim::scenarios;
use serde_json::json;

/// One after the other, and with one process that stalls among two.
const SEEDS: [(u64, usize); 2] = [(0, 1), (7, 2)];

fn asked(ground: &Ground) -> bool {
    ground.get(&kubernetes_execution::KIND, "default", "k").is_some()
}

/// Runs it once for each change that it makes, with the deed right after that.
fn disturb_everywhere(deed: fn() -> Deed) {
    let scenario = scenarios::find("action-moves").unwrap();
    for (seed, replicas) in SEEDS {
        let plain = || Setup { seed, replicas, ..Setup::plain() };
        let changes = Simulator::Inner.run(&scenario, &plain(), None).changes;
        assert!(changes > 40, "an approved action makes more than {changes} changes");
        let next = AtomicUsize::new(0);
        let work = || loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= changes {
                return;
            }
            let setup = Setup { meanwhile: Some(Meanwhile { changes: at, deed }), ..plain() };
            let run = Simulator::Inner.run(&scenario, &setup, None);
            assert_eq!(run.violations, [], "seed {seed}, after change {at} of {changes}");
        };
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    }
}

#[test]
fn a_target_that_moves_at_every_step_is_changed_only_as_it_was_approved() {
    disturb_everywhere(|| {
        let more = json!({"spec": {"replicas": 9}});
        Deed::patch(DEPLOYMENT, "web", more).when(asked)
    });
}

#[test]
fn a_policy_that_denies_at_every_step_stops_what_was_not_let_go() {
    disturb_everywhere(|| {
        let no = json!({"data": {"a.rego": "deny"}});
        Deed::patch(CONFIG_MAP, "policy", no).in_namespace(SYSTEM_NAMESPACE).when(asked)
    });
}

#[test]
fn a_policy_that_moves_at_every_step_makes_approvals_of_before_worthless() {
    disturb_everywhere(|| {
        let other = json!({"data": {"b.rego": "another"}});
        Deed::patch(CONFIG_MAP, "policy", other).in_namespace(SYSTEM_NAMESPACE).when(asked)
    });
}

#[test]
fn a_rejection_that_races_with_an_approval_at_every_step_ends_it_or_comes_too_late() {
    disturb_everywhere(|| {
        let no = json!({"metadata": {"name": "no", "namespace": "default"}, "spec": {"executionRef": {"name": "k"},
            "decision": "reject", "approver": {"username": "system:apiserver"}, "digest": "any"}});
        Deed::create(approval::KIND, no).when(asked)
    });
}
