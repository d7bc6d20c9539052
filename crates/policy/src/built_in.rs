//! What does our own policy say of this input, and fast?
//!
//! It is compiled to the instructions of regorus' virtual machine, which runs them in a fraction of what the interpreter
//! takes. Policies of users are interpreted: that is the older engine, and the only one that lets us answer
//! `time.now_ns`. The fixtures are compared on both.

use std::fmt;
use std::sync::{Arc, LazyLock};

use pawl_machines::remedy::safety::Decision;
use regorus::Value;
use regorus::languages::rego::compiler::Compiler;
use regorus::rvm::{Program as Instructions, RegoVM};
use regorus::utils::limits::ExecutionTimerConfig;
use sha2::{Digest as _, Sha256};

use crate::DEADLINE;
use crate::calls;
use crate::program::{TIMER_STEPS, add, engine, problem, read};
use crate::scan::Problem;
use crate::spare::Spare;

/// The policy that holds where there is none.
pub const BUILT_IN: (&str, &str) = ("built-in/safety.rego", include_str!("../default/safety.rego"));

const DECISION: &str = "data.pawl.safety.decision";

/// The built-in policy, ready to be asked.
pub struct BuiltIn {
    instructions: Arc<Instructions>,
    spare: Spare<RegoVM>,
    digest: String,
}

impl fmt::Debug for BuiltIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltIn").field("digest", &self.digest).finish_non_exhaustive()
    }
}

/// The built-in policy, compiled once.
///
/// # Errors
/// Never, while its tests hold; whoever asks is told no.
pub fn built_in() -> Result<&'static BuiltIn, &'static Problem> {
    static POLICY: LazyLock<Result<BuiltIn, Problem>> = LazyLock::new(BuiltIn::compile);
    POLICY.as_ref()
}

impl BuiltIn {
    fn compile() -> Result<Self, Problem> {
        let (name, text) = BUILT_IN;
        let mut engine = engine()?;
        add(&mut engine, name, text)?;
        calls::check(engine.get_modules())?;
        let said = |error: &dyn fmt::Display| problem(&error.to_string());
        let compiled = engine.compile_with_entrypoint(&Arc::from(DECISION)).map_err(|error| said(&error))?;
        let instructions =
            Compiler::compile_from_policy(&compiled, &[DECISION]).map_err(|error| said(&error))?;
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(text)));
        Ok(Self { instructions, spare: Spare::default(), digest })
    }

    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// What it says of an input, which is JSON.
    ///
    /// # Errors
    /// When it cannot be evaluated. That denies.
    pub fn decide(&self, input: &str) -> Result<Decision, String> {
        let input = Value::from_json_str(input).map_err(|error| format!("the input is no JSON: {error}"))?;
        let mut machine = self.spare.take().unwrap_or_else(|| self.machine());
        machine.set_input(input);
        let value = machine.execute().map_err(|error| problem(&error.to_string()).to_string())?;
        // What an evaluation left half done is not used again.
        self.spare.give_back(machine);
        read(DECISION, &value)
    }

    fn machine(&self) -> RegoVM {
        let mut machine = RegoVM::new();
        machine.load_program(Arc::clone(&self.instructions));
        machine.set_strict_builtin_errors(false);
        let timer = ExecutionTimerConfig { limit: DEADLINE, check_interval: TIMER_STEPS };
        machine.set_execution_timer_config(Some(timer));
        machine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_policy_can_be_asked_again_and_again() {
        let policy = built_in().unwrap();
        assert!(policy.digest().starts_with("sha256:"));
        for action in ["notify_only", "cordon_node", "notify_only"] {
            let decision = policy.decide(&format!(r#"{{"action": "{action}"}}"#)).unwrap();
            assert_eq!(decision.allow, action == "notify_only", "{decision:?}");
        }
        assert!(policy.decide("{").is_err());
    }
}
