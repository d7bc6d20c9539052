//! How is an event encoded once for all who watch?

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::ChangeType;

/// An event's watch lines, encoded by whichever watcher needs one first and shared by all others while it is
/// news. Later they would be a second copy of everything the log holds.
#[derive(Debug, Default)]
pub(crate) struct Frames(Mutex<Encoded>);

#[derive(Debug)]
enum Encoded {
    News(Vec<(FrameKind, Bytes)>),
    Old,
}

/// What distinguishes one line of an event from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameKind {
    pub(crate) change: ChangeType,
    /// The metadata instead of the whole object.
    pub(crate) metadata: bool,
}

impl Default for Encoded {
    fn default() -> Self {
        Encoded::News(Vec::new())
    }
}

impl Frames {
    /// The line of this kind, made if nobody needed it yet.
    pub(crate) fn get(&self, kind: FrameKind, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut encoded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Encoded::News(known) = &mut *encoded else {
            drop(encoded);
            return make();
        };
        if let Some((_, line)) = known.iter().find(|(known, _)| *known == kind) {
            return line.clone();
        }
        // Made under the lock: a hundred watchers wake at once, and one of them does the work.
        let line = make();
        known.push((kind, line.clone()));
        line
    }

    /// It is no news any more.
    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Encoded::Old;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_made_once_while_it_is_news_and_not_kept_afterwards() {
        let (frames, mut made) = (Frames::default(), 0);
        let whole = FrameKind { change: ChangeType::Added, metadata: false };
        let metadata = FrameKind { metadata: true, ..whole };
        let mut get = |kind, text: &'static str| {
            frames.get(kind, || {
                made += 1;
                Bytes::from_static(text.as_bytes())
            })
        };
        assert_eq!(
            (get(whole, "a"), get(metadata, "b"), get(whole, "c")),
            ("a".into(), "b".into(), "a".into())
        );
        frames.forget();
        assert_eq!((get(whole, "d"), get(whole, "e")), ("d".into(), "e".into()));
        assert_eq!(made, 4);
    }
}
