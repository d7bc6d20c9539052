//! `pawl act`: carries one order out, inside the Job of a KubernetesExecution.
//!
//! ```text
//! mounted Secrets ─▶ order, what was kept ─▶ API calls, as the Pod's ServiceAccount ─▶ report: the termination message
//!                                                    └─▶ standard output: each step, masked
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use pawl_actions::{Errand, Way, carry_out};
use pawl_api::meta::Target;
use pawl_engine::SystemClock;
use pawl_engine::wire::Wire;
use pawl_integrations::mask::Mask;
use pawl_machines::remedy::action::executor::{
    ORDER_DIRECTORY, ORDER_KEY, RESOURCE_NAME, TARGET_NAMESPACE, UNDO_DIRECTORY, UNDONE_DIRECTORY,
};
use pawl_machines::remedy::action::kept::{self, Kept};
use pawl_machines::remedy::action::report::{Outcome, Report};
use pawl_machines::remedy::action::{Order, definition};

use crate::terminal::{Say, printable};
use crate::{cluster, stop};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory with the order.
    #[arg(long, default_value = ORDER_DIRECTORY)]
    order: PathBuf,
    /// The directory with what this execution kept.
    #[arg(long, default_value = UNDO_DIRECTORY)]
    undo: PathBuf,
    /// The directory with what the execution kept that this one takes back.
    #[arg(long, default_value = UNDONE_DIRECTORY)]
    undone: PathBuf,
    /// Where the report is left.
    #[arg(long, default_value = "/dev/termination-log")]
    termination_log: PathBuf,
    /// The cluster's kubeconfig; without it, the Pod's own ServiceAccount.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The target's namespace once more.
    #[arg(long, env = TARGET_NAMESPACE, default_value = "", hide = true)]
    target_namespace: String,
    /// The target's name once more.
    #[arg(long, env = RESOURCE_NAME, default_value = "", hide = true)]
    resource_name: String,
}

pub(crate) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<ExitCode> {
    let errand = errand(args)?;
    let (uid, action) = (errand.order.uid.clone(), errand.order.action);
    let say = Mutex::new(say);
    let mask = Mask::default();
    let tell = |line: &str| {
        say.lock().unwrap_or_else(PoisonError::into_inner).line(&printable(&mask.apply(line)));
    };
    tell(&format!("{action} for {}, {uid}", errand.order.execution));
    let report = match agree(args, &errand.order) {
        Err(problem) => Report::new(&uid, action, Outcome::Refused, problem),
        Ok(()) => {
            let mut config = match &args.kubeconfig {
                Some(path) => cluster::config_for_controllers(Some(path)).await?,
                None => kube::Config::incluster().context("find the API server from inside the Pod")?,
            };
            // A budget's no is for the order to wait out, not for the client to ask again and again.
            config.default_retry = false;
            let client = kube::Client::try_from(config)?;
            let way = Way::new(Wire::new(client));
            let stopping = stop::requested()?;
            tokio::select! {
                report = carry_out(&way, errand, &SystemClock, &tell) => report,
                () = stopping.wait() => {
                    Report::new(&uid, action, Outcome::Failed, "it was stopped before its end: it may have been done in part")
                }
            }
        }
    };
    fs::write(&args.termination_log, report.render())
        .with_context(|| format!("leave the report in {}", args.termination_log.display()))?;
    Ok(match report.outcome {
        Outcome::Done => ExitCode::SUCCESS,
        Outcome::Refused | Outcome::Failed => ExitCode::FAILURE,
    })
}

/// What is mounted.
fn errand(args: &Args) -> anyhow::Result<Errand> {
    let path = args.order.join(ORDER_KEY);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let order = Order::from_json(&text)?;
    let undone = match &order.undoes {
        Some(_) => kept(&args.undone)?,
        None => None,
    };
    Ok(Errand { kept: kept(&args.undo)?, undone, order })
}

fn kept(directory: &Path) -> anyhow::Result<Option<Kept>> {
    let path = directory.join(kept::KEY);
    match fs::read(&path) {
        // The words of the error would quote the text, which may be secret.
        Ok(bytes) => Ok(Some(
            serde_json::from_slice(&bytes)
                .map_err(|_| anyhow::anyhow!("{} does not hold what an execution keeps", path.display()))?,
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

/// The environment says the target once more, for those who look at the Job: it must say the same.
fn agree(args: &Args, order: &Order) -> Result<(), String> {
    let parameters = order.parameters().map_err(|error| error.to_string())?;
    let Some(Ok(Target::Object(target))) = definition(order.action).target(&parameters) else {
        return Ok(());
    };
    let said = [
        (TARGET_NAMESPACE, &args.target_namespace, target.namespace().unwrap_or_default()),
        (RESOURCE_NAME, &args.resource_name, target.name()),
    ];
    match said.into_iter().find(|(_, said, is)| !said.is_empty() && *said != is) {
        Some((name, said, is)) => Err(format!("{name} is {said:?}, and the order's target is {is:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Said;
    use serde_json::json;

    fn args(directory: &Path) -> Args {
        Args {
            order: directory.join("order"),
            undo: directory.join("undo"),
            undone: directory.join("undone"),
            termination_log: directory.join("message"),
            kubeconfig: Some(directory.join("none")),
            target_namespace: String::new(),
            resource_name: String::new(),
        }
    }

    fn ordered(directory: &Path) {
        fs::create_dir_all(directory.join("order")).unwrap();
        let order = json!({"execution": {"namespace": "home", "name": "x"}, "uid": "u", "action": "scale_deployment",
            "parameters": {"scaleDeployment": {"deployment": "web", "namespace": "shop", "replicas": 1}}});
        fs::write(directory.join("order").join(ORDER_KEY), order.to_string()).unwrap();
    }

    #[tokio::test]
    async fn an_environment_that_names_another_target_is_refused_in_the_report() {
        let home = tempfile::tempdir().unwrap();
        ordered(home.path());
        let args = Args { resource_name: "other".to_owned(), ..args(home.path()) };
        let mut said = Said::default();
        assert_eq!(run(&args, &mut said).await.unwrap(), ExitCode::FAILURE);
        let message = fs::read_to_string(home.path().join("message")).unwrap();
        let report = Report::parse(&message, "u").unwrap();
        assert_eq!(report.outcome, Outcome::Refused);
        assert!(report.message.contains("RESOURCE_NAME"), "{report:?}");
        assert!(said.0[0].contains("scale_deployment for home/x"));
    }

    #[tokio::test]
    async fn what_is_mounted_and_is_not_what_was_kept_is_told_without_quoting_it() {
        let home = tempfile::tempdir().unwrap();
        ordered(home.path());
        fs::create_dir_all(home.path().join("undo")).unwrap();
        fs::write(home.path().join("undo").join(kept::KEY), "\"obviously-fake-value\"").unwrap();
        let error = run(&args(home.path()), &mut Said::default()).await.unwrap_err();
        assert!(!format!("{error:#}").contains("obviously-fake-value"), "{error:#}");
    }
}
