//! `pawl tree`: the objects below an Installation, an Execution or a DeployItem, and what each of them waits for.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use http::Request;
use pawl_api::deploy::{deploy_item, execution, installation, target};
use pawl_api::meta::Kind;
use pawl_machines::cache::World;
use pawl_machines::deploy::tree;
use pawl_machines::object::{Key, Object};
use pawl_machines::view::View as _;
use serde_json::Value;

use crate::cluster;
use crate::terminal::{Say, printable};

/// Objects per page of a list: small enough that a page of full-sized Executions is a few hundred megabytes at worst.
const PAGE: u32 = 250;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Whose tree: inst/NAME, exec/NAME or di/NAME.
    #[arg(value_name = "KIND/NAME")]
    what: String,
    /// As a drawing, or as JSON for other programs.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    scope: cluster::Scope,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

/// An object of the deploy door, among all of them in its namespace.
pub(crate) struct Found {
    pub(crate) object: Arc<Object>,
    pub(crate) world: World,
}

pub(crate) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let (kind, name) = parse(&args.what)?;
    let client = args.scope.client().await?;
    let found = look(&client, &args.scope.namespace, &kind, name).await?;
    let node = tree::of(&found.world, &found.object);
    match args.output {
        Output::Text => tree::draw(&node).lines().for_each(|line| say.line(&printable(line))),
        Output::Json => say.line(&serde_json::to_string_pretty(&node)?),
    }
    Ok(())
}

/// `inst/NAME`, as a kind and a name.
///
/// # Errors
/// When it is none of this door's kinds.
pub(crate) fn parse(what: &str) -> anyhow::Result<(Kind, &str)> {
    let Some((word, name)) = what.split_once('/') else {
        bail!("{what}: say KIND/NAME, as inst/shop, exec/shop or di/shop-db");
    };
    let Some(kind) = kind_of(word) else { bail!("{word}: not of the deploy door; say inst, exec or di") };
    if name.is_empty() {
        bail!("{what}: say which {}", kind.kind);
    }
    Ok((kind, name))
}

/// The kind that a person means.
pub(crate) fn kind_of(word: &str) -> Option<Kind> {
    match word.to_ascii_lowercase().as_str() {
        "inst" | "installation" | "installations" => Some(installation::KIND),
        "exec" | "execution" | "executions" => Some(execution::KIND),
        "di" | "deployitem" | "deployitems" => Some(deploy_item::KIND),
        _ => None,
    }
}

/// Looks at everything of this door in a namespace.
///
/// # Errors
/// When the cluster does not answer, or the object is not there.
pub(crate) async fn look(
    client: &kube::Client,
    namespace: &str,
    kind: &Kind,
    name: &str,
) -> anyhow::Result<Found> {
    let mut world = World::default();
    for kind in [installation::KIND, execution::KIND, deploy_item::KIND, target::KIND] {
        world.cache(&kind);
        let mut token = String::new();
        loop {
            let page = format!("{}?limit={PAGE}&continue={token}", kind.path(Some(namespace), None));
            let list = get(client, &page).await.with_context(|| format!("list {}", kind.plural))?;
            let items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
            for item in items {
                world.put(Object::new(kind.clone(), item)?);
            }
            match list.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(next) if !next.is_empty() => next.clone_into(&mut token),
                _ => break,
            }
        }
    }
    let object = world
        .get(kind, &Key::new(Some(namespace), name))
        .with_context(|| format!("{} {name}: not found in namespace {namespace}", kind.kind))?;
    Ok(Found { object, world })
}

async fn get(client: &kube::Client, path: &str) -> anyhow::Result<Value> {
    Ok(client.request(Request::get(path).body(Vec::new())?).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_their_short_and_long_names() {
        for (what, kind) in [
            ("inst/a", "Installation"),
            ("Installation/a", "Installation"),
            ("exec/a", "Execution"),
            ("di/a", "DeployItem"),
            ("deployitems/a", "DeployItem"),
        ] {
            let (found, name) = parse(what).unwrap();
            assert_eq!((found.kind.as_ref(), name), (kind, "a"));
        }
    }

    #[test]
    fn what_is_not_understood_is_told_with_what_would_be() {
        for (what, told) in [
            ("shop", "shop: say KIND/NAME, as inst/shop, exec/shop or di/shop-db"),
            ("pod/a", "pod: not of the deploy door; say inst, exec or di"),
            ("inst/", "inst/: say which Installation"),
        ] {
            assert_eq!(parse(what).unwrap_err().to_string(), told);
        }
    }
}
