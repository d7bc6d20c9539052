//! Guards that can be taken away one at a time, to see that the simulation notices.
//!
//! A simulator that cannot fail proves nothing. Each entry of [`ALL`] names a promise, removes the code that keeps it,
//! and is expected to be caught; `tests/it/mutants.rs` checks that every one is.

use pawl_machines::apply;

/// What keeps a run right. All on, but in a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guards {
    pub applying: apply::Guards,
    /// A decision never runs on caches older than its own last write.
    pub read_your_writes: bool,
    /// A finalizer goes only after what it guards has been cleaned up.
    pub finalizer_order: bool,
}

impl Default for Guards {
    fn default() -> Self {
        Self { applying: apply::Guards::default(), read_your_writes: true, finalizer_order: true }
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
    // The adoption check is not here: a Workflow looks at whose Job it has before anything else, so a simulated world no
    // longer ends otherwise without the check. Its absence is caught in `apply::tests`.
    Mutant {
        name: "UID precondition",
        scenario: "workflow-namesake",
        from: 1235,
        guards: || without(|guards| guards.applying.uid_precondition = false),
    },
    Mutant {
        name: "finalizer order",
        scenario: "workflow-delete",
        from: 1,
        guards: || without(|guards| guards.finalizer_order = false),
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
        from: 140,
        guards: || without(|guards| guards.applying.basis_check = false),
    },
    Mutant {
        name: "status last",
        scenario: "workflow",
        from: 6,
        guards: || without(|guards| guards.applying.status_last = false),
    },
];
