//! Evaluates policies and conditions in worker processes; tests do it in their own process.

use std::fmt;

use futures::future::BoxFuture;
use pawl_machines::remedy::safety::{Decision, Held, Policies};

use crate::scan::Problem;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The policies cannot be used, whatever the input.
    #[error("{0}")]
    Rejected(Problem),
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

/// Evaluates in this process. A hostile policy would take it down.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::condition::Condition;
    use crate::program::Program;

    #[derive(Debug)]
    pub(crate) struct InProcess;

    impl Evaluator for InProcess {
        fn decide<'a>(
            &'a self,
            set: &'a Policies,
            input: Option<&'a str>,
        ) -> BoxFuture<'a, Result<Result<Decision, String>, Trouble>> {
            let program = Program::compile(&set.modules).map_err(Trouble::Rejected);
            let decided = program.map(|program| match input {
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
}
