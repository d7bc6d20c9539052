//! Guards that can be taken away one at a time, to see that the simulation notices.
//!
//! A simulator that cannot fail proves nothing. Each entry of [`ALL`] names a promise, removes the code that keeps it,
//! and is expected to be caught; `tests/it/mutants.rs` checks that every one is.

use http::{Method, Request};
use pawl_api::git::annotations::LAST_SHA;
use pawl_machines::machine::BoundPlan;
use pawl_machines::plan::Step;
use pawl_machines::remedy::kubernetes_execution;
use pawl_machines::{apply, git};

/// What keeps a run right. All on, but in a mutant. Some are switched off where they are; others are undone on the way
/// of what was decided ([`Guards::tamper`], [`Guards::reorder`]), so that the code itself has no switch for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guards {
    pub applying: apply::Guards,
    pub git: git::Guards,
    pub actions: kubernetes_execution::Guards,
    /// A decision never runs on caches older than its own last write.
    pub read_your_writes: bool,
    /// `$` is written `$$` in what a Job is told of branches and paths (I10).
    pub dollar_escape: bool,
    /// A Job that is stopped is gone only once its Pods are.
    pub foreground_delete: bool,
    /// `last-sha` is written after the Workflows exist.
    pub last_sha_order: bool,
    /// Before a check run is made, it is looked for by its `external_id` (I7).
    pub external_id_look_up: bool,
    /// What Secrets hold is masked in the log that GitHub is shown (I6).
    pub log_mask: bool,
    /// What Secrets hold is masked in what policies and conditions are shown of a target (I6).
    pub shown_mask: bool,
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            applying: apply::Guards::default(),
            git: git::Guards::default(),
            actions: kubernetes_execution::Guards::default(),
            read_your_writes: true,
            dollar_escape: true,
            foreground_delete: true,
            last_sha_order: true,
            external_id_look_up: true,
            log_mask: true,
            shown_mask: true,
        }
    }
}

impl Guards {
    /// A request as it would be without what is taken away.
    #[must_use]
    pub fn tamper(&self, mut request: Request<Vec<u8>>) -> Request<Vec<u8>> {
        if !request.uri().path().contains("/jobs") {
            return request;
        }
        let undone = match *request.method() {
            Method::POST if !self.dollar_escape => Some(("$$", "$")),
            Method::DELETE if !self.foreground_delete => Some(("Foreground", "Background")),
            _ => None,
        };
        if let Some((guarded, bare)) = undone {
            let body = String::from_utf8_lossy(request.body()).replace(guarded, bare);
            *request.body_mut() = body.into_bytes();
        }
        request
    }

    /// A plan's steps in the order they would have without what is taken away.
    pub fn reorder(&self, plan: &mut BoundPlan) {
        let marks = |step: &Step| matches!(step, Step::Patch { patch, .. } if patch.pointer("/metadata/annotations").is_some_and(|all| all.get(LAST_SHA).is_some()));
        if !self.last_sha_order {
            plan.steps.sort_by_key(|step| !marks(step));
        }
    }
}

/// A guard taken away.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    pub name: &'static str,
    /// The scenario whose seeds catch it.
    pub scenario: &'static str,
    /// A seed from which on it is soon caught.
    pub from: u64,
    pub guards: fn() -> Guards,
}

fn without(change: impl FnOnce(&mut Guards)) -> Guards {
    let mut guards = Guards::default();
    change(&mut guards);
    guards
}

/// Every mutant. A new guard gets a line here.
pub const ALL: &[Mutant] = &[
    Mutant {
        name: "adoption check",
        scenario: "git-foreign-claim",
        from: 1,
        guards: || without(|guards| guards.applying.adoption_check = false),
    },
    Mutant {
        name: "UID precondition",
        scenario: "statefulset-update",
        from: 1,
        guards: || without(|guards| guards.applying.uid_precondition = false),
    },
    Mutant {
        name: "finalizer order",
        scenario: "workflow-delete",
        from: 1,
        guards: || without(|guards| guards.git.finalizer_order = false),
    },
    Mutant {
        name: "read your writes",
        scenario: "workflow-foreign-job",
        from: 120,
        guards: || without(|guards| guards.read_your_writes = false),
    },
    Mutant {
        name: "resourceVersion on status",
        scenario: "workflow",
        from: 6,
        guards: || without(|guards| guards.applying.resource_version = false),
    },
    Mutant {
        name: "owner live check",
        scenario: "garbage-other-kind",
        from: 8,
        guards: || without(|guards| guards.applying.owner_live_check = false),
    },
    Mutant {
        name: "basis check",
        scenario: "job-suspend",
        from: 1,
        guards: || without(|guards| guards.applying.basis_check = false),
    },
    Mutant {
        name: "fence",
        scenario: "job-delete",
        from: 13,
        guards: || without(|guards| guards.applying.fence = false),
    },
    Mutant {
        name: "status last",
        scenario: "workflow",
        from: 6,
        guards: || without(|guards| guards.applying.status_last = false),
    },
    Mutant {
        name: "external_id look-up",
        scenario: "git-push",
        from: 1,
        guards: || without(|guards| guards.external_id_look_up = false),
    },
    Mutant {
        name: "terminal check",
        scenario: "workflow-job-removed",
        from: 1,
        guards: || without(|guards| guards.git.terminal_check = false),
    },
    Mutant {
        name: "fork gate",
        scenario: "git-fork",
        from: 1,
        guards: || without(|guards| guards.git.fork_gate = false),
    },
    Mutant {
        name: "$ escape",
        scenario: "git-names",
        from: 1,
        guards: || without(|guards| guards.dollar_escape = false),
    },
    Mutant {
        name: "sequence",
        scenario: "git-two-commits",
        from: 1,
        guards: || without(|guards| guards.git.sequence = false),
    },
    Mutant {
        name: "foreground delete",
        scenario: "workflow-delete",
        from: 1,
        guards: || without(|guards| guards.foreground_delete = false),
    },
    Mutant {
        name: "last-sha order",
        scenario: "git-two-commits",
        from: 1,
        guards: || without(|guards| guards.last_sha_order = false),
    },
    Mutant {
        name: "log mask",
        scenario: "git-secret-in-log",
        from: 1,
        guards: || without(|guards| guards.log_mask = false),
    },
    Mutant {
        name: "approval digest",
        scenario: "action-target-moves",
        from: 1,
        guards: || without(|guards| guards.actions.approval_digest = false),
    },
    Mutant {
        name: "approval by another",
        scenario: "action-self-approval",
        from: 1,
        guards: || without(|guards| guards.actions.not_self = false),
    },
    Mutant {
        name: "undo first",
        scenario: "action-scale",
        from: 1,
        guards: || without(|guards| guards.actions.undo_first = false),
    },
    Mutant {
        name: "recorded before let go",
        scenario: "action-job-removed",
        from: 1,
        guards: || without(|guards| guards.actions.recorded_first = false),
    },
    Mutant {
        name: "freshness of a rollback",
        scenario: "action-rollback-stale",
        from: 1,
        guards: || without(|guards| guards.actions.freshness = false),
    },
    Mutant {
        name: "mask of what is shown",
        scenario: "action-secret",
        from: 1,
        guards: || without(|guards| guards.shown_mask = false),
    },
];
