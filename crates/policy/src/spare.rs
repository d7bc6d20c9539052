//! Interpreters that were made for one evaluation and serve the next: making one costs more than most evaluations.

use std::sync::{Mutex, PoisonError};

/// As many as run at a time.
const MAX_SPARE: usize = 16;

#[derive(Debug)]
pub(crate) struct Spare<T>(Mutex<Vec<T>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Spare<T> {
    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(crate) fn give_back(&self, one: T) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MAX_SPARE {
            spare.push(one);
        }
    }
}
