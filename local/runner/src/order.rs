//! What passes from one container to the next where they run in order?
//!
//! Volumes are written by containers, which may have left a link or a pipe where a file is expected: nothing here
//! follows the one or waits for the other, and no name leads out of the volume.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use pawl_api::meta::names;
use pawl_api::pawl::in_order::{ANNOTATION, InOrder, Report, Reported};

use crate::worker::MAX_MESSAGE_BYTES;

/// Why a report cannot be given.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Tekton's own words: whoever wrote the task knows them.
    #[error(
        "Termination message is above max allowed size {MAX_MESSAGE_BYTES}, caused by large task result."
    )]
    TooLarge,
    #[error("file {0} of the report is not a plain file")]
    NoFile(String),
    #[error("file {0} of the report is not UTF-8")]
    NotText(String),
    #[error("reading file {name} of the report: {source}")]
    Io { name: String, source: io::Error },
}

/// What a pod asks for. Only a pod whose containers run once can run them in order.
pub(crate) fn of(pod: &Pod) -> Option<InOrder> {
    let annotation = pod.metadata.annotations.as_ref()?.get(ANNOTATION)?;
    let once = pod.spec.as_ref()?.restart_policy.as_deref() == Some("Never");
    InOrder::read(annotation).filter(|_| once)
}

/// The files that are there, as one message; `masked` takes out what nobody may see (I6).
pub(crate) fn report(
    volumes: &Path,
    report: &Report,
    masked: &dyn Fn(String) -> String,
) -> Result<Option<String>, Error> {
    let Some(volume) = directory(volumes, &report.volume) else { return Ok(None) };
    let mut found = Vec::new();
    for name in report.files.iter().filter(|name| is_plain(name)) {
        if let Some(value) = read(&volume, name)? {
            found.push(Reported { key: name.clone(), value: masked(value), type_: Reported::RESULT });
        }
    }
    if found.is_empty() {
        return Ok(None);
    }
    let message = serde_json::to_string(&found)
        .map_err(|error| Error::Io { name: String::new(), source: error.into() })?;
    if message.len() > MAX_MESSAGE_BYTES { Err(Error::TooLarge) } else { Ok(Some(message)) }
}

/// Writes `<container>/exitCode` into the volume that is there for it.
pub(crate) fn leave_exit_code(volumes: &Path, order: &InOrder, container: &str, code: u8) -> io::Result<()> {
    let Some(volume) = order.exit_codes.as_deref().and_then(|name| directory(volumes, name)) else {
        return Ok(());
    };
    match mkdirat(&volume, container, Mode::from_bits_truncate(0o755)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let own = openat(&volume, container, FOLDER, Mode::empty())?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | SAFE;
    let file = openat(&own, "exitCode", flags, Mode::from_bits_truncate(0o644))?;
    File::from(file).write_all(code.to_string().as_bytes())
}

/// Follows no link, waits for nobody, and is nobody else's.
const SAFE: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK).union(OFlag::O_CLOEXEC);
const FOLDER: OFlag = OFlag::O_DIRECTORY.union(SAFE);

/// A volume of the pod that lies in its own directory.
fn directory(volumes: &Path, name: &str) -> Option<OwnedFd> {
    names::is_label(name).then(|| open(&volumes.join(name), FOLDER, Mode::empty()).ok())?
}

fn read(volume: &OwnedFd, name: &str) -> Result<Option<String>, Error> {
    let failed = |source: io::Error| Error::Io { name: name.to_owned(), source };
    let file = match openat(volume, name, OFlag::O_RDONLY | SAFE, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::ENOENT) => return Ok(None),
        Err(Errno::ELOOP) => return Err(Error::NoFile(name.to_owned())),
        Err(error) => return Err(failed(error.into())),
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Error::NoFile(name.to_owned()));
    }
    let mut bytes = Vec::new();
    // One byte more than can be told shows that it is too much.
    let limit = u64::try_from(MAX_MESSAGE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(Error::TooLarge);
    }
    String::from_utf8(bytes).map(Some).map_err(|_| Error::NotText(name.to_owned()))
}

/// One name, not a way.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn reported(volumes: &Path, files: &[&str]) -> Result<Option<String>, Error> {
        let files = files.iter().map(|&name| name.to_owned()).collect();
        report(volumes, &Report { volume: "results".to_owned(), files }, &|text| text.replace("hush", "***"))
    }

    #[test]
    fn what_is_there_is_told_and_what_is_not_is_left_out() {
        let volumes = tempfile::tempdir().unwrap();
        fs::create_dir(volumes.path().join("results")).unwrap();
        assert_eq!(reported(volumes.path(), &["a"]).unwrap(), None);
        fs::write(volumes.path().join("results/a"), "one hush\n").unwrap();
        let told = reported(volumes.path(), &["a", "b"]).unwrap().unwrap();
        assert_eq!(told, r#"[{"key":"a","value":"one ***\n","type":1}]"#);
    }

    #[test]
    fn what_is_too_large_or_no_text_is_no_report() {
        let volumes = tempfile::tempdir().unwrap();
        fs::create_dir(volumes.path().join("results")).unwrap();
        fs::write(volumes.path().join("results/big"), "x".repeat(MAX_MESSAGE_BYTES)).unwrap();
        assert!(matches!(reported(volumes.path(), &["big"]), Err(Error::TooLarge)));
        fs::write(volumes.path().join("results/huge"), "x".repeat(1 << 20)).unwrap();
        assert!(matches!(reported(volumes.path(), &["huge"]), Err(Error::TooLarge)));
        fs::write(volumes.path().join("results/bytes"), [0xff]).unwrap();
        assert!(matches!(reported(volumes.path(), &["bytes"]), Err(Error::NotText(_))));
    }

    #[test]
    fn no_link_pipe_or_name_leads_out_of_the_volume() {
        let volumes = tempfile::tempdir().unwrap();
        let (inside, outside) = (volumes.path().join("results"), volumes.path().join("outside"));
        fs::create_dir(&inside).unwrap();
        fs::write(&outside, "not-a-real-secret").unwrap();
        symlink(&outside, inside.join("link")).unwrap();
        nix::unistd::mkfifo(&inside.join("pipe"), Mode::from_bits_truncate(0o644)).unwrap();
        fs::create_dir(inside.join("folder")).unwrap();
        for name in ["link", "pipe", "folder"] {
            assert!(matches!(reported(volumes.path(), &[name]), Err(Error::NoFile(_))), "{name}");
        }
        assert_eq!(reported(volumes.path(), &["../outside", "..", "", "."]).unwrap(), None);
        symlink(volumes.path(), inside.join("main")).unwrap();
        let order = InOrder { exit_codes: Some("results".to_owned()), ..InOrder::default() };
        assert!(leave_exit_code(volumes.path(), &order, "main", 3).is_err());
        assert!(!volumes.path().join("exitCode").exists());
        let elsewhere = InOrder { exit_codes: Some("../x".to_owned()), ..InOrder::default() };
        leave_exit_code(volumes.path(), &elsewhere, "main", 3).unwrap();
        leave_exit_code(volumes.path(), &order, "step-a", 3).unwrap();
        assert_eq!(fs::read_to_string(inside.join("step-a/exitCode")).unwrap(), "3");
    }
}
