//! `pawl reconcile` and `pawl interrupt`: what a person asks of a tree, by the annotation that its machines look for.

use anyhow::{Context as _, bail};
use http::Request;
use pawl_api::deploy::{annotations, deploy_item, execution, installation, operations};
use pawl_machines::object::{Key, Object};
use pawl_machines::view::View;
use serde_json::{Value, json};

use crate::terminal::Say;
use crate::{cluster, tree};

/// More levels than any tree has.
const MAX_LEVELS: usize = 32;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Of what: inst/NAME, exec/NAME or di/NAME.
    #[arg(value_name = "KIND/NAME")]
    what: String,
    #[command(flatten)]
    scope: cluster::Scope,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Reconcile,
    Interrupt,
}

pub(crate) async fn run(args: &Args, operation: Operation, say: &mut dyn Say) -> anyhow::Result<()> {
    let (kind, name) = tree::parse(&args.what)?;
    let client = args.scope.client().await?;
    let found = tree::look(&client, &args.scope.namespace, &kind, name).await?;
    let told = allowed(&found.world, &found.object, operation)?;
    let word = match operation {
        Operation::Reconcile => operations::RECONCILE,
        Operation::Interrupt => operations::INTERRUPT,
    };
    let patch =
        json!({"metadata": {"uid": found.object.uid(), "annotations": {annotations::OPERATION: word}}});
    let request = Request::patch(kind.path(Some(&args.scope.namespace), Some(name)))
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(serde_json::to_vec(&patch)?)?;
    let answered: Result<Value, _> = client.request(request).await;
    answered.with_context(|| format!("annotate {} {name}", kind.kind))?;
    say.line(&told);
    Ok(())
}

/// What will come of it, or why it would come to nothing.
fn allowed(view: &dyn View, object: &Object, operation: Operation) -> anyhow::Result<String> {
    let (kind, name) = (object.kind().kind.as_ref(), object.name());
    let text = |field: &str| object.status().get(field).and_then(Value::as_str);
    let running = text("jobID").filter(|job| text("jobIDFinished") != Some(job));
    match operation {
        Operation::Reconcile => {
            if let Some((kind, root)) = root(view, object) {
                bail!("only the root of a tree starts jobs: say pawl reconcile {kind}/{root}");
            }
            Ok(match running {
                Some(job) => format!("{kind} {name}: the next job starts when {job} is finished"),
                None => format!("{kind} {name}: a job starts"),
            })
        }
        Operation::Interrupt => {
            let Some(job) = running else {
                bail!("{kind} {name}: no job runs, so there is nothing to interrupt")
            };
            if *object.kind() == deploy_item::KIND && object.controller().is_none() {
                bail!("{kind} {name}: it belongs to no Execution, and only those interrupt their items");
            }
            Ok(format!("{kind} {name}: job {job} is interrupted"))
        }
    }
}

/// The top of the tree that an object is in; `None` if it is that itself.
fn root(view: &dyn View, object: &Object) -> Option<(&'static str, String)> {
    let above = |object: &Object| {
        let owner = object.controller()?;
        let (kind, word) = [(installation::KIND, "inst"), (execution::KIND, "exec")]
            .into_iter()
            .find(|(kind, _)| kind.kind == owner.kind)?;
        let found = view.get(&kind, &Key::new(object.namespace(), &owner.name))?;
        Some((word, found))
    };
    let first = above(object);
    let last = std::iter::successors(first, |(_, object)| above(object)).take(MAX_LEVELS).last();
    last.map(|(word, object)| (word, object.name().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_machines::cache::World;

    fn object(kind: &str, name: &str, of: Option<(&str, &str)>, status: &Value) -> Value {
        let owners = of.map(|(kind, name)| {
            json!([{"apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": kind, "name": name,
                "uid": name, "controller": true}])
        });
        json!({"kind": kind, "metadata": {"name": name, "namespace": "n", "uid": name, "ownerReferences": owners},
            "status": status})
    }

    fn world() -> World {
        let runs = json!({"jobID": "j", "jobIDFinished": "i"});
        World::of([
            (installation::KIND, object("Installation", "root", None, &runs)),
            (installation::KIND, object("Installation", "sub", Some(("Installation", "root")), &json!({}))),
            (execution::KIND, object("Execution", "sub", Some(("Installation", "sub")), &runs)),
            (deploy_item::KIND, object("DeployItem", "item", Some(("Execution", "sub")), &json!({}))),
            (deploy_item::KIND, object("DeployItem", "alone", None, &runs)),
        ])
        .unwrap()
    }

    fn told(kind: &pawl_api::meta::Kind, name: &str, operation: Operation) -> String {
        let world = world();
        let object = world.get(kind, &Key::new(Some("n"), name)).unwrap();
        allowed(&world, &object, operation).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn a_job_is_asked_of_the_root() {
        let (inst, exec, item) = (installation::KIND, execution::KIND, deploy_item::KIND);
        let ask = |kind, name| told(kind, name, Operation::Reconcile);
        assert_eq!(ask(&inst, "root"), "Installation root: the next job starts when j is finished");
        let elsewhere = "only the root of a tree starts jobs: say pawl reconcile inst/root";
        assert_eq!(ask(&inst, "sub"), elsewhere);
        assert_eq!(ask(&exec, "sub"), elsewhere);
        assert_eq!(ask(&item, "item"), elsewhere);
    }

    #[test]
    fn only_what_runs_is_interrupted() {
        let (inst, exec, item) = (installation::KIND, execution::KIND, deploy_item::KIND);
        let ask = |kind, name| told(kind, name, Operation::Interrupt);
        assert_eq!(ask(&exec, "sub"), "Execution sub: job j is interrupted");
        assert_eq!(ask(&inst, "sub"), "Installation sub: no job runs, so there is nothing to interrupt");
        assert!(ask(&item, "alone").contains("belongs to no Execution"));
    }
}
