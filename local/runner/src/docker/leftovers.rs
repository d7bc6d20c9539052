//! Whose containers are an engine's, and which did an earlier life of Pawl leave with it?
//!
//! Several Pawls may share an engine, and each removes only what is its own: every data directory has a number of its own,
//! which all its containers bear as a label.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::containers::Listed;
use super::{Engine, Error};

/// The kernel makes numbers that are nobody else's.
const RANDOM: &str = "/proc/sys/kernel/random/uuid";

/// What was there when this life began, by the pod's UID. What is made later is not among it.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(Mutex<BTreeMap<String, Vec<Listed>>>);

impl Leftovers {
    pub(crate) async fn of(engine: &Engine) -> Result<Self, Error> {
        let mut found: BTreeMap<String, Vec<Listed>> = BTreeMap::new();
        for listed in engine.containers().await? {
            found.entry(listed.pod_uid.clone()).or_default().push(listed);
        }
        Ok(Self(Mutex::new(found)))
    }

    /// A pod's containers; whoever asks takes care of them.
    pub(crate) fn take(&self, pod_uid: &str) -> Vec<Listed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(pod_uid).unwrap_or_default()
    }

    /// The containers of all pods that nobody will ask for.
    pub(crate) fn take_where(&self, nobody_asks: impl Fn(&str) -> bool) -> Vec<Listed> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let uids: Vec<String> = all.keys().filter(|uid| nobody_asks(uid)).cloned().collect();
        uids.iter().flat_map(|uid| all.remove(uid).unwrap_or_default()).collect()
    }
}

/// The number of a data directory, made when it is first asked for.
pub(crate) fn node_number(data_dir: &Path) -> io::Result<String> {
    let path = data_dir.join("engine-node");
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // A number that a crash cut off would make strangers of our own containers; it was never used.
        Ok(text) if text.trim().is_empty() => {}
        text => return text.map(|text| text.trim().to_owned()),
    }
    let number = fs::read_to_string(RANDOM)?.trim().to_owned();
    let draft = data_dir.join(".engine-node.new");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(number.as_bytes())?;
    file.sync_data()?;
    fs::rename(draft, path)?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_keeps_its_number_and_shares_it_with_none() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let number = node_number(one.path()).unwrap();
        assert_eq!(node_number(one.path()).unwrap(), number);
        assert_ne!(node_number(other.path()).unwrap(), number);
        assert!(!number.is_empty());
    }
}
