//! Log lines: for people on a terminal, for machines in a cluster. Always on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

/// How much is said, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct Choices {
    /// What to log: a level, or `target=level,…` [default: info; warn for `up`].
    #[arg(long, env = "PAWL_LOG")]
    log: Option<String>,
    /// How to write log lines.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    log_format: Format,
}

/// Starts logging.
///
/// # Errors
/// When the filter cannot be read.
pub fn start(choices: &Choices, default: &str) -> anyhow::Result<()> {
    let log = choices.log.as_deref().unwrap_or(default);
    let filter = EnvFilter::try_new(log).map_err(|error| {
        anyhow::anyhow!("--log {log:?}: {error}; use a level such as info, or target=level")
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match choices.log_format {
        Format::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        Format::Json => builder.json().init(),
    }
    Ok(())
}
