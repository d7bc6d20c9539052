//! `pawl crds`: all CustomResourceDefinitions, ready for `kubectl apply -f -`.

use serde::Serialize;

use crate::terminal::Say;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How to write them.
    #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
    output: Output,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Output {
    Yaml,
    Json,
}

pub(crate) fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let crds = pawl_api::crds::all();
    match args.output {
        Output::Yaml => {
            crds.iter().try_for_each(|crd| document(crd, say))?;
        }
        Output::Json => {
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": crds});
            say.line(&serde_json::to_string_pretty(&list)?);
        }
    }
    Ok(())
}

/// One manifest of several, for `kubectl apply -f -`.
pub(crate) fn document(manifest: &impl Serialize, say: &mut dyn Say) -> anyhow::Result<()> {
    say.line(&format!("---\n{}", yaml(manifest)?.trim_end()));
    Ok(())
}

/// A manifest as YAML that every parser reads alike.
pub(crate) fn yaml(manifest: &impl Serialize) -> anyhow::Result<String> {
    // Through JSON, so that what is absent there is absent here.
    Ok(serde_saphyr::to_string(&serde_json::to_value(manifest)?)?)
}
