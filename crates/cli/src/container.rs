//! `pawl container`: what runs beside the image of a container item, in the same Pod.
//!
//! ```text
//! prepare   Secrets ─▶ shared directory: imports.json, target.json, state/, exports/
//! collect   waits until the image has ended (its sidecar is asked to stop) ─▶ exports and state into one Secret
//! ```

#![expect(clippy::indexing_slicing, reason = "the object whose keys are written here is made right here")]

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pawl_api::k8s::Secret;
use pawl_machines::deploy::container::out;
use pawl_machines::deploy::container::state::{self, Files, MAX_EXPORT_BYTES, MAX_FILES, MAX_STATE_BYTES};
use serde_json::{Value, json};

use crate::stop;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Put what the image expects where it expects it.
    Prepare(Prepare),
    /// Wait until the image has ended, then bring out what it left.
    Collect(Collect),
}

#[derive(Debug, clap::Args)]
struct Prepare {
    /// The directory that the containers share.
    #[arg(long)]
    shared: PathBuf,
    /// The Secret with what goes in, mounted.
    #[arg(long = "in")]
    input: PathBuf,
    /// The Secret with what came out last time, mounted.
    #[arg(long)]
    out: PathBuf,
    /// The Target's Secret, mounted; it need not be there.
    #[arg(long)]
    target: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Collect {
    /// The directory that the containers share.
    #[arg(long)]
    shared: PathBuf,
    #[arg(long)]
    namespace: String,
    /// The Secret that is written.
    #[arg(long)]
    secret: String,
    /// The job that this belongs to.
    #[arg(long)]
    job: String,
}

/// State that is larger than this before it is packed is not even read: packed it would not fit either, as a rule.
const MAX_READ_BYTES: u64 = 32 * 1024 * 1024;

pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    match &args.what {
        What::Prepare(args) => prepare(args),
        What::Collect(args) => {
            stop::requested()?.wait().await;
            collect(args).await
        }
    }
}

fn prepare(args: &Prepare) -> anyhow::Result<()> {
    let write = |name: &str, text: &[u8]| -> anyhow::Result<()> {
        let path = args.shared.join(name);
        if let Some(parent) = path.parent() {
            open_directory(&args.shared, parent)?;
        }
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        // Whoever the image runs as must be able to read and replace it; the directory is the Pod's own.
        set_mode(&path, 0o666)
    };
    let read = |directory: &Path, name: &str| match fs::read(directory.join(name)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", directory.join(name).display())),
    };
    write("imports.json", &read(&args.input, "imports.json")?.unwrap_or_else(|| b"null".to_vec()))?;
    if let Some(about) = read(&args.input, "target.json")? {
        let about: Value = serde_json::from_slice(&about).context("target.json is not JSON")?;
        let content = match read(&args.input, "content")? {
            Some(content) => Some(content),
            None => read(&args.target, "content")?,
        };
        let content = content.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        write("target.json", json!({"target": about, "content": content}).to_string().as_bytes())?;
    }
    open_directory(&args.shared, &args.shared.join("exports"))?;
    open_directory(&args.shared, &args.shared.join("state"))?;
    let kept = read(&args.out, out::STATE)?.unwrap_or_default();
    for (path, bytes) in state::unpack(&kept)? {
        write(&format!("state/{path}"), &bytes)?;
    }
    Ok(())
}

/// Makes a directory that every user of the Pod may write into.
fn open_directory(root: &Path, directory: &Path) -> anyhow::Result<()> {
    let made = |path: &Path| -> anyhow::Result<()> {
        match fs::create_dir(path) {
            Ok(()) => set_mode(path, 0o777),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error).with_context(|| format!("make {}", path.display())),
        }
    };
    let mut path = root.to_owned();
    for part in directory.strip_prefix(root).unwrap_or(directory).components() {
        path.push(part);
        made(&path)?;
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> anyhow::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("open {} to the image", path.display()))
}

async fn collect(args: &Collect) -> anyhow::Result<()> {
    let patch = brought_out(&args.shared, &args.job);
    let config = kube::Config::incluster().context("find the API server from inside the Pod")?;
    let client = kube::Client::try_from(config)?;
    let secrets: kube::Api<Secret> = kube::Api::namespaced(client, &args.namespace);
    let merge = kube::api::Patch::Merge(&patch);
    secrets
        .patch(&args.secret, &kube::api::PatchParams::default(), &merge)
        .await
        .with_context(|| format!("write Secret {}/{}", args.namespace, args.secret))?;
    Ok(())
}

/// The Secret's data. What cannot be kept is said instead, and what was kept before stays.
fn brought_out(shared: &Path, job: &str) -> Value {
    let encode = |bytes: &[u8]| Value::from(STANDARD.encode(bytes));
    let mut data = json!({out::JOB: encode(job.as_bytes()), out::ERROR: null});
    let mut problems = Vec::new();
    match exports(&shared.join("exports/values")) {
        Ok(exports) => data[out::EXPORTS] = exports.map_or(Value::Null, |bytes| encode(&bytes)),
        Err(problem) => problems.push(format!("{problem:#}")),
    }
    match files(&shared.join("state")).and_then(|files| Ok(state::pack(&files)?)) {
        Ok(packed) => data[out::STATE] = encode(&packed),
        Err(problem) => problems.push(format!("{problem:#}")),
    }
    if !problems.is_empty() {
        data[out::ERROR] = encode(problems.join("; ").as_bytes());
    }
    json!({"data": data})
}

fn exports(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(length) = regular(path)? else { return Ok(None) };
    if length > MAX_EXPORT_BYTES as u64 {
        anyhow::bail!("the exports have {length} bytes; at most {MAX_EXPORT_BYTES} are kept");
    }
    Ok(Some(bounded(path, MAX_EXPORT_BYTES as u64)?))
}

/// The size of a file that is one, and nothing that leads elsewhere.
fn regular(path: &Path) -> anyhow::Result<Option<u64>> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_file() => Ok(Some(about.len())),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

fn bounded(path: &Path, limit: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).with_context(|| format!("read {}", path.display()))?;
    file.take(limit).read_to_end(&mut bytes).with_context(|| format!("read {}", path.display()))?;
    Ok(bytes)
}

/// Every plain file below a directory; links are not followed, as the image could lead them anywhere.
fn files(root: &Path) -> anyhow::Result<Files> {
    let (mut files, mut directories, mut left) = (Files::new(), vec![root.to_owned()], MAX_READ_BYTES);
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("read {}", directory.display())),
        };
        for entry in entries {
            let path = entry?.path();
            let about = fs::symlink_metadata(&path)?;
            if about.is_dir() {
                directories.push(path);
                continue;
            }
            if !about.is_file() {
                continue;
            }
            left = left.checked_sub(about.len()).with_context(|| {
                format!("the state is too large; at most {MAX_STATE_BYTES} bytes are kept when packed")
            })?;
            if files.len() >= MAX_FILES {
                anyhow::bail!("the state has too many files; at most {MAX_FILES} are kept");
            }
            let name =
                path.strip_prefix(root)?.to_str().context("the state has a file whose name is no text")?;
            files.insert(name.to_owned(), bounded(&path, about.len())?);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, Prepare) {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = home.path().join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let args = Prepare { shared: at("shared"), input: at("in"), out: at("out"), target: at("target") };
        (home, args)
    }

    fn decoded(patch: &Value, key: &str) -> Vec<u8> {
        STANDARD.decode(patch["data"][key].as_str().unwrap()).unwrap()
    }

    #[test]
    fn what_goes_in_and_what_comes_out_meet_in_the_shared_directory() {
        let (_home, args) = place();
        fs::write(args.input.join("imports.json"), r#"{"a":1}"#).unwrap();
        fs::write(args.input.join("target.json"), r#"{"metadata":{"name":"t"}}"#).unwrap();
        fs::write(args.target.join("content"), "a kubeconfig").unwrap();
        prepare(&args).unwrap();
        assert_eq!(fs::read_to_string(args.shared.join("imports.json")).unwrap(), r#"{"a":1}"#);
        let target: Value =
            serde_json::from_slice(&fs::read(args.shared.join("target.json")).unwrap()).unwrap();
        assert_eq!(target, json!({"target": {"metadata": {"name": "t"}}, "content": "a kubeconfig"}));

        fs::write(args.shared.join("exports/values"), "url: x").unwrap();
        fs::create_dir(args.shared.join("state/deep")).unwrap();
        fs::write(args.shared.join("state/deep/file"), [0, 255]).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", args.shared.join("state/link")).unwrap();
        let patch = brought_out(&args.shared, "job");
        assert_eq!(
            (decoded(&patch, out::JOB), decoded(&patch, out::EXPORTS)),
            (b"job".to_vec(), b"url: x".to_vec())
        );
        assert!(patch["data"][out::ERROR].is_null());

        let (_home, next) = place();
        fs::write(next.out.join(out::STATE), decoded(&patch, out::STATE)).unwrap();
        prepare(&next).unwrap();
        assert_eq!(fs::read(next.shared.join("state/deep/file")).unwrap(), [0, 255]);
        assert!(!next.shared.join("state/link").exists(), "a link is not followed");
    }

    #[test]
    fn what_is_too_large_is_said_and_what_was_kept_before_stays() {
        let (_home, args) = place();
        prepare(&args).unwrap();
        fs::write(args.shared.join("exports/values"), vec![b'x'; MAX_EXPORT_BYTES + 1]).unwrap();
        let patch = brought_out(&args.shared, "job");
        assert!(patch["data"].get(out::EXPORTS).is_none());
        assert!(String::from_utf8(decoded(&patch, out::ERROR)).unwrap().contains("at most"));
    }
}
