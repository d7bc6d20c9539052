//! A file system that keeps what was synced, and of the rest whatever it likes.
//!
//! ```text
//! written ──sync──▶ safe
//!    └─power fails─▶ any part of it, in any order, cut anywhere        (names: in the order they were given)
//! ```
//! Each call counts; the one that a [`Trouble`] names fails, and with [`Kind::Dead`] so does every one after it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::disk::{Disk, Handle};

/// How much of a write reaches a disk at once.
const SECTOR: usize = 64;

/// What still fits on a disk that runs full: less than a frame.
const LEFT: usize = 20;

/// What goes wrong, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trouble {
    /// At which call, from 0.
    pub(super) at: usize,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// This call fails.
    Io,
    /// From this call on only [`LEFT`] bytes more fit.
    Full,
    /// The machine stops: this call and all later ones do nothing.
    Dead,
}

/// One directory. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default, Clone)]
struct State {
    nodes: Vec<Node>,
    /// What a reader sees.
    names: BTreeMap<OsString, usize>,
    /// What is safe.
    safe_names: BTreeMap<OsString, usize>,
    /// What was done to names since.
    naming: Vec<Naming>,
    calls: usize,
    trouble: Option<Trouble>,
    /// How many bytes more fit, where there is an end to it.
    room: Option<usize>,
    dead: bool,
}

/// A file, by whatever name.
#[derive(Debug, Default, Clone)]
struct Node {
    bytes: Vec<u8>,
    safe: Vec<u8>,
    /// What was done since.
    doing: Vec<Doing>,
}

#[derive(Debug, Clone)]
enum Doing {
    Write { at: usize, bytes: Vec<u8> },
    Cut(usize),
}

#[derive(Debug, Clone)]
enum Naming {
    Give(OsString, usize),
    Take(OsString),
}

impl Model {
    pub(super) fn with(trouble: Trouble) -> Self {
        let model = Self::default();
        model.state().trouble = Some(trouble);
        model
    }

    /// How often it was asked for something that can fail.
    pub(super) fn calls(&self) -> usize {
        self.state().calls
    }

    /// The same machine after its process died: nothing is lost yet, and nothing became safe.
    pub(super) fn after_a_kill(&self) -> Self {
        let state = self.state().clone();
        let state = State { trouble: None, dead: false, room: None, calls: 0, ..state };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The same machine after its power failed: what was synced, and whatever else `rng` lets reach the disk.
    pub(super) fn after_a_power_cut(&self, rng: &mut fastrand::Rng) -> Self {
        let state = self.state().clone();
        let nodes: Vec<Node> = state.nodes.iter().map(|node| node.survives(rng)).collect();
        let mut names = state.safe_names.clone();
        let kept = rng.usize(0..=state.naming.len());
        for naming in state.naming.iter().take(kept) {
            naming.apply(&mut names);
        }
        let state = State { nodes, safe_names: names.clone(), names, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something that may fail, unless it shall.
    fn call<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state();
        let at = state.calls;
        state.calls += 1;
        if state.dead {
            return Err(io::Error::other("the machine is off"));
        }
        match state.trouble.filter(|trouble| trouble.at == at).map(|trouble| trouble.kind) {
            None => act(&mut state),
            Some(Kind::Io) => Err(io::Error::from_raw_os_error(5)),
            Some(Kind::Full) => {
                state.room = Some(LEFT);
                act(&mut state)
            }
            Some(Kind::Dead) => {
                state.dead = true;
                Err(io::Error::other("the machine is off"))
            }
        }
    }
}

impl Node {
    fn survives(&self, rng: &mut fastrand::Rng) -> Self {
        let mut bytes = self.safe.clone();
        let mut pieces: Vec<Doing> = self.doing.iter().flat_map(Doing::pieces).collect();
        // Cuts are metadata, and in order with what was before them; data goes as it likes.
        if !pieces.iter().any(|piece| matches!(piece, Doing::Cut(_))) {
            rng.shuffle(&mut pieces);
        }
        let kept = rng.usize(0..=pieces.len());
        for piece in pieces.into_iter().take(kept) {
            piece.apply(&mut bytes);
        }
        Self { safe: bytes.clone(), bytes, doing: Vec::new() }
    }

    fn act(&mut self, doing: Doing) {
        doing.clone().apply(&mut self.bytes);
        self.doing.push(doing);
    }
}

impl Doing {
    fn pieces(&self) -> Vec<Self> {
        match self {
            Self::Write { at, bytes } => bytes
                .chunks(SECTOR)
                .enumerate()
                .map(|(piece, bytes)| Self::Write { at: at + piece * SECTOR, bytes: bytes.to_vec() })
                .collect(),
            Self::Cut(len) => vec![Self::Cut(*len)],
        }
    }

    fn apply(self, to: &mut Vec<u8>) {
        match self {
            Self::Write { at, bytes } => {
                to.resize(to.len().max(at + bytes.len()), 0);
                to[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            Self::Cut(len) => to.truncate(len),
        }
    }
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<OsString, usize>) {
        match self {
            Self::Give(name, node) => drop(names.insert(name.clone(), *node)),
            Self::Take(name) => drop(names.remove(name)),
        }
    }
}

impl State {
    fn name(&mut self, naming: Naming) {
        naming.apply(&mut self.names);
        self.naming.push(naming);
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names.get(&file_name(path)).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

fn file_name(path: &Path) -> OsString {
    path.file_name().unwrap_or_default().to_owned()
}

impl Disk for Model {
    fn make_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.call(|state| Ok(state.names.keys().map(|name| dir.join(name)).collect()))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.call(|state| Ok(state.nodes[state.find(path)?].bytes.clone()))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Handle>> {
        let node = self.call(|state| {
            match state.find(path) {
                Ok(node) => state.nodes[node].act(Doing::Cut(0)),
                Err(_) => {
                    state.nodes.push(Node::default());
                    let node = state.nodes.len() - 1;
                    state.name(Naming::Give(file_name(path), node));
                }
            }
            state.find(path)
        })?;
        Ok(Box::new(Open { disk: self.clone(), node, at: 0 }))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Handle>> {
        let (node, at) = self.call(|state| {
            let node = state.find(path)?;
            Ok((node, state.nodes[node].bytes.len()))
        })?;
        Ok(Box::new(Open { disk: self.clone(), node, at }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|state| {
            let node = state.find(from)?;
            // Both or neither, as file systems promise.
            state.name(Naming::Give(file_name(to), node));
            state.name(Naming::Take(file_name(from)));
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            state.find(path)?;
            state.name(Naming::Take(file_name(path)));
            Ok(())
        })
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.call(|state| {
            state.safe_names = state.names.clone();
            state.naming.clear();
            Ok(())
        })
    }

    fn lock(&self, _: &Path) -> io::Result<Option<Box<dyn fmt::Debug + Send + Sync>>> {
        Ok(Some(Box::new(())))
    }

    /// At once: so the order of calls is the same in every run.
    fn beside(&self, _: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<Option<JoinHandle<()>>> {
        work();
        Ok(None)
    }
}

/// A file of it that is being written.
#[derive(Debug)]
struct Open {
    disk: Model,
    node: usize,
    /// Where the next write goes.
    at: usize,
}

impl Open {
    /// Writes what fits. What goes over bytes that are there needs no room.
    fn put(&self, at: usize, bytes: &[u8]) -> io::Result<usize> {
        self.disk.call(|state| {
            let node = &mut state.nodes[self.node];
            let over = node.bytes.len().saturating_sub(at).min(bytes.len());
            let more = bytes.len() - over;
            let fits = state.room.map_or(more, |room| room.min(more));
            if !bytes.is_empty() && over + fits == 0 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            state.room = state.room.map(|room| room - fits);
            node.act(Doing::Write { at, bytes: bytes[..over + fits].to_vec() });
            Ok(over + fits)
        })
    }
}

impl Write for Open {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.put(self.at, bytes)?;
        self.at += written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Handle for Open {
    fn sync(&self) -> io::Result<()> {
        let synced = self.disk.call(|state| {
            let node = &mut state.nodes[self.node];
            for doing in std::mem::take(&mut node.doing) {
                doing.apply(&mut node.safe);
            }
            Ok(())
        });
        // After a sync that failed, Linux takes the pages for clean: they are seen, and never written.
        let mut state = self.disk.state();
        if synced.is_err() && !state.dead {
            state.nodes[self.node].doing.clear();
        }
        synced
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        self.disk.call(|state| {
            state.nodes[self.node].act(Doing::Cut(usize::try_from(len).unwrap_or(usize::MAX)));
            Ok(())
        })
    }

    fn make_room(&mut self, len: u64) -> io::Result<()> {
        let zeros = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        let filled = self.put(self.at, &zeros)?;
        if filled == zeros.len() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::StorageFull)) }
    }
}
