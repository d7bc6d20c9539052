//! `pawl rbac`: what a cluster must be given so that actions can be carried out, each with its own rights.

use pawl_api::remedy::{EXECUTOR_NAMESPACE, SERVICE_ACCOUNT_PREFIX};
use pawl_machines::remedy::action::executor::Executor;
use pawl_machines::remedy::action::rbac;
use serde_json::Value;

use crate::crds;
use crate::terminal::Say;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Print a ServiceAccount, a ClusterRole and a binding for every action, for `kubectl apply -f -`.
    Generate(Generate),
}

#[derive(Debug, clap::Args)]
struct Generate {
    /// Let actions on namespaced objects be done in this namespace only; may be given several times.
    #[arg(long = "namespace", short)]
    namespaces: Vec<String>,
    #[command(flatten)]
    choices: Choices,
}

/// Where and as whom actions are carried out.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Choices {
    /// Where the Jobs of actions run.
    #[arg(long, default_value = EXECUTOR_NAMESPACE)]
    executor_namespace: String,
    /// What the ServiceAccounts of actions are called, before the action with dashes.
    #[arg(long, default_value = SERVICE_ACCOUNT_PREFIX)]
    service_account_prefix: String,
}

impl Choices {
    /// The executor that these make, with Pawl's own image.
    pub(crate) fn executor(&self, image: &str) -> Executor {
        Executor {
            namespace: self.executor_namespace.clone(),
            image: image.to_owned(),
            service_account_prefix: self.service_account_prefix.clone(),
        }
    }
}

impl Default for Choices {
    fn default() -> Self {
        Self {
            executor_namespace: EXECUTOR_NAMESPACE.to_owned(),
            service_account_prefix: SERVICE_ACCOUNT_PREFIX.to_owned(),
        }
    }
}

/// All manifests for actions that are carried out in these namespaces, or in all.
pub(crate) fn generate(choices: &Choices, namespaces: &[String]) -> Vec<Value> {
    // No manifest here names an image.
    rbac::manifests(&choices.executor(""), namespaces)
}

pub(crate) fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let What::Generate(Generate { namespaces, choices }) = &args.what;
    generate(choices, namespaces).iter().try_for_each(|manifest| crds::document(manifest, say))
}
