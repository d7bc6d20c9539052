//! Where is it evaluated? In workers; in this process only where nothing hostile is: the simulator and tests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use pawl_machines::remedy::safety::{Decision, Held, Policies};

use crate::condition::Condition;
use crate::pool::Workers;
use crate::program::{Program, Rejected};

/// Sets that are kept in process.
const MAX_SETS: usize = 4;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The policies cannot be used, whatever the input.
    #[error("{0}")]
    Rejected(Rejected),
    /// Evaluation was ended: too long, too much memory.
    #[error("{0}")]
    Stopped(String),
    /// Nobody is there to be asked.
    #[error("{0}")]
    Lost(String),
}

/// Asks policies and conditions.
pub trait Evaluator: Send + Sync + fmt::Debug {
    /// What a set says of an input; without an input, whether it can be used.
    fn decide<'a>(
        &'a self,
        set: &'a Policies,
        input: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Result<Decision, String>, Trouble>>;

    fn holds<'a>(&'a self, rego: &'a str, input: &'a str) -> BoxFuture<'a, Result<Held, Trouble>>;
}

impl Evaluator for Workers {
    fn decide<'a>(
        &'a self,
        set: &'a Policies,
        input: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Result<Decision, String>, Trouble>> {
        Box::pin(Workers::decide(self, set, input))
    }

    fn holds<'a>(&'a self, rego: &'a str, input: &'a str) -> BoxFuture<'a, Result<Held, Trouble>> {
        Box::pin(Workers::holds(self, rego, input))
    }
}

/// Evaluates in this process. What is hostile takes it down: for texts that are known.
#[derive(Debug, Default)]
pub struct InProcess {
    sets: Mutex<BTreeMap<String, Result<Arc<Program>, Rejected>>>,
}

impl InProcess {
    fn program(&self, set: &Policies) -> Result<Arc<Program>, Rejected> {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = sets.get(&set.digest) {
            return known.clone();
        }
        if sets.len() >= MAX_SETS {
            sets.clear();
        }
        let program = Program::compile(&set.modules).map(Arc::new);
        sets.insert(set.digest.clone(), program.clone());
        program
    }
}

impl Evaluator for InProcess {
    fn decide<'a>(
        &'a self,
        set: &'a Policies,
        input: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Result<Decision, String>, Trouble>> {
        let decided = self.program(set).map_err(Trouble::Rejected).map(|program| match input {
            Some(input) => program.decide(input),
            None => Ok(Decision::default()),
        });
        Box::pin(std::future::ready(decided))
    }

    fn holds<'a>(&'a self, rego: &'a str, input: &'a str) -> BoxFuture<'a, Result<Held, Trouble>> {
        let held = match Condition::compile(rego) {
            Ok(condition) => condition.holds(input),
            Err(problem) => Held::Error(problem.to_string()),
        };
        Box::pin(std::future::ready(Ok(held)))
    }
}
